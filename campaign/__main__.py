"""Run the campaign, part by part, and make its report.

    python -m campaign [--full] [--parts calibration,numerics] [--jobs 2] [--seed 0] [--out out/campaign]
    python -m campaign --parts none --out docs/results/campaign --page docs/trust.md

A part writes `OUT/PART.json`; the page is made of all such files in OUT, and ends with `found.md`. Without --full about
a hundredth is tried. A part that cannot be run is told, and the others are run all the same. The exit code is 1 where
something that has to hold does not, or was not found out.
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
    parser.add_argument("--full", action="store_true", help="all of it (many hours on two cores)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}; or none")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/campaign"), help="folder for what the parts find")
    parser.add_argument("--page", type=Path, help="the page that is made of it (default: OUT/trust.md)")
    asked = parser.parse_args()
    names = [] if asked.parts == "none" else asked.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"unknown parts {', '.join(unknown)}: there are {', '.join(PARTS)}, or none")
    effort = Effort(1.0 if asked.full else QUICK, asked.seed, asked.jobs)
    asked.out.mkdir(parents=True, exist_ok=True)
    page, console = asked.page or asked.out / "trust.md", Console()
    held = [_holds(name, effort, asked.out, console) for name in names]
    page.write_text(report(asked.out), encoding="utf-8")
    console.print(f"{page} tells it all.", highlight=False)
    return int(not all(held))


def _holds(name: str, effort: Effort, out: Path, console: Console) -> bool:
    """Whether all that a part looks at holds; one that fails takes none of the others with it, nor its earlier file."""
    try:
        return run_part(name, effort, out, console).holds
    except Exception:
        console.print_exception()
        console.print(f"[bold]{PARTS[name]}[/bold] could not be run", highlight=False)
        return False


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
