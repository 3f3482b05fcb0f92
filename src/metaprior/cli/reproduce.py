"""`metaprior reproduce`: joins an experiment's results and the report."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from metaprior.errors import UnknownNameError
from metaprior.experiments import EXPERIMENTS, Options, run_experiment
from metaprior.output import prepare_folder, write_whole
from metaprior.report import draw_figures, markdown_tables, terminal_tables


def reproduce_experiment(name: str, options: Options, folder: Path) -> None:
    """Run, write the result files, and make table and figures from them."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    prepare_folder(folder)
    results = run_experiment(name, options)
    results.write(folder)
    text = markdown_tables(results.rows)
    write_whole(folder / "table.md", lambda path: path.write_text(text))
    figures = draw_figures(name, results.curves, folder)
    console = Console()
    if not console.is_terminal:  # nothing to fit into: keep whole lines
        console.width = 160
    for table in terminal_tables(results.rows):
        console.print(table)
    total = sum(results.seconds.values())
    memory = f", {results.peak_memory_mb:.0f} MB" if results.peak_memory_mb else ""
    console.print(f"{total:.0f} seconds{memory}. Written to {folder}:", highlight=False)
    files = ["results.json", "tasks.parquet", "curves.npz", "table.md", *(path.name for path in figures)]
    console.print("  " + ", ".join(files), highlight=False)
