"""The application: routes, each of which reads a request, lets a thread work, and answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from metaprior import __version__
from metaprior.errors import MetapriorError, UnknownNameError
from metaprior.serve import protocol
from metaprior.serve.counting import Counts
from metaprior.serve.guard import COOKIE, Guard, right_token, session
from metaprior.serve.models import Served
from metaprior.serve.openapi import description
from metaprior.serve.pages import index_page, sign_in_page
from metaprior.serve.predicting import Asked, points_of, predicted, read_request, tasks_of
from metaprior.serve.refusals import FAILED, Refusal
from metaprior.serve.settings import Settings
from metaprior.serve.tables import JSON, answer_of, parsed, rows_of, table_of_body, type_of, wanted_type
from metaprior.serve.work import SMALL, Stop, Workers

FORM = "application/x-www-form-urlencoded"
"""What a browser sends when somebody signs in."""

ROW = 20
"""Bytes of a row, about."""

BINARY = "Inference-Header-Content-Length"
"""What a request says that has tensors after its JSON."""

Handler = Callable[[Request], Awaitable[Response]]


class Server:
    """Models, and what is asked of them."""

    def __init__(self, models: Mapping[str, Served], settings: Settings) -> None:
        self.models, self.settings, self.counts = dict(models), settings, Counts()
        self.workers = Workers(settings.at_once, settings.seconds)

    def app(self) -> Any:
        """What uvicorn runs."""
        asked: list[tuple[str, str, Handler]] = [
            ("GET", "/", self.index),
            ("GET", "/sign-in", self.sign_in),
            ("POST", "/sign-in", self.signed_in),
            ("GET", "/models/{name}/", self.page),
            ("GET", "/models/{name}/about", self.about),
            ("POST", "/models/{name}/tasks", self.tasks),
            ("POST", "/models/{name}/predict", self.predict),
            ("POST", "/predict", self.predict),
            ("GET", "/metrics", self.metrics),
            ("GET", "/openapi.json", self.openapi),
            ("GET", "/v2", self.v2),
            ("GET", "/v2/health/live", self.alive),
            ("GET", "/v2/health/ready", self.ready),
            ("GET", "/v2/models/{name}", self.v2_model),
            ("GET", "/v2/models/{name}/ready", self.v2_ready),
            ("POST", "/v2/models/{name}/infer", self.infer),
        ]
        routes = [Route(path, handler, methods=[method]) for method, path, handler in asked]

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            self.workers.close()

        told: dict[Any, Any] = {Refusal: _refused, MetapriorError: _told, HTTPException: _no_route, Exception: _failed}
        inside = Starlette(routes=routes, exception_handlers=told, lifespan=lifespan)
        return Guard(inside, self.settings, self.counts)

    def model(self, request: Request) -> Served:
        """The model that a request names; where there is one, it need not be named."""
        name = request.path_params.get("name") or request.query_params.get("model")
        if name is None:
            if len(self.models) > 1:
                known = ", ".join(self.models)
                raise Refusal(
                    400, "option", f"there are several models: ask for one of {known} (?model=NAME).", "model"
                )
            return next(iter(self.models.values()))
        if name not in self.models:
            raise Refusal.of(UnknownNameError("model", name, self.models), "model")
        return self.models[name]

    async def index(self, request: Request) -> Response:
        return HTMLResponse(index_page(self.models.values()))

    async def sign_in(self, request: Request) -> Response:
        return HTMLResponse(sign_in_page(wrong=False))

    async def signed_in(self, request: Request) -> Response:
        """The token, for a cookie that no script can read and no other site can use."""
        if not request.headers.get("content-type", "").startswith(FORM):
            raise Refusal(415, "type", f"send the token as a form does: {FORM}.", "header Content-Type")
        async with request.form(max_fields=4) as form:
            given = form.get("token")
        token = self.settings.token
        if token is None or not isinstance(given, str) or not right_token(self.settings, given):
            if "text/html" in request.headers.get("accept", ""):
                return HTMLResponse(sign_in_page(wrong=True), 401)
            raise Refusal(401, "token", "that is not the token.", "token")
        found = RedirectResponse("/", 303)
        found.set_cookie(COOKIE, session(token), httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return found

    async def page(self, request: Request) -> Response:
        served = self.model(request)
        text = await self.workers.run(request, lambda stop: served.page, SMALL)
        return HTMLResponse(text, headers={"Content-Security-Policy": _policy(text)})

    async def about(self, request: Request) -> Response:
        served = self.model(request)
        return HTMLResponse(await self.workers.run(request, lambda stop: served.about, SMALL))

    async def tasks(self, request: Request) -> Response:
        """The tasks of a table, for the page: nothing of it is kept."""
        served, body, kind = self.model(request), await request.body(), type_of(request.headers.get("content-type"))

        def work(stop: Stop) -> dict[str, Any]:
            if kind == JSON:
                raise Refusal(415, "type", "send a table: CSV, Parquet or Arrow.", "header Content-Type")
            optional = [one.name for one in served.columns.task_x]
            table = table_of_body(body, kind, served.columns, optional, self.settings.max_rows)
            found, notes = tasks_of(table, served)
            return {"tasks": found, "notes": notes}

        return JSONResponse(await self.workers.run(request, work, len(body) // ROW))

    async def predict(self, request: Request) -> Response:
        body, kind = await request.body(), type_of(request.headers.get("content-type"))
        answer = wanted_type(request.headers.get("accept"))
        served = self.model(request)

        def read(stop: Stop) -> tuple[Any, Asked]:
            return read_request(body, kind, request.query_params, served, self.settings)

        table, asked = await self.workers.run(request, read, len(body) // ROW)
        size = points_of(table, asked, served, self.settings)

        def work(stop: Stop) -> Response:
            found, notes = predicted(table, asked, served, stop)
            if answer == JSON:
                stop.check()
                return JSONResponse({"rows": rows_of(found), "notes": notes})
            headers = {"Metaprior-Notes": json.dumps([note[:1000] for note in notes])}  # a name may be of any length
            return Response(answer_of(found, answer), media_type=answer, headers=headers)

        return await self.workers.run(request, work, size)

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.counts.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description(list(self.models), self.settings))

    async def v2(self, request: Request) -> Response:
        return JSONResponse({"name": "metaprior", "version": __version__, "extensions": []})

    async def alive(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": True})  # nothing is served before all models are loaded

    async def v2_model(self, request: Request) -> Response:
        return JSONResponse(protocol.described(self.model(request)))

    async def v2_ready(self, request: Request) -> Response:
        return JSONResponse({"name": self.model(request).name, "ready": True})

    async def infer(self, request: Request) -> Response:
        served, body = self.model(request), await request.body()
        if BINARY in request.headers:
            said = "tensors are JSON here, not binary (binary_data=False in tritonclient)."
            raise Refusal(415, "type", said, f"header {BINARY}")

        def read(stop: Stop) -> tuple[Any, Any, Asked, list[str]]:
            given = parsed(body)
            table, asked = protocol.table_of_tensors(given, served, self.settings.max_rows)
            return given, table, asked, protocol.wanted_outputs(given, served)

        given, table, asked, names = await self.workers.run(request, read, len(body) // ROW)
        size = points_of(table, asked, served, self.settings)

        def work(stop: Stop) -> Response:
            found, _ = predicted(table, asked, served, stop)
            return JSONResponse(protocol.answer(served, found, names, given))

        return await self.workers.run(request, work, size)


def _policy(page: str) -> str:
    """That of the page itself: what it may run is in its head."""
    start = page.index('content="', page.index("Content-Security-Policy")) + len('content="')
    return page[start : page.index('"', start)].replace("&#x27;", "'") + "; frame-ancestors 'none'"


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, MetapriorError)
    return Refusal.of(error).response()


async def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: "there is nothing here: see /openapi.json.", 405: "this is not asked so: see /openapi.json."}
    return Refusal(error.status_code, "route", known.get(error.status_code, error.detail), request.url.path).response()


async def _failed(request: Request, error: Exception) -> Response:
    return FAILED.response()
