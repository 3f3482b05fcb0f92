"""Run the campaign, part by part, and make its report.

    python -m campaign [--full] [--parts calibration,numerics] [--jobs 2] [--seed 0] [--out out/campaign]
    python -m campaign --report docs/trust.md [--out FOLDER]

A part writes `OUT/PART.json`; the report is made of these files alone. Without --full about a hundredth is tried. The
exit code is 1 where something that has to hold does not.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import time
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from campaign.parts import Effort, Part, Section, write_section
from campaign.report import PARTS, report

QUICK = 0.01
LIBRARIES = ("metaprior", "torch", "gpytorch", "numpy", "scipy", "pyarrow", "safetensors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all of it (up to three hours on two cores)")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ", ".join(PARTS))
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/campaign"))
    parser.add_argument("--report", type=Path, help="make the page from what is in --out, and run nothing")
    asked = parser.parse_args()
    if asked.report:
        asked.report.write_text(report(asked.out), encoding="utf-8")
        return 0
    names = asked.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"unknown parts {', '.join(unknown)}: there are {', '.join(PARTS)}")
    effort = Effort(1.0 if asked.full else QUICK, asked.seed, asked.jobs)
    asked.out.mkdir(parents=True, exist_ok=True)
    console = Console()
    sections = [run_part(name, effort, asked.out, console) for name in names]
    return int(not all(section.holds for section in sections))


def run_part(name: str, effort: Effort, out: Path, console: Console) -> Section:
    """Run a part, keep what it found, and say what holds."""
    part: Part = importlib.import_module(f"campaign.{name}").run
    begun = time.perf_counter()
    section = part(effort)
    about = {
        "part": name,
        "share": effort.share,
        "seed": effort.seed,
        "jobs": effort.jobs,
        "seconds": round(time.perf_counter() - begun, 1),
        "versions": {"python": platform.python_version()} | {one: version(one) for one in LIBRARIES},
        "machine": f"{platform.system()} {platform.machine()}",
    }
    write_section(section, about, out / f"{name}.json")
    console.print(f"[bold]{section.title}[/bold] ({about['seconds']} s)", highlight=False)
    for check in section.checks:
        console.print(f"  {'✓' if check.holds else '✗'} {check.text}: {check.because}", highlight=False, markup=False)
    return section


if __name__ == "__main__":
    raise SystemExit(main())
