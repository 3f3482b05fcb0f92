"""Several processes of one machine as ranks, and those that torchrun has started."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.multiprocessing.spawn import ProcessExitedException, spawn

from metaprior.errors import MetapriorError, WorkerError

PATIENCE = timedelta(days=2)
"""How long ranks wait for one that is still busy; one that has died is told at once."""

Work = Callable[[Any], None]
"""Something that all ranks do, with the same options: a function that can be sent to another process."""


def run_on(count: int, work: Work, options: Any) -> None:
    """Do some work on so many processes, each with one thread. What is wrong with the user's input is an error here."""
    with tempfile.TemporaryDirectory() as folder:
        meeting, said = Path(folder) / "ranks", Path(folder) / "error"
        try:
            spawn(_as_rank, (count, meeting, said, work, options), nprocs=count)  # type: ignore[no-untyped-call]
        except ProcessExitedException as error:
            ended = f"by {error.signal_name}" if error.signal_name else f"with exit code {error.exit_code}"
            raise WorkerError(
                f"worker {error.error_index} of {count} was ended {ended}, and the others with it. What was learned so "
                "far is kept: run the same command with --resume, with as many workers as you like. Where memory ran "
                "out, with fewer."
            ) from None
        if said.exists():
            raise MetapriorError(said.read_text())


def _as_rank(rank: int, count: int, meeting: Path, said: Path, work: Work, options: Any) -> None:
    """One of the processes. Every rank comes to the same errors: the first tells them."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=PATIENCE
    )
    try:
        work(options)
    except MetapriorError as error:
        if rank == 0:
            said.write_text(str(error))
    _part()


def _part() -> None:
    """Leave together: a rank whose connections are cut while another ends would be taken for dead."""
    distributed.barrier()
    distributed.destroy_process_group()


@contextmanager
def started_by_torchrun() -> Iterator[None]:
    """Where torchrun has started this process, meet the others; elsewhere nothing."""
    if not distributed.is_torchelastic_launched():
        yield
        return
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        yield
    except MetapriorError:  # on all ranks
        _part()
        raise
    _part()
