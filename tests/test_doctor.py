"""`metaprior doctor`: what is there is told as it is."""

import json
from importlib.metadata import version

import torch
from typer.testing import CliRunner

import metaprior
from metaprior.cli.app import app


def told(*options):
    found = CliRunner().invoke(app, ["doctor", *options])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_versions_threads_and_extras(monkeypatch, tmp_path):
    monkeypatch.setenv("METAPRIOR_DATA", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = json.loads(told("--json"))
    assert found["versions"]["metaprior"] == metaprior.__version__
    assert found["versions"]["torch"] == torch.__version__.split("+")[0] or found["versions"]["torch"] == version(
        "torch"
    )
    assert found["threads"].startswith(f"{torch.get_num_threads()} of ")
    assert found["threads"].endswith("OMP_NUM_THREADS=3")
    assert found["data"]["mnist"] == "not here: metaprior data fetch mnist"
    assert found["extras"]["sql"] == f"duckdb {version('duckdb')}"
    assert {"botorch", "optuna", "ray", "serve", "sklearn", "sktime", "sql"} == set(found["extras"])


def test_what_is_lacking_is_told(monkeypatch):
    from metaprior.cli import doctor

    real = doctor.version

    def lacking(name):
        if name == "duckdb":
            raise doctor.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(doctor, "version", lacking)
    assert json.loads(told("--json"))["extras"]["sql"] == "duckdb is not installed"


def test_a_gpu_or_none():
    said = json.loads(told("--json"))["gpu"]
    assert said.startswith("none that torch sees") != torch.cuda.is_available()


def test_a_table_for_people():
    said = told()
    assert "versions torch" in said
    assert "extras sktime" in said
