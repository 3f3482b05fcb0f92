"""What a server answers where it cannot do what was asked: always the same envelope, never a traceback."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from metaprior.errors import DataError, DeviceMemoryError, MetapriorError, NumericalError, OptionError, UnknownNameError

STATUS: dict[type[MetapriorError], tuple[int, str]] = {
    UnknownNameError: (404, "unknown name"),
    OptionError: (400, "option"),
    DataError: (400, "data"),
    NumericalError: (422, "numbers"),
    DeviceMemoryError: (413, "too large"),
}
"""What the library refuses, as a status and a word."""


class Refusal(Exception):  # noqa: N818
    """A request that is refused: its status, the kind of refusal, what to do, and where in the request it is."""

    def __init__(self, status: int, kind: str, message: str, where: str | None = None) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.where = status, kind, message, where

    @staticmethod
    def of(error: MetapriorError, where: str | None = None) -> Refusal:
        """What the command line would say, as an answer."""
        status, kind = next((STATUS[one] for one in type(error).__mro__ if one in STATUS), (400, "request"))
        return Refusal(status, kind, str(error), where)

    @property
    def envelope(self) -> dict[str, Any]:
        """As every refusal is told."""
        return {"error": {"type": self.kind, "message": self.message, "where": self.where}}

    def response(self) -> Response:
        """The answer."""
        headers = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        return JSONResponse(self.envelope, self.status, headers)


FAILED = Refusal(500, "failure", "something went wrong here; it is not your fault.")
"""What nobody has thought of."""
