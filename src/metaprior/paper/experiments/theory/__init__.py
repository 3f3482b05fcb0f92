"""The paper's theory, made to run: overfitting, the counter-example, MAML's parameterisations, functional PCA."""

from __future__ import annotations

from collections.abc import Callable

from metaprior.paper.experiments.theory import components, counter_example, overfitting, parameterisations
from metaprior.paper.options import Options
from metaprior.paper.running import begin, missing, timed
from metaprior.progress import progress_bar
from metaprior.report import Results

PARTS: dict[str, Callable[[Results, Options], None]] = {
    "overfitting": overfitting.run,
    "counter-example": counter_example.run,
    "parameterisations": parameterisations.run,
    "functional PCA": components.run,
}
"""Each argument of the paper with what runs it and adds its rows and curves."""


def run(options: Options) -> Results:
    """All of them, or those that `methods` names. A row's setting says what was varied: `ñ = 5`, `kernel = RBF`."""
    chosen = options.chosen(tuple(PARTS))
    results = begin("theory", {"seed": options.seed, "quick": options.quick}, options)
    with progress_bar("theory", len({*chosen} - {*results.parts}), show=options.progress) as advance:
        for name in missing(results, chosen, options):
            with timed(results, name):
                PARTS[name](results, options)
            advance(name)
    results.close()
    return results
