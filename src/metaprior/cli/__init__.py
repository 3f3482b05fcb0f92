"""The command line."""

from __future__ import annotations

import os
import sys

from metaprior.cli.app import app
from metaprior.errors import MetapriorError


def main() -> None:
    """Run a command. Exit codes: 0 done, 2 the user's input, 1 our fault."""
    try:
        app()
    except MetapriorError as error:
        _end(str(error).replace("missing='drop'", "--missing drop").replace("wide='", "--wide '"))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read our output has enough
    except OSError as error:
        _end(f"{error.filename or 'standard output'}: {error.strerror or error}.")


def _end(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(2)
