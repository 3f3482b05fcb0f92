"""Who does the work: processes of this machine, those that torchrun has started, or Ray's."""

from metaprior.workers.cluster import map_on_ray, run_on_ray
from metaprior.workers.pool import cores, in_processes
from metaprior.workers.processes import run_on, started_by_torchrun

__all__ = ["cores", "in_processes", "map_on_ray", "run_on", "run_on_ray", "started_by_torchrun"]
