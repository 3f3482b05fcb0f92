"""One page about one or several experiments; and the paper's claims, there and in the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from metaprior.paper.chapters import CHAPTERS
from metaprior.report import (
    BETTER,
    WORSE,
    Chapter,
    Html,
    join,
    live_link,
    mark_sign,
    read_found,
    references,
    section,
    tag,
    write_html,
)

PAPER = "Meta-Learning Mean Functions for Gaussian Processes (Fortuin, Strathmann, Rätsch)"
HEADING = "The experiments of the paper, run again"
SIGNS = {True: ("✓", "yes", "holds"), False: ("✗", "no", "does not hold"), None: ("–", "open", "not in its table")}

Claims = list[dict[str, Any]]


def write_page(folders: Sequence[Path], path: Path) -> None:
    """Claims, tables, figures, times and settings of each folder, in one page that needs nothing else."""
    results = [read_found(folder) for folder in folders]
    chapters = [CHAPTERS.get(found["experiment"], Chapter(found["experiment"])) for found in results]
    anchors = [f"experiment-{k}" for k in range(1, len(results) + 1)]
    claims: list[Claims] = [found["claims"] for found in results]
    parts = [tag("h1", HEADING), _introduction()]
    if len(results) > 1:
        parts.append(_contents([one.title for one in chapters], anchors, claims))
    for each in zip(folders, chapters, anchors, claims, strict=True):
        parts.append(section(*each[:3], join([live_link(each[0], path), _claims(each[3])])))
    write_html(path, ", ".join(one.title for one in chapters), tag("main", *parts))


def terminal_claims(claims: Claims) -> Iterable[Text]:
    """A heading, then each claim with the numbers that decided it; nothing where no claim could be judged."""
    if claims:
        yield Text("What the paper says, and whether it holds here", style="bold")
    for claim in claims:
        mark = ("✓", "green") if claim["holds"] else ("✗", "red")
        own = " (its own table: ✗)" if claim["holds_in_paper"] is False else ""
        yield Text.assemble(mark, f" {claim['text']}{own}\n", (f"  {claim['because']}", "dim"))


def _introduction() -> Html:
    """What the page is and how to read it."""
    tables = [
        tag("strong", "Tables. "),
        "A figure is the mean over test tasks ± one standard error. ",
        *(mark_sign(BETTER), " better, ", mark_sign(WORSE), " worse than the paper's figure by more than two"),
        " standard errors of the difference (the paper's rounding included); unmarked: no clear difference. ",
        *(tag("strong", "Bold"), ": our best method in the column. In italics: references to compare with ("),
        f"{', '.join(references())}), never in bold. ñ is the number of context points of a new task.",
    ]
    claims = [
        *(tag("strong", "Claims. "), "What the paper says, in our words: ", _sign(True), " it holds in our results, "),
        *(_sign(False), " it does not"),
        "; then where the paper says it, whether its own table bears it out by the same rule, and our numbers.",
    ]
    paper = tag("p", f"{PAPER}: our figures beside the paper's.")
    return join([paper, tag("div", tag("p", *tables), tag("p", *claims), class_="legend")])


def _contents(titles: list[str], anchors: list[str], claims: list[Claims]) -> Html:
    """A list of the experiments with how many of their claims hold."""
    items = [
        tag("li", tag("a", title, href=f"#{anchor}"), f": {_count(judged)}")
        for title, anchor, judged in zip(titles, anchors, claims, strict=True)
    ]
    return tag("nav", tag("h2", "Contents"), tag("ul", *items), aria_label="Contents")


def _count(claims: Claims) -> str:
    if not claims:
        return "no claims judged"
    return f"{sum(claim['holds'] for claim in claims)} of {len(claims)} claims hold"


def _claims(claims: Claims) -> Html:
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
    sign, style, meaning = SIGNS[holds]
    return tag("span", sign, class_=f"sign {style}", role="img", aria_label=meaning, title=meaning)
