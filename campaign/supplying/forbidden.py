"""What no module may do: run text as code, unpickle, go through a shell; and use the network without being asked."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

RUNS_TEXT = {"eval", "exec", "compile", "__import__"}
UNPICKLES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
CALLS = {
    "os.system": "goes through a shell",
    "os.popen": "goes through a shell",
    "subprocess.getoutput": "goes through a shell",
    "subprocess.getstatusoutput": "goes through a shell",
    "yaml.load": "makes any object that a file names",
    "yaml.unsafe_load": "makes any object that a file names",
    "yaml.full_load": "makes any object that a file names",
    "pandas.read_pickle": "unpickles",
    "pd.read_pickle": "unpickles",
}
NETWORK = {
    "socket", "ssl", "http.client", "http.server", "urllib.request", "urllib3", "requests", "httpx", "aiohttp",
    "ftplib", "smtplib", "telnetlib", "xmlrpc", "socketserver", "uvicorn", "websockets", "fsspec", "boto3",
    "webbrowser",
}  # fmt: skip


class Finding(NamedTuple):
    file: str
    line: int
    what: str


def forbidden(source: str, file: str, asked: Mapping[str, str]) -> list[Finding]:
    """What a module does that it may not. asked: files (or folders) that may use the network, each with the reason."""
    tree = ast.parse(source)
    names = _names(tree)
    online = any(file == one or file.startswith(f"{one}/") for one in asked)
    found = [Finding(file, line, what) for line, what in _imports(tree) if not (online and what.startswith("network"))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [Finding(file, node.lineno, what) for what in _call(node, names)]
    return sorted(found)


def forbidden_below(folder: Path, asked: Mapping[str, str]) -> tuple[list[Finding], int]:
    """What the modules below a folder do that they may not, and how many they are."""
    files = sorted(folder.rglob("*.py"))
    found = [one for file in files for one in forbidden(file.read_text("utf-8"), str(file.relative_to(folder)), asked)]
    return found, len(files)


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        elif isinstance(node, ast.Call) and _last(node.func) in ("import_module", "__import__") and node.args:
            modules = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
        for module in modules:
            parts = module.split(".")
            if parts[0] in UNPICKLES:
                yield node.lineno, f"pickle: imports {module}"  # type: ignore[attr-defined]
            if {parts[0], ".".join(parts[:2])} & NETWORK:
                yield node.lineno, f"network: imports {module}"  # type: ignore[attr-defined]


def _call(node: ast.Call, names: dict[str, str]) -> Iterator[str]:
    words = {word.arg: word.value for word in node.keywords}
    name = _dotted(node.func, names)
    if isinstance(node.func, ast.Name) and node.func.id in RUNS_TEXT:
        yield f"runs text: {node.func.id}"
    if name == "torch.load" and not _is(words.get("weights_only"), True):
        yield "pickle: torch.load without weights_only=True"
    if name in CALLS:
        yield f"{name} {CALLS[name]}"
    if "allow_pickle" in words and not _is(words["allow_pickle"], False):
        yield "pickle: allow_pickle"
    if "shell" in words and not _is(words["shell"], False):
        yield "goes through a shell: shell=True"


def _names(tree: ast.Module) -> dict[str, str]:
    """What names that were imported stand for: `from torch import load as read` makes `read` torch.load."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    return f"{_dotted(node.value, names)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _is(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value
