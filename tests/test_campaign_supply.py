"""The campaign's part on what comes along: licences, forbidden code, a process without a network."""

from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from campaign import supply
from campaign.parts import Effort
from campaign.supplying.forbidden import forbidden, forbidden_below
from campaign.supplying.licences import RUN_TIME, Licence, licence_of, licences
from campaign.supplying.offline import offline


def test_the_part_holds_but_for_bandit_where_that_is_missing():
    section = supply.run(Effort(0.001), with_offline=False)
    broken = [check.text for check in section.checks if not check.holds]
    assert broken == ([] if find_spec("bandit") else ["bandit finds nothing in the package"])
    packages = {row[0]: row for row in section.tables[1].rows}
    assert packages["numpy"][3] == RUN_TIME
    assert packages["optuna"][3] == "optuna, dev"
    assert section.counts["modules"] > 200


def test_planted_code_is_found_in_its_file(tmp_path):
    planted = "import pickle\nimport torch\n\nx = eval('1')\ny = torch.load('model.pt')\nz = pickle.loads(b'')\n"
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "bad.py").write_text(planted)
    (tmp_path / "good.py").write_text("import torch\n\nx = torch.load('model.pt', weights_only=True)\n")
    found, files = forbidden_below(tmp_path, {})
    assert files == 2
    assert [(one.file, one.line) for one in found] == [("room/bad.py", line) for line in (1, 4, 5)]


@pytest.mark.parametrize(
    "code",
    [
        "import torch as t\nt.load(f, weights_only=False)",
        "from torch import load as read\nread(f)",
        "from importlib import import_module\nimport_module('pickle')",
        "exec(text)",
        "import subprocess\nsubprocess.Popen(c, shell=True)",
        "import os\nos.system('ls')",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "from http.client import HTTPSConnection",
        "from urllib import request",
        "def late():\n    import requests",
    ],
)
def test_what_is_forbidden_is_found_by_any_name(code):
    assert forbidden(code, "x.py", {})


@pytest.mark.parametrize(
    "code",
    ["model.eval()", "import re\nre.compile('a')", "from urllib.parse import quote", "np.load(f, allow_pickle=False)"],
)
def test_what_only_looks_like_it_is_not(code):
    assert forbidden(code, "x.py", {}) == []


def test_the_network_is_for_those_who_are_asked_and_nothing_else_is():
    code = "import socket\nimport pickle"
    assert [one.what for one in forbidden(code, "serve/app.py", {"serve": "asked"})] == ["pickle: imports pickle"]
    assert len(forbidden(code, "server.py", {"serve": "asked"})) == 2


def test_a_file_that_may_use_the_network_is_there_and_does():
    for place in supply.ASKED:
        path = supply.PACKAGE / place
        below = forbidden_below(path if path.is_dir() else path.parent, {})[0]
        assert any(one.what.startswith("network") for one in below), place


def test_licences_that_a_user_would_have_to_know_of():
    assert Licence("a", "1", "GNU General Public License v3 (GPLv3)", ()).kind == "strong"
    assert Licence("a", "1", "LGPL-2.1", ()).kind == "file by file"
    assert Licence("a", "1", "MIT AND MPL-2.0", ()).kind == "file by file"
    assert Licence("a", "1", "Proprietary", ()).kind == "unknown"
    assert licence_of(distribution("numpy")).startswith("BSD")


def test_what_is_needed_by_what_is_needed(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text(
        '[project]\nname = "x"\ndependencies = ["gpytorch"]\n[project.optional-dependencies]\nno = ["nobody"]'
    )
    found = {one.package: one for one in licences(file)}
    assert found["linear-operator"].needed_by == (RUN_TIME,)
    assert found["torch"].version
    assert (found["nobody"].version, found["nobody"].licence) == (None, "not installed here")


def test_a_hidden_request_is_found(tmp_path):
    code, tried, _ = offline(supply.ONLINE, tmp_path)
    assert code != 0
    assert tried[0].startswith("urllib.Request")
    connects = "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept OSError:\n    pass"
    assert offline(connects, tmp_path)[1]
    assert offline("import socket\nsocket.socketpair()", tmp_path)[:2] == (0, [])


def test_a_prior_is_learned_without_a_network(tmp_path):
    short = supply.OFFLINE.replace('    ["fit", home / "past.csv", *names, "--out", home / "auto"],\n', "")
    short = short.replace('"--pictures", home / "pictures", ', "")
    assert len(short) < len(supply.OFFLINE) - 80
    code, tried, said = offline(short, tmp_path)
    assert (code, tried) == (0, []), said
    assert (tmp_path / "page.html").exists()
    assert len(Path(tmp_path / "p.csv").read_text().splitlines()) == 13
