"""Libraries that only some users have: each comes with an extra, and where it is missing, the error says which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from metaprior.errors import NotInstalledError


def check_installed(who: str, extra: str, modules: Sequence[str]) -> None:
    """Refuse before anything is begun: `check_installed("metaprior serve", "serve", ["starlette", "uvicorn"])`."""
    lacking = [name for name in modules if find_spec(name) is None]
    if lacking:
        raise _not_installed(who, extra, " and ".join(lacking))


@contextmanager
def needs(who: str, extra: str) -> Iterator[None]:
    """For imports: `with needs("metaprior.adapters.optuna", "optuna"): from optuna.samplers import BaseSampler`."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _not_installed(who, extra, str(error.name)) from error


def _not_installed(who: str, extra: str, what: str) -> NotInstalledError:
    return NotInstalledError(f"{who} needs {what}, which is not installed: pip install 'metaprior[{extra}]'.")
