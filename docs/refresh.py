"""Put tables made from `docs/results/NAME/results.json` into the pages that show them, between their markers.

    make docs

`<!-- table: NAME [METRIC ...] [of METHOD, METHOD ...] -->` holds an experiment's rows, `<!-- claims: NAME -->` the
paper's claims about it, `<!-- training: NAME NAME ... -->` compares how priors were trained,
`<!-- times: NAME NAME ... -->` says how long the experiments took; a block ends at `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from metaprior.paper import PUBLISHED  # the paper's methods and metrics stand in the tables
from metaprior.report import markdown_tables

DOCS = Path(__file__).parent
PAGES = (DOCS / "reproduction.md", DOCS / "theory.md", DOCS / "beyond.md")
BLOCK = re.compile(r"(<!-- (?P<kind>table|claims|training|times): (?P<words>[^>]*) -->\n).*?(<!-- end -->)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every block made anew from its result files."""

    def block(match: re.Match[str]) -> str:
        words = match["words"].split()
        if match["kind"] == "training":
            return f"{match[1]}\n{training_table(words)}\n{match[4]}"
        if match["kind"] == "times":
            return f"{match[1]}\n{times_table(words)}\n{match[4]}"
        if match["kind"] == "claims":
            return f"{match[1]}\n{claims_table(words[0])}\n{match[4]}"
        return f"{match[1]}\n{rows_table(match['words'])}\n{match[4]}"

    return BLOCK.sub(block, text)


def rows_table(words: str) -> str:
    """An experiment's rows: of all metrics and methods, or of those that are named."""
    told, _, methods = words.partition(" of ")
    name, *metrics = told.split()
    chosen = [method.strip() for method in methods.split(",") if method.strip()]
    rows = [row for row in _results(name)["rows"] if not chosen or row["method"] in chosen]
    return markdown_tables(rows, metrics)


def training_table(names: list[str]) -> str:
    """Each learned prior of some runs: optimizer, epochs, held-out evidence and seconds."""
    lines = ["| experiment | method | optimizer | epochs | held-out evidence per value | seconds |"]
    lines.append("|---|---|---|---:|---:|---:|")
    for name in names:
        found = _results(name)
        for method, record in found["settings"]["training"].items():
            optimizer, evidence = found["settings"]["optimizer"], record["held_out_evidence_per_value"]
            cells = (found["experiment"], method, optimizer, str(record["epochs"]))
            lines.append(f"| {' | '.join(cells)} | {evidence:.4f} | {record['seconds']:.1f} |")
    return "\n".join(lines) + "\n"


def times_table(names: list[str]) -> str:
    """The minutes of each experiment: of all its rows, of the paper's, and of the longest of the others."""
    lines = ["| experiment | all rows, minutes | the paper's rows | the longest others |", "|---|---:|---:|---|"]
    for name in names:
        found = _results(name)
        seconds = found["seconds"]
        rows = {row["method"] for row in found["rows"]}
        own = {row: value for row, value in seconds.items() if row in rows and row not in PUBLISHED.get(name, ())}
        longest = sorted(own, key=lambda row: -own[row])[:2] if PUBLISHED.get(name) else []
        paper = _minutes(sum(seconds.values()) - sum(own.values())) if PUBLISHED.get(name) else "–"
        others = ", ".join(f"{row} {_minutes(own[row])}" for row in longest if own[row] >= 30)
        lines.append(f"| {name} | {_minutes(sum(seconds.values()))} | {paper} | {others or '–'} |")
    return "\n".join(lines) + "\n"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f}" if seconds >= 90 else f"{seconds / 60:.1f}"


def claims_table(name: str) -> str:
    """Each claim: whether it holds here and in the paper's own table, and the numbers that decided here."""
    lines = ["| claim | here | in the paper's table | because |", "|---|:-:|:-:|---|"]
    signs = {True: "✓", False: "✗", None: "–"}
    for claim in _results(name)["claims"]:
        here, paper = signs[claim["holds"]], signs[claim["holds_in_paper"]]
        lines.append(f"| {claim['text']} | {here} | {paper} | {claim['because']} |")
    return "\n".join(lines) + "\n"


def _results(name: str) -> Any:
    return json.loads((DOCS / "results" / name / "results.json").read_text())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(refreshed(page.read_text()))
