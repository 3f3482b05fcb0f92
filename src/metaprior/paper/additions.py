"""What the paper adds to the library's tables: methods that only an experiment knows, and metrics of its arguments."""

from __future__ import annotations

from metaprior.methods import Entry, add_methods
from metaprior.scoring import METRICS, Metric

add_methods(
    {
        "zero mean": Entry(colour="#56b4e9"),
        "true mean": Entry(colour="#000000"),
        "mean fit on target": Entry(colour="#d55e00"),
        "map": Entry(colour="#a0b000"),
        "bayes limit": Entry(colour="#000000", reference=True),
        "linear limit": Entry(reference=True),
    }
)

METRICS.update(
    {
        "data_fit": Metric("Data-fit term of the context's evidence, per value"),
        "complexity": Metric("Complexity term of the context's evidence, per value"),
        "normaliser": Metric("Constant term of the context's evidence, per value"),
        "largest_posterior_mean": Metric("Largest absolute posterior mean", small=True),
        "largest_error": Metric("Largest absolute error of the posterior mean", small=True),
        "distance": Metric("Root mean square difference of two functions", small=True),
        "relative_error": Metric("Largest relative difference of two formulas", small=True),
    }
)
