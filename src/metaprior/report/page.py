"""Self-contained HTML pages, from result folders alone."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metaprior.errors import DataError
from metaprior.output import write_whole
from metaprior.report.cells import BETTER, WORSE, Cell, Grid, make_grids
from metaprior.report.chapters import COMPARISON, Chapter
from metaprior.report.figures.model import CAPTIONS
from metaprior.report.html import Html, tag
from metaprior.report.methods import references
from metaprior.report.results import LIVE
from metaprior.report.style import STYLE

Found = dict[str, Any]
"""A result file's content."""

MARKS = {BETTER: ("better", "better than the paper"), WORSE: ("worse", "worse than the paper")}


def write_comparison(folder: Path, path: Path) -> None:
    """A page about a comparison on the user's own tasks, from its result folder."""
    told = section(folder, COMPARISON, "experiment-1", live_link(folder, path))
    body = tag("main", tag("h1", "Which prior suits these tasks?"), told)
    write_html(path, COMPARISON.title, body)


def live_link(folder: Path, path: Path) -> Html:
    """Where the page lies on which a prior can be tried, if there is one. path: of the page that says so."""
    if not (folder / LIVE).exists():
        return Html("")
    where = Path(os.path.relpath(folder / LIVE, path.parent)).as_posix()
    return tag("p", tag("a", "Try a prior yourself", href=where), ": click, and see what it makes of your points.")


def is_model_page(path: Path) -> bool:
    """Whether a file is a page that `write_model_page` has written."""
    with path.open("rb") as file:
        return b"<title>The model " in file.read(400)


def write_model_page(title: str, facts: dict[str, Any], figures: dict[str, Path], path: Path) -> None:
    """A page about one model: what is in its file, and pictures of it."""
    text = model_page(title, facts, {name: picture.read_bytes() for name, picture in figures.items()})
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def model_page(title: str, facts: dict[str, Any], figures: Mapping[str, bytes]) -> str:
    """The same as text, from pictures that are in memory (PNG)."""
    pictures = [_figure(content, CAPTIONS.get(name, name)) for name, content in figures.items()]
    return html_page(title, tag("main", tag("h1", title), _entries(facts), *pictures))


def write_html(path: Path, title: str, body: Html) -> None:
    """A page that needs no other file and no network."""
    text = html_page(title, body)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def html_page(title: str, body: Html) -> str:
    """The whole of a page, in our style."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def read_found(folder: Path) -> Found:
    """What a result folder holds, but for its curves."""
    try:
        found: Found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} does not hold an experiment's results: {error}") from None
    return found


def section(folder: Path, chapter: Chapter, anchor: str, told: Html | None = None) -> Html:
    """A result folder's words, tables, figures, times and settings. told: what goes before the tables."""
    found = read_found(folder)
    parts = [tag("h2", chapter.title, id=anchor)]
    if chapter.description:
        parts.append(tag("p", chapter.description))
    if verdict := found["settings"].get("verdict"):
        parts.append(tag("p", tag("strong", verdict)))
    parts.append(tag("p", _facts(found), class_="facts"))
    if notes := found["settings"].get("notes"):
        parts.append(tag("ul", *(tag("li", note) for note in notes), class_="notes"))
    parts += [told or Html(""), *_tables(found, chapter.all_tables)]
    for path in _pictures(chapter, folder):
        parts.append(
            _figure(
                path.read_bytes(), chapter.pictures[path.stem].caption if path.stem in chapter.pictures else path.stem
            )
        )
    for title, what in (("Seconds by method", "seconds"), ("Settings", "settings"), ("Versions", "versions")):
        parts.append(_details(title, _entries(found[what])))
    return tag("section", *parts)


def _facts(found: Found) -> str:
    """Size, seed and what it took, in a line."""
    settings, memory = found["settings"], found["peak_memory_mb"]
    facts = []
    if "quick" in settings:
        facts.append("A quick, small version" if settings["quick"] else "The full experiment")
    facts += [f"seed {settings['seed']}"] if "seed" in settings else []
    facts += [f"optimizer {settings['optimizer']}"] if "optimizer" in settings else []
    facts.append(f"{sum(found['seconds'].values()):,.0f} seconds")
    facts += [f"{memory:,.0f} MB of memory"] if memory else []
    return ", ".join(facts) + "."


def _tables(found: Found, all_tables: bool) -> list[Html]:
    """The metrics that were published, and the others to unfold; where none were, everything to unfold, or nothing."""
    grids = make_grids(found["rows"])
    others = [_table(grid) for grid in grids if not grid.published]
    shown = [_table(grid) for grid in grids if grid.published]
    if all_tables:
        return [*shown, *others]
    title = "Other metrics, which the paper does not have" if shown else "All figures"
    return [*shown, _details(title, *others)] if others else shown


def _table(grid: Grid) -> Html:
    span, scope = ("2", "colgroup") if grid.published else ("1", "col")
    settings = [tag("th", name, scope=scope, colspan=span) for name in grid.settings]
    head = [tag("tr", tag("th", "method", scope="col", rowspan=span), *settings)]
    if grid.published:
        both = tag("th", "ours", scope="col") + tag("th", "paper", scope="col", class_="paper")
        head.append(tag("tr", Html(both * len(grid.settings))))
    body = [_line(method, line, grid.published) for method, line in grid.lines.items()]
    style = "pairs" if grid.published else "single"
    caption = tag("caption", tag("span", grid.title))
    table = tag("table", caption, tag("thead", *head), tag("tbody", *body), class_=style)
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=grid.title)


def _line(method: str, line: list[tuple[Cell, Cell]], published: bool) -> Html:
    cells = [tag("th", method, scope="row")]
    for ours, paper in line:
        text = tag("strong", ours.text) if ours.best else ours.text
        cells.append(tag("td", *([mark_sign(ours.mark), " "] if ours.mark else []), text))
        if published:
            cells.append(tag("td", paper.text, class_="paper"))
    return tag("tr", *cells, **({"class_": "reference"} if method in references() else {}))


def mark_sign(mark: str) -> Html:
    """▲ or ▼ with its meaning."""
    style, meaning = MARKS[mark]
    return tag("span", mark, class_=style, role="img", aria_label=meaning, title=meaning)


def _pictures(chapter: Chapter, folder: Path) -> list[Path]:
    """The folder's figures, those known in their own order and then any others."""
    place = {name: k for k, name in enumerate(chapter.pictures)}
    return sorted(folder.glob("*.png"), key=lambda path: (place.get(path.stem, len(place)), path.stem))


def _figure(content: bytes, caption: str) -> Html:
    source = "data:image/png;base64," + base64.b64encode(content).decode("ascii")
    image = tag("img", src=source, alt=caption.split(". ")[0].rstrip(".") + ".")
    return tag("figure", image, tag("figcaption", caption))


def _details(summary: str, *children: str) -> Html:
    return tag("details", tag("summary", summary), *children)


def _entries(values: dict[str, Any]) -> Html:
    """Names and values; values that have names themselves are tables within."""
    lines = [tag("tr", tag("th", str(name), scope="row"), tag("td", _value(value))) for name, value in values.items()]
    return tag("div", tag("table", tag("tbody", *lines), class_="entries"), class_="scroll", tabindex="0")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return _entries(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)
