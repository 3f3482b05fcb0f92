"""The same work on a Ray cluster: ranks by Ray Train, one thing after the other by Ray Data."""

from __future__ import annotations

import logging
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from metaprior.errors import MetapriorError, OptionError, WorkerError
from metaprior.extras import check_installed
from metaprior.workers.processes import Work

ANSWER = 10
"""Seconds in which a cluster has to answer."""


def run_on_ray(address: str, count: int, work: Work, options: Any) -> None:
    """Do some work on so many ranks of a cluster, each with one thread. Every rank comes to the same errors."""
    with _connected(address):
        train, torch_trainer = import_module("ray.train"), import_module("ray.train.torch")
        with tempfile.TemporaryDirectory() as folder:
            trainer = torch_trainer.TorchTrainer(
                _as_rank,
                train_loop_config={"work": work, "options": options},
                torch_config=torch_trainer.TorchConfig(backend="gloo"),
                scaling_config=train.ScalingConfig(num_workers=count, resources_per_worker={"CPU": 1}),
                run_config=train.RunConfig(storage_path=folder),
            )
            try:
                trainer.fit()
            except train.TrainingFailedError as error:
                raise _told(error) from None


def map_on_ray(address: str, work: Callable[[Any], Any], items: Sequence[Any], workers: int) -> Iterator[Any]:
    """`work(item)` of each item, anywhere on the cluster, as they are done."""
    with _connected(address):
        data = import_module("ray.data")
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        data.DataContext.get_current().enable_progress_bars = False
        found = data.from_items([{"item": item} for item in items], override_num_blocks=len(items)).map(
            _Mapped(work), num_cpus=1, compute=data.TaskPoolStrategy(size=workers)
        )
        for row in found.iter_rows():
            yield row["found"].value


class _Mapped:
    def __init__(self, work: Callable[[Any], Any]) -> None:
        self.work = work

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        import_module("torch").set_num_threads(1)
        return {"found": _Found(self.work(row["item"]))}


class _Found:
    """Something that Ray Data takes as it is, whatever it would make of it in a table."""

    def __init__(self, value: Any) -> None:
        self.value = value


@contextmanager
def _connected(address: str) -> Iterator[None]:
    """A cluster that answers. Where this process has joined one already, as a notebook may have, it stays there."""
    check_installed("--ray", "ray", ["ray"])
    ray = import_module("ray")
    joined = ray.is_initialized()
    if not joined:
        _check_answers(address)
        try:
            ray.init(address=address, logging_level="error", log_to_driver=False)
        except (ConnectionError, RuntimeError) as error:
            raise WorkerError(f"--ray {address}: {error}") from None
    try:
        yield
    except ray.exceptions.RayError as error:
        raise WorkerError(f"the work on {address} has failed: {_last_line(error)}") from None
    finally:
        if not joined:
            ray.shutdown()


def _check_answers(address: str) -> None:
    """Whether something listens there: Ray itself would wait for minutes."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise OptionError(f"--ray {address}: give HOST:PORT of its head node, ray://HOST:PORT, auto, or local.")
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER).close()
    except OSError as error:
        raise WorkerError(
            f"--ray {address}: no cluster answers there within {ANSWER} seconds ({error}). Is it up? `ray status "
            f"--address {address}` tells."
        ) from None


def _told(failed: Exception) -> MetapriorError:
    """What went wrong on the ranks: an error of ours in its own words, or which worker has died."""
    causes = getattr(failed, "worker_failures", {})
    for error in causes.values():
        inner = getattr(error, "_base_exc", getattr(error, "cause", error))
        if isinstance(inner, MetapriorError):
            return MetapriorError(str(inner))
    who = ", ".join(f"worker {rank} ({_last_line(error)})" for rank, error in causes.items())
    return WorkerError(
        f"the work on Ray has failed: {who or _last_line(failed)}. What was learned so far is kept: run the same "
        "command with --resume."
    )


def _last_line(error: BaseException) -> str:
    return str(error).strip().rsplit("\n", 1)[-1]


def _as_rank(config: dict[str, Any]) -> None:
    """One of Ray's workers."""
    import_module("torch").set_num_threads(1)
    config["work"](config["options"])
