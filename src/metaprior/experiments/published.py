"""The paper's tables: mean and standard error by method, setting (ñ) and metric.

The paper does not say which of several quantities its "likelihood" is. Each figure stands here under the metric whose
scale fits: in the step table the joint log likelihood of the test points, in the sinusoid table the evidence of the
context with the RBF kernel refitted on it.
"""

from __future__ import annotations

Figure = tuple[float, float]


def _columns(settings: str, metrics: str, figures: list[Figure]) -> dict[tuple[str, str], Figure]:
    keys = [(setting, metric) for setting in settings.split() for metric in metrics.split()]
    return dict(zip(keys, figures, strict=True))


REFITTED = " refitted"
"""Rows of the sinusoid table with the RBF kernel refitted on each context."""

_STEP = ("1 5 20", "joint_log_likelihood mse")
_SINUSOID = ("1 5 20", "evidence mse")

# fmt: off
PUBLISHED: dict[str, dict[str, dict[tuple[str, str], Figure]]] = {
    "step": {  # Tab. 1
        "vanilla": _columns(*_STEP, [
            (0.28, 0.00), (0.335, 0.006), (0.35, 0.00), (0.113, 0.003), (0.47, 0.01), (0.026, 0.001)]),
        "learned kernel": _columns(*_STEP, [
            (0.54, 0.00), (0.323, 0.007), (0.61, 0.00), (0.093, 0.004), (0.68, 0.01), (0.024, 0.001)]),
        "learned mean": _columns(*_STEP, [
            (0.29, 0.00), (0.196, 0.002), (0.36, 0.00), (0.095, 0.002), (0.46, 0.01), (0.027, 0.001)]),
        "learned both": _columns(*_STEP, [
            (0.55, 0.00), (0.186, 0.002), (0.61, 0.00), (0.078, 0.002), (0.69, 0.01), (0.022, 0.001)]),
    },
    "sinusoid": {  # Tab. S1
        "zero mean": _columns(*_SINUSOID, [
            (-1.31, 0.07), (1.21, 0.04), (-5.68, 0.13), (1.02, 0.15), (19.99, 0.22), (0.00, 0.00)]),
        "true mean": _columns(*_SINUSOID, [
            (-0.74, 0.08), (0.79, 0.03), (-4.32, 0.14), (0.53, 0.04), (21.55, 0.27), (0.00, 0.00)]),
        "learned mean": _columns(*_SINUSOID, [
            (-0.75, 0.08), (0.80, 0.03), (-4.43, 0.13), (0.52, 0.03), (20.76, 0.22), (0.00, 0.00)]),
    },
}
# fmt: on

# With the known kernel only the paper's errors compare; its likelihoods are those of the refitted one.
_TABLE = PUBLISHED["sinusoid"]
PUBLISHED["sinusoid"] = {name + REFITTED: figures for name, figures in _TABLE.items()} | {
    name: {key: figure for key, figure in figures.items() if key[1] == "mse"} for name, figures in _TABLE.items()
}
