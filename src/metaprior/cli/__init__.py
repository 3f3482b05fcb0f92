"""The command line."""

from __future__ import annotations

import sys

from metaprior.cli.app import app
from metaprior.errors import MetapriorError


def main() -> None:
    """Run a command. Exit codes: 0 done, 2 the user's input, 1 our fault."""
    try:
        app()
    except MetapriorError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
