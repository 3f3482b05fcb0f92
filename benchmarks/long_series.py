"""One long series: forecasts of the rest of a year, by the whole series so far and by its past years as tasks.

    pip install 'metaprior[sktime]' statsmodels prophet
    python benchmarks/long_series.py

Monthly series: sea-surface temperatures from 1950 on (`elnino`), whose years differ but go nowhere, and the logarithm
of airline passengers from 1949 on (sktime's `airline`), whose years climb. Of the last 21 and the last 4 years nothing
is known, or January to March, and the other months are forecast. Prophet and exponential smoothing are fitted anew to
all months so far; for ours a task is a year, the years before those are learned from once, and nothing is told of the
year before. The score is that of `forecasting.py`. Without Prophet its row is left out.
"""

from __future__ import annotations

import importlib
import logging
import math
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import pandas as pd
from sktime.datasets import load_airline
from sktime.forecasting.ets import AutoETS

from forecasting import PROBABILITIES, scores
from metaprior import MetaGP
from metaprior.data import load_elnino

KNOWN = (0, 3)
"""Months that are known of a year."""

Quantiles = Callable[[np.ndarray, int], np.ndarray]
"""All years up to one, `[years, 12]`, of which so many months are known: quantiles of the others, `[months, u]`."""


def smoothing(trend: str | None, years: np.ndarray, known: int) -> np.ndarray:
    """A level, a trend where there is one, and twelve seasons, all of them moving."""
    seen = pd.Series(years.ravel()[: known - 12])
    model = AutoETS(auto=False, error="add", trend=trend, seasonal="add", sp=12).fit(seen, fh=range(1, 13 - known))
    return np.asarray(model.predict_quantiles(alpha=PROBABILITIES))


def prophet(years: np.ndarray, known: int) -> np.ndarray:
    prophets = importlib.import_module("prophet")
    for name in ("prophet", "cmdstanpy"):
        logging.getLogger(name).setLevel(logging.ERROR)
    months = pd.date_range("1950-01-01", periods=years.size, freq="MS")
    np.random.seed(0)  # noqa: NPY002 (it draws from no other generator)
    model = prophets.Prophet(weekly_seasonality=False, daily_seasonality=False)
    model.fit(pd.DataFrame({"ds": months[: known - 12], "y": years.ravel()[: known - 12]}), seed=1)
    draws = model.predictive_samples(pd.DataFrame({"ds": months[known - 12 :]}))["yhat"]
    return np.asarray(np.quantile(draws, PROBABILITIES, axis=1).T)


def month_in_the_past(years: np.ndarray, known: int) -> np.ndarray:
    return np.asarray(np.quantile(years[:-1, known:], PROBABILITIES, axis=0).T)


def ours(past: np.ndarray) -> Quantiles:
    months = np.arange(1.0, 13.0)
    rows = pd.DataFrame({"year": np.repeat(range(len(past)), 12), "month": np.tile(months, len(past))})
    gp = MetaGP(progress=False).fit(rows.assign(y=past.ravel()), task="year", x="month", y="y")

    def forecast(years: np.ndarray, known: int) -> np.ndarray:
        posterior = gp.condition(months[:known], years[-1, :known]).at(months[known:])
        return posterior.quantiles(PROBABILITIES)[:, :, 0].T.numpy()

    return forecast


def main() -> None:
    print(
        "| series | known | forecaster | pinball loss | above ours, ± standard error | error of the median | 90% hold |"
    )
    print("|---|---:|---|---:|---:|---:|---:|")
    report("elnino", np.stack([task.y[:, 0].numpy() for task in load_elnino()]), 21, None)
    report("airline", np.log(load_airline().to_numpy().reshape(-1, 12)), 4, "add")


def report(name: str, years: np.ndarray, new: int, trend: str | None) -> None:
    """A row for each forecaster, of the last years."""
    start = len(years) - new
    methods: dict[str, Quantiles] = {
        "metaprior, years as tasks": ours(years[:start]),
        "the month in the past": month_in_the_past,
        "exponential smoothing": partial(smoothing, trend),
    }
    if find_spec("prophet"):
        methods["Prophet"] = prophet
    for known in KNOWN:
        first = None
        for label, forecast in methods.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                quantiles = np.stack([forecast(years[: k + 1], known) for k in range(start, len(years))])
            truth = years[start:, known:]
            loss, inside = scores(quantiles, truth)
            first = loss if first is None else first
            gap, median = loss - first, np.abs(quantiles[..., len(PROBABILITIES) // 2] - truth).mean()
            above = f"{gap.mean():+.3f} ± {gap.std(ddof=1) / math.sqrt(new):.3f}" if gap.any() else "–"
            print(f"| {name} | {known} | {label} | {loss.mean():.3f} | {above} | {median:.3f} | {inside.mean():.2f} |")


if __name__ == "__main__":
    main()
