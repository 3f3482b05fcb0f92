"""`metaprior compare`: which prior suits these tasks?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from metaprior.cli.common import Screen, check_model_file
from metaprior.cli.given import Given
from metaprior.errors import OptionError, OutputError
from metaprior.inference import KeptMethod
from metaprior.methods import make_method
from metaprior.model import MetaGP
from metaprior.output import check_folder, write_whole
from metaprior.report import (
    COMPARISON,
    LIVE,
    Results,
    among_results,
    draw_figures,
    markdown_tables,
    terminal_tables,
    write_comparison,
    write_live_page,
)
from metaprior.selection import compare, described_scores
from metaprior.splits import Contexts
from metaprior.tasks import Tasks


def check_outputs(folder: Path, out: Path | None, given: Given, overwrite: bool) -> None:
    """Whether results and model may be written there, before any work is done: nothing is lost by them."""
    names, reads = [*COMPARISON.files, *([LIVE] if out is not None else [])], given.files
    check_folder(folder, names, reads, ours=among_results, overwrite=overwrite, option="--report")
    if out is not None:
        check_model_file(out, given, overwrite)
        if out.resolve() in [(folder / name).resolve() for name in names]:
            raise OutputError(f"{out} is one of the results that are written to --report: choose another --out.")


def compare_methods(
    tasks: Tasks, contexts: Contexts, methods: Sequence[str], folds: int, seed: int, folder: Path,
    out: Path | None, screen: Screen,
) -> None:  # fmt: skip
    """Cross-validate, write results and report, say which prior to use, and keep it if asked."""
    start = time.perf_counter()
    found = compare(tasks, contexts, methods=methods, folds=folds, seed=seed, progress=not screen.quiet)
    left_out = [f"left out: {name} ({why})" for name, why in found.skipped.items()]
    notes = [*tasks.notes, *map(str, found.left_out), *left_out]
    settings = {
        "seed": seed,
        "tasks": len(tasks),
        "folds": len(found.winners),
        "chosen_in_each_fold": list(found.winners),
        "left_out": found.skipped,
        "verdict": found.verdict(),
        "notes": notes,
    }
    results = Results("compare", settings)
    for (method, setting), scores in found.scores.items():
        results.add(method, setting, scores)
    results.seconds["all methods"] = time.perf_counter() - start
    results.close()
    results.write(folder)
    write_whole(folder / "table.md", lambda path: path.write_text(markdown_tables(results.rows)))
    draw_figures(COMPARISON, results.rows, results.curves, folder)
    for table in terminal_tables(results.rows):
        screen.show(table)
    for note in left_out:
        screen.say(note)
    screen.say(found.verdict())
    if out is not None:
        name = found.recommended
        winner = make_method(name, tasks, seed, contexts).fit(tasks)
        winner.scores_ = {n: described_scores(found.scores[name, n]) for n in found.settings}
        MetaGP.of(winner).save(out)
        screen.say(f"{name}, fitted on all tasks, is in {out}")
        _write_page(winner, out.name, folder / LIVE, screen)
    write_comparison(folder, folder / "report.html")
    screen.say(f"written to {folder}: report.html, results.json, tasks.parquet, table.md")
    gains = {name: gain._asdict() for name, gain in found.gains(found.best).items()}
    found_json = {"best": found.best, "recommended": found.recommended, "gains_of_best": gains}
    screen.result(found_json | {"verdict": found.verdict(), "notes": notes, "folder": str(folder)})


def _write_page(winner: KeptMethod, name: str, path: Path, screen: Screen) -> None:
    """A page to try the winner on; nobody asked for one, so where there can be none the comparison still ends well."""
    try:
        write_live_page(winner, winner.trained_on_, name, path)
    except OptionError as error:
        screen.say(f"no page to try it on: {error}")
    else:
        screen.say(f"a page to try it on: {path}")
