"""The commands. Each only reads its options, calls the library and shows the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import metaprior
from metaprior.cli.data import data_app
from metaprior.cli.reproduce import reproduce_all, reproduce_experiment
from metaprior.experiments import EXPERIMENTS, Options
from metaprior.learning import OPTIMIZERS

app = typer.Typer(
    help="Meta-learn Gaussian-process priors from many small related tasks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)
app.add_typer(data_app, name="data")


def _version(show: bool) -> None:
    if show:
        Console().print(f"metaprior {metaprior.__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Meta-learn Gaussian-process priors from many small related tasks."""


@app.command(epilog="Example: metaprior reproduce step --methods 'learned mean,learned both' --out out/step")
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"One of: {', '.join(EXPERIMENTS)}; or all.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for results, table and figures; default out/EXPERIMENT.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    methods: Annotated[str | None, typer.Option(help="Rows to run, separated by commas; default all.")] = None,
    optimizer: Annotated[
        str | None,
        typer.Option(
            help=f"How the priors are learned: {', '.join(OPTIMIZERS)} (algorithm1: the paper's SGD); "
            "default the experiment's own choice."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version that takes a few seconds.")] = False,
    add: Annotated[
        bool, typer.Option("--add", help="Keep the other rows of an earlier run in --out, and add these.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data of mnist and icu; default METAPRIOR_DATA, then the cache.")
    ] = None,
) -> None:
    """Run an experiment of the paper: table beside the paper's, claims judged, figures, and a page with all of it."""
    rows = tuple(name.strip() for name in methods.split(",")) if methods else ()
    options = Options(seed=seed, methods=rows, optimizer=optimizer, quick=quick, data=data)  # type: ignore[arg-type]
    folder = out or Path("out") / experiment
    if experiment == "all":
        reproduce_all(options, folder)
    else:
        reproduce_experiment(experiment, options, folder, add=add)
