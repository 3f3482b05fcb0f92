"""`MetaGPRegressor`: a meta-learned Gaussian process as a regressor of scikit-learn, in which a group is a task."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from metaprior.adapters.labels import groups_apart, labels_of
from metaprior.errors import DataError, MetapriorWarning, OptionError
from metaprior.extras import needs
from metaprior.frames import in_slices, notes_on, strange_of
from metaprior.inference import Posterior
from metaprior.methods import LearnedPrior
from metaprior.model import MetaGP
from metaprior.notes import told
from metaprior.options import defaults_of, states, unusual
from metaprior.selection import Auto
from metaprior.tasks import Columns, Support, Tasks, offsets_of

with needs("metaprior.adapters.sklearn", "sklearn"):
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

Array = np.ndarray[Any, Any]

OF_ONE_TASK: dict[str, Any] = {"mean": "constant", "kernel": "matern", "held_out": None}
"""What is learned where all rows are one task, of which nothing can be held out to choose by."""

CHOOSING = ("contexts", "rungs", "budget", "thorough")
"""Options of how a prior is chosen."""

OWN = ("group", "support", "integer")
"""Parameters that are no options of `MetaGP`."""

ALL_ROWS = "all rows"
"""What the one task is called where there are no groups."""

NO_TARGETS = "no_validation"
"""How scikit-learn says that there is no y, and that this is right."""


class Bounds(NamedTuple):
    """The bounds of central intervals, of y's shape."""

    lower: Array
    upper: Array


class MetaGPRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A regressor that learns from many groups what a group is like, and predicts each from what is known of it.

        model = MetaGPRegressor().fit(X, y, groups=school)
        model.predict(X_new, groups=school_new)
        model.with_context(X_known, y_known, groups=...).predict_interval(X_new, 0.9, groups=school_new)

    A group is a task: any label, one for each row, as `groups=` or as a column of X (`group`). A group that was fitted
    on is predicted from its rows, a new one from the prior, or from the rows that `with_context` has given for it.

    Without groups all rows are one task. Then there are no others to learn from: it is a Gaussian process with a
    constant mean and a Matérn kernel (or those you choose) whose parameters maximise the evidence, conditioned on the
    rows that it was fitted on, as scikit-learn's `GaussianProcessRegressor` is. Time grows with the cube of its rows.

    group: the column of X that holds the groups, by name (data frames) or position. Tools such as `cross_val_predict`
    and scorers hand nothing but X to `predict`, so with these it takes a column. It is no input of the prior.
    support, integer: what y can be (see `Tasks.with_possible`). The others are options of `MetaGP`: without mean and
    kernel the prior is chosen on held-out groups, and most options go with a mean or a kernel of your choice. With a
    kernel alone the mean is "constant", with a mean alone the kernel is "rbf".

    What a reader of predictions should know (groups without known rows, points outside the past ranges) is said in
    warnings, of the category `MetapriorWarning`.

    After `fit`: `gp_` (the `MetaGP`, which can be saved), `context_` (the rows that each group is predicted from:
    those of `fit` are kept), `groups_` (labels that were fitted on; None without groups), `n_features_in_` and, of data
    frames, `feature_names_in_`.
    """

    # a group is never anything else here: where routing is on, nobody needs to ask for it
    __metadata_request__fit = {"groups": True}  # noqa: RUF012
    __metadata_request__predict = {"groups": True}  # noqa: RUF012
    __metadata_request__score = {"groups": True}  # noqa: RUF012

    gp_: MetaGP
    context_: Tasks
    groups_: list[Hashable] | None

    @states(Auto, LearnedPrior, leave_out=("dtype", "network_dtype"), defaults={"progress": False})
    def __init__(
        self,
        mean: str | Mean | Callable[[Tensor], Tensor] | None = None,
        kernel: str | Kernel | None = None,
        *,
        group: str | int | None = None,
        support: Support | None = None,
        integer: bool | Sequence[str] = False,
        **options: Any,
    ) -> None:
        self.mean, self.kernel, self.group, self.support, self.integer = mean, kernel, group, support, integer
        given = inspect.signature(MetaGPRegressor).bind_partial(**options)  # one that does not exist is told now
        for name, usual in defaults_of(MetaGPRegressor).items():
            if name not in vars(self):
                setattr(self, name, given.arguments.get(name, usual))

    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Learn the prior from all groups, and keep their rows. X: `[n, d]`; y: `[n]` or `[n, p]`; groups: `[n]`."""
        inputs, targets, labels = self._read(X, y, groups, reset=True)
        self.flat_ = targets.ndim == 1
        tasks = self._tasks(inputs, targets, labels).with_possible(self.support, self.integer)
        self.gp_ = self._model(len(tasks)).fit(tasks)
        self.context_, self.groups_ = tasks, None if labels is None else list(tasks.ids)
        return self

    def with_context(self, X: Any, y: Any, groups: Any = None) -> MetaGPRegressor:
        """A copy that predicts these groups from these rows, whatever it knew of them; the others as before.

        What was learned is shared with it, and stays as it is.
        """
        check_is_fitted(self)
        inputs, targets, labels = self._read(X, y, groups)
        given = self._tasks(inputs, targets, labels)
        given.check_possible(given.columns.y, self.context_.possible)
        if given.p != self.context_.p:
            raise DataError(f"y has {given.p} columns, but the prior was learned on {self.context_.p}.")
        again = set(given.ids)
        others = self.context_.select([k for k, name in enumerate(self.context_.ids) if name not in again])
        found = copy(self)
        found.context_ = Tasks.one_after_another([others, given])
        return found

    def predict(self, X: Any, groups: Any = None) -> Array:
        """The expected y of each row."""
        return self._asked(X, groups, lambda posterior: posterior.mean)

    def predict_std(self, X: Any, groups: Any = None) -> Array:
        """The standard deviation of each row's y, its noise included."""
        return self._asked(X, groups, lambda posterior: posterior.sd)

    def predict_interval(self, X: Any, level: float = 0.9, groups: Any = None) -> Bounds:
        """The bounds between which each row's y lies with this probability."""
        return Bounds(*self._asked(X, groups, lambda posterior: torch.stack(posterior.interval(level))))

    def score(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> float:
        """The coefficient of determination R² of `predict`."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _model(self, tasks: int) -> MetaGP:
        """What is to learn from so many tasks."""
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in OWN}
        given = {"progress": params["progress"]} | unusual(params, defaults_of(MetaGPRegressor))
        if tasks > 1:
            return MetaGP(**given)
        if self.mean is not None or self.kernel is not None:
            return MetaGP(**{"held_out": None} | given)
        choosing = [name for name in given if name in CHOOSING]
        if choosing:
            raise OptionError(f"{', '.join(choosing)}: one task leaves nothing to choose by. Give two or more groups.")
        return MetaGP(**OF_ONE_TASK | given)

    def _read(self, X: Any, y: Any, groups: Any, *, reset: bool = False) -> tuple[Array, Array, list[Hashable] | None]:
        """Inputs, targets and labels that can be used; reset: columns are those of `fit`, else the same as there."""
        how: dict[str, Any] = {"dtype": np.float64}
        if y is not NO_TARGETS:
            how |= {"multi_output": True, "y_numeric": True}
        if self.group is None:
            found = validate_data(self, X, y, reset=reset, **how)
        else:
            if groups is not None:
                raise OptionError(f"groups are in the column {self.group!r} of X already: leave out groups=.")
            validate_data(self, X, reset=reset, skip_check_array=True)
            X, groups = groups_apart(X, self.group)
            found = check_array(X, **how) if y is NO_TARGETS else check_X_y(X, y, estimator=self, **how)
        inputs, targets = (found, found[:, :0]) if y is NO_TARGETS else found
        if not reset:
            self._check_groups(groups)
        return inputs, targets, None if groups is None else labels_of(groups, len(inputs))

    def _check_groups(self, groups: Any) -> None:
        """Whether it is asked as it was fitted."""
        if groups is None and self.groups_ is not None:
            raise DataError(
                "fitted with groups, and asked without: give groups=, a label for each row. A tool that hands on "
                "nothing but X needs them as a column of it: MetaGPRegressor(group=...)."
            )
        if groups is not None and self.groups_ is None:
            raise DataError(
                "fitted without groups, and asked with some: give groups to fit as well, or leave them out."
            )

    def _tasks(self, inputs: Array, targets: Array, labels: list[Hashable] | None) -> Tasks:
        """The rows of each group, in the order in which groups come."""
        y = targets[:, None] if targets.ndim == 1 else targets
        order, sizes, ids = _in_order(labels, len(inputs))
        tasks = Tasks.from_pairs([(inputs[order], y[order])])
        task = self.group if isinstance(self.group, str) else "group"
        columns = Columns((task,), self._names() or tasks.columns.x, tasks.columns.y)
        return Tasks(tasks.x, tasks.y, offsets_of(sizes), ids, columns)

    def _names(self) -> tuple[str, ...]:
        """The inputs as a data frame calls them; none if X was an array."""
        names = list(getattr(self, "feature_names_in_", ()))
        if names and self.group is not None:
            names.pop(self.group if isinstance(self.group, int) else names.index(self.group))
        return tuple(names)

    def _asked(self, X: Any, groups: Any, wanted: Callable[[Posterior], Tensor]) -> Array:
        """What is wanted of the posterior, `[…, N, p]`, in the order of X's rows; `[…, N]` if y was a vector."""
        check_is_fitted(self)
        inputs, _, labels = self._read(X, NO_TARGETS, groups)
        place = {name: k for k, name in enumerate(self.context_.ids)}
        order, sizes, ids = _in_order(labels, len(inputs))
        x = torch.from_numpy(inputs[order])
        points = Tasks(x, x[:, :0], offsets_of(sizes), ids, self.context_.columns)
        new = [name for name in ids if name not in place]
        known = self.context_
        if new:
            known = Tasks.one_after_another([known, Tasks.empty(new, known.d, known.p)])
            place |= {name: len(place) + k for k, name in enumerate(new)}
        context = known.select([place[name] for name in ids])
        given, _ = in_slices(
            self.gp_, context, points, lambda some, piece: (wanted(some.at(piece)), strange_of(some, piece))
        )
        strange = list(dict.fromkeys(name for _, names in given for name in names))
        for note in told(notes_on(self.gp_.trained_on_, context, points, strange, ".")):
            warnings.warn(note, MetapriorWarning, stacklevel=3)
        values = torch.cat([part for part, _ in given], -2).detach().numpy()
        found = np.empty_like(values)
        found[..., order, :] = values
        return found[..., 0] if self.flat_ else found


def _in_order(labels: list[Hashable] | None, rows: int) -> tuple[Array, Tensor, tuple[Hashable, ...]]:
    """The rows group by group, the size of each group, and their labels in the order in which they come."""
    if labels is None:
        return np.arange(rows), torch.tensor([rows]), (ALL_ROWS,)
    codes = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    owner = np.array([codes[label] for label in labels])
    return np.argsort(owner, kind="stable"), torch.from_numpy(np.bincount(owner)), tuple(codes)
