"""The server under load and under attack, on this machine alone.

    python benchmarks/serve.py [--seconds 60] [--memory-minutes 10] [--mutations 10000]

Latency: one task of 10 points, 50 ahead, 20 requests a second, for one learned prior and for elnino's automatic choice.
Bulk: 10,000 tasks of 10 points, 50 ahead, as an Arrow stream both ways, beside `gp.predict` of the same table. Memory:
the same requests for some minutes. Hostile: seeded mutations of valid requests, slow senders among them, to a server
with a token; every answer has to be 200 or a refusal in its envelope, nothing may be written, and the server has to be
alive at the end. Requests go to 127.0.0.1 only.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import io
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from metaprior import MetaGP
from metaprior.data import load_elnino

RATE = 20
ARROW = "application/vnd.apache.arrow.stream"
TOKEN = "a-long-token"
LIMITS = ["--max-body", "300000", "--max-rows", "5000", "--max-points", "20000", "--seconds", "3", "--log", "none"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="of each latency run; 0 for none")
    parser.add_argument("--memory-minutes", type=float, default=10, help="0 for none")
    parser.add_argument("--mutations", type=int, default=10_000, help="0 for none")
    parser.add_argument("--no-bulk", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tasks = load_elnino()
        models = {"one": MetaGP("deep", "deep", progress=False), "auto": MetaGP(progress=False)}
        for name, gp in models.items():
            gp.fit(tasks).save(Path(folder) / f"{name}.metaprior")
        paths = [str(Path(folder) / f"{name}.metaprior") for name in models]
        with Running(paths, "--log", "none") as server:
            for name in models if asked.seconds else ():
                times = asyncio.run(latency(server.address, name, asked.seconds))
                p50, p99 = times[len(times) // 2], times[int(0.99 * len(times))]
                print(
                    f"{name}: {len(times)} requests at {RATE} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True
                )
            if not asked.no_bulk:
                bulk(server.address, models["one"])
            if asked.memory_minutes:
                asyncio.run(memory(server, asked.memory_minutes))
        if asked.mutations:
            dated().save(Path(folder) / "dated.metaprior")
            with Running([*paths, str(Path(folder) / "dated.metaprior")], *LIMITS, "--token", TOKEN) as server:
                hostile(server, asked.mutations)


def dated() -> MetaGP:
    """A model with dates, covariates and two targets."""
    chance = np.random.default_rng(0)
    table = {"plot": np.repeat([f"p{k}" for k in range(9)], 6), "age": np.repeat(np.arange(9.0), 6)}
    table |= {"soil": np.repeat(list("abababbab"), 6), "a": chance.normal(size=54), "b": chance.normal(size=54)}
    days = np.datetime64("2024-01-01", "s") + np.tile(np.arange(6), 9) * np.timedelta64(10, "D")
    gp = MetaGP("deep", "rbf", hidden=(5,), max_epochs=20, progress=False)
    return gp.fit(pa.table(table | {"day": days}), task="plot", x="day", y=["a", "b"], task_x=["age", "soil"])


class Running:
    """A server of its own, on a port that is free, in a folder where it may write whatever it wants."""

    def __init__(self, models: list[str], *options: str) -> None:
        command = [str(Path(sys.executable).with_name("metaprior")), "serve", *models, "--port", "0", *options]
        self.folder = tempfile.TemporaryDirectory()
        places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR"), self.folder.name)
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=self.folder.name, env=os.environ | places
        )
        assert self.process.stderr is not None
        self.address = self.process.stderr.readline().split(" at ")[1].split("/ ")[0]
        while True:
            try:
                httpx.get(f"{self.address}/v2/health/ready")
                break
            except httpx.TransportError:
                time.sleep(0.1)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.folder.cleanup()

    @property
    def resident(self) -> float:
        """Megabytes in memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def rows(seed: int, tasks: int = 1) -> pa.Table:
    chance = np.random.default_rng(seed)
    names = np.repeat([f"t{k}" for k in range(tasks)], 10)
    month = np.tile(np.linspace(1, 6, 10), tasks)
    return pa.table({"year": names, "month": month, "temperature": 24 + chance.normal(size=10 * tasks)})


async def latency(address: str, model: str, seconds: float) -> list[float]:
    """Milliseconds of each request, sorted; they are sent at their times, whether earlier ones are answered or not."""
    times: list[float] = []

    async def one(client: httpx.AsyncClient, seed: int) -> None:
        body = {"columns": rows(seed).to_pydict(), "at": np.linspace(1, 12, 50).tolist()}
        began = time.perf_counter()
        answer = await client.post(f"{address}/models/{model}/predict", json=body)
        times.append(1000 * (time.perf_counter() - began))
        assert answer.status_code == 200, answer.text

    async with httpx.AsyncClient(timeout=30) as client:
        await one(client, 0)
        times.clear()
        began, sent = time.perf_counter(), []
        for k in range(int(RATE * seconds)):
            await asyncio.sleep(max(began + k / RATE - time.perf_counter(), 0))
            sent.append(asyncio.create_task(one(client, k)))
        await asyncio.gather(*sent)
    return sorted(times)


def bulk(address: str, gp: MetaGP) -> None:
    table, at, ours, theirs = rows(0, 10_000), np.linspace(1, 12, 50), [], []
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    where = ",".join(map(repr, at.tolist()))
    for _ in range(9):
        began = time.perf_counter()
        gp.predict(table, at=at)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        with closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=120)) as asking:
            headers = {"Content-Type": ARROW, "Accept": ARROW}
            asking.request("POST", f"/models/one/predict?at={where}", sink.getvalue(), headers)
            answer = asking.getresponse()
            assert answer.status == 200, answer.read()
            assert ipc.open_stream(answer.read()).read_all().num_rows == 500_000
        theirs.append(time.perf_counter() - began)
    here, there = sorted(ours)[4], sorted(theirs)[4]
    print(f"10,000 tasks: gp.predict {here:.2f} s, the server {there:.2f} s, {there / here:.2f} ×", flush=True)


async def memory(server: Running, minutes: float) -> None:
    """Requests for some minutes; the memory at a fifth of the time and at the end."""
    early = 0.0
    for k in range(10):
        for model in ("one", "auto"):
            await latency(server.address, model, 6 * minutes / 2)
        early = server.resident if k == 1 else early
    print(f"{minutes:g} minutes: {early:.0f} MB after a fifth, {server.resident:.0f} MB at the end, "
          f"{server.resident / early:.3f} ×", flush=True)  # fmt: skip


# ---- hostile requests -----------------------------------------------------------------------------------------------


def hostile(server: Running, count: int) -> None:
    """Seeded mutations of valid requests, one after the other; what came of them."""
    host, port = server.address.removeprefix("http://").split(":")
    found: dict[str, int] = {}
    written = os.listdir(server.folder.name)
    before = server.resident
    for seed in range(count):
        chance = random.Random(seed)
        method, path, headers, body = mutated(chance, ("one", "auto", "dated"))
        status, text = sent(host, int(port), method, path, headers, body, chance)
        found[status] = found.get(status, 0) + 1
        if status[0] in "4" and not is_envelope(text):
            raise SystemExit(f"seed {seed}: {status} without an envelope: {text[:300]!r}")
        if status[0] == "5" or "Traceback" in text:
            raise SystemExit(f"seed {seed}: {status}: {text[:300]!r}")
    alive = httpx.get(f"{server.address}/v2/health/live").status_code
    if os.listdir(server.folder.name) != written:
        raise SystemExit(f"it has written {os.listdir(server.folder.name)}")
    said = ", ".join(f"{number} × {status}" for status, number in sorted(found.items()))
    print(f"{count:,} mutations: {said}; alive: {alive}; {before:.0f} → {server.resident:.0f} MB")


def is_envelope(text: str) -> bool:
    """Whether a refusal is told as all are; the answer to HEAD has no body."""
    try:
        return text == "no body" or set(json.loads(text)["error"]) == {"type", "message", "where"}
    except (ValueError, KeyError, TypeError):
        return False


def valid(chance: random.Random, models: Sequence[str]) -> tuple[str, str, dict[str, str], bytes]:
    """One of the requests that the server answers."""
    table, model = rows(chance.randrange(50)), chance.choice(models)
    form = chance.choice(["rows", "columns", "csv", "arrow", "parquet", "infer", "tasks", "sign-in"])
    path, headers, body = f"/models/{model}/predict?at=7:9:1", {"Content-Type": "application/json"}, b""
    if model == "dated":
        known = {"plot": "new", "day": "2024-01-05", "age": 1.0, "soil": "b", "a": 2.0, "b": 1.0}
        path, body = "/models/dated/predict", json.dumps({"rows": [known], "at": "2024-02-01:2024-02-03:1d"}).encode()
    elif form in ("rows", "columns"):
        given = {"rows": table.to_pylist()} if form == "rows" else {"columns": table.to_pydict()}
        body = json.dumps(given | {"at": [7, 8]}).encode()
    elif form in ("csv", "tasks"):
        lines = ["year,month,temperature", *(f"{r['year']},{r['month']},{r['temperature']}" for r in table.to_pylist())]
        headers, body = {"Content-Type": "text/csv"}, "\n".join(lines).encode()
        path = f"/models/{model}/tasks" if form == "tasks" else path
    elif form == "infer":
        tensors = [{"name": "year", "datatype": "BYTES", "shape": [11], "data": ["a"] * 11}]
        for name in ("month", "temperature"):
            tensors.append(
                {"name": name, "datatype": "FP64", "shape": [11], "data": [*table[name].to_pylist(), float("nan")]}
            )
        tensors[1]["data"][-1] = 7.0  # type: ignore[index]
        path, body = f"/v2/models/{model}/infer", json.dumps({"inputs": tensors}).encode()
    elif form == "sign-in":
        path, headers = "/sign-in", {"Content-Type": "application/x-www-form-urlencoded"}
        body = f"token={TOKEN}".encode()
    else:
        sink = io.BytesIO()
        if form == "parquet":
            pq.write_table(table, sink)
        else:
            with ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table)
        kind = "application/vnd.apache.parquet" if form == "parquet" else ARROW
        headers, body = {"Content-Type": kind}, sink.getvalue()
    return "POST", path, headers | {"Authorization": f"Bearer {TOKEN}"}, body


WORDS = (
    b"NaN", b"1e999", b"-1e308", b"null", b"[]", b"{}", b'"', b"\x00", b"\xff\xfe", b"[" * 3000, b"9" * 400, b",,,,",
    b"\n" * 50, b'{"at": "0:1e9:1e-9"}', b"2020-13-45", b"\r\n\r\n", b"true", b"../../etc/passwd",
)  # fmt: skip


VALUES: tuple[Any, ...] = (
    None, True, -1, 10**25, 10**400, 1e308, float("nan"), float("inf"), "", "x", "2020-13-45", "\ud800", "a\nb", [], {},
    [[1]], {"a": 1}, "missing", "0:1e9:1e-9", "1" * 150_000,
)  # fmt: skip


def other_value(given: Any, chance: random.Random) -> Any:
    """JSON with another value, of whatever type, somewhere in it."""
    if isinstance(given, (list, dict)) and given and chance.random() < 0.8:
        where = chance.choice(list(given) if isinstance(given, dict) else range(len(given)))
        given[where] = other_value(given[where], chance)
        return given
    return chance.choice(VALUES)


def mutated(chance: random.Random, models: Sequence[str]) -> tuple[str, str, dict[str, str], bytes]:
    """A valid request, changed in one to three places."""
    method, path, headers, body = valid(chance, models)
    if body[:1] == b"{" and chance.random() < 0.5:
        return method, path, headers, json.dumps(other_value(json.loads(body), chance)).encode()
    for _ in range(chance.randint(1, 3)):
        kind = chance.randrange(12)
        at = chance.randrange(len(body) + 1)
        if kind == 0:
            body = body[:at]
        elif kind == 1:
            body = body[:at] + chance.choice(WORDS) + body[at:]
        elif kind == 2:
            body = bytes(chance.randrange(256) if chance.random() < 0.02 else one for one in body)
        elif kind == 3:
            body = body * chance.randint(2, 200)
        elif kind == 4:
            headers["Content-Type"] = chance.choice(
                ["text/csv", ARROW, "application/vnd.apache.parquet", "multipart/form-data; boundary=x", "a/b", ""]
            )
        elif kind == 5:
            headers[chance.choice(["Accept", "Origin", "Host", "Authorization", "Content-Encoding", "Cookie"])] = (
                chance.choice(
                    [
                        "evil.example",
                        "http://evil.example",
                        "http://[",
                        "*/*",
                        "gzip",
                        "Bearer x",
                        "x" * 5000,
                        "text/csv",
                    ]
                )
            )
        elif kind == 6:
            options = ["at=1:1e6:1e-3", "level=2", "samples=1000000000", "quantiles=a", "latent=perhaps", "seed=1e400",
                       "model=%00", "at=missing", "x=1", "at=" + "1," * 2000]  # fmt: skip
            path += ("&" if "?" in path else "?") + chance.choice(options)
        elif kind == 7:
            path = chance.choice(
                [
                    "/models/../../etc/passwd/predict",
                    "/models/%2e%2e/predict",
                    "/nowhere",
                    "/predict",
                    "//",
                    "/v2/models/x/infer",
                ]
            )
        elif kind == 8:
            method = chance.choice(["GET", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD", "TRACE"])
        elif kind == 9:
            headers["Content-Length"] = chance.choice(["-1", "abc", "999999999999", str(len(body) + 7), "0"])
        elif kind == 10:
            body = json.dumps(
                {"columns": {"year": ["a"] * 20_000, "month": [1] * 20_000, "temperature": [1.0] * 20_000}}
            ).encode()
        else:
            body = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + body
    return method, path, headers, body


def sent(
    host: str, port: int, method: str, path: str, headers: dict[str, str], body: bytes, chance: random.Random
) -> tuple[str, str]:
    """The status of the answer and its text; a sender that is slow or leaves is among them."""
    slow = chance.random()
    try:
        if slow < 0.01:
            with socket.create_connection((host, port), 15) as line:
                head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n"
                whole = head.encode() + b"Content-Length: 100\r\n\r\n{"
                line.sendall(whole[: chance.randrange(len(whole) + 1)])
                return _waited(line) if slow < 0.003 else ("left", "")
        with closing(http.client.HTTPConnection(host, port, timeout=15)) as asking:
            return _answered(asking, method, path, headers, body)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return type(error).__name__, ""


def _waited(line: socket.socket) -> tuple[str, str]:
    """What somebody is told who does not send on."""
    answer = http.client.HTTPResponse(line)
    answer.begin()
    return f"{answer.status} slow", answer.read().decode()


def _answered(
    asking: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[str, str]:
    asking.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
    for name, value in headers.items():
        asking.putheader(name, value)
    if "Content-Length" not in headers:
        asking.putheader("Content-Length", str(len(body)))
    asking.endheaders(body)
    answer = asking.getresponse()
    text = answer.read().decode(errors="replace")
    return str(answer.status), "no body" if method == "HEAD" else text


if __name__ == "__main__":
    main()
