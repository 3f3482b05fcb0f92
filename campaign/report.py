"""The page that the campaign ends in, made of the files of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from campaign.parts import Cell, Section, Table, read_section

PARTS = {
    "calibration": "Are the probabilities right?",
    "hostile": "Hostile input",
    "faults": "Faults",
    "numerics": "Numbers",
    "choice": "The choice",
    "agreement": "Agreement",
    "repeatable": "Repeatable",
    "commands": "The commands of the pages",
    "mutants": "Would the tests notice?",
    "supply": "What comes along",
}
"""Each is a module with `run(effort)`; the order is that of the page."""

FOUND = Path(__file__).parent / "found.md"
"""What the campaign has found so far, by hand: the end of the page."""

LEAD = """# Trust

What `metaprior` promises is put to the proof by a campaign that anybody can repeat: `make campaign FULL=1` runs all of
it and writes such a page (some two and a half hours on 2 cores, added up from its parts, and some hours more for
the commands of the pages, which the paper's experiments and the benchmarks are among), `make campaign` runs a
hundredth in minutes (its page is `out/campaign/trust.md`), and a smaller part is in `make test`. The parts below were
run one by one: under each stands its command, with the seed, the processes and the versions. What did not hold at first
was put right: [what it has found](#what-it-has-found).
"""


def report(folder: Path) -> str:
    """The page, of the parts that have a file in the folder; the others are named as what is still to be run."""
    files = {name: folder / f"{name}.json" for name in PARTS}
    parts = {name: read_section(path) for name, path in files.items() if path.exists()}
    lines = [LEAD, "| part | what was tried | holds |", "|---|---|:-:|"]
    for name, title in PARTS.items():
        if name not in parts:
            lines.append(f"| {title} | not run in full yet | – |")
            continue
        section, _ = parts[name]
        tried = ", ".join(f"{count:,.0f} {what}" for what, count in section.counts.items())
        hold = f"{sum(one.holds for one in section.checks)} of {len(section.checks)}"
        lines.append(f"| {section.title} | {tried} | {hold} |")
    found = FOUND.read_text(encoding="utf-8")
    return "\n".join([*lines, "", *(_section(*part) for part in parts.values()), found])


def _section(section: Section, about: dict[str, Any]) -> str:
    lines = [f"## {section.title}", "", section.how, ""]
    lines += [f"- {'✓' if one.holds else '✗'} {one.text}: {one.because}" for one in section.checks]
    for table in section.tables:
        lines += ["", _table(table)]
    if section.notes:
        lines += ["", *(f"- {note}" for note in section.notes)]
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    seconds = f"{about['seconds']:,.0f} s with {about['jobs']} processes"
    full, share = (" --full", "") if about["share"] == 1 else ("", f", {about['share']:.1%} of the full campaign")
    lines += [
        "",
        f"*`python -m campaign{full} --parts {about['part']} --seed {about['seed']}`: {seconds}{share}; {versions}.*",
        "",
    ]
    return "\n".join(lines)


def _table(table: Table) -> str:
    numeric = [all(not isinstance(row[k], str) for row in table.rows) for k in range(len(table.columns))]
    lines = [f"**{table.title}**", "", f"| {' | '.join(table.columns)} |"]
    lines.append("|" + "|".join("---:" if one else "---" for one in numeric) + "|")
    lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
    return "\n".join(lines)


def _cell(value: Cell) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "✓" if value else "✗"
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, str) else f"{value:.3g}"
