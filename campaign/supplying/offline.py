"""Run some code in a process in which every use of the network is an error, and note what was tried.

    python -m campaign.supplying.offline NOTES SCRIPT [ARGUMENT …]

Python tells an audit hook of each use of a socket before it happens; compiled code that opens one itself is not seen.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

EVENTS = (
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "urllib.Request",
)


class NetworkUsedError(BaseException):
    """Not an `Exception`: code that goes on without a network must not hide that it tried."""


def main() -> None:
    notes, script = Path(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and not _local(arguments):
            with notes.open("a", encoding="utf-8") as file:
                file.write(f"{event} {arguments[1:] or arguments}\n")
            raise NetworkUsedError(event)

    sys.addaudithook(hook)
    runpy.run_path(script, run_name="__main__")


def _local(arguments: tuple[Any, ...]) -> bool:
    """Whether a socket is a file of this machine, by which processes talk."""
    return len(arguments) > 1 and isinstance(arguments[1], str | bytes)


def offline(script: str, folder: Path) -> tuple[int, list[str], str]:
    """Run a script: its exit code, what it tried of the network, and what it said."""
    with tempfile.TemporaryDirectory() as place:
        notes, file = Path(place) / "notes", Path(place) / "script.py"
        notes.touch()
        file.write_text(script, encoding="utf-8")
        command = [sys.executable, "-m", "campaign.supplying.offline", str(notes), str(file), str(folder)]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=600)
        return done.returncode, notes.read_text(encoding="utf-8").splitlines(), done.stdout + done.stderr


if __name__ == "__main__":
    main()
