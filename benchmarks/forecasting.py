"""Forecasts of a new series from its first five points: how good are the intervals, beside those of usual forecasters?

    pip install 'metaprior[sktime]' statsmodels prophet
    python benchmarks/forecasting.py
    python benchmarks/forecasting.py --datasets ItalyPowerDemand --series 100

Series of three datasets that come with sktime. The prior is learned from the training split; of each series of the test
split the first five points are known, and all others are forecast. The score is the pinball loss, averaged over the
times and over the probabilities 0.05, 0.1 … 0.95; differences are paired over the series, with their standard error.
Without Prophet its rows are left out.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sktime.datasets import load_arrow_head, load_gunpoint, load_italy_power_demand
from sktime.forecasting.ets import AutoETS
from sktime.forecasting.naive import NaiveForecaster

from metaprior import MetapriorWarning
from metaprior.adapters.sktime import MetaGPForecaster
from metaprior.progress import progress_bar

KNOWN = 5
"""Points that are known of a new series."""

PROBABILITIES = [round(0.05 * k, 2) for k in range(1, 20)]

DATASETS: dict[str, Callable[..., Any]] = {
    "ItalyPowerDemand": load_italy_power_demand,
    "GunPoint": load_gunpoint,
    "ArrowHead": load_arrow_head,
}


def by_aicc(series: pd.Series, fh: Any) -> Any:
    """The criterion that is made for few points; where it is finite for no model, simple exponential smoothing."""
    try:
        return AutoETS(auto=True, sp=1, information_criterion="aicc").fit(series, fh=fh)
    except ValueError:
        return AutoETS(auto=False).fit(series, fh=fh)


class Drawn(NamedTuple):
    """Draws of a forecast, `[times, draws]`, asked as sktime's forecasters are."""

    draws: np.ndarray

    def predict_quantiles(self, alpha: Sequence[float]) -> pd.DataFrame:
        return pd.DataFrame(np.quantile(self.draws, alpha, axis=1).T)


def prophet(growth: str, series: pd.Series, fh: Any) -> Drawn:
    """Prophet with its usual settings, a day for a step. (sktime's wrapper draws anew for every probability.)"""
    prophets = importlib.import_module("prophet")
    for name in ("prophet", "cmdstanpy"):
        logging.getLogger(name).setLevel(logging.ERROR)  # five points are too few for its seasons, as it says each time
    days = pd.date_range("2000-01-01", periods=len(series) + max(fh), freq="D")
    np.random.seed(0)  # noqa: NPY002 (it draws from no other generator)
    model = prophets.Prophet(growth=growth)
    model.fit(pd.DataFrame({"ds": days[: len(series)], "y": series.to_numpy()}), seed=1)
    return Drawn(model.predictive_samples(pd.DataFrame({"ds": days[len(series) :]}))["yhat"])


ALONE: dict[str, Callable[[pd.Series, Any], Any]] = {
    "last value": lambda series, fh: NaiveForecaster("last").fit(series, fh=fh),
    "drift": lambda series, fh: NaiveForecaster("drift").fit(series, fh=fh),
    "AutoETS": lambda series, fh: AutoETS(auto=True, sp=1).fit(series, fh=fh),
    "AutoETS by AICc": by_aicc,
    "MetaGPForecaster, not pretrained": lambda series, fh: MetaGPForecaster(progress=False).fit(series, fh=fh),
}
"""Forecasters that know the five points alone. (NaiveVariance has no residuals for horizons beyond those.)"""

if find_spec("prophet"):
    ALONE["Prophet"] = partial(prophet, "linear")
    ALONE["Prophet, no trend"] = partial(prophet, "flat")

OURS, PAST = "MetaGPForecaster", "quantiles of the past series"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="some of them, separated by commas")
    parser.add_argument("--series", type=int, help="the first ones of the test split; by default all")
    arguments = parser.parse_args()
    names = arguments.datasets.split(",")
    if unknown := [name for name in names if name not in DATASETS]:
        parser.error(f"no dataset {', '.join(unknown)}: there are {', '.join(DATASETS)}.")
    print("| dataset | series | forecaster | pinball loss | above ours, ± standard error | 90% hold |")
    print("|---|---:|---|---:|---:|---:|")
    for name in names:
        for line in lines(name, arguments.series):
            print(line, flush=True)


def lines(name: str, count: int | None) -> list[str]:
    past, new = (DATASETS[name](split=split, return_type="pd-multiindex")[0] for split in ("train", "test"))
    values = new.iloc[:, 0].unstack().to_numpy()[:count]
    found = {OURS: ours(past, values), PAST: at_each_time(past, values)}
    for label, fit in ALONE.items():
        found[label] = one_by_one(f"{name}, {label}", fit, values)
    return [
        f"| {name} | {len(values)} | {label} | {loss.mean():.4f} | {_above(loss, found[OURS][0])} "
        f"| {inside.mean():.2f} |"
        for label, (loss, inside) in found.items()
    ]


Scored = tuple[np.ndarray, np.ndarray]
"""Of each series its loss, and the share of its values within the 90% interval."""


def ours(past: pd.DataFrame, values: np.ndarray) -> Scored:
    """All new series at once."""
    steps = values.shape[1]
    forecaster = MetaGPForecaster(context_lengths=[KNOWN]).pretrain(past)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MetapriorWarning)  # a few are unlike the past ones, as they should be
        forecaster.fit(values[:, None, :KNOWN])
        quantiles = forecaster.predict_quantiles(fh=range(1, steps - KNOWN + 1), alpha=PROBABILITIES).to_numpy()
    return scores(quantiles.reshape(len(values), steps - KNOWN, -1), values[:, KNOWN:])


def at_each_time(past: pd.DataFrame, values: np.ndarray) -> Scored:
    """What past series were at each time, whatever is known of the new one."""
    quantiles = np.quantile(past.iloc[:, 0].unstack().to_numpy()[:, KNOWN:], PROBABILITIES, axis=0).T
    everywhere = np.broadcast_to(quantiles, (len(values), *quantiles.shape))
    return scores(everywhere, values[:, KNOWN:])


def one_by_one(label: str, fit: Callable[[pd.Series, Any], Any], values: np.ndarray) -> Scored:
    steps, found = values.shape[1], []
    with progress_bar(label, len(values)) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for series in values:
            fitted = fit(pd.Series(series[:KNOWN]), range(1, steps - KNOWN + 1))
            found.append(fitted.predict_quantiles(alpha=PROBABILITIES).to_numpy())
            advance()
    return scores(np.stack(found), values[:, KNOWN:])


def scores(quantiles: np.ndarray, truth: np.ndarray) -> Scored:
    """Pinball loss and coverage of each series. quantiles `[series, times, probabilities]`, truth `[series, times]`."""
    gap, u = truth[..., None] - quantiles, np.array(PROBABILITIES)
    loss = np.maximum(u * gap, (u - 1) * gap).mean((1, 2))
    inside = (quantiles[..., 0] <= truth) & (truth <= quantiles[..., -1])
    return loss, inside.mean(1)


def _above(loss: np.ndarray, of_ours: np.ndarray) -> str:
    if loss is of_ours:
        return "–"
    gap = loss - of_ours
    return f"{gap.mean():+.4f} ± {gap.std(ddof=1) / math.sqrt(len(gap)):.4f}"


if __name__ == "__main__":
    main()
