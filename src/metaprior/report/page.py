"""One self-contained HTML page about one or several experiments, from their result folders alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaprior.errors import DataError
from metaprior.output import write_whole
from metaprior.report.cells import BETTER, WORSE, Cell, Grid, make_grids
from metaprior.report.figures import FIGURES
from metaprior.report.html import Html, join, tag
from metaprior.report.methods import REFERENCES
from metaprior.report.style import STYLE
from metaprior.report.words import CAPTIONS, DESCRIPTIONS, PAPER, TITLES

HEADING = "The experiments of the paper, run again"

Found = dict[str, Any]
"""A result file's content."""

SIGNS = {True: ("✓", "yes", "holds"), False: ("✗", "no", "does not hold"), None: ("–", "open", "not in its table")}
MARKS = {BETTER: ("better", "better than the paper"), WORSE: ("worse", "worse than the paper")}


def write_page(folders: Sequence[Path], path: Path) -> None:
    """A page that needs no other file and no network: claims, tables, figures, times and settings of each folder."""
    results = [_read(folder) for folder in folders]
    anchors = [f"experiment-{k}" for k in range(1, len(results) + 1)]
    sections = [
        _section(found, folder, anchor) for found, folder, anchor in zip(results, folders, anchors, strict=True)
    ]
    contents = [_contents(results, anchors)] if len(results) > 1 else []
    ours = all(found["experiment"] == "compare" for found in results)
    top = [tag("h1", "Which prior suits these tasks?")] if ours else [tag("h1", HEADING), _introduction()]
    body = tag("main", *top, *contents, *sections)
    _write(path, ", ".join(_title(found) for found in results), body)


def _write(path: Path, title: str, body: Html) -> None:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Html(STYLE)),
    )
    text = f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))


def write_model_page(title: str, facts: dict[str, Any], figures: dict[str, Path], path: Path) -> None:
    """A page about one model: what is in its file, and pictures of it."""
    pictures = [_figure("model", picture) for picture in figures.values()]
    body = tag("main", tag("h1", title), _entries(facts), *pictures)
    _write(path, title, body)


def _read(folder: Path) -> Found:
    try:
        found: Found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} does not hold an experiment's results: {error}") from None
    return found


def _introduction() -> Html:
    """What the page is and how to read it."""
    tables = [
        tag("strong", "Tables. "),
        "A figure is the mean over test tasks ± one standard error. ",
        *(_mark(BETTER), " better, ", _mark(WORSE), " worse than the paper's figure by more than two standard errors"),
        " of the difference (the paper's rounding included); unmarked: no clear difference. ",
        *(tag("strong", "Bold"), ": our best method in the column. In italics: references to compare with ("),
        f"{', '.join(REFERENCES)}), never in bold. ñ is the number of context points of a new task.",
    ]
    claims = [
        tag("strong", "Claims. "),
        *(
            "What the paper says, in our words: ",
            _sign(True),
            " it holds in our results, ",
            _sign(False),
            " it does not",
        ),
        "; then where the paper says it, whether its own table bears it out by the same rule, and our numbers.",
    ]
    paper = tag("p", f"{PAPER}: our figures beside the paper's.")
    return join([paper, tag("div", tag("p", *tables), tag("p", *claims), class_="legend")])


def _contents(results: list[Found], anchors: list[str]) -> Html:
    """A list of the experiments with how many of their claims hold."""
    items = [
        tag("li", tag("a", _title(found), href=f"#{anchor}"), f": {_count(found['claims'])}")
        for found, anchor in zip(results, anchors, strict=True)
    ]
    return tag("nav", tag("h2", "Contents"), tag("ul", *items), aria_label="Contents")


def _section(found: Found, folder: Path, anchor: str) -> Html:
    parts = [tag("h2", _title(found), id=anchor)]
    if description := DESCRIPTIONS.get(found["experiment"]):
        parts.append(tag("p", description))
    if verdict := found["settings"].get("verdict"):
        parts.append(tag("p", tag("strong", verdict)))
    parts.append(tag("p", _facts(found), class_="facts"))
    if notes := found["settings"].get("notes"):
        parts.append(tag("ul", *(tag("li", note) for note in notes), class_="notes"))
    parts += [_claims(found["claims"]), *_tables(found)]
    parts += [_figure(found["experiment"], path) for path in _pictures(found["experiment"], folder)]
    parts.append(_details("Seconds by method", _entries(found["seconds"])))
    parts.append(_details("Settings", _entries(found["settings"])))
    parts.append(_details("Versions", _entries(found["versions"])))
    return tag("section", *parts)


def _title(found: Found) -> str:
    name: str = found["experiment"]
    return TITLES.get(name, name)


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


def _count(claims: list[Found]) -> str:
    if not claims:
        return "no claims judged"
    return f"{sum(claim['holds'] for claim in claims)} of {len(claims)} claims hold"


def _claims(claims: list[Found]) -> Html:
    """Each claim: whether it holds here and in the paper's own table, where the paper makes it, what decided."""
    if not claims:
        return Html("")
    items = []
    for claim in claims:
        paper = ["in the paper's own table: ", _sign(claim["holds_in_paper"])]
        lines = [tag("span", claim["text"], class_="claim"), tag("span", claim["where"], "; ", *paper, class_="aside")]
        lines.append(tag("span", claim["because"], class_="aside"))
        items.append(tag("li", _sign(claim["holds"]), tag("div", *lines)))
    return join([tag("h3", f"What the paper says: {_count(claims)}"), tag("ul", *items, class_="claims")])


def _sign(holds: bool | None) -> Html:
    sign, kind, meaning = SIGNS[holds]
    return tag("span", sign, class_=f"sign {kind}", role="img", aria_label=meaning, title=meaning)


def _tables(found: Found) -> list[Html]:
    """The paper's metrics, and the others to unfold; where the paper has no figures at all, everything to unfold."""
    grids = make_grids(found["rows"])
    others = [_table(grid) for grid in grids if not grid.published]
    shown = [_table(grid) for grid in grids if grid.published]
    if not shown and found["experiment"] == "compare":
        return others
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
    kind = "pairs" if grid.published else "single"
    table = tag("table", tag("caption", tag("span", grid.title)), tag("thead", *head), tag("tbody", *body), class_=kind)
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=grid.title)


def _line(method: str, line: list[tuple[Cell, Cell]], published: bool) -> Html:
    cells = [tag("th", method, scope="row")]
    for ours, paper in line:
        text = tag("strong", ours.text) if ours.best else ours.text
        cells.append(tag("td", *([_mark(ours.mark), " "] if ours.mark else []), text))
        if published:
            cells.append(tag("td", paper.text, class_="paper"))
    return tag("tr", *cells, **({"class_": "reference"} if method in REFERENCES else {}))


def _mark(mark: str) -> Html:
    kind, meaning = MARKS[mark]
    return tag("span", mark, class_=kind, role="img", aria_label=meaning, title=meaning)


def _pictures(experiment: str, folder: Path) -> list[Path]:
    """The folder's figures, those known in their own order and then any others."""
    known = list(FIGURES.get(experiment, ()))
    place = {name: k for k, name in enumerate(known)}
    return sorted(folder.glob("*.png"), key=lambda path: (place.get(path.stem, len(known)), path.stem))


def _figure(experiment: str, path: Path) -> Html:
    caption = CAPTIONS.get((experiment, path.stem), path.stem)
    source = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
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
