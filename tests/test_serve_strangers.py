"""The server among strangers: types, texts, sizes and senders that nobody has asked for, and what they are told."""

import asyncio
import gc
import io
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from pyarrow import ipc
from starlette.testclient import TestClient

from metaprior import load
from metaprior.errors import DeviceMemoryError, OptionError
from metaprior.frames import Wanted, predict_table
from metaprior.serve import Served, Server, Settings, load_models, run_server
from metaprior.serve.predicting import Asked, points_of
from metaprior.serve.tables import ARROW, CSV, JSON, PARQUET, table_of_rows
from metaprior.serve.work import SMALL
from metaprior.tasks import Columns, Covariate
from tests.test_serve import HOST, ROWS, client, ended, home, rows_of, started, told  # noqa: F401

TABLE = {"year": ["a", "a", "b"], "month": [1.0, 2.0, 3.0], "temperature": [24.2, 25.9, 26.0]}


@pytest.fixture(scope="module")
def asked(home):  # noqa: F811
    with client(home) as found:
        yield found


def stream(table, **options):
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table, **options):
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def posted(asked, body, kind, path="/models/sea/predict?at=4"):
    return asked.post(path, content=body, headers={"Content-Type": kind})


# ---- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        stream(pa.Table.from_pandas(pd.DataFrame(TABLE).astype({"year": "category"}))),
        stream(pl.DataFrame(TABLE).to_arrow(compat_level=pl.CompatLevel.newest())),
        stream(pl.DataFrame(TABLE).cast({"year": pl.Categorical}).to_arrow()),
        stream(pa.table(TABLE | {"month": pa.array([1.0, 2.0, 3.0]).dictionary_encode()})),
    ],
)
def test_tables_as_pandas_and_polars_write_them(body, asked, home):  # noqa: F811
    assert ipc.open_stream(body).schema.field("month").type != pa.string()
    found = posted(asked, body, ARROW)
    wanted = load(home / "sea.metaprior").predict(pd.DataFrame(TABLE), at=[4])
    assert [row["year"] for row in rows_of(found)] == ["a", "b"]
    assert [row["mean"] for row in rows_of(found)] == pytest.approx(wanted["mean"].tolist())
    shown = posted(asked, body, ARROW, "/models/sea/tasks").json()["tasks"]
    assert [(one["id"], one["n"]) for one in shown] == [("a", 2), ("b", 1)]


ODD = [
    ("year", pa.array([[1], [2], [3]]), "holds list<"),
    ("year", pa.array([b"a", b"\xff", b"b"]), "names tasks: give text, numbers or dates, not binary"),
    ("year", pa.array([1, 2, 3], pa.duration("s")), "not duration"),
    ("year", pa.array([1, 2, 2**60], pa.timestamp("s")), "no date or time that there is"),
    ("month", pa.array([{"a": 1}] * 3), "holds struct<"),
    ("month", pa.array([10**17, 2, 3], pa.time64("ns")), "is not within the acceptable range"),
    ("month", pa.array([1, 2, 3], pa.time64("ns")), "trained on numbers in column 'month'; here it holds"),
    ("temperature", pa.array([1, 2, 3], pa.timestamp("us", "No/Where")), "no date or time that there is"),
    ("temperature", pa.array(["2024-01-01"] * 3), "must hold numbers"),
    ("temperature", pa.array([b"a"] * 3), "must hold numbers"),
]


@pytest.mark.parametrize(("column", "values", "message"), ODD)
@pytest.mark.parametrize("path", ["/models/sea/predict?at=4", "/models/sea/tasks"])
def test_columns_of_other_types_are_told(column, values, message, path, asked):
    table = pa.table(TABLE | {column: values})
    assert message in told(posted(asked, stream(table), ARROW, path), 400)


def test_a_column_that_is_there_twice_or_holds_no_text(asked):
    names = ["year", "year", "month", "temperature"]
    twice = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([1.0]), pa.array([2.0])], names)
    plain = pa.table({"year": ["qqqq"], "month": [1.0], "temperature": [2.0]})
    for kind, body in ((ARROW, stream(twice)), (PARQUET, parquet(twice))):
        assert "several columns called 'year'" in told(posted(asked, body, kind), 400)
    for kind, body in ((ARROW, stream(plain)), (PARQUET, parquet(plain, compression="none", use_dictionary=False))):
        assert posted(asked, body, kind).status_code == 200
        assert "UTF8" in told(posted(asked, body.replace(b"qqqq", b"\xff\xfe\xff\xfe"), kind), 400)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"at": "1\n2"}, "cannot be read"),
        ({"at": "1" * 200_000}, "cannot be read"),
        ({"at": [10**400]}, "at: give points"),
        ({"at": [1, [2]]}, "at: give points"),
        ({"at": "\ud800"}, "no JSON"),
        ({"\ud800": 1}, "no JSON"),
    ],
)
def test_odd_values_in_json(body, message, asked):
    body = json.dumps({"rows": ROWS, "at": [4], **body}).encode()
    assert message in told(posted(asked, body, JSON, "/models/sea/predict"), 400)


def tensors(**changed):
    columns = TABLE | {"temperature": [24.2, None, None]} | changed
    return [
        {"name": name, "datatype": "BYTES" if name == "year" else "FP64", "shape": [3], "data": data}
        for name, data in columns.items()
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": [{"name": []}]}, "inputs: there are year, month, temperature"),
        ({"inputs": tensors(year=["\ud800", "a", "a"])}, "no JSON"),
        ({"inputs": tensors(), "id": "\ud800"}, "no JSON"),
        ({"inputs": tensors(), "parameters": {"level": 10**400}}, "level"),
        ({"inputs": tensors(), "outputs": [{"name": "median"}]}, "outputs: there are mean, sd, lower, upper"),
        ({"inputs": tensors(), "outputs": "mean"}, "outputs: give"),
    ],
)
def test_odd_tensors(body, message, asked):
    assert message in told(posted(asked, json.dumps(body).encode(), JSON, "/v2/models/sea/infer"), 400)


def test_tensors_that_are_asked_for_and_none_after_the_json(asked):
    body = {"inputs": tensors(), "outputs": [{"name": "upper"}, {"name": "mean"}]}
    found = asked.post("/v2/models/sea/infer", json=body).json()["outputs"]
    assert [one["name"] for one in found] == ["upper", "mean"]
    everything = asked.post("/v2/models/sea/infer", json={"inputs": tensors()}).json()["outputs"]
    assert everything[0] == found[1]
    binary = {"Inference-Header-Content-Length": "10"}
    assert "binary_data=False" in told(asked.post("/v2/models/sea/infer", json=body, headers=binary), 415)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv;q=0.1, application/json", JSON),
        ("text/csv;q=0, */*", JSON),
        (f"application/json;q=0.2, {ARROW};q=0.9", ARROW),
        ("text/*", CSV),
        ("text/html, */*;q=0.8", JSON),
    ],
)
def test_answers_in_the_form_that_is_liked_best(accept, kind, asked):
    found = asked.post("/models/sea/predict", json={"rows": ROWS, "at": [4]}, headers={"Accept": accept})
    assert found.headers["content-type"].split(";")[0] == kind


# ---- sizes ----------------------------------------------------------------------------------------------------------


def test_little_that_stands_for_much(asked):
    """A few thousand bytes that would take 500 gigabytes."""
    count, text = 500_000, "x" * 1_000_000
    numbers = {"month": np.ones(count), "temperature": np.ones(count)}
    categories = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))
    views = np.zeros((count, 4), np.uint32)
    views[:, 0], views[:, 1] = len(text), np.frombuffer(b"xxxx", np.uint32)[0]
    buffers = [None, pa.py_buffer(views.tobytes()), pa.py_buffer(text.encode())]
    seen = pa.Array.from_buffers(pa.string_view(), count, buffers)
    for body, kind in (
        (stream(pa.table({"year": categories, **numbers})), ARROW),
        (stream(pa.table({"year": seen, **numbers})), ARROW),
        (parquet(pa.table({"year": categories, **numbers}), store_schema=False), PARQUET),
    ):
        assert "the table takes 500,000,000,000 bytes unpacked" in told(posted(asked, body, kind), 413)
    for packed in (pa.table(TABLE), pa.table(TABLE | {"year": pa.array(["a", "a", "b"]).dictionary_encode()})):
        assert "without compression" in told(posted(asked, stream(packed, compression="zstd"), ARROW), 400)


def test_a_task_that_is_too_large(home):  # noqa: F811
    with client(home, "sea", max_known=2) as asked:
        many = [{"year": "a", "month": k, "temperature": 20.0} for k in (1, 2, 3)]
        assert "3 known rows of one task: 2 are the most (--max-known)" in told(
            asked.post("/predict", json={"rows": many, "at": [4]}), 413
        )
        apart = [row | {"year": str(k)} for k, row in enumerate(many)]
        assert asked.post("/predict", json={"rows": apart, "at": [4]}).status_code == 200
        wanted = [row | {"temperature": None} for row in many] + many[:1]
        assert len(asked.post("/predict", json={"rows": wanted}).json()["rows"]) == 3


def test_what_computes_long_is_large_though_it_is_short(home):  # noqa: F811
    """Draws take a covariance of all points, and a task one of all its rows: what is small does not wait for them."""
    served = Served(home / "sea.metaprior")

    def size(rows, points, **wanted):
        table = pa.table({"year": ["a"] * rows, "month": np.ones(rows), "temperature": np.ones(rows)})
        return points_of(table, Asked(np.ones((points, 1)), Wanted(**wanted)), served, Settings())

    assert max(size(10, 50), size(50, 200, samples=1), size(10, 200, quantiles=(0.1,) * 100)) < SMALL
    assert min(size(1000, 1), size(10, 1000, samples=1), size(10, 1000, quantiles=(0.1,) * 100)) > SMALL


def test_requests_share_the_cores_and_answers_go_out_at_once(home, monkeypatch):  # noqa: F811
    """A second thread of one request would wait for those of the others, and asyncio lets bytes wait for each other
    where a socket does not say that it is one of TCP.
    """
    seen, before = [], signal.getsignal(signal.SIGTERM)

    def run(server, sockets):
        seen.append((torch.get_num_threads(), sockets[0].proto))
        sockets[0].close()

    monkeypatch.setattr("uvicorn.Server.run", run)
    torch.set_num_threads(2)
    try:
        run_server(load_models([str(home / "sea.metaprior")]), Settings(port=0), lambda line: None)
    finally:
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, before)
        gc.unfreeze()
    assert seen == [(1, socket.IPPROTO_TCP)]


CPU_MEMORY = "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (MemoryError(), 413, "more memory than there is"),
        (pa.ArrowMemoryError("malloc of size 8 failed"), 413, "more memory than there is"),
        (RuntimeError(CPU_MEMORY), 413, "more memory than there is"),
        (torch.OutOfMemoryError("CUDA out of memory."), 413, "more memory than there is"),
        (DeviceMemoryError("1 task: the memory of this machine is too small."), 413, "is too small"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), 500, "it is not your fault"),
        (NotImplementedError("no kernel"), 500, "it is not your fault"),
        (RecursionError("maximum recursion depth exceeded"), 500, "it is not your fault"),
        (torch.linalg.LinAlgError("the matrix is singular"), 500, "it is not your fault"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_memory_errors_alone_are_413_and_others_are_logged(error, status, message, home, monkeypatch, capsys):  # noqa: F811
    def failing(*_, **__):
        raise error

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", failing)
    server = Server(load_models([str(home / "sea.metaprior")]), Settings(log="json"))
    with TestClient(server.app(), base_url=HOST) as asked:
        assert message in told(asked.post("/predict", json={"rows": ROWS, "at": [4]}), status)
    logged = [json.loads(line).get("failure") for line in capsys.readouterr().err.splitlines()]
    assert (type(error).__name__ in logged) == (status == 500)


def test_work_is_cut_into_slices_of_tasks_and_points(home, monkeypatch):  # noqa: F811
    """Whatever is asked for, what is in memory at once is bounded, and nothing else changes."""
    gp = load(home / "sea.metaprior")
    random = np.random.default_rng(0)
    sizes = [3, 60, 1, 20, 5]
    table = pd.DataFrame({"year": np.repeat(list("abcde"), sizes), "month": random.uniform(1, 12, sum(sizes))})
    table["temperature"] = 24 + random.normal(size=sum(sizes))
    at, wanted, cuts = np.linspace(1, 12, 50)[:, None], Wanted(quantiles=(0.1,)), []
    whole = predict_table(gp, gp.trained_on_.columns, table, at, wanted).table
    monkeypatch.setattr("metaprior.frames.tables.SLICE", 40)
    parts = predict_table(gp, gp.trained_on_.columns, table, at, wanted, lambda *_: cuts.append(1)).table
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-9)
    assert len(cuts) > 10


def test_columns_are_those_of_all_json_rows(asked):
    """A target or a task column that only late rows have is there, and one that no row has is an error by its name."""
    early = [{"year": "2012", "month": 1 + k % 12} for k in range(1_000)]
    rows = [*early, *ROWS]  # the first 1,000 rows have no target: they are to be predicted
    found = posted(asked, json.dumps({"rows": rows}).encode(), JSON, "/models/sea/predict")
    assert found.status_code == 200, found.text
    assert len(found.json()["rows"]) == 1_000
    answer = posted(asked, json.dumps({"rows": early, "at": [1]}).encode(), JSON, "/models/sea/predict")
    assert "the rows have no column 'temperature'" in told(answer, 400)


def test_task_columns_of_late_json_rows_are_read():
    columns = Columns(("plot",), ("day",), ("y",), (Covariate("age", ()),))
    rows = [{"plot": 1, "day": k, "y": 1.0} for k in range(1_000)] + [{"plot": 2, "day": 1, "y": 1.0, "age": 7}]
    found = table_of_rows(rows, columns, ["age"], 10_000)
    assert found["age"].to_pylist() == [None] * 1_000 + [7]


# ---- senders --------------------------------------------------------------------------------------------------------


def test_origins_that_are_none(asked):
    for origin in ("http://[", "null", "://127.0.0.1x", "127.0.0.1"):
        headers = {"Origin": origin}
        assert "--cors" in told(asked.post("/models/sea/predict", json={"rows": ROWS}, headers=headers), 403)
    own = asked.post("/models/sea/predict", json={"rows": ROWS, "at": [4]}, headers={"Origin": HOST})
    assert own.status_code == 200


def test_bodies_that_are_here_together(home, monkeypatch):  # noqa: F811
    """While one is worked on that takes all the memory there is for bodies, another one is not read."""
    release = threading.Event()

    def waiting(*_, **__):
        release.wait(10)
        raise OptionError("done")

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", waiting)
    monkeypatch.setattr("metaprior.serve.guard.BODIES", 1)
    body = json.dumps({"rows": ROWS, "at": [4]}).encode()
    with client(home, "sea", max_body=len(body) + 20) as asked, ThreadPoolExecutor(1) as other:
        first = other.submit(asked.post, "/predict", content=body + b" " * 20)
        try:
            deadline = time.monotonic() + 5
            while "metaprior_at_work 1" not in asked.get("/metrics").text and time.monotonic() < deadline:
                time.sleep(0.02)
            assert "bytes together are here already" in told(asked.post("/predict", content=body), 429)
        finally:
            release.set()
        assert "done" in told(first.result(), 400)
        assert "done" in told(asked.post("/predict", content=body), 400)


def test_a_form_is_a_form(home):  # noqa: F811
    with client(home, "sea", token="a-long-token") as asked:
        for charset in ("utf-7", "undefined", "utf-8"):
            kind = f"multipart/form-data; boundary=x; charset={charset}"
            body = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n+2AA-\r\n--x--\r\n'
            assert "send the token as a form does" in told(posted(asked, body, kind, "/sign-in"), 415)
        assert "not the token" in told(asked.post("/sign-in", data={"token": "wrong"}), 401)


def test_a_failure_is_told_and_logged_without_data(home, monkeypatch, capsys):  # noqa: F811
    def failing(*_, **__):
        raise KeyError("secret 2011")

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", failing)
    with TestClient(
        Server(load_models([str(home / "sea.metaprior")]), Settings(log="json")).app(), base_url=HOST
    ) as asked:
        assert "it is not your fault" in told(asked.post("/predict", json={"rows": ROWS, "at": [4]}), 500)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["failure"] == "KeyError"
    assert lines[0]["where"][-1].endswith("failing")
    assert lines[1]["status"] == 500
    assert "secret" not in json.dumps(lines)


def test_who_leaves_is_not_worked_for_and_not_talked_about(home, monkeypatch, caplog):  # noqa: F811
    """Between two slices it is seen that nobody waits any more."""
    begun, seen = threading.Event(), threading.Event()

    def slow(method, columns, table, at, wanted, between):
        begun.set()
        try:
            while True:
                seen.wait(0.01)
                between(None, None)
        except BaseException:
            seen.set()
            raise

    monkeypatch.setattr("metaprior.serve.predicting.predict_table", slow)
    app = Server(load_models([str(home / "sea.metaprior")]), Settings(log="none")).app()
    body = json.dumps({"rows": ROWS, "at": [4]}).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    scope |= {"http_version": "1.1", "scheme": "http", "root_path": ""}
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if messages:
            return messages.pop()
        await asyncio.to_thread(begun.wait, 10)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def ask():
        await app(scope, receive, send)
        assert await asyncio.to_thread(seen.wait, 10)
        await asyncio.sleep(0.05)

    with ThreadPoolExecutor(1) as other:  # this one may have a loop, of the browser
        other.submit(lambda: asyncio.run(ask())).result()
    assert caplog.text == ""


def received(line):
    """All that comes over a line until its other end closes it."""
    found = b""
    while part := line.recv(65_536):
        found += part
    head, _, body = found.rpartition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["message"]


def test_who_is_slow_takes_nobodys_place_and_is_cut_off(home):  # noqa: F811
    process, address = started(home, "--seconds", "2", "--at-once", "1", "--log", "none")
    where = tuple(address.removeprefix("http://").split(":"))
    lines = [socket.create_connection(where, 20) for _ in range(4)]
    try:
        silent, head, body, none = lines
        head.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        body.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nConnection: close\r\n\r\n{")
        assert httpx.post(f"{address}/predict", json={"rows": ROWS, "at": [4]}).status_code == 200
        none.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert received(none) == (400, "this is no request of HTTP.")
        for line in (silent, head):
            assert received(line) == (408, "the request took more than 2 seconds to come (--seconds).")
        assert received(body) == (408, "the body took more than 2 seconds (--seconds).")
        with httpx.Client() as again:  # a line that is used again is waited for again
            assert again.get(f"{address}/v2/health/live").status_code == 200
            assert again.get(f"{address}/v2/health/live").status_code == 200
    finally:
        for line in lines:
            line.close()
        ended(process)


def test_no_more_lines_than_there_are(home, monkeypatch):  # noqa: F811
    """Those that are too many are told so, and there is room again when others have gone."""
    process, address = started(home, "--seconds", "2", "--log", "none")
    where = tuple(address.removeprefix("http://").split(":"))
    lines = [socket.create_connection(where, 20) for _ in range(500)]
    try:
        with socket.create_connection(where, 20) as one_more:
            assert received(one_more) == (503, "500 lines are open: ask again later.")
        assert received(lines[0])[0] == 408
        assert httpx.get(f"{address}/v2/health/live").status_code == 200
    finally:
        for line in lines:
            line.close()
        ended(process)


# ---- pages ----------------------------------------------------------------------------------------------------------


def test_a_model_of_an_odd_name_and_a_table_with_gaps(browser, home, tmp_path):  # noqa: F811
    odd = tmp_path / "sea #1 50%?.metaprior"
    odd.write_bytes((home / "sea.metaprior").read_bytes())
    (tmp_path / "sea.metaprior").symlink_to(home / "sea.metaprior")
    process, address = started(tmp_path, str(odd), "--log", "none")
    (tmp_path / "gaps.csv").write_text("year,month,temperature\na,1,24.2\na,2,\nb,3,26\n")
    page = browser.new_page()
    try:
        page.goto(address)
        page.locator("a", has_text="sea #1").first.click()
        page.locator("#table-file").set_input_files(tmp_path / "gaps.csv")
        page.locator("#table-chosen:not([hidden])").wait_for()
        assert "dropped 1 of 3 rows" in page.locator("#table-said").inner_text()
        assert "does not keep it" in page.locator("#footer").inner_text()
        page.locator("#at").fill("4, 9")
        with page.expect_download() as waiting:
            page.locator("#all-csv").click()
        waiting.value.save_as(tmp_path / "found.csv")
        wanted = load(odd).predict(
            pd.DataFrame({"year": ["a", "b"], "month": [1, 3], "temperature": [24.2, 26]}), [4, 9]
        )
        assert pd.read_csv(tmp_path / "found.csv")["mean"].tolist() == pytest.approx(wanted["mean"].tolist())
        page.goto(f"{address}/models/sea/about")
        assert "shared gp" in page.locator("tr", has_text="tried").inner_text()
    finally:
        page.close()
        ended(process)
