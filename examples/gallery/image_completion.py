"""
What is in the rest of this image?
==================================

Ten pixels of a handwritten digit are known, and the other 54 are not. 1,597 past images of 8 × 8 pixels say what digits
look like; nobody says which digit any of them shows. An image is a task: the input is a pixel's row and column, the
target its grey value from 0 to 16. The images come with the package (digits collected by E. Alpaydin and C. Kaynak,
UCI Machine Learning Repository).
"""

# %%
# Images become tasks that share a grid of 64 pixels. The last 200 are new, and ten random pixels of each are known.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from metaprior import MetaGP, Tasks
from metaprior.data import load_digits
from metaprior.methods import GPPerTask

images, labels = load_digits()
pixels = np.array([(row, column) for row in range(8) for column in range(8)])
tasks = Tasks.on_grid(pixels, images.flatten(1))
past, new = tasks.select(range(1597)), tasks.select(range(1597, 1797))
known, hidden = new.context_target(10, seed=0)

# %%
# Three priors are learned: one for all images (``"fpca"``: a mean image and the directions in which images differ), one
# that is a mixture of such priors, as digits come in kinds, and one that bends grey values first, as most are near 0 or
# near 16. Images that were held out weigh the three and say how wide bounds must be. ``support`` keeps all that is
# predicted between 0 and 16.

gp = MetaGP(rungs=["fpca", "mixture", "warped mixture"], progress=False).fit(past, support=(0, 16))

# %%
# Three new digits: what is known, the mean of what the whole may be, how unsure each pixel is (the width of its 90%
# interval, darker is wider), and two draws. A draw is one image that the known pixels leave possible: its pixels belong
# together, while the mean is a blend of all such images.

shown = [int(np.flatnonzero(labels[1597:] == digit)[0]) for digit in (0, 4, 7)]
posterior = gp.predict(known.select(shown), pixels)
lower, upper = posterior.interval(0.9)
draw, another = posterior.samples(2, seed=0)
columns = {"mean": posterior.mean, "unsure": upper - lower, "a draw": draw, "another": another}
columns["the truth"] = new.select(shown).y

figure, grid = plt.subplots(3, 6, figsize=(7, 3.8), layout="constrained")
for k, image in enumerate(known.select(shown)):
    seen = np.full((8, 8), np.nan)
    seen[tuple(image.x.int().T.numpy())] = image.y[:, 0]
    grid[k, 0].imshow(seen, cmap="gray_r", vmin=0, vmax=16)
    grid[k, 0].set_facecolor("#cfe3f1")  # not known
    for axes, (name, values) in zip(grid[k, 1:], columns.items(), strict=True):
        shades = "Blues" if name == "unsure" else "gray_r"
        axes.imshow(values.reshape(3, 8, 8)[k], cmap=shades, vmin=0, vmax=16)
for axes, name in zip(grid[0], ["10 pixels", *columns], strict=True):
    axes.set_title(name)
for axes in grid.flat:
    axes.set(xticks=[], yticks=[])
plt.show()

# %%
# Each further pixel says more. The mean of the last digit, from no pixel (the mean of past images) to thirty:

figure, row = plt.subplots(1, 6, figsize=(7, 1.7), layout="constrained")
one = new.select(shown[-1:])
for axes, count in zip(row, (0, 3, 10, 20, 30), strict=False):
    some, _ = one.context_target(count, seed=0)
    axes.imshow(gp.predict(some, pixels).mean.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
    axes.set_title(f"{count} pixels")
row[-1].imshow(one.y.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
row[-1].set_title("the truth")
for axes in row:
    axes.set(xticks=[], yticks=[])
plt.show()

# %%
# Is it any good? The hidden pixels of all 200 new images, beside simple answers: the mean image, the mean of the 20
# past images that are nearest at the known pixels, and a Gaussian process for each image alone. The same with ten other
# pixels of each image, which the model has asked for before it had seen any of them (:doc:`/suggesting`).

wanted = gp.condition(np.empty((0, 2)), np.empty((0, 1))).suggest(pixels, 10).x
pictures, alone, table = past.y.reshape(-1, 64), GPPerTask().fit(past), pd.DataFrame()
for pixels_are, (few, rest) in {
    "random": (known, hidden),
    "chosen": new.context_target(where=lambda x: (x[:, None] == wanted).all(2).any(1)),
}.items():
    place, nearest = (8 * rest.x[:, 0] + rest.x[:, 1]).long(), []
    for image in few:
        gaps = pictures[:, (8 * image.x[:, 0] + image.x[:, 1]).long()] - image.y[:, 0]
        nearest.append(pictures[gaps.square().sum(1).argsort()[:20]].mean(0))
    guesses = {"mean image": pictures.mean(0)[place], "20 nearest": torch.stack(nearest)[rest.task_of_row, place]}
    for name, found in {"GP alone": alone.predict(few, rest), "MetaGP": gp.predict(few, rest)}.items():
        lower, upper = found.interval(0.9)
        guesses[name] = found.mean[:, 0]
        table.loc[name, f"{pixels_are}: in 90%"] = float(((lower <= rest.y) & (rest.y <= upper)).double().mean())
    for name, guess in guesses.items():
        table.loc[name, f"{pixels_are}: error"] = float((guess - rest.y[:, 0]).square().mean().sqrt())
order = [f"{pixels_are}: {what}" for pixels_are in ("random", "chosen") for what in ("error", "in 90%")]
print(table.loc[list(guesses), order].round(2).to_string(na_rep=""))

# %%
# The error is the root mean square, in grey levels. The nearest past images guess as well as the model does; a Gaussian
# process that knows one image alone does worse than the mean image. What the model adds are intervals that hold what
# they say, draws, and advice where to look: ten pixels of its choice leave an error nearly a third smaller, for the
# nearest images too. (A part of that is no merit: the chosen pixels are those that vary most, and the mean image gains
# as well when they are no longer asked for.)
