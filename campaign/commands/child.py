"""A reader: runs commands one after another in the working folder, and says how each has ended.

Commands come as JSON by standard input, their outcomes go to standard output, a line for each.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import traceback
from contextlib import redirect_stdout
from typing import Any


def main() -> None:
    asked, out = json.loads(sys.stdin.read()), sys.stdout
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, text in asked["commands"]:
        begun = time.perf_counter()
        code, printed, said = _python(text, names) if language == "python" else _shell(text, asked["limit"])
        seconds = round(time.perf_counter() - begun, 1)
        print(json.dumps([code, printed, said[-2000:], seconds]), file=out, flush=True)


def _python(text: str, names: dict[str, Any]) -> tuple[int, str, str]:
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(text, names)
    except Exception:
        return 1, printed.getvalue(), traceback.format_exc()
    return 0, printed.getvalue(), ""


def _shell(text: str, limit: float) -> tuple[int, str, str]:
    try:
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return 124, "", f"it has not ended within {limit:,.0f} seconds"
    return done.returncode, done.stdout, done.stderr


if __name__ == "__main__":
    main()
