"""Where it comes from: file readers, downloads, embedded tables."""

from metaprior.data.embedded import COLUMNS, EMBEDDED, load_digits, load_elnino
from metaprior.data.fetch import Source, fetch
from metaprior.data.locations import DATASETS, Dataset, cache_folder, find, locate
from metaprior.data.mnist import Images, load_mnist
from metaprior.data.physionet import VARIABLES, load_physionet
from metaprior.data.tables import (
    check_output,
    column_names,
    embedded_table,
    read_content,
    read_table,
    write_table,
    written,
)

__all__ = [
    "COLUMNS", "DATASETS", "EMBEDDED", "VARIABLES", "Dataset", "Images", "Source", "cache_folder", "check_output",
    "column_names", "embedded_table", "fetch", "find", "load_digits", "load_elnino", "load_mnist", "load_physionet",
    "locate", "read_content", "read_table", "write_table", "written",
]  # fmt: skip
