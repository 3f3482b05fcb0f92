"""How a server is set up: who may ask, and how much."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, fields
from typing import Literal

from metaprior.errors import OptionError

Log = Literal["text", "json", "none"]


@dataclass(frozen=True)
class Limits:
    """Of one request, but for `max_known`, of one of its tasks (whose covariance has the square of that), and for
    `at_once`, the requests that are worked on together.
    """

    max_body: int = 64_000_000
    max_rows: int = 1_000_000
    max_points: int = 1_000_000
    max_known: int = 5_000
    seconds: float = 30.0
    at_once: int = 32

    def __post_init__(self) -> None:
        for one in fields(Limits):
            if not getattr(self, one.name) > 0:
                raise OptionError(f"--{one.name.replace('_', '-')} {getattr(self, one.name)}: give a number above 0.")


@dataclass(frozen=True)
class Settings(Limits):
    """host and port: where it listens. token: what others have to know; without one it listens to this machine alone,
    unless it is `open_`. allowed_hosts: names that it may be asked by, beside its own. origins: of pages elsewhere that
    may ask it (CORS).
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    open_: bool = False
    allowed_hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    log: Log = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.port < 65_536:
            raise OptionError(f"--port {self.port}: give a number from 1 to 65535, or 0 for any that is free.")
        if self.log not in ("text", "json", "none"):
            raise OptionError(f"--log {self.log}: one of text, json, none.")
        if self.token is not None and len(self.token) < 8:
            raise OptionError("--token: give 8 signs or more, such as `openssl rand -hex 16` makes.")
        if self.token is not None and not re.fullmatch(r"[!-~]+", self.token):
            raise OptionError("--token: letters, digits and signs without blanks.")
        if not is_loopback(self.host) and self.token is None and not self.open_:
            raise OptionError(
                f"--host {self.host}: others can reach it there. Give a --token that they have to know, or --open if "
                "anyone may ask."
            )

    @property
    def names(self) -> frozenset[str]:
        """The hosts that a request may name."""
        own = {"localhost", "127.0.0.1", "[::1]", self.host.lower(), f"[{self.host.lower()}]"}
        return frozenset(own | {name.lower() for name in self.allowed_hosts})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
