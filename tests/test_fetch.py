"""Downloads against a real server on this machine, with the ways in which servers and connections fail."""

import gzip
import hashlib
import io
import re
import socket
import struct
import sys
import tarfile
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import metaprior
from metaprior.cli import data as commands
from metaprior.data import DATASETS, Source, cache_folder, fetch
from metaprior.data.fetch import SOURCES, check_md5
from metaprior.data.physionet import check_set

FILE = "train-labels-idx1-ubyte.gz"
BODY = bytes(range(256)) * 1000
MD5 = hashlib.md5(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves `server.bodies`; `server.faults` says what goes wrong with the next requests."""

    def do_GET(self):
        fault = self.server.faults.pop(0) if self.server.faults else ""
        self.server.requests.append((self.path, self.headers.get("Range")))
        body = self.server.bodies.get(self.path)
        if body is None:
            self.send_error(404)
        elif fault != "no answer":
            self.answer(body, fault)

    def answer(self, body, fault):
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted and fault != "no ranges" else 0
        if start >= len(body):
            self.send_response(416)
            if fault != "no size":
                self.send_header("Content-Range", f"bytes */{len(body)}")
            self.end_headers()
            return
        start = 0 if fault == "other range" else start
        self.send_response(206 if wanted and fault != "no ranges" else 200)
        if wanted and fault != "no ranges":
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if fault != "no length":
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        half = start + (len(body) - start) // 2
        self.wfile.write(body[start : half if fault in ("half", "reset") else len(body)])
        if fault == "reset":
            self.wfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(sys.modules[fetch.__module__], "WAIT", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.bodies, server.faults, server.requests = {"/home": BODY}, [], []
        server.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def get(server, folder, *homes, md5=MD5):
    addresses = tuple(server.address + home for home in homes or ("/home",))
    return fetch("mnist", folder, sources=[Source(FILE, addresses, partial(check_md5, md5))], progress=False)


def names(folder):
    return sorted(path.name for path in (folder / "mnist").iterdir())


def leave_part(folder, body):
    (folder / "mnist").mkdir()
    (folder / "mnist" / f"{FILE}.part").write_bytes(body)


def test_a_file_is_downloaded_whole_and_once(server, tmp_path):
    assert get(server, tmp_path) == tmp_path / "mnist"
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY
    assert names(tmp_path) == [FILE]
    get(server, tmp_path)
    assert server.requests == [("/home", None)]


def test_downloads_go_to_the_cache_and_are_found_there(server, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert get(server, None) == cache_folder() / "mnist" == tmp_path / "metaprior" / "mnist"


def test_a_broken_download_is_resumed(server, tmp_path):
    leave_part(tmp_path, BODY[:1000])
    get(server, tmp_path)
    assert server.requests == [("/home", "bytes=1000-")]
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY
    assert names(tmp_path) == [FILE]


@pytest.mark.parametrize("fault", ["no ranges", "other range"])
def test_a_server_that_gives_no_rest_gives_everything(fault, server, tmp_path):
    leave_part(tmp_path, b"x" * 1000)
    server.faults = [fault]
    get(server, tmp_path)
    assert server.requests[0] == ("/home", "bytes=1000-")
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY


def test_a_part_that_is_complete_is_only_checked(server, tmp_path):
    leave_part(tmp_path, BODY)
    get(server, tmp_path)
    assert server.requests == [("/home", f"bytes={len(BODY)}-")]
    assert names(tmp_path) == [FILE]


@pytest.mark.parametrize(("part", "fault"), [(BODY + b"more", ""), (BODY, "no size")])
def test_a_refused_range_starts_again(part, fault, server, tmp_path):
    leave_part(tmp_path, part)
    server.faults = [fault]
    get(server, tmp_path)
    assert server.requests == [("/home", f"bytes={len(part)}-"), ("/home", None)]
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY


@pytest.mark.parametrize("faults", [["half"], ["half", "no answer", "half"], ["reset"]])
def test_a_dropped_connection_is_taken_up_again(faults, server, tmp_path):
    server.faults = list(faults)
    get(server, tmp_path)
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY
    assert len(server.requests) == len(faults) + 1
    if faults == ["half"]:
        assert server.requests[1] == ("/home", f"bytes={len(BODY) // 2}-")


def test_after_some_retries_the_part_is_kept_and_the_next_run_goes_on(server, tmp_path):
    server.faults = ["half"] * 4
    have = len(BODY) - len(BODY) // 16
    with pytest.raises(metaprior.DataError, match=rf"again to go on from {have:,} of {len(BODY):,} bytes") as caught:
        get(server, tmp_path)
    assert f"{server.address}/home: the connection was lost" in str(caught.value)
    assert names(tmp_path) == [f"{FILE}.part"]
    get(server, tmp_path)
    assert server.requests[4:] == [("/home", f"bytes={have}-")]
    assert names(tmp_path) == [FILE]


def test_a_body_of_unknown_length_is_taken_as_it_comes(server, tmp_path):
    server.faults = ["no length"]
    get(server, tmp_path)
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY


def test_a_wrong_checksum_keeps_nothing(server, tmp_path):
    with pytest.raises(metaprior.DataError, match=rf"its md5 is {MD5}, expected 0123") as caught:
        get(server, tmp_path, md5="0123")
    for word in (FILE, f"{server.address}/home", "was removed"):
        assert word in str(caught.value)
    assert names(tmp_path) == []


def test_the_next_mirror_is_tried(server, tmp_path):
    server.bodies["/wrong"] = b"another file"
    get(server, tmp_path, "/gone", "/wrong", "/home")
    assert [path for path, _ in server.requests] == ["/gone", "/wrong", "/home"]
    assert (tmp_path / "mnist" / FILE).read_bytes() == BODY


def test_without_a_mirror_left_each_address_is_named(server, tmp_path):
    with socket.socket() as nobody:  # bound, but not listening: the connection is refused
        nobody.bind(("127.0.0.1", 0))
        refused = f"http://127.0.0.1:{nobody.getsockname()[1]}/home"
        source = Source(FILE, (f"{server.address}/gone", refused), partial(check_md5, MD5))
        with pytest.raises(metaprior.DataError) as caught:
            fetch("mnist", tmp_path, sources=[source], progress=False)
    assert f"{server.address}/gone: the server answered 404 Not Found." in str(caught.value)
    assert f"{refused}: no connection" in str(caught.value)
    assert f"put the file into {tmp_path / 'mnist'} yourself" in str(caught.value)
    assert names(tmp_path) == []


def test_a_damaged_file_is_left_in_place(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    damaged = tmp_path / "mnist" / FILE
    damaged.write_bytes(b"damaged")
    with pytest.raises(metaprior.DataError, match=rf"{FILE} is damaged and was left in place: delete it"):
        get(server, tmp_path)
    assert damaged.read_bytes() == b"damaged"
    assert server.requests == []


def test_what_cannot_be_written_is_said(server, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(metaprior.OutputError, match=r"cannot write to the folder .* Choose another with --folder"):
        get(server, tmp_path / "file")
    (tmp_path / "mnist" / FILE).mkdir(parents=True)
    with pytest.raises(metaprior.DataError, match=f"{FILE} is damaged.*cannot read"):
        get(server, tmp_path)
    with pytest.raises(metaprior.UnknownNameError, match=r"unknown dataset 'mnits'\. Did you mean 'mnist'\?"):
        fetch("mnits", tmp_path)


def set_of(patients):
    body = b"Time,Parameter,Value\n00:00,RecordID,1\n48:00,GCS,15\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for record in range(100_000, 100_000 + patients):
            member = tarfile.TarInfo(f"set-a/{record}.txt")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return gzip.compress(packed.getvalue(), compresslevel=1)


def test_a_set_of_patients_is_checked_by_its_contents(server, tmp_path):
    server.bodies = {"/whole": set_of(4000), "/less": set_of(3999), "/page": b"<html>come back later</html>"}
    for home, message in {"/less": "3,999 patient files, expected 4,000", "/page": "is damaged or cut short"}.items():
        source = Source("set-a.tar.gz", (server.address + home,), check_set)
        with pytest.raises(metaprior.DataError, match=message):
            fetch("physionet2012", tmp_path, sources=[source], progress=False)
    source = Source("set-a.tar.gz", (f"{server.address}/whole",), check_set)
    home = fetch("physionet2012", tmp_path, sources=[source], progress=False)
    assert [path.name for path in home.iterdir()] == ["set-a.tar.gz"]


def test_the_official_homes_have_all_files():
    for name, sources in SOURCES.items():
        assert [source.file for source in sources] == list(DATASETS[name].files)
        for source in sources:
            assert all(home.startswith("https://") and home.endswith(source.file) for home in source.addresses)


def test_the_real_files_pass_their_checks(data_folder):
    for name, sources in SOURCES.items():
        for source in sources:
            path = data_folder / name / source.file
            assert source.check(path) is None, path


def test_the_command_fetches_and_says_where(server, tmp_path, monkeypatch, capsys):
    source = Source(FILE, (f"{server.address}/home",), partial(check_md5, MD5))
    monkeypatch.setitem(SOURCES, "mnist", (source,))
    commands.fetch("mnist", tmp_path)
    assert capsys.readouterr().out == f"mnist is in {tmp_path / 'mnist'}\n"
    assert names(tmp_path) == [FILE]
