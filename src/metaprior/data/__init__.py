"""Where it comes from: file readers, shards, downloads, embedded tables."""

from metaprior.data.databases import Query
from metaprior.data.embedded import COLUMNS, EMBEDDED, load_digits, load_elnino
from metaprior.data.fetch import Source, fetch
from metaprior.data.locations import DATASETS, Dataset, cache_folder, find, locate
from metaprior.data.manifest import Manifest, is_shards
from metaprior.data.mnist import Images, load_mnist
from metaprior.data.physionet import VARIABLES, load_physionet
from metaprior.data.sharding import shard
from metaprior.data.shards import Shards
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
    "COLUMNS", "DATASETS", "EMBEDDED", "VARIABLES", "Dataset", "Images", "Manifest", "Query", "Shards", "Source",
    "cache_folder", "check_output", "column_names", "embedded_table", "fetch", "find", "is_shards", "load_digits",
    "load_elnino", "load_mnist", "load_physionet", "locate", "read_content", "read_table", "shard", "write_table",
    "written",
]  # fmt: skip
