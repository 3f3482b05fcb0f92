"""The paper's experiments, and one on few tasks: modules with `run(options)`, which gives results and draws nothing."""

from collections.abc import Callable
from dataclasses import replace

from metaprior.data import find
from metaprior.errors import OptionError, UnknownNameError
from metaprior.paper.claims import judge
from metaprior.paper.experiments import few, icu, mnist, sinusoid, step, theory
from metaprior.paper.options import Options
from metaprior.report import Results

EXPERIMENTS: dict[str, Callable[[Options], Results]] = {
    "sinusoid": sinusoid.run,
    "step": step.run,
    "mnist": mnist.run,
    "icu": icu.run,
    "theory": theory.run,
    "few": few.run,
}


ON_GPU = ("mnist", "icu")
"""Experiments that are large enough for one."""


def check_experiment(name: str, options: Options) -> None:
    """Whether an experiment is known and its data files are there, before any work is done."""
    if name not in EXPERIMENTS:
        raise UnknownNameError("experiment", name, EXPERIMENTS)
    if name == "mnist" and not options.quick:
        find("mnist", options.data)
    if name == "icu":
        find("physionet2012", options.data)
    if name not in ON_GPU and options.device != "cpu":
        raise OptionError(f"--device {options.device}: {name} is too small to gain from a GPU; leave it out.")


def run_experiment(name: str, options: Options, earlier: Results | None = None) -> Results:
    """An experiment by name, with the paper's claims about it judged. earlier: results that it goes on from."""
    check_experiment(name, options)
    results = EXPERIMENTS[name](options if earlier is None else replace(options, earlier=earlier))
    results.claims = judge(results)
    return results
