"""A server that predicts: a page for people, rows and tensors for programs."""

from metaprior.serve.app import Server
from metaprior.serve.models import Served, load_models
from metaprior.serve.running import run_server
from metaprior.serve.settings import Settings

__all__ = ["Served", "Server", "Settings", "load_models", "run_server"]
