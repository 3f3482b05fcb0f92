"""Predict a group that no row of the training data is of, with nothing known of it and with a few points.

    pip install 'metaprior[sklearn]'
    python examples/unseen_group.py --out docs/figures/unseen-group.png

A group is a year of sea-surface temperatures (`elnino`, 61 years × 12 months). `GroupKFold` holds out whole years. From
April to December each is predicted from the month alone, and then with its January to March as well. A random forest
knows the month; to let it see the first three months, they have to become columns, and every row needs all of them. For
`MetaGPRegressor` they are rows like any others, as many as there are: `with_context`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GroupKFold

from metaprior.adapters.sklearn import MetaGPRegressor
from metaprior.data import embedded_table

KNOWN = 3
"""Months of a held-out year that may be known."""

FOLDS, LEVEL, SHOWN = 3, 0.9, 2010

Array = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """Months, temperatures, and the year that each is of."""

    X: Array
    y: Array
    year: Array

    def some(self, which: Array) -> Rows:
        return Rows(self.X[which], self.y[which], self.year[which])


class Predicted(NamedTuple):
    """What one method says of the months from April on, and its bounds where it has some."""

    method: str
    y: Array
    mean: Array
    bounds: tuple[Array, Array] | None = None


def elnino() -> Rows:
    table = embedded_table("elnino").to_pandas()
    return Rows(table[["month"]].to_numpy(float), table["temperature"].to_numpy(), table["year"].to_numpy())


def with_first_months(rows: Rows) -> Array:
    """For each row its month and the first three temperatures of its year: what a table of columns takes."""
    first = {year: rows.y[(rows.year == year) & (rows.X[:, 0] <= KNOWN)] for year in np.unique(rows.year)}
    return np.column_stack([rows.X, np.stack([first[year] for year in rows.year])])


def fold(train: Rows, test: Rows) -> Iterator[Predicted]:
    """Every method on years that it has not seen."""
    late = test.X[:, 0] > KNOWN
    early, asked = test.some(~late), test.some(late)

    forest = RandomForestRegressor(random_state=0).fit(train.X, train.y)
    yield Predicted("random forest, month alone", asked.y, forest.predict(asked.X))
    later = train.X[:, 0] > KNOWN
    forest.fit(with_first_months(train)[later], train.y[later])
    yield Predicted("random forest, first months as columns", asked.y, forest.predict(with_first_months(test)[late]))

    prior = MetaGPRegressor(budget=0).fit(train.X, train.y, groups=train.year)  # the quick rungs
    known = prior.with_context(early.X, early.y, groups=early.year)
    for name, model in (("MetaGPRegressor, month alone", prior), ("MetaGPRegressor, with context", known)):
        bounds = model.predict_interval(asked.X, LEVEL, groups=asked.year)
        yield Predicted(name, asked.y, model.predict(asked.X, groups=asked.year), bounds)


def table(found: list[Predicted]) -> list[str]:
    """A line for each method: mean absolute error, how many values lie in its bounds, how far apart these are."""
    lines = [f"{'April to December of a new year':40}{'error':>8}{'in 90%':>8}{'width':>8}"]
    for method in dict.fromkeys(one.method for one in found):
        own = [one for one in found if one.method == method]
        error = np.concatenate([np.abs(one.mean - one.y) for one in own]).mean()
        line = f"{method:40}{error:8.3f}"
        bounded = [(one.y, *one.bounds) for one in own if one.bounds is not None]
        if bounded:
            y, lower, upper = (np.concatenate(part) for part in zip(*bounded, strict=True))
            line += f"{((lower <= y) & (y <= upper)).mean():8.0%}{(upper - lower).mean():8.2f}"
        lines.append(line)
    return lines


def picture(rows: Rows, path: Path) -> None:
    """One year from what other years say of it, and with its first months."""
    own = rows.year == SHOWN
    others, test = rows.some(~own), rows.some(own)
    prior = MetaGPRegressor(budget=0).fit(others.X, others.y, groups=others.year)
    known = prior.with_context(test.X[:KNOWN], test.y[:KNOWN], groups=test.year[:KNOWN])
    at = np.linspace(1, 12, 111)[:, None]
    asked = np.full(len(at), SHOWN)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for k, (title, model) in enumerate({"nothing known of it": prior, "January to March known": known}.items()):
        axes = figure.add_subplot(1, 2, k + 1)
        lower, upper = model.predict_interval(at, LEVEL, groups=asked)
        axes.fill_between(at[:, 0], lower, upper, color="#0072b2", alpha=0.2, lw=0, label=f"{LEVEL:.0%} interval")
        axes.plot(at[:, 0], model.predict(at, groups=asked), color="#0072b2", label="expected")
        axes.plot(test.X[:, 0], test.y, "o", color="#6f747c", mfc="none", label="the year itself")
        if k:
            axes.plot(test.X[:KNOWN, 0], test.y[:KNOWN], "o", color="black", label="known")
        axes.set(title=f"{SHOWN}, {title}", xlabel="month", ylabel="sea-surface temperature, °C", ylim=(18, 29))
        axes.legend(frameon=False, fontsize=8, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write a picture, such as unseen-group.png")
    out = parser.parse_args().out
    rows = elnino()
    folds = GroupKFold(FOLDS).split(rows.X, rows.y, rows.year)
    print(*table([one for train, test in folds for one in fold(rows.some(train), rows.some(test))]), sep="\n")
    if out is not None:
        picture(rows, out)
        print(out)


if __name__ == "__main__":
    main()
