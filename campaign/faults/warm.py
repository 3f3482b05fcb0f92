"""The process that has imported everything, and whose children are stopped: `python -m campaign.faults.warm`.

What is asked comes as JSON by standard input, what was found goes to standard output. It has a folder of its own for
all of that, and removes it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from campaign.faults import others
from campaign.faults.children import child
from campaign.faults.jobs import JOBS, Job, make_given, make_small, serve
from campaign.faults.killing import Killer
from campaign.faults.planted import PLANTED


def asked_of_a_process(asked: dict[str, Any]) -> Any:
    """The same, in a process of its own: whoever asks may have threads."""
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path)
    environment = os.environ | {
        "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "RUST_BACKTRACE": "0", "no_proxy": "*",
        "MPLBACKEND": "agg",
    }  # fmt: skip
    words = [sys.executable, "-W", "ignore", "-m", "campaign.faults.warm"]
    done = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"the process of {asked} has ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    asked = json.loads(sys.stdin.read())
    home = Path(tempfile.mkdtemp(prefix="metaprior-faults-"))
    home.chmod(0o755)  # a child may be another user
    os.environ["METAPRIOR_FAULTS"] = str(home)
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    make_small()
    given, server = home / "given", 0
    try:
        make_given(given)
        server = serve(given)
        sys.stdout.write(json.dumps(_found(asked, given, home)) + "\n")
    finally:
        if server:
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
        shutil.rmtree(home)


def _found(asked: dict[str, Any], given: Path, home: Path) -> Any:
    jobs = {job.name: job for job in JOBS}
    if asked["what"] == "kills":
        chosen = [jobs[name] for name in asked["kills"]]
        warm_up(chosen, given, home)
        if asked.get("planted"):
            PLANTED[asked["planted"]][0]()
        return {job.name: _killed(job, asked, given, home) for job in chosen}
    warm_up([jobs[name] for name in others.jobs_of(asked["numbers"])], given, home)
    return [asdict(one) for one in others.tried(asked["numbers"], asked["seed"], given, home)]


def _killed(job: Job, asked: dict[str, Any], given: Path, home: Path) -> dict[str, Any]:
    place, rng = home / job.name, random.Random(f"{asked['seed']} {job.name}")
    place.mkdir()
    found = Killer(job, given, place).kill(asked["kills"][job.name], rng, until_wrong="planted" in asked)
    shutil.rmtree(place)
    return asdict(found)


def warm_up(jobs: list[Job], given: Path, home: Path) -> None:
    """Import what the jobs import, as a child tells that has done them: so none of its brothers has to."""
    names = home / "modules"
    for job in jobs:
        place = home / "warm"
        place.mkdir()

        def work(job: Job = job) -> None:
            try:
                job.work(given)
            finally:
                names.write_text("\n".join(sys.modules))

        ended = child(work, place)
        if ended.code:
            raise SystemExit(f"{job.name}: {ended.in_short()}")
        for name in names.read_text().splitlines():
            if name not in sys.modules and not name.startswith("__"):
                with contextlib.suppress(ImportError):  # one that another has made under its own name
                    importlib.import_module(name)
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
