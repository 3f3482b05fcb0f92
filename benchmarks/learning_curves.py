"""Real learning curves: small scikit-learn models on its embedded data, with random settings.

A study is one family of models on one dataset. Of every model the validation's log loss and accuracy are kept after
each epoch (or each tree, of boosted ones).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from metaprior.output import write_whole
from metaprior.progress import progress_bar

EPOCHS, MODELS, ROWS = 30, 100, 1_600
"""Steps of a curve, models of a study, and rows of a dataset at most."""

Direction = Literal["minimize", "maximize"]

METRICS: dict[str, Direction] = {"log loss": "minimize", "accuracy": "maximize"}

Table = tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]
Curves = Float[np.ndarray, "model epoch"]


def tables() -> dict[str, Callable[[], Table]]:
    """The datasets by name: each reads its inputs and classes."""
    return {
        "digits": lambda: _of(datasets.load_digits()),
        "parity of digits": lambda: _of(datasets.load_digits(), lambda y: y % 2),
        "iris": lambda: _of(datasets.load_iris()),
        "diabetes": lambda: _of(datasets.load_diabetes(), lambda y: y > np.median(y)),
        "flower": lambda: _pixels("flower.jpg"),
        "breast cancer": lambda: _of(datasets.load_breast_cancer()),
        "wine": lambda: _of(datasets.load_wine()),
        "china": lambda: _pixels("china.jpg"),
    }


PAST = ("digits", "parity of digits", "iris", "diabetes", "flower")
"""Datasets of past studies, which the pruner was developed with."""

NEW = ("breast cancer", "wine", "china")
"""Datasets of the studies that it is judged by; nothing was decided by them."""


def _of(found: Any, classes: Callable[[Any], Any] = lambda y: y) -> Table:
    return found.data, classes(found.target).astype(int)


def _pixels(name: str) -> Table:
    """Which of four grey levels a pixel has, from its place in the picture."""
    grey = datasets.load_sample_image(name).mean(2)
    rows, columns = np.indices(grey.shape)
    place = np.stack([rows.ravel(), columns.ravel()], 1).astype(float)
    return place, np.digitize(grey.ravel(), np.quantile(grey, [0.25, 0.5, 0.75]))


class Split:
    """A dataset's rows to train on and to validate by, standardised."""

    def __init__(self, name: str) -> None:
        x, y = tables()[name]()
        some = np.random.default_rng(0).permutation(len(x))[:ROWS]
        self.x, valid_x, self.y, self.valid_y = train_test_split(
            x[some], y[some], test_size=0.4, random_state=0, stratify=y[some]
        )
        scaler = StandardScaler().fit(self.x)
        self.x, self.valid_x = scaler.transform(self.x), scaler.transform(valid_x)
        self.classes = np.unique(y)

    def scores(self, probabilities: Float[np.ndarray, "n c"]) -> tuple[float, float]:
        """Log loss and accuracy; NaN where a model has diverged."""
        if not np.isfinite(probabilities).all():
            return np.nan, np.nan
        right = self.classes[probabilities.argmax(1)] == self.valid_y
        return log_loss(self.valid_y, probabilities, labels=self.classes), float(right.mean())


Rng = np.random.Generator


def _by_epoch(model: Any, split: Split, rng: Rng) -> Iterator[tuple[float, float]]:
    for _ in range(EPOCHS):
        order = rng.permutation(len(split.x))
        try:
            model.partial_fit(split.x[order], split.y[order], classes=split.classes)
            yield split.scores(model.predict_proba(split.valid_x))
        except ValueError:  # weights that are no longer finite
            yield np.nan, np.nan


def network(split: Split, rng: Rng) -> Iterator[tuple[float, float]]:
    """A network of one or two layers."""
    model = MLPClassifier(
        hidden_layer_sizes=(int(_log_uniform(rng, 4, 100)),) * int(rng.integers(1, 3)),
        activation=str(rng.choice(["relu", "tanh"])),
        solver=str(rng.choice(["adam", "sgd"])),
        alpha=_log_uniform(rng, 1e-6, 1),
        batch_size=int(_log_uniform(rng, 8, 90)),
        learning_rate_init=_log_uniform(rng, 1e-4, 1e-1),
        random_state=int(rng.integers(2**31)),
    )
    return _by_epoch(model, split, rng)


def linear(split: Split, rng: Rng) -> Iterator[tuple[float, float]]:
    """Logistic regression by stochastic gradient descent."""
    model = SGDClassifier(
        loss="log_loss",
        penalty=str(rng.choice(["l1", "l2"])),
        alpha=_log_uniform(rng, 1e-6, 1e-1),
        learning_rate=str(rng.choice(["constant", "invscaling"])),
        eta0=_log_uniform(rng, 1e-4, 1),
        power_t=0.25,
        random_state=int(rng.integers(2**31)),
    )
    return _by_epoch(model, split, rng)


def boosting(split: Split, rng: Rng) -> Iterator[tuple[float, float]]:
    """Boosted trees; a step is one more of them for each class."""
    model = HistGradientBoostingClassifier(
        learning_rate=_log_uniform(rng, 1e-2, 1),
        max_iter=EPOCHS,
        max_leaf_nodes=int(_log_uniform(rng, 2, 32)),
        min_samples_leaf=int(_log_uniform(rng, 2, 50)),
        l2_regularization=_log_uniform(rng, 1e-4, 10),
        early_stopping=False,
        random_state=int(rng.integers(2**31)),
    ).fit(split.x, split.y)
    return (split.scores(found) for found in model.staged_predict_proba(split.valid_x))


FAMILIES = {"network": network, "linear": linear, "boosting": boosting}


def _log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def study_curves(family: str, dataset: str, cache: Path) -> dict[str, Curves]:
    """A study's curves by metric, from the cache where they are there."""
    file = cache / f"{family}-{dataset.replace(' ', '-')}.npz"
    if not file.exists():
        split, found = Split(dataset), []
        with warnings.catch_warnings(), progress_bar(f"{family} on {dataset}", MODELS) as advance:
            warnings.simplefilter("ignore")  # models that diverge say so in many ways
            for k in range(MODELS):
                found.append(list(FAMILIES[family](split, np.random.default_rng([k, 7]))))
                advance()
        cache.mkdir(parents=True, exist_ok=True)
        scores = np.array(found)
        write_whole(file, lambda part: _write(part, scores))
    with np.load(file) as kept:
        return {metric: kept["scores"][:, :, k] for k, metric in enumerate(METRICS)}


def _write(file: Path, scores: Float[np.ndarray, "model epoch metric"]) -> None:
    with file.open("wb") as opened:
        np.savez(opened, scores=scores)
