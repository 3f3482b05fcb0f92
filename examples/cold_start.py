"""Forecast a new series of which nothing, or next to nothing, is known yet.

    pip install 'metaprior[sktime]'
    python examples/cold_start.py

Sixty products were launched before, and each was sold for twenty weeks: sales rise for some weeks, and fade. How many
will be sold of a new one? Before its launch the past products are all that there is to go by; each week that it is sold
says more. The bounds are of whole numbers, none of them below zero, and the last lines tell how many of another hundred
products kept within theirs.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from metaprior.adapters.sktime import MetaGPForecaster

WEEKS, PAST, NEW = 20, 60, 100
KNOWN = (0, 1, 2, 6)
"""Weeks of sales that are known of a new product."""


def launches(count: int, rng: np.random.Generator) -> pd.DataFrame:
    """Weekly sales of some products: a panel with the levels product and week."""
    week = np.arange(WEEKS)
    level, peak = rng.lognormal(3.2, 0.5, (count, 1)), rng.uniform(2, 6, (count, 1))
    expected = level * (week + 1) / peak * np.exp(1 - (week + 1) / peak)
    labels = pd.MultiIndex.from_product([range(count), week], names=["product", "week"])
    return pd.DataFrame({"sold": rng.poisson(expected).ravel().astype(float)}, index=labels)


def first_weeks(sales: pd.DataFrame, known: int) -> pd.DataFrame:
    """What is known after so many weeks; before the launch, that it will be in week 0."""
    weeks = sales.index.get_level_values("week")
    return sales[weeks < known] if known else sales[weeks == 0] * np.nan


def main() -> None:
    rng = np.random.default_rng(0)
    # budget=0: the quick priors alone; without it, richer ones are tried too
    forecaster = MetaGPForecaster(support=(0, None), integer=True, context_lengths=KNOWN, budget=0)
    forecaster.pretrain(launches(PAST, rng))
    new = launches(NEW, rng)
    one = new.loc[[0]]
    print("weeks known | sold in week 8 of the first new product, and 90% interval | it was")
    for known in KNOWN:
        given = first_weeks(one, known)
        when = [8 - max(known - 1, 0)]
        forecaster.fit(given)
        expected = forecaster.predict(fh=when)["sold"].iloc[0]
        lower, upper = forecaster.predict_interval(fh=when, coverage=0.9).iloc[0]
        print(f"{known:11} | {expected:6.1f}   {lower:.0f} to {upper:.0f} | {one.loc[(0, 8), 'sold']:.0f}")
    print("\nweeks known | mean width of the interval | weeks of 100 new products within it")
    for known in KNOWN:
        forecaster.fit(first_weeks(new, known))
        ahead = range(1 if known else 0, WEEKS - max(known - 1, 0))
        bounds = forecaster.predict_interval(fh=ahead, coverage=0.9)
        lower, upper = (bounds.xs(end, axis=1, level=-1).iloc[:, 0] for end in ("lower", "upper"))
        sold = new["sold"].loc[bounds.index]
        print(f"{known:11} | {(upper - lower).mean():26.1f} | {((lower <= sold) & (sold <= upper)).mean():.0%}")


if __name__ == "__main__":
    main()
