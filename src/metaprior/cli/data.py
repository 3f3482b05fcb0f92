"""`metaprior data`: which datasets there are, and getting them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from metaprior import data

data_app = typer.Typer(
    help="Get datasets, and see where they are.", no_args_is_help=True, pretty_exceptions_enable=False
)


@data_app.command(epilog="Example: metaprior data fetch mnist")
def fetch(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(data.DATASETS)}.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder for datasets, each in a folder of its own there; default: the user's cache."),
    ] = None,
) -> None:
    """Download a dataset from its official home; a download that broke off goes on where it stopped."""
    home = data.fetch(name, folder)
    Console(soft_wrap=True).print(f"{name} is in {home}", highlight=False, markup=False)


@data_app.command("list", epilog="Example: metaprior data list")
def list_datasets() -> None:
    """Show the datasets, their terms, and where they are or how to get them."""
    table = Table("name", "what", "terms", "where")
    for name, dataset in data.EMBEDDED.items():
        table.add_row(name, dataset.what, dataset.terms, "in the package")
    for name, dataset in data.DATASETS.items():
        found = data.locate(name)
        table.add_row(
            name, dataset.what, dataset.terms, f"metaprior data fetch {name}" if found is None else str(found)
        )
    console = Console(markup=False)
    if not console.is_terminal:  # nothing to fit into: keep whole lines
        console.width = 200
    console.print(table, highlight=False, markup=False)
