"""Running a server: a socket of its own, and an end that finishes what runs."""

from __future__ import annotations

import errno
import gc
import signal
import socket
from collections.abc import Callable, Mapping

import torch
import uvicorn

from metaprior.errors import OptionError
from metaprior.serve.app import Server
from metaprior.serve.lines import protocol
from metaprior.serve.models import Served
from metaprior.serve.settings import Settings


def run_server(models: Mapping[str, Served], settings: Settings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; what runs then is finished first."""
    listening = _bound(settings)
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    say(f"serving {', '.join(models)} at http://{shown}:{port}/ (Ctrl-C ends it)")
    if settings.open_ and settings.token is None:
        say("note: anyone who reaches it may ask.")
    config = uvicorn.Config(
        Server(models, settings).app(),
        access_log=False,
        log_level="error",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=int(settings.seconds) + 5,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
        http=protocol(settings.seconds),
        ws="none",
    )
    torch.set_num_threads(1)  # requests share the cores: a second thread of one would wait for the threads of others
    gc.freeze()  # what is loaded stays: it need not be gone through again and again
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it again when it has finished: the end is a good one
    uvicorn.Server(config).run(sockets=[listening])


def _bound(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # by which asyncio knows not to hold bytes back
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((settings.host.strip("[]"), settings.port))
        found.listen()
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise OptionError(
                f"port {settings.port} is in use: choose another with --port, or --port 0 for any that is free."
            ) from None
        raise OptionError(f"cannot listen at {settings.host}:{settings.port}: {error.strerror or error}.") from None
    return found
