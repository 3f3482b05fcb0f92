"""Where things are computed: the CPU, or a GPU where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from metaprior.errors import DeviceMemoryError, MetapriorError, OptionError

NO_ROOM = "can't allocate memory"
"""What torch says of a CPU's."""

BYTES = 8_192
"""Memory that a row of points takes on a GPU while it is predicted, generously."""


def device_of(name: str) -> torch.device:
    """The device of a name: "cpu", "cuda", or "auto" (a GPU where there is one)."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise OptionError("device 'cuda': no GPU is available here; use 'cpu' or 'auto'.")
    if name not in ("cpu", "cuda"):
        raise OptionError(f"device {name!r}: use 'cpu', 'cuda' or 'auto'.")
    return torch.device(name)


@contextmanager
def within_memory(what: str, instead: str) -> Iterator[None]:
    """Memory that runs out inside becomes an error that says what was being done; instead: what to do, of a GPU's."""
    try:
        yield
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        raise DeviceMemoryError(f"{what}: the memory of the GPU is too small. {instead}") from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MetapriorError) or not (isinstance(error, MemoryError) or NO_ROOM in str(error)):
            raise
        raise DeviceMemoryError(
            f"{what}: the memory of this machine is too small. Of a task with n points it may take the square of n: "
            "give fewer points of each, or fewer tasks at a time."
        ) from None


def rows_at_once(on_cpu: int, device: torch.device) -> int:
    """How many rows are predicted together: what the memory of a GPU has room for, or so many on a CPU."""
    if device.type == "cpu":
        return on_cpu
    free, _ = torch.cuda.mem_get_info(device)
    return max(free // BYTES, on_cpu)
