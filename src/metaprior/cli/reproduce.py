"""`metaprior reproduce`: joins an experiment's results and the report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from metaprior.cli.common import Screen
from metaprior.errors import OptionError, OutputError
from metaprior.output import check_folder, write_whole
from metaprior.paper import (
    CHAPTERS,
    EXPERIMENTS,
    ON_GPU,
    Options,
    check_experiment,
    run_experiment,
    terminal_claims,
    write_page,
)
from metaprior.report import (
    LIVE,
    MODEL,
    Results,
    among_results,
    draw_figures,
    markdown_tables,
    terminal_tables,
    write_live_page,
)

CHECKPOINT = ".checkpoint"
"""The file in the folder of the results that holds what is complete of a run, until all of it is."""


def reproduce_experiment(
    name: str, options: Options, folder: Path, *, add: bool = False, resume: bool = False, overwrite: bool = False
) -> None:
    """Run, write the result files, and make table, figures and page from them.

    add: keep the other rows of an earlier run; resume: keep all of its rows that are complete.
    """
    check_experiment(name, options)
    check_folder(folder, CHAPTERS[name].files, (), ours=among_results, overwrite=overwrite, option="--out")
    _check_checkpoint(folder, go_on=add or resume, overwrite=overwrite)
    checkpoint, earlier = folder / CHECKPOINT, _earlier(folder, options, add, resume)
    try:
        results = run_experiment(name, replace(options, keep=lambda some: some.save_checkpoint(checkpoint)), earlier)
    except BaseException:
        if checkpoint.exists():
            Screen().say(f"stopped; what is complete is kept in {checkpoint}: add --resume to go on.")
        raise
    results.write(folder)
    if results.model is not None:
        write_live_page(results.model, results.model.trained_on_, MODEL, folder / LIVE, results.example or None)
    text = markdown_tables(results.rows)
    write_whole(folder / "table.md", lambda path: path.write_text(text))
    figures = draw_figures(CHAPTERS[name], results.rows, results.curves, folder)
    write_page([folder], folder / "report.html")
    checkpoint.unlink(missing_ok=True)  # not before all is there
    _show(results, folder, [path.name for path in figures])


def _earlier(folder: Path, options: Options, add: bool, resume: bool) -> Results | None:
    """What the run goes on from: a run that was stopped, or else one that came to its end."""
    if add and resume:
        raise OptionError("give --add, which runs rows again, or --resume, which keeps those that are complete.")
    if not add and not resume:
        return None
    if (folder / CHECKPOINT).exists():
        earlier = Results.read_checkpoint(folder / CHECKPOINT)
    elif add or (folder / "results.json").exists():
        earlier = Results.read(folder)
    else:
        Screen().say(f"there is nothing to resume in {folder}: the experiment starts anew.")
        return None
    return earlier.reopened(options.methods) if add else earlier


def _check_checkpoint(folder: Path, *, go_on: bool, overwrite: bool) -> None:
    """Make sure that no run that was stopped is lost without a word."""
    if (folder / CHECKPOINT).exists() and not go_on and not overwrite:
        raise OutputError(
            f"{folder / CHECKPOINT} holds the rows of a run that was stopped: go on with --resume, or start anew with "
            "--overwrite."
        )


def reproduce_all(options: Options, folder: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Every experiment in a folder of its own, and one page of them all."""
    if options.methods:
        raise OptionError("the experiments have different rows: choose them with --methods for one experiment.")
    each = {name: options if name in ON_GPU else replace(options, device="cpu") for name in EXPERIMENTS}
    for name, own in each.items():
        check_experiment(name, own)
        _check_checkpoint(folder / name, go_on=resume, overwrite=overwrite)
    for name, own in each.items():
        reproduce_experiment(name, own, folder / name, resume=resume, overwrite=overwrite)
    write_page([folder / name for name in EXPERIMENTS], folder / "report.html")
    _console().print(f"All experiments on one page: {folder / 'report.html'}", highlight=False)


def _show(results: Results, folder: Path, figures: list[str]) -> None:
    console = _console()
    for table in terminal_tables(results.rows):
        console.print(table)
    for note in results.settings.get("notes", []):
        console.print(note, style="dim", highlight=False)
    for line in terminal_claims(results.claims):
        console.print(line)
    total = sum(results.seconds.values())
    memory = f", {results.peak_memory_mb:.0f} MB" if results.peak_memory_mb else ""
    console.print(f"{total:.0f} seconds{memory}. Written to {folder}:", highlight=False)
    files = ["report.html", "results.json", "tasks.parquet", "curves.npz", "table.md", *figures]
    files += [MODEL, LIVE] if results.model is not None else []
    console.print("  " + ", ".join(files), highlight=False)


def _console() -> Console:
    console = Console()
    if not console.is_terminal:  # nothing to fit into: keep whole lines
        console.width = 160
    return console
