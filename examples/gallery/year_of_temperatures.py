"""
It is the end of March: what will the rest of the year be like?
===============================================================

The sea off the coast of Peru is warm in March and cold in September, and in some years, those of El Niño, it stays
warm. How much do the first three months say about the other nine?

The data are sea-surface temperatures in a region off Peru, a value for each month from 1950 to 2010 (U.S. National
Oceanic and Atmospheric Administration; the table ``elnino`` comes with metaprior). A task is a year. The same table
is gone through at the command line in :doc:`/tutorial`.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from metaprior import MetaGP, MetapriorWarning
from metaprior.data import embedded_table
from metaprior.report import LivePage
from metaprior.splits import Until

# %%
# A row for each month. The prior is learned from the forty years before 1990. ``contexts`` says how it will be asked,
# with everything until March known, so that it is chosen and its intervals are made for that.

months = embedded_table("elnino").to_pandas()
past, new = months[months["year"] < 1990], months[months["year"] >= 1990]
gp = MetaGP(contexts=Until("month", 3), progress=False).fit(past, task="year", x="month", y="temperature")

# %%
# The last year of the table, from its first three months.

year = new[new["year"] == 2010]
known, later = year[year["month"] <= 3], year[year["month"] > 3]
at = np.linspace(3, 12, 91)
forecast = gp.predict(known, at=at, level=0.9)

figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
for _, other in past.groupby("year"):
    axes.plot(other["month"], other["temperature"], color="0.85", lw=0.8)
axes.plot([], [], color="0.85", label="1950 to 1989")
axes.fill_between(at, forecast["lower"], forecast["upper"], color="#0072b2", alpha=0.25, lw=0)
axes.plot(at, forecast["mean"], color="#0072b2", lw=2, label="forecast, with its 90% interval")
axes.plot(later["month"], later["temperature"], "o", mfc="white", color="#009e73", label="measured later")
axes.plot(known["month"], known["temperature"], "o", color="#d55e00", label="known: January to March 2010")
axes.set_xticks(range(1, 13), list("JFMAMJJASOND"))
axes.set(ylabel="sea-surface temperature (°C)")
axes.legend(frameon=False)
plt.show()

# %%
# The 21 years from 1990 on, beside two forecasts that need no model: the *usual year*, which is the mean of each
# month over the past, and *as much too warm as March*: the usual year, shifted by what this March was above it.

warnings.simplefilter("ignore", MetapriorWarning)  # years unlike the past count like any other
known, later = new[new["month"] <= 3], new[new["month"] > 3]
found = gp.predict(known, at=later, level=0.9).merge(later, on=["year", "month"])
usual = past.groupby("month")["temperature"].mean()
march = known[known["month"] == 3].set_index("year")["temperature"] - usual[3]
found["usual year"] = found["month"].map(usual)
found["as March"] = found["usual year"] + found["year"].map(march)
found = found.rename(columns={"mean": "metaprior"})

methods = ["metaprior", "as March", "usual year"]
squares = found[methods].sub(found["temperature"], axis=0).pow(2)
errors = squares.groupby(found["month"]).mean().pow(0.5)
inside = found["temperature"].between(found["lower"], found["upper"])
print("Error, April to December (root mean square, °C)")
print(squares.mean().pow(0.5).round(2).to_string())
print(f"\nwithin the 90% interval: {inside.mean():.0%}; without 1997: {inside[found['year'] != 1997].mean():.0%}")

figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, colour in zip(methods, ("#0072b2", "#d55e00", "0.6"), strict=True):
    axes.plot(errors.index, errors[name], "o-", ms=4, color=colour, label=name)
axes.set_xticks(range(4, 13), list("AMJJASOND"))
axes.set(ylabel="error (°C)", ylim=(0, None))
axes.legend(frameon=False, loc="lower right")
plt.show()

# %%
# In April and May the sea is as much too warm as it was in March, and that rule is as good as the model. From
# September on the rule is worse than the usual year, as March says less and less; the model lets go of March in time,
# and has the smallest error from June to December. By then hardly anything is left of what March knew.
#
# Its intervals held 86% of the months, and more than a fourth of those outside are of one year: 1997, when one of the
# strongest El Niños on record began.
#
# Here is the prior itself, at work in this page: move the three months, add others, or take them away.

LivePage(gp, year["month"].tolist()[:3], year["temperature"].tolist()[:3], name="elnino")
