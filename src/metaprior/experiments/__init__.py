"""The paper's experiments. Each is a module with `run(options)`, which returns its results and draws nothing."""

from collections.abc import Callable

from metaprior.errors import UnknownNameError
from metaprior.experiments import sinusoid, step
from metaprior.experiments.options import Options
from metaprior.experiments.results import Results

EXPERIMENTS: dict[str, Callable[[Options], Results]] = {"sinusoid": sinusoid.run, "step": step.run}


def run_experiment(name: str, options: Options) -> Results:
    """An experiment by name."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name](options)


__all__ = ["EXPERIMENTS", "Options", "Results", "run_experiment"]
