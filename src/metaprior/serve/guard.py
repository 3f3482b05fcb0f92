"""What every request passes first: who may ask, how much, how long; and what every answer carries."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from metaprior.serve.counting import Counts, log_failure, log_request
from metaprior.serve.refusals import FAILED, Refusal
from metaprior.serve.settings import Settings

COOKIE = "metaprior"
OPEN = ("/v2/health/live", "/v2/health/ready", "/sign-in")
"""What can be asked without a token."""

BODIES = 8
"""As many bodies of the largest size may be in memory together."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""Of pages that say no other."""


def session(token: str) -> str:
    """What the browser of someone who has signed in carries: it does not hold the token itself."""
    return hmac.new(token.encode(), b"signed in", hashlib.sha256).hexdigest()


def right_token(settings: Settings, given: str) -> bool:
    """Whether it is the token, in a time that does not depend on how much of it is right."""
    return settings.token is not None and hmac.compare_digest(settings.token.encode(), given.encode())


class Guard:
    """Around the application: refuses what may not be asked, reads bodies within limits, counts and logs."""

    def __init__(self, app: ASGIApp, settings: Settings, counts: Counts) -> None:
        self.app, self.settings, self.counts = app, settings, counts
        self.held = 0  # bytes of bodies that are read or worked on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, sent = time.perf_counter(), 0, 0

        async def sending(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                self._headers(MutableHeaders(scope=message), Headers(scope=scope))
            sent += len(message.get("body", b""))
            await send(message)

        size = 0
        try:
            refused = self._refused(scope)
            if refused is not None:
                await refused(scope, receive, sending)
            elif scope["method"] in ("POST", "PUT", "PATCH"):
                size = await self._worked_on(scope, receive, sending)
            else:
                await self.app(scope, receive, sending)
        except Exception as error:
            log_failure(self.settings.log, error)
            if status == 0:
                await FAILED.response()(scope, receive, sending)
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
            self.counts.add(method, route, status, seconds)
            said = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
            log_request(self.settings.log, said | {"bytes_in": size, "bytes_out": sent})

    def _refused(self, scope: Scope) -> Response | None:
        """The answer to a request that may not be asked; None where it may."""
        try:
            headers = Headers(scope=scope)
            self._check_host(headers)
            if scope["method"] not in ("GET", "HEAD"):
                self._check_origin(headers, scope)
            if scope["method"] == "OPTIONS" and headers.get("origin") in self.settings.origins:
                return Response(status_code=204)  # a page elsewhere asks whether it may ask
            return self._without_token(headers, scope)
        except Refusal as refusal:
            return refusal.response()

    def _check_host(self, headers: Headers) -> None:
        given = headers.get("host", "")
        name = given.rsplit(":", 1)[0] if not given.endswith("]") else given
        if name.lower() not in self.settings.names:
            raise Refusal(
                421, "host", "this server is not asked by that name: start it with --allowed-host NAME.", "header Host"
            )

    def _check_origin(self, headers: Headers, scope: Scope) -> None:
        """A page of another site can send a request, but may not: browsers say where it comes from."""
        origin = headers.get("origin")
        if origin is None or origin in self.settings.origins:
            return
        if origin.lower().partition("://")[2] != headers.get("host", "").lower():
            raise Refusal(
                403, "origin", "pages of other sites may not ask: start the server with --cors ORIGIN.", "header Origin"
            )

    def _without_token(self, headers: Headers, scope: Scope) -> Response | None:
        token = self.settings.token
        if token is None or scope["path"] in OPEN:
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and right_token(self.settings, given.strip()):
            return None
        carried = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        if hmac.compare_digest(session(token).encode(), carried.encode()):
            return None
        if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
            return RedirectResponse("/sign-in", 303)
        raise Refusal(
            401, "token", "give the token of this server: Authorization: Bearer TOKEN.", "header Authorization"
        )

    async def _worked_on(self, scope: Scope, receive: Receive, send: Send) -> int:
        """A request with a body, if there are not too many already; the bytes of its body."""
        try:
            self._check_busy()
            body = await self._body(scope, receive)
            self._check_busy()
        except Refusal as refusal:
            await refusal.response()(scope, receive, send)
            return 0
        except _GoneError:
            return 0
        self.counts.at_work += 1
        self.held += len(body)
        try:
            await self.app(scope, _replayed(body, receive), send)
            return len(body)
        finally:
            self.counts.at_work -= 1
            self.held -= len(body)

    def _check_busy(self) -> None:
        """Whoever is slow to send a body takes nobody's place; but what bodies take in memory has an end."""
        most, settings = BODIES * self.settings.max_body, self.settings
        if self.counts.at_work >= settings.at_once:
            busy = f"{settings.at_once} requests are being worked on: ask again later (--at-once allows more)."
            raise Refusal(429, "busy", busy)
        if self.held > most:
            busy = f"requests of {most:,} bytes together are here already: ask again later (--max-body allows more)."
            raise Refusal(429, "busy", busy)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The whole body, within the limits of size and time."""
        most, length = self.settings.max_body, Headers(scope=scope).get("content-length")
        too_large = Refusal(413, "too large", f"a body has {most:,} bytes at most (--max-body).", "body")
        if length is not None and (not length.isdigit() or int(length) > most):
            raise too_large
        if Headers(scope=scope).get("content-encoding", "identity") != "identity":
            raise Refusal(415, "encoding", "send the body as it is, not packed.", "header Content-Encoding")
        parts, total = [], 0
        try:
            async with asyncio.timeout(self.settings.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    parts.append(message.get("body", b""))
                    self.held += len(parts[-1])
                    total += len(parts[-1])
                    self._check_busy()
                    if total > most:
                        raise too_large
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            said = f"the body took more than {self.settings.seconds:g} seconds (--seconds)."
            raise Refusal(408, "too long", said, "body") from None
        finally:
            self.held -= total

    def _headers(self, given: MutableHeaders, asked: Headers) -> None:
        given.setdefault("Content-Security-Policy", POLICY)
        given["X-Content-Type-Options"] = "nosniff"
        given["Referrer-Policy"] = "same-origin"  # with none, browsers name no origin either
        given["Cache-Control"] = "no-store"
        origin = asked.get("origin")
        if origin in self.settings.origins:
            given["Access-Control-Allow-Origin"] = str(origin)
            given["Access-Control-Allow-Headers"] = "Authorization, Content-Type, Accept"
            given["Access-Control-Expose-Headers"] = "Metaprior-Notes"
            given["Vary"] = "Origin"


class _GoneError(Exception):
    """Whoever asked has gone."""


def _replayed(body: bytes, receive: Receive) -> Any:
    """A body that was read already, and then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
