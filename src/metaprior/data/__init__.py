"""Where it comes from: file readers, downloads, embedded tables."""

from metaprior.data.embedded import EMBEDDED, load_digits, load_elnino
from metaprior.data.fetch import Source, fetch
from metaprior.data.locations import DATASETS, Dataset, cache_folder, find, locate
from metaprior.data.mnist import Images, load_mnist
from metaprior.data.physionet import VARIABLES, load_physionet

__all__ = [
    "DATASETS",
    "EMBEDDED",
    "VARIABLES",
    "Dataset",
    "Images",
    "Source",
    "cache_folder",
    "fetch",
    "find",
    "load_digits",
    "load_elnino",
    "load_mnist",
    "load_physionet",
    "locate",
]
