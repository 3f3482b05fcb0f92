"""The command line."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from metaprior.cli.app import app
from metaprior.errors import MetapriorError, short_of_memory
from metaprior.output import outlive_readers

MEMORY = (
    "there is too little memory for this. Give a smaller table, ask for fewer points at a time, or make shards of it "
    "(`metaprior shard`), which are learned from and predicted part by part."
)


def main() -> None:
    """Run a command. Exit codes: 0 done, 2 the user's input (or machine), 1 our fault, 130 Ctrl-C, 143 SIGTERM."""
    outlive_readers()
    asked = _Asked()
    signal.signal(signal.SIGTERM, asked)
    try:
        app()
    except (SystemExit, KeyboardInterrupt) as end:
        if asked.to_end:
            sys.exit(128 + signal.SIGTERM)
        if isinstance(end, KeyboardInterrupt):  # before any command had begun
            sys.exit(128 + signal.SIGINT)
        raise
    except MetapriorError as error:
        _end(str(error).replace("missing='drop'", "--missing drop").replace("wide='", "--wide '"))
    except OSError as error:
        _end(f"{error.filename or 'standard output'}: {error.strerror or error}.")
    except BaseException as error:  # libraries in Rust have no other kind
        if not short_of_memory(error):
            raise
        _end(MEMORY)


class _Asked:
    """Whether somebody has asked the process to end: it does so as after Ctrl-C, with nothing half done left behind."""

    to_end = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.to_end = True
        raise KeyboardInterrupt


def _end(message: str) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(2)
