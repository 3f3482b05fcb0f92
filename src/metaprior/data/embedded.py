"""Small tables that come with the package."""

from __future__ import annotations

from importlib import resources

import numpy as np
import torch
from jaxtyping import UInt8
from pyarrow import csv
from torch import Tensor

from metaprior.data.locations import Dataset
from metaprior.tasks import Columns, Tasks

EMBEDDED = {
    "digits": Dataset("handwritten digits, 1,797 images of 8×8", "CC BY 4.0", {}),
    "elnino": Dataset("sea-surface temperatures, 61 years × 12 months", "public domain", {}),
}

COLUMNS = {
    "digits": Columns(("image",), ("row", "column"), ("grey",)),
    "elnino": Columns(("year",), ("month",), ("temperature",)),
}
"""What is a task, an input and a target in each of them."""


def load_digits() -> tuple[UInt8[Tensor, "1797 8 8"], UInt8[Tensor, " 1797"]]:
    """Images of handwritten digits (grey values 0–16) and the digits they show (`files/digits.md`)."""
    table = resources.files("metaprior.data") / "files" / "digits.npz"
    with table.open("rb") as file, np.load(file) as arrays:
        return torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])


def load_elnino() -> Tasks:
    """Monthly sea-surface temperatures (°C), a task for each year from 1950 to 2010 (`files/elnino.md`)."""
    table = resources.files("metaprior.data") / "files" / "elnino.csv"
    with table.open("rb") as file:
        return Tasks.from_table(csv.read_csv(file), **COLUMNS["elnino"]._asdict())
