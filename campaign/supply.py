"""What comes along: licences of what is needed, and code that runs no text, unpickles nothing and asks no network."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from campaign.parts import Cell, Check, Effort, Section, Table
from campaign.supplying.forbidden import forbidden, forbidden_below
from campaign.supplying.licences import RUN_TIME, Licence, licences
from campaign.supplying.offline import offline

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "metaprior"

ASKED = {
    "data/fetch.py": "`metaprior data fetch`",
    "serve": "`metaprior serve`",
    "workers/cluster.py": "`--ray HOST:PORT`",
}
"""What may use the network, because somebody asked for it by name."""

NO_USERS = ("benchmark", "dev", "dist", "docs")
"""Extras of those who work on the project, which no user installs."""

PLANTED = {
    "runs text": "x = eval(input())",
    "pickle": "from torch import load\nload('model.pt')",
    "pickle: imports": "from pickle import loads as read",
    "pickle: allow_pickle": "import numpy as np\nnp.load('a.npy', allow_pickle=True)",
    "goes through a shell": "import subprocess\nsubprocess.run('ls', shell=True)",
    "yaml.load": "import yaml\nyaml.load(open('a'))",
    "network": "import urllib.request",
}
"""Each has to be found by what it is named for."""

OFFLINE = """
import sys
from pathlib import Path
from metaprior.cli import app

home = Path(sys.argv[1])
rows = [f"{k},{x},{(k % 5) + x * 0.5}" for k in range(12) for x in range(6)]
(home / "past.csv").write_text("task,x,y\\n" + "\\n".join(rows))
names = ["--task", "task", "--x", "x", "--y", "y"]
for command in (
    ["fit", home / "past.csv", *names, "--mean", "constant", "--kernel", "rbf", "--epochs", 5, "--out", home / "m"],
    ["fit", home / "past.csv", *names, "--out", home / "auto"],
    ["predict", home / "m", home / "past.csv", "--at", "7", "--out", home / "p.csv"],
    ["show", home / "m", "--pictures", home / "pictures", "--html", home / "page.html"],
    ["doctor"],
):
    app([str(one) for one in command], standalone_mode=False)
"""
ONLINE = "from urllib.request import urlopen\ntry:\n    urlopen('http://127.0.0.1:9')\nexcept Exception:\n    pass\n"


def run(effort: Effort, *, with_offline: bool = True) -> Section:
    """List the licences, read the code, and use the package in a process without a network."""
    needed = licences(ROOT / "pyproject.toml")
    checks = [*_licence_checks(needed), *_code_checks(), _bandit()]
    if with_offline:
        checks += _offline_checks()
    how = (
        "Licences are those that the installed packages state, read by hand where they state too little. The code is "
        "read as a tree: no text that is run as code, no pickle, no shell, and no network but in the modules for which "
        "somebody has to ask by name. And fit, predict, show and doctor are run in a process in which any use of a "
        "socket is an error. Between processes of one training Python's own pipes and `torch.distributed` do pickle "
        "what they send; no file and no request is ever unpickled."
    )
    files = len(list(PACKAGE.rglob("*.py")))
    counts = {"packages": float(len(needed)), "modules": float(files)}
    return Section("What comes along", how, checks, [_groups(needed), _table(needed)], _notes(needed), counts)


def _licence_checks(needed: list[Licence]) -> list[Check]:
    direct = [one for one in needed if RUN_TIME in one.needed_by]
    users = [one for one in needed if not set(one.needed_by) <= set(NO_USERS)]
    unknown = [one.package for one in users if one.version and one.kind == "unknown"]
    strong = [one.package for one in users if one.kind == "strong"]
    return [
        Check(
            "the licence of all that a user installs is known",
            not unknown and all(one.version for one in direct),
            f"{sum(one.version is not None for one in users)} packages that are installed here, of {len(users)}"
            + "".join(f"; not of {one}" for one in unknown),
        ),
        Check(
            "none of it asks that what uses it has the same licence",
            not strong,
            ", ".join(strong) or f"{len(direct)} packages at run time, {len(users)} with all extras",
        ),
    ]


def _code_checks() -> list[Check]:
    found, files = forbidden_below(PACKAGE, ASKED)
    missed = [
        what
        for what, code in PLANTED.items()
        if not any(one.what.startswith(what) for one in forbidden(code, "x.py", {}))
    ]
    return [
        Check(
            "no eval, pickle, shell or torch.load without weights_only; no network but where it is asked for",
            not found,
            "; ".join(f"{one.file}:{one.line} {one.what}" for one in found) or f"{files} modules",
        ),
        Check(
            "each of these is found where it is planted",
            not missed,
            f"{len(PLANTED) - len(missed)} of {len(PLANTED)}" + "".join(f"; not {one}" for one in missed),
        ),
    ]


def _bandit() -> Check:
    text = "bandit finds nothing in the package"
    if find_spec("bandit") is None:
        return Check(text, False, "it is not installed here")
    command = [
        sys.executable,
        "-m",
        "bandit",
        "-q",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-f",
        "json",
        "-r",
        str(PACKAGE),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    told = json.loads(done.stdout[done.stdout.index("{") :])
    found = [f"{Path(one['filename']).name}:{one['line_number']} {one['test_id']}" for one in told["results"]]
    lines = told["metrics"]["_totals"]["loc"]
    return Check(
        text, not found and not told["errors"], "; ".join(found) or f"{lines:,} lines, version {version('bandit')}"
    )


def _offline_checks() -> list[Check]:
    with tempfile.TemporaryDirectory() as folder:
        code, tried, said = offline(OFFLINE, Path(folder))
        found, planted, _ = offline(ONLINE, Path(folder))
    why = f"exit code {code}, {len(tried)} uses of a socket" + "".join(f"; {one}" for one in tried)
    if code and not tried:
        why += f"; {said[-300:]}"
    return [
        Check("fit, predict, show and doctor work without a network, and do not try it", code == 0 and not tried, why),
        Check("a planted request is found, though it is hidden", found != 0 and bool(planted), ", ".join(planted)),
    ]


def _groups(needed: list[Licence]) -> Table:
    kinds = ("permissive", "file by file", "strong", "unknown")
    groups = sorted({group for one in needed for group in one.needed_by}, key=lambda name: (name != RUN_TIME, name))
    rows = list[tuple[Cell, ...]]()
    for group in groups:
        own = [one for one in needed if group in one.needed_by]
        here = [one.kind for one in own if one.version]
        rows.append((group, len(own), *(here.count(kind) for kind in kinds), sum(one.version is None for one in own)))
    return Table("Packages by licence", ("extra", "packages", *kinds, "not installed here"), tuple(rows))


def _table(needed: list[Licence]) -> Table:
    rows = tuple((one.package, one.version or "–", one.licence, _needed_by(one)) for one in needed)
    return Table("All of them", ("package", "version", "licence", "needed by"), rows)


def _needed_by(one: Licence) -> str:
    return RUN_TIME if RUN_TIME in one.needed_by else ", ".join(one.needed_by)


def _notes(needed: list[Licence]) -> list[str]:
    notes = [f"`{place}` may use the network: {why} asks for it." for place, why in ASKED.items()]
    strong = [f"{one.package} ({_needed_by(one)})" for one in needed if one.kind == "strong"]
    if strong:
        notes.append(
            f"With a licence that passes itself on, and in no extra that a user installs: {', '.join(strong)}."
        )
    return notes
