"""A spreadsheet with one row per task: the points are in the columns, and some cells are empty.

    python examples/wide_table.py

The sea-surface temperatures of 61 years, a row for each year and a column for each month, of which a tenth of the cells
is lost. The prior of the years up to 1990 fills the gaps of the later ones; what was lost is known, so that the answer
can be judged. The same by the command line: metaprior fit past.csv --wide 'month_*' --task year
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from metaprior import MetaGP
from metaprior.data import embedded_table

MONTHS = [f"month_{k}" for k in range(1, 13)]


def years() -> pd.DataFrame:
    """A row for each year, a column for each month."""
    long = embedded_table("elnino").to_pandas()
    long["month"] = "month_" + long["month"].astype(str)
    return long.pivot(index="year", columns="month", values="temperature")[MONTHS].reset_index()


def main() -> dict[str, float]:
    table, rng = years(), np.random.default_rng(0)
    lost = table.copy()
    lost[MONTHS] = lost[MONTHS].mask(rng.random((len(table), 12)) < 0.1)
    past, late = lost[lost["year"] <= 1990], lost[lost["year"] > 1990]
    print(late.round(1).to_string(index=False))

    gp = MetaGP("deep", "rbf", progress=False).fit(past, task="year", wide="month_*", y="temperature")
    found = gp.predict(late, "missing", wide="month_*")

    truth = table.set_index("year")[MONTHS].to_numpy()
    row, column = found["year"].to_numpy() - int(table["year"].min()), found["month"].to_numpy().astype(int) - 1
    found["truth"] = truth[row, column]
    print(found.round(2).to_string(index=False))
    inside = found["truth"].between(found["lower"], found["upper"]).mean()
    usual = past[MONTHS].mean().to_numpy()[column]
    error, naive = (float(np.sqrt(np.mean((found["truth"] - guess) ** 2))) for guess in (found["mean"], usual))
    print(f"{len(found)} gaps: root mean squared error {error:.2f} °C, {naive:.2f} by the month's mean of past years; "
          f"{inside:.0%} within the 90% intervals")  # fmt: skip
    return {"gaps": len(found), "error": error, "naive": naive, "inside": float(inside)}


if __name__ == "__main__":
    main()
