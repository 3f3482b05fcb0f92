"""Lines: who says nothing, too slowly or no HTTP is told so as everybody else, and nobody holds a line for ever."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from metaprior.serve.refusals import Refusal

MOST = 500
"""Lines that are open at once; an idle one costs little."""


def protocol(seconds: float) -> type[asyncio.Protocol]:
    """What uvicorn reads HTTP by. seconds: until the head of a request has come as a whole."""
    slow = Refusal(408, "too long", f"the request took more than {seconds:g} seconds to come (--seconds).")
    busy = Refusal(503, "busy", f"{MOST} lines are open: ask again later.")
    no_http = Refusal(400, "http", "this is no request of HTTP.")

    class Line(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        patience: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > MOST:
                self.end(busy)
            self.watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.patience is not None:
                self.patience.cancel()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            self.end(no_http)

        def watch(self) -> None:
            """Time runs while no request is at work: from the first moment, and from a later head's first byte."""
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self.patience is None:
                self.patience = self.loop.call_later(seconds, self.end, slow)
            elif not waits and self.patience is not None:
                self.patience.cancel()
                self.patience = None

        def end(self, refusal: Refusal) -> None:
            begun = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
            if not begun and not self.transport.is_closing():
                self.transport.write(_written(refusal.response()))
            self.transport.close()

    return Line


def _written(answer: Response) -> bytes:
    """An answer as it goes over the line, and the end of it."""
    status = f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}\r\n".encode()
    headers = b"".join(name + b": " + value + b"\r\n" for name, value in answer.raw_headers)
    return status + headers + b"connection: close\r\n\r\n" + bytes(answer.body)
