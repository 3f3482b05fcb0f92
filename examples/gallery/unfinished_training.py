"""
Which of these trainings is worth finishing?
============================================

120 networks have been trained to the end, for thirty epochs; sixty more, with other settings, have run for three. From
these three epochs, and from how the finished ones went on, where will each of the new ones end? A task is a network,
its points are the validation losses after each epoch. The networks are trained below, on the breast cancer table that
comes with scikit-learn (569 tumours, benign or malignant, with 30 measurements each; W. Wolberg and others).
"""

# %%
# Networks of one hidden layer with random learning rates, widths and weight decays. All 180 are trained at once, as
# batches of small matrices, in a few seconds.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch.nn.functional import binary_cross_entropy_with_logits

from metaprior import MetaGP, Tasks
from metaprior.report import LivePage

measured, malignant = load_breast_cancer(return_X_y=True)
parts = train_test_split(measured, malignant, test_size=0.4, random_state=0)
scaler = StandardScaler().fit(parts[0])
x, x_valid = (torch.from_numpy(scaler.transform(part)).float() for part in parts[:2])
y, y_valid = (torch.from_numpy(part).float() for part in parts[2:])

count, widest, epochs = 180, 64, 30
rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
low, high = np.array([[-3, -5, 0.6], [-0.3, -1, 1.8]])  # powers of ten
powers = torch.from_numpy(rng.uniform(low, high, (count, 1, 3))).float()
rate, decay, width = (10**power for power in powers.split(1, dim=2))
used = (torch.arange(widest) < width).float()  # hidden units of each network
weights = [
    torch.randn(count, 30, widest, generator=generator) / 30**0.5,
    torch.randn(count, widest, 1, generator=generator) * used.mT / width**0.5,
]


def losses(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The log loss of every network."""
    logits = (torch.relu(inputs @ weights[0]) @ weights[1])[:, :, 0]
    return binary_cross_entropy_with_logits(logits, targets.expand(count, -1), reduction="none").mean(1)


after_epoch = []
for _ in range(epochs):
    for rows in torch.randperm(len(x), generator=generator).split(32):
        weights = [one.detach().requires_grad_() for one in weights]
        slopes = torch.autograd.grad(losses(x[rows], y[rows]).sum(), weights)
        weights = [one - rate * (slope + decay * one) for one, slope in zip(weights, slopes, strict=True)]
    after_epoch.append(losses(x_valid, y_valid).detach())

curves = torch.stack(after_epoch, 1).log10().numpy()
frame = pd.DataFrame({"network": np.arange(count).repeat(epochs), "epoch": np.tile(np.arange(1, epochs + 1), count)})
frame["log_loss"] = curves.ravel().astype(float)
finished, new = frame[frame["network"] < 120], frame[frame["network"] >= 120]
begun = new[new["epoch"] <= 3]

# %%
# The prior is learned from the finished ones, of the logarithm of the loss, so that a hundredth counts more near zero.
# ``budget=0`` tries the quick priors alone, and weighs them on networks that were held out.

gp = MetaGP(budget=0, progress=False)
gp.fit(finished, task="network", x="epoch", y="log_loss")
ahead = gp.predict(begun, np.arange(4, epochs + 1))

# %%
# Left: three of the new networks, with three epochs known of each, the mean and the 90% interval of the rest, and
# (dashed) what came when they were finished after all; in grey, the finished ones. Right: where each of the sixty is
# expected to end. A good network is one that ends below the line, with the best tenth of the finished ones. Those that
# have a chance of 5% or more to become one are green: these are worth finishing.

both = ahead.merge(new, on=["network", "epoch"])
ends = both[both["epoch"] == epochs].sort_values("mean", ignore_index=True)
line = float(np.quantile(curves[:120, -1], 0.1))
known = Tasks.from_table(begun, task="network", x="epoch", y="log_loss")
chances = gp.predict(known, [epochs]).cdf(line)[:, 0]
chance = dict(zip(known.ids, chances.tolist(), strict=True))
colours = ["#009e73" if chance[network] >= 0.05 else "#0072b2" for network in ends["network"]]

figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3.8), layout="constrained", sharey=True)
left.plot(np.arange(1, epochs + 1), 10 ** curves[:120].T, color="0.85", lw=0.5)
for place in (3, 25, 50):
    one, first, after = (table[table["network"] == ends["network"][place]] for table in (new, begun, ahead))
    lower, upper = 10 ** after["lower"], 10 ** after["upper"]
    left.fill_between(after["epoch"], lower, upper, color=colours[place], alpha=0.3, lw=0)
    left.plot(after["epoch"], 10 ** after["mean"], color=colours[place], lw=2)
    left.plot(one["epoch"], 10 ** one["log_loss"], "--", color="0.3", lw=1)
    left.plot(first["epoch"], 10 ** first["log_loss"], "o", color="#d55e00", ms=5)
right.axhline(10**line, color="0.6", lw=1)
right.vlines(ends.index, 10 ** ends["lower"], 10 ** ends["upper"], color=colours, lw=2.5, alpha=0.5)
right.annotate(
    "best tenth of the finished", (59, 10**line), ha="right", va="top", xytext=(0, -3), textcoords="offset points"
)
right.plot(ends.index, 10 ** ends["log_loss"], ".", color="0.3", label="how it ended")
left.set(xlabel="epoch", ylabel="validation loss", yscale="log", title="three networks after 3 epochs")
left.set(yticks=[0.05, 0.1, 0.2, 0.5, 1], yticklabels=["0.05", "0.1", "0.2", "0.5", "1"])
left.yaxis.minorticks_off()
right.set(xlabel="network, best expectation first", title="where all 60 will end")
right.legend(frameon=False, loc="upper left")
plt.show()

# %%
# How good is that? The error is the root mean square over epochs 4 to 30, as a factor by which a loss is missed, beside
# two rules of thumb: the loss stays as it is after three epochs, or it falls from there as the finished ones did on
# average. Order is the rank correlation between the losses that were expected and found at the end.

means = finished.groupby("epoch")["log_loss"].mean()
third = both["network"].map(begun[begun["epoch"] == 3].set_index("network")["log_loss"])
guesses = {"the third epoch's loss": third, "falling as others did": third + both["epoch"].map(means) - means[3]}
table = pd.DataFrame()
for name, guess in (guesses | {"MetaGP": both["mean"]}).items():
    table.loc[name, "error"] = 10 ** np.sqrt(np.mean((guess - both["log_loss"]) ** 2))
    last = both["epoch"] == epochs
    table.loc[name, "order"] = guess[last].corr(both["log_loss"][last], method="spearman")
table.loc["MetaGP", "in 90%"] = both["log_loss"].between(both["lower"], both["upper"]).mean()
print(table.round(2).to_string(na_rep=""))
worth = ends[[chance[network] >= 0.05 for network in ends["network"]]]
lowest = ends[ends["network"].isin(begun[begun["epoch"] == 3].nsmallest(len(worth), "log_loss")["network"])]
for name, some in {"all": ends, "worth finishing": worth, "as many, lowest third loss": lowest}.items():
    print(f"{name}: {len(some)} networks, {(some['log_loss'] < line).sum()} of them good")

# %%
# A loss is missed by less than a tenth, and by a fifth if all are taken to fall alike; the order at the end is told
# better than by the third epoch. Nine of the sixty are worth finishing, and both that end well are among them, where
# the nine that are lowest after three epochs hold one of the two (few to judge by). The 90% intervals hold more than
# they say: after three epochs they are somewhat too wide.
#
# For a study of Optuna, ``LearnedPruner`` does this by itself (:doc:`/adapters`). A new network's losses, in powers of
# ten, to play with:

LivePage(gp, [1, 2, 3], begun["log_loss"][:3].round(2).tolist(), name="log10 of a network's loss")
