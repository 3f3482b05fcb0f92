"""Forecast series whose points come at irregular times, without resampling them.

    pip install 'metaprior[sktime]'
    python examples/irregular_timestamps.py

Fifty wells were pumped before, and their water levels read whenever somebody came by: at any hour, every few days, and
sometimes the reading was lost. A new well has been read four times. Its level is forecast at the very moments that are
asked about, and the interval is wider the longer nobody has looked. Time is counted from the start of each series, in
days, so that wells of different years line up.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from metaprior.adapters.sktime import MetaGPForecaster

PAST, NEW, DAYS = 50, 40, 40.0
KNOWN = 4
"""Readings of a new well."""


def readings(rng: np.random.Generator, count: int) -> pd.Series:
    """Of one well: the level falls at first, fast or slowly, and wavers with the weather."""
    days = np.sort(rng.uniform(0, DAYS, count))
    days[0] = 0.0
    fall, pace, phase = rng.normal(3.0, 0.8), rng.uniform(5, 12), rng.uniform(0, 2 * np.pi)
    level = 12 - fall * (1 - np.exp(-days / pace)) + 0.3 * np.sin(days / 6 + phase) + rng.normal(0, 0.05, count)
    start = pd.Timestamp("2019-01-01") + pd.Timedelta(days=int(rng.integers(0, 1500)))
    times = (start + pd.to_timedelta(days, unit="D")).floor("min")
    return pd.Series(np.where(rng.random(count) < 0.1, np.nan, level), index=times, name="level")


def forecast(forecaster: MetaGPForecaster, well: pd.Series) -> pd.DataFrame:
    """From the first readings of a well, what the later ones should be; and what they were."""
    later = well.iloc[KNOWN:].dropna()
    forecaster.fit(well.iloc[:KNOWN])
    bounds = forecaster.predict_interval(fh=later.index, coverage=0.9).droplevel([0, 1], axis=1)
    return bounds.assign(expected=forecaster.predict(fh=later.index), read=later)


def main() -> None:
    rng = np.random.default_rng(0)
    wells = {f"well {k + 1}": readings(rng, int(rng.integers(8, 20))).to_frame() for k in range(PAST)}
    # budget=0: the quick priors alone; without it, richer ones are tried too
    forecaster = MetaGPForecaster(context_lengths=KNOWN, budget=0)
    forecaster.pretrain(pd.concat(wells, names=["well", "time"]))
    new = [readings(rng, 16) for _ in range(NEW)]
    tables = [forecast(forecaster, well) for well in new]
    print("known of the first new well:", new[0].iloc[:KNOWN].round(2).to_string(), sep="\n")
    print("\nforecast at the times of its later readings:", tables[0].round(2).to_string(), sep="\n")
    every = pd.concat(tables)
    inside = (every["lower"] <= every["read"]) & (every["read"] <= every["upper"])
    print(f"\n{inside.mean():.0%} of the {len(every)} later readings of {NEW} new wells lie within their 90% interval.")


if __name__ == "__main__":
    main()
