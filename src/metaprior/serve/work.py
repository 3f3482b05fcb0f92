"""Predictions in worker threads: as long as they may take, and as long as somebody waits for them."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from starlette.requests import Request

from metaprior.errors import MetapriorError, short_of_memory
from metaprior.serve.refusals import Refusal

Found = TypeVar("Found")

SMALL = 3_000
"""Rows and points of a request that is answered in some tens of milliseconds."""


class Stop:
    """Whether work should end: looked at between slices."""

    def __init__(self, seconds: float) -> None:
        self.until, self._gone = time.monotonic() + seconds, threading.Event()

    def set(self) -> None:
        """Nobody waits any more."""
        self._gone.set()

    def check(self) -> None:
        """End the work, if it should."""
        if self._gone.is_set() or time.monotonic() > self.until:
            raise _StoppedError


class _StoppedError(Exception):
    """Work that was ended."""


class Workers:
    """Threads: one for what is small, since two would mostly wait for each other's Python, and some for what is large,
    so that nothing small waits for it. seconds: of one piece of work.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.quick = ThreadPoolExecutor(1, thread_name_prefix="quick")
        self.large = ThreadPoolExecutor(min(most, os.cpu_count() or 1), thread_name_prefix="large")
        self.seconds = seconds

    async def run(self, request: Request, work: Callable[[Stop], Found], size: int = 0) -> Found:
        """What a piece of work found; it is ended when its time is up, or when whoever asked has gone.

        size: rows and points, by which it is small or large.
        """
        stop, pool = Stop(self.seconds), self.quick if size < SMALL else self.large
        found: asyncio.Future[Any] = asyncio.get_running_loop().run_in_executor(pool, work, stop)
        found.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it any more
        gone: asyncio.Future[Any] = asyncio.ensure_future(_gone(request))
        too_long = Refusal(408, "too long", f"it takes more than {self.seconds:g} seconds: ask for less (--seconds).")
        try:
            await asyncio.wait([found, gone], timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED)
            if not found.done():
                stop.set()
                raise too_long
            answer: Found = found.result()
            return answer
        except _StoppedError:
            raise too_long from None
        except MetapriorError as error:
            raise Refusal.of(error) from None
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            raise Refusal(413, "too large", "it takes more memory than there is: ask for less.") from None
        finally:
            gone.cancel()

    def close(self) -> None:
        """Finish what runs."""
        for pool in (self.quick, self.large):
            pool.shutdown(wait=True)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error is one of memory. Torch has no class for it on the CPU: it raises a plain RuntimeError."""
    plain = type(error) is RuntimeError and short_of_memory(error)
    return plain or isinstance(error, (MemoryError, torch.OutOfMemoryError))


async def _gone(request: Request) -> None:
    """Returns when whoever asked has gone."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
