"""The server: rows and tensors for programs, pages for people, and who may ask what."""

import io
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc
from starlette.testclient import TestClient

import serve as hostile  # benchmarks/serve.py
from metaprior import FPCA, Combination, HierarchicalGP, MetaGP, Mixture, Tasks, load
from metaprior.data import embedded_table
from metaprior.errors import MetapriorWarning, OptionError
from metaprior.serve import Served, Server, Settings, load_models
from metaprior.serve.openapi import ROUTES
from metaprior.serve.tables import ARROW, CSV, JSON, PARQUET
from tests.test_tool import refused

QUICK = {"max_epochs": 20, "progress": False}
HOST = "http://127.0.0.1"
ROWS = [{"year": "2011", "month": 1, "temperature": 24.2}, {"year": "2011", "month": 2, "temperature": 25.9}]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two models: the sea's temperature, and one of dates, covariates and two targets."""
    folder = tmp_path_factory.mktemp("serve")
    gp = MetaGP(rungs=["fpca", "shared gp"], progress=False)
    gp.fit(embedded_table("elnino"), task="year", x="month", y="temperature").save(folder / "sea.metaprior")
    random = np.random.default_rng(0)
    rows = [
        {"plot": f"p{i}", "day": day, "age": i / 3, "soil": "ab"[i % 2], "a": random.normal() + i, "b": 2.0 * k}
        for i in range(9)
        for k, day in enumerate(pd.date_range("2024-01-01", periods=6, freq="10D"))
    ]
    rich = MetaGP("deep", "rbf", hidden=(5,), **QUICK)
    rich.fit(pd.DataFrame(rows), task="plot", x="day", y=["a", "b"], task_x=["age", "soil"]).save(
        folder / "plots.metaprior"
    )
    return folder


def client(home, *names, **options):
    models = load_models([str(home / f"{name}.metaprior") for name in names or ("sea", "plots")])
    return TestClient(Server(models, Settings(log="none", **options)).app(), base_url=HOST)


@pytest.fixture(scope="module")
def sea(home):
    with client(home, "sea") as asked:
        yield asked


def content(rows, kind):
    table = pa.Table.from_pylist(rows)
    sink = io.BytesIO()
    if kind == CSV:
        return pd.DataFrame(rows).to_csv(index=False).encode()
    if kind == PARQUET:
        pq.write_table(table, sink)
    else:
        with ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue()


def rows_of(answer):
    kind = answer.headers["content-type"].split(";")[0]
    if kind == JSON:
        return answer.json()["rows"]
    if kind == CSV:
        return pd.read_csv(io.BytesIO(answer.content)).to_dict("records")
    if kind == PARQUET:
        return pq.read_table(io.BytesIO(answer.content)).to_pylist()
    return ipc.open_stream(answer.content).read_all().to_pylist()


def told(answer, status):
    """The message of a refusal, in its envelope."""
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    assert set(error) == {"type", "message", "where"}
    assert "Traceback" not in answer.text
    return error["message"]


@pytest.mark.parametrize("sent", [JSON, CSV, ARROW, PARQUET])
@pytest.mark.parametrize("wanted", [JSON, CSV, ARROW, PARQUET])
def test_rows_in_every_form_give_what_python_gives(sent, wanted, sea, home):
    options = {"at": "4:6:1", "level": "0.8", "quantiles": "0.25", "samples": "2", "seed": "3"}
    headers = {"Content-Type": sent, "Accept": wanted}
    if sent == JSON:
        body = json.dumps({"rows": ROWS, **options, "quantiles": [0.25]})
        answer = sea.post("/predict", content=body, headers=headers)
    else:
        answer = sea.post("/predict", params=options, content=content(ROWS, sent), headers=headers)
    assert answer.status_code == 200, answer.text
    found = pd.DataFrame(rows_of(answer))
    wanted_table = load(home / "sea.metaprior").predict(
        pd.DataFrame(ROWS), at=[4, 5, 6], level=0.8, quantiles=(0.25,), samples=2, seed=3
    )
    assert list(found) == list(wanted_table)
    assert found["year"].astype(str).tolist() == ["2011"] * 3
    numbers = [name for name in found if name != "year"]
    assert found[numbers].to_numpy() == pytest.approx(wanted_table[numbers].to_numpy(dtype=float), rel=1e-12)


def test_columns_of_json_rows_without_target_and_the_function_itself(sea, home):
    columns = {"year": ["a", "a", "b"], "month": [1, 5, 3], "temperature": [24.0, None, None]}
    answer = sea.post("/predict", json={"columns": columns, "latent": True})
    gp = load(home / "sea.metaprior")
    with pytest.warns(MetapriorWarning, match="no known rows"):
        table = gp.predict(pd.DataFrame(columns), at="missing", latent=True)
    assert [row["mean"] for row in answer.json()["rows"]] == pytest.approx(table["mean"].tolist())
    assert answer.json()["notes"] == ["1 of 2 tasks have no known rows: they get the prior."]


def test_predictions_come_in_the_order_of_the_rows_that_were_asked_about(sea, home):
    at = [{"year": year, "month": month} for year, month in (("2012", 5), ("2011", 9), ("2012", 3), ("2011", 9))]
    known = [*ROWS, {"year": "2012", "month": 1, "temperature": 23.0}]
    gp = load(home / "sea.metaprior")
    of = {
        year: [(row["month"], row["temperature"]) for row in known if row["year"] == year] for year in ("2011", "2012")
    }
    means = [float(gp.condition(*zip(*of[row["year"]], strict=True)).at([row["month"]]).mean[0]) for row in at]
    found = sea.post("/predict", json={"rows": known, "at": at}).json()["rows"]
    assert [{name: row[name] for name in ("year", "month")} for row in found] == at
    assert [row["mean"] for row in found] == pytest.approx(means, rel=1e-9)
    rows = [at[0], known[2], at[1], at[2], known[0], known[1], at[3]]
    found = sea.post("/predict", json={"rows": rows}).json()["rows"]
    assert [row["mean"] for row in found] == pytest.approx(means, rel=1e-9)
    data = {name: [row.get(name) for row in rows] for name in ("year", "month", "temperature")}
    tensors = [
        {"name": name, "datatype": "BYTES" if name == "year" else "FP64", "shape": [7], "data": values}
        for name, values in data.items()
    ]
    found = sea.post("/v2/models/sea/infer", json={"inputs": tensors, "outputs": [{"name": "mean"}]}).json()
    assert found["outputs"][0]["data"] == pytest.approx(means, rel=1e-9)


def test_a_model_of_dates_covariates_and_two_targets(home):
    with client(home) as asked:
        known = {"plot": "new", "day": "2024-01-05", "age": 1.0, "soil": "b", "a": 2.0, "b": 1.0}
        answer = asked.post("/predict?model=plots", json={"rows": [known], "at": "2024-02-01:2024-02-03:1d"})
        rows = answer.json()["rows"]
        assert [row["day"][:10] for row in rows] == ["2024-02-01", "2024-02-02", "2024-02-03"]
        assert {"a_mean", "b_upper"} <= set(rows[0])
        message = told(
            asked.post("/predict?model=plots", json={"rows": [known | {"soil": "z"}], "at": "2024-02-01"}), 400
        )
        assert "which no past task had" in message
        assert "there are several models" in told(asked.post("/predict", json={"rows": [known]}), 400)
        assert "unknown model 'see'. Did you mean 'sea'?" in told(asked.post("/models/see/predict", json={}), 404)


@pytest.mark.parametrize(
    ("body", "headers", "status", "message"),
    [
        (b"{", {}, 400, "the body is no JSON"),
        (b"[" * 100_000, {}, 400, "nested too deeply"),
        (b"[]", {}, 400, "the body is a JSON object"),
        (b"{}", {}, 400, 'give the known rows as "rows"'),
        (b'{"rows": [{"year": 1, "month": 2}], "at": [1]}', {}, 400, "the rows have"),
        (
            b'{"rows": [{"year": 1, "month": 2, "temperature": "warm"}], "at": [1]}',
            {},
            400,
            "is a target: give numbers",
        ),
        (b'{"rows": [{"year": 1, "month": "x", "temperature": 2}], "at": [1]}', {}, 400, "month"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 1e999}], "at": [1]}', {}, 400, "infinit"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": "x"}', {}, 400, "is no number, date or file"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [[1, 2]]}', {}, 400, "at: give points"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [1], "level": 2}', {}, 400, "between 0 and 1"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [1], "lvl": 2}', {}, 400, "no option 'lvl'"),
        (
            b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [1], "fallback": true}',
            {},
            400,
            "fallback was removed",
        ),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 1e300}], "at": [1]}', {}, 400, "in other units"),
        (
            b'{"rows": [{"year": 1, "month": true, "temperature": 2}], "at": [1]}',
            {},
            400,
            "'month' is an input: give numbers or dates, not true or false",
        ),
        (
            b'{"columns": {"year": [1, 1], "month": [2.5, false], "temperature": [1, 2]}, "at": [1]}',
            {},
            400,
            "'month' is an input",
        ),
        (b'{"rows": [{"year": true, "month": 2, "temperature": 2}], "at": [1]}', {}, 400, "give text or numbers"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": true}], "at": [1]}', {}, 400, "is a target: give numbers"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [1, true]}', {}, 400, "at: give points"),
        (b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [[true]]}', {}, 400, "at: give points"),
        (
            b'{"rows": [{"year": 1, "month": 2, "temperature": 2}], "at": [{"year": 1, "month": true}]}',
            {},
            400,
            "'month' is an input",
        ),
        (b"a,b\n1,2\n", {"Content-Type": CSV}, 400, "has"),
        (b"\x1f\x8b123", {"Content-Type": CSV}, 400, "packed by gzip"),
        (b"PK\x03\x04123", {"Content-Type": CSV}, 400, "packed by zip"),
        (b'{"year": 1, "month": 2}\n', {"Content-Type": CSV}, 400, "the body is JSON"),
        (b"PAR1", {"Content-Type": PARQUET}, 400, "no Parquet table"),
        (b"x", {"Content-Type": ARROW}, 400, "no stream of Arrow tables"),
        (b"x", {"Content-Type": "image/png"}, 415, "a body is one of"),
        (b"{}", {"Accept": "image/png"}, 406, "an answer is one of"),
        (b"{}", {"Content-Encoding": "gzip"}, 415, "not packed"),
    ],
)
def test_what_cannot_be_done_is_told(body, headers, status, message, sea):
    assert message in told(sea.post("/predict", content=body, headers={"Content-Type": JSON, **headers}), status)


def test_limits_are_told(home):
    limits = {"max_body": 2_000, "max_rows": 3, "max_points": 10}
    with client(home, "sea", **limits) as asked:
        assert "bytes at most (--max-body)" in told(asked.post("/predict", content=b" " * 3_000), 413)
        many = ROWS * 3
        assert "3 are the most (--max-rows)" in told(asked.post("/predict", json={"rows": many, "at": [1]}), 413)
        for kind in (CSV, ARROW, PARQUET):
            body, named = content(many, kind), {"Content-Type": kind}
            assert "--max-rows" in told(asked.post("/predict?at=1", content=body, headers=named), 413)
        assert "--max-points" in told(asked.post("/predict", json={"rows": ROWS, "at": "1:12:1"}), 413)
        assert "--max-points" in told(asked.post("/predict", json={"rows": ROWS, "at": [1], "samples": 500}), 413)


def test_what_takes_too_long_is_ended_between_slices(home, monkeypatch):
    seen = []

    def slow(method, columns, table, at, wanted, between):
        for _ in range(200):
            time.sleep(0.02)
            try:
                between(None, None)
            except BaseException:
                seen.append("ended")
                raise

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", slow)
    with client(home, "sea", seconds=0.3) as asked:
        began = time.perf_counter()
        assert "more than 0.3 seconds" in told(asked.post("/predict", json={"rows": ROWS, "at": [1]}), 408)
        assert time.perf_counter() - began < 3
    assert seen == ["ended"]


def test_no_more_at_once_than_allowed_and_health_answers_meanwhile(home, monkeypatch):
    release = threading.Event()

    def waiting(*_, **__):
        release.wait(10)
        raise OptionError("done")

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", waiting)
    with client(home, "sea", at_once=1) as asked:
        first = threading.Thread(target=lambda: asked.post("/predict", json={"rows": ROWS, "at": [1]}))
        first.start()
        try:
            deadline = time.monotonic() + 5
            while "metaprior_at_work 1" not in asked.get("/metrics").text and time.monotonic() < deadline:
                time.sleep(0.02)
            assert asked.get("/v2/health/live").status_code == 200
            assert "1 requests are being worked on" in told(asked.post("/predict", json={"rows": ROWS, "at": [1]}), 429)
        finally:
            release.set()
            first.join()


def test_hosts_origins_and_tokens(home):
    with client(home, "sea", token="a-long-token", origins=("https://lab.example",)) as asked:
        body = {"rows": ROWS, "at": [4]}
        assert "give the token" in told(asked.post("/predict", json=body), 401)
        assert told(asked.post("/predict", json=body, headers={"Authorization": "Bearer a-long-tokem"}), 401)
        right = {"Authorization": "Bearer a-long-token"}
        assert asked.post("/predict", json=body, headers=right).status_code == 200
        assert "--allowed-host" in told(asked.get("/", headers=right | {"Host": "evil.example"}), 421)
        assert "--cors" in told(
            asked.post("/predict", json=body, headers=right | {"Origin": "https://evil.example"}), 403
        )
        elsewhere = asked.post("/predict", json=body, headers=right | {"Origin": "https://lab.example"})
        assert elsewhere.headers["access-control-allow-origin"] == "https://lab.example"
        assert asked.get("/v2/health/live").status_code == 200
        page = asked.get("/", headers={"Accept": "text/html"}, follow_redirects=False)
        assert (page.status_code, page.headers["location"]) == (303, "/sign-in")
        person = {"Accept": "text/html"}
        assert "That is not the token." in asked.post("/sign-in", data={"token": "wrong"}, headers=person).text
        signed = asked.post("/sign-in", data={"token": "a-long-token"}, follow_redirects=False)
        cookie = signed.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert "a-long-token" not in cookie
        assert asked.get("/").status_code == 200
        assert "default-src 'none'" in asked.get("/").headers["content-security-policy"]
    with client(home, "sea") as asked:
        plain = asked.post("/predict", json=body)
        assert "access-control-allow-origin" not in plain.headers


def test_browsers_ask_beforehand_for_pages_of_known_origins_alone(home):
    ahead = {"Access-Control-Request-Method": "POST"}
    with client(home, "sea", origins=("https://lab.example",)) as asked:
        known = asked.options("/predict", headers=ahead | {"Origin": "https://lab.example"})
        assert (known.status_code, known.headers["access-control-allow-origin"]) == (204, "https://lab.example")
        foreign = asked.options("/predict", headers=ahead | {"Origin": "https://evil.example"})
        assert "--cors" in told(foreign, 403)
        assert "access-control-allow-origin" not in foreign.headers
        for same in ({}, {"Origin": HOST}):  # nobody asks beforehand from here
            assert "not asked so" in told(asked.options("/predict", headers=ahead | same), 405)


def test_only_this_machine_unless_told():
    with pytest.raises(OptionError, match="Give a --token that they have to know, or --open"):
        Settings(host="0.0.0.0")
    assert Settings(host="0.0.0.0", token="12345678").names >= {"0.0.0.0", "localhost"}
    assert Settings(host="0.0.0.0", open_=True)
    for wrong in ({"port": 70_000}, {"seconds": 0}, {"log": "xml"}, {"token": "short"}, {"token": "with blanks in it"}):
        with pytest.raises(OptionError):
            Settings(**wrong)


def test_the_description_is_of_the_routes_that_there_are(sea):
    found = sea.get("/openapi.json").json()
    told_of = {(method, path) for path, methods in found["paths"].items() for method in methods}
    assert told_of == {(method, path) for method, path, _ in ROUTES}
    inside = sea.app.app
    real = {(method.lower(), route.path) for route in inside.routes for method in route.methods - {"HEAD"}}
    assert told_of == real
    for method, path in sorted(real):
        if method == "get" and path != "/sign-in":
            assert sea.get(path.replace("{name}", "sea")).status_code == 200, path
    assert "there is nothing here" in told(sea.get("/nowhere"), 404)
    assert "not asked so" in told(sea.get("/predict"), 405)


def test_metrics_count_and_lines_hold_no_data(home, capsys):
    models = load_models([str(home / "sea.metaprior")])
    with TestClient(Server(models, Settings(log="json")).app(), base_url=HOST) as asked:
        asked.post("/predict?at=4", content=content(ROWS, CSV), headers={"Content-Type": CSV})
        asked.post("/predict", content=b"{")
        text = asked.get("/metrics").text
    assert 'metaprior_requests_total{method="POST",route="/predict",status="200"} 1' in text
    assert "metaprior_errors_total 1" in text
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["route"] == "/predict"
    assert lines[0]["bytes_in"] == len(content(ROWS, CSV))
    assert "2011" not in json.dumps(lines)


def test_a_model_file_that_changes_stays_as_it_was_loaded(home, tmp_path):
    path = tmp_path / "sea.metaprior"
    path.write_bytes((home / "sea.metaprior").read_bytes())
    with TestClient(Server(load_models([str(path)]), Settings(log="none")).app(), base_url=HOST) as asked:
        assert asked.post("/predict", json={"rows": ROWS, "at": [4]}).json()["notes"] == []
        path.write_bytes(b"something else")
        answer = asked.post("/predict", json={"rows": ROWS, "at": [4]}).json()
        assert "has changed since it was loaded" in answer["notes"][0]
        assert "has changed" in asked.get("/").text


def test_models_that_cannot_be_served(home, tmp_path, capsys, monkeypatch):
    other = tmp_path / "sea.metaprior"
    other.write_bytes((home / "sea.metaprior").read_bytes())
    with pytest.raises(OptionError, match="would both be called 'sea'"):
        load_models([str(home / "sea.metaprior"), str(other)])
    other.write_text("no model")
    assert "is not a metaprior model" in refused("serve", other, capsys=capsys, monkeypatch=monkeypatch)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused("serve", home / "sea.metaprior", "--port", port, capsys=capsys, monkeypatch=monkeypatch)
    assert f"port {port} is in use: choose another with --port, or --port 0" in said
    said = refused("serve", other, "--host", "0.0.0.0", capsys=capsys, monkeypatch=monkeypatch)
    assert "others can reach it there" in said


def test_tables_for_the_page(home, sea):
    rows = [*ROWS, {"year": "2012", "month": 3, "temperature": 26.0}, {"year": "2012", "month": 4, "temperature": None}]
    found = sea.post("/models/sea/tasks", content=content(rows, CSV), headers={"Content-Type": CSV}).json()
    assert [(one["id"], one["n"]) for one in found["tasks"]] == [("2011", 2), ("2012", 1)]
    assert found["tasks"][0]["y"] == [[24.2], [25.9]]
    wrong = sea.post("/models/sea/tasks", content=b"a,b\n1,2\n", headers={"Content-Type": CSV})
    assert "no column 'year'" in told(wrong, 400)


def test_threads_do_not_mix_up_what_they_are_asked(home, tmp_path):
    """Whatever a method remembers of points is of the points that it was asked about."""
    table = embedded_table("elnino").to_pandas()
    names = {"task": "year", "x": "month", "y": "temperature"}
    tasks = Tasks.from_table(table, **names)
    members = [HierarchicalGP(), Mixture(2, rank=2), FPCA(size=5, rank=2)]
    MetaGP.of(Combination(members).fit(tasks)).save(tmp_path / "many.metaprior")
    with TestClient(
        Server(load_models([str(tmp_path / "many.metaprior")]), Settings(log="none")).app(), base_url=HOST
    ) as asked:
        bodies = [
            {"rows": [{"year": "a", "month": 1 + k % 7, "temperature": 22.0 + k % 5}], "at": [2 + 0.1 * k, 9 - 0.2 * k]}
            for k in range(24)
        ]
        wanted = [asked.post("/predict", json=body).json() for body in bodies]
        with ThreadPoolExecutor(4) as pool:
            for _ in range(3):
                found = list(pool.map(lambda body: asked.post("/predict", json=body).json(), bodies))
                assert found == wanted


# ---- as a process ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def running(home):
    """A server of its own, with a token."""
    process, address = started(home, "--token", "a-long-token")
    yield address
    ended(process)


def ended(process):
    """Ask it to end, and see that it does."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.reading.join()
    process.stderr.close()


def started(home, *options):
    command = [str(Path(sys.executable).with_name("metaprior")), "serve", str(home / "sea.metaprior"), "--port", "0"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environment)
    line = process.stderr.readline()
    assert "serving sea" in line, line
    assert " at http://127.0.0.1:" in line, line
    process.reading = threading.Thread(target=process.stderr.read)
    process.reading.start()
    address = line.split(" at ")[1].split("/ ")[0]
    for _ in range(100):
        try:
            if httpx.get(f"{address}/v2/health/ready").status_code == 200:
                break
        except httpx.TransportError:
            time.sleep(0.05)
    return process, address


def test_a_client_of_the_protocol(home):
    triton = pytest.importorskip("tritonclient.http")
    process, address = started(home)
    asked = triton.InferenceServerClient(address.removeprefix("http://"))
    try:
        assert asked.is_server_live()
        assert asked.is_server_ready()
        assert asked.is_model_ready("sea")
        about = asked.get_model_metadata("sea")
        assert [one["name"] for one in about["inputs"]] == ["year", "month", "temperature"]
        table = {
            "year": np.array(["b", "a", "b", "a", "b"], dtype=object),
            "month": np.array([1.0, 2.0, 6.0, 7.0, 8.0]),
            "temperature": np.array([24.5, 26.0, np.nan, np.nan, np.nan]),
        }
        inputs = []
        for name, kind in (("year", "BYTES"), ("month", "FP64"), ("temperature", "FP64")):
            one = triton.InferInput(name, [5], kind)
            one.set_data_from_numpy(table[name], binary_data=False)
            inputs.append(one)
        outputs = [triton.InferRequestedOutput(name, binary_data=False) for name in ("mean", "upper")]
        found = asked.infer("sea", inputs, outputs=outputs, request_id="7")
        assert found.get_response()["id"] == "7"
        gp = load(home / "sea.metaprior")
        b = gp.condition([[1.0]], [24.5]).at(np.array([[6.0], [8.0]]))
        a = gp.condition([[2.0]], [26.0]).at(np.array([[7.0]]))
        expected = [float(b.mean[0]), float(a.mean[0]), float(b.mean[1])]
        assert found.as_numpy("mean").tolist() == pytest.approx(expected)
        assert found.as_numpy("upper").tolist()[1] == pytest.approx(float(a.interval(0.9).upper[0]))
        with pytest.raises(
            triton.InferenceServerException if hasattr(triton, "InferenceServerException") else Exception
        ):
            asked.infer("sea", inputs[:2])
    finally:
        asked.close()
        ended(process)


def test_a_term_signal_finishes_what_runs(home):
    process, address = started(home)
    rows = [{"year": str(i), "month": k, "temperature": 25.0 + k} for i in range(2000) for k in (1, 2, 3)]
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{address}/predict", json={"rows": rows, "at": "4:12:1"}, timeout=60))
    )
    asking.start()
    time.sleep(0.3)
    ended(process)
    asking.join(60)
    assert answers[0].status_code == 200
    assert len(answers[0].json()["rows"]) == 18_000


def test_mutations_are_refused_in_the_envelope_or_answered(home):
    """A few of those that `benchmarks/serve.py` sends by the thousand."""
    limits = ["--max-body", "300000", "--max-rows", "5000", "--max-points", "20000", "--seconds", "3", "--log", "none"]
    process, address = started(home, "--token", hostile.TOKEN, *limits)
    host, port = address.removeprefix("http://").split(":")
    statuses = set()
    for seed in range(120):
        chance = random.Random(seed)
        status, text = hostile.sent(host, int(port), *hostile.mutated(chance, ["sea"]), chance)
        statuses.add(status)
        assert not status.startswith("5"), (seed, text)
        assert not status.startswith("4") or hostile.is_envelope(text), (seed, status, text)
    assert {"200", "400", "401", "404", "405", "413", "415"} <= statuses
    assert httpx.get(f"{address}/v2/health/live").status_code == 200
    ended(process)


SERVING = Path(__file__).resolve().parents[1] / "docs" / "serving.md"


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", SERVING.read_text(), re.DOTALL)


def test_the_clients_of_the_documentation(home, tmp_path, capsys):
    process, address = started(home, "--token", "a-long-token")
    try:
        (code,) = blocks("python")
        exec(code.replace("http://127.0.0.1:8000", address).replace("Bearer TOKEN", "Bearer a-long-token"), {})
        lines = capsys.readouterr().out.splitlines()
        assert [float(line.split()[0]) for line in lines] == list(range(4, 13))
        curl = next(block for block in blocks("bash") if block.startswith("curl"))
        pd.DataFrame(ROWS).to_csv(tmp_path / "2011.csv", index=False)
        command = curl.replace("http://127.0.0.1:8000", address) + " -H 'Authorization: Bearer a-long-token'"
        done = subprocess.run(command.replace("\n", ""), shell=True, cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.count("\n") == 10, done
    finally:
        ended(process)


def test_the_commands_of_the_container(home, tmp_path):
    """Run here, with the packages that are here in the place of those that it would fetch."""
    (text,) = blocks("dockerfile")
    (tmp_path / "srv" / "models").mkdir(parents=True)
    (tmp_path / "srv" / "models" / "elnino.metaprior").write_bytes((home / "sea.metaprior").read_bytes())
    here = {"/srv": str(tmp_path / "srv"), "/src": str(SERVING.parents[1])}
    site = next(path for path in sys.path if path.endswith("site-packages"))
    environment = os.environ | {"PIP_QUIET": "1", "METAPRIOR_TOKEN": "a-long-token", "PYTHONPATH": site}
    for line in text.splitlines():
        if line.startswith("RUN "):
            command = re.sub(r"/srv|/src", lambda found: here[found[0]], line.removeprefix("RUN "))
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (command, done.stderr)
    command = json.loads(next(line for line in text.splitlines() if line.startswith("CMD ")).removeprefix("CMD "))
    command = [word.replace("/srv", here["/srv"]) for word in command]
    without = {name: value for name, value in environment.items() if name != "METAPRIOR_TOKEN"}
    refused_ = subprocess.run(command, env=without, capture_output=True, text=True)
    assert (refused_.returncode, "Give a --token" in refused_.stderr) == (2, True)
    process = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True, env=environment)  # fmt: skip  # noqa: E501
    assert "serving elnino at http://0.0.0.0:" in process.stderr.readline()
    process.reading = threading.Thread(target=process.stderr.read)
    process.reading.start()
    time.sleep(0.5)
    ended(process)


def test_the_page_with_a_table(browser, running, home, tmp_path):
    rows = [*ROWS, {"year": "2012", "month": 3, "temperature": 26.0}]
    pd.DataFrame(rows).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(running + "/")
    assert page.url.endswith("/sign-in")
    page.locator("#token").fill("a-long-token")
    page.locator("button").click()
    page.locator("a", has_text="sea").first.click()
    page.locator("#table-file").set_input_files(tmp_path / "other.csv")
    page.locator("#table-wrong:not(:empty)").wait_for()
    assert "no column 'year'" in page.locator("#table-wrong").inner_text()
    page.locator("#table-file").set_input_files(tmp_path / "new.csv")
    page.locator("#table-chosen:not([hidden])").wait_for()
    assert page.evaluate("metaprior.page.state.points") == [{"x": [1], "y": [24.2]}, {"x": [2], "y": [25.9]}]
    page.locator("#table-task").select_option("1")
    assert page.evaluate("metaprior.page.state.points") == [{"x": [3], "y": [26]}]
    page.locator("#known input").nth(1).fill("25.5")
    page.locator("#known input").nth(1).press("Tab")
    assert page.evaluate("metaprior.page.state.points") == [{"x": [3], "y": [25.5]}]
    page.locator("#at").fill("4, 9")
    for kind in ("csv", "parquet"):
        with page.expect_download() as waiting:
            page.locator(f"#all-{kind}").click()
        waiting.value.save_as(tmp_path / f"found.{kind}")
    assert waiting.value.suggested_filename == "new-predicted.parquet"
    found, again = pd.read_csv(tmp_path / "found.csv"), pq.read_table(tmp_path / "found.parquet").to_pandas()
    wanted = load(home / "sea.metaprior").predict(pd.DataFrame(rows), at=[4, 9])
    for table in (found, again):
        assert table["mean"].tolist() == pytest.approx(wanted["mean"].tolist())
    page.goto(running + "/models/sea/about")
    assert page.locator("img").count() >= 3
    assert [text for text in said if not text.startswith("[DOM]") and "400" not in text] == []
    page.close()


def test_serving_without_the_extra_says_what_to_install(home, monkeypatch, capsys):
    monkeypatch.setattr("metaprior.extras.find_spec", lambda name: None)
    said = refused("serve", home / "sea.metaprior", capsys=capsys, monkeypatch=monkeypatch)
    assert "pip install 'metaprior[serve]'" in said


def test_served_models_have_their_names(home):
    assert Served(home / "sea.metaprior").name == "sea"
