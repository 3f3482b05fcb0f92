"""How long `import metaprior` takes beside `import gpytorch`, each in processes of their own, in turns.

python benchmarks/imports.py
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

ROUNDS = 9
TIMED = "import time; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def seconds(package: str) -> float:
    """Of one import in a fresh process."""
    done = subprocess.run([sys.executable, "-c", TIMED.format(package)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """The medians and their ratio."""
    found: dict[str, list[float]] = {"gpytorch": [], "metaprior": []}
    for _ in range(ROUNDS):
        for name, times in found.items():
            times.append(seconds(name))
    ours, theirs = median(found["metaprior"]), median(found["gpytorch"])
    print(f"import metaprior {ours:.2f} s, gpytorch {theirs:.2f} s: {ours / theirs:.2f} ×")


if __name__ == "__main__":
    main()
