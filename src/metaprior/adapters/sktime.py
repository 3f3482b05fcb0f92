"""A forecaster for sktime: learn a prior from past series, forecast a new one from its first few points."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from torch import Tensor

from metaprior.adapters.series import Align, Panel, check_sorted
from metaprior.adapters.skpro import PosteriorDistribution
from metaprior.errors import DataError, MetapriorWarning, NumericalError, OptionError
from metaprior.extras import needs
from metaprior.frames import IMPLAUSIBLE
from metaprior.inference import Posterior
from metaprior.methods import GPPerTask
from metaprior.model import MetaGP
from metaprior.notes import Note, first_names, told
from metaprior.splits import FirstSizes, spare
from metaprior.tasks import Support, Tasks

with needs("metaprior.adapters.sktime", "sktime"):
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

DRAWS = 2_000
"""Of which covariances between times are taken, where they have no closed form."""

NEAR = 0.1
"""How far beyond the times of the past series nothing is said yet, as a share of them."""

FRAMES = ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"]


class MetaGPForecaster(BaseForecaster):  # type: ignore[misc]
    """Forecasts of a new series from its first few points, with a prior that past series have taught.

    `pretrain(panel)` learns a prior from past series, each of which is a task. `fit(y)` conditions it on a new series,
    or on many, and takes no time. Points may be missing and times irregular; a series of which nothing is known yet is
    one with a missing value at its start. Without `pretrain`, `fit` learns from what it is given: of a panel, each
    series is a task; a single series has a Gaussian process of its own.

    Each variable (column) has a prior for itself. Time is in days where the index has dates or periods.

    Parameters
    ----------
    mean, kernel : str, GPyTorch module or None
        The structure of the prior, as in `MetaGP`: with a kernel alone the mean is "constant", with a mean alone the
        kernel is "rbf". Without both, what suits the series is chosen on held-out ones.
    align : "start" or "index"
        "start" counts time from each series' own start, so that days or patients line up; "index" takes it as it is,
        where series share a calendar.
    context_lengths : int, sequence of int or None
        How many points are known of a new series when it is forecast: the prior is chosen for that. By default from
        few to half of a series. Not used with a mean or a kernel.
    budget : float or None
        Seconds after which no more priors are tried; 0 for the quick ones alone. Not used with a mean or a kernel.
    support, integer : pair, bool
        The least and the greatest possible value, `(0, None)`, and whether values are whole numbers, as in
        `MetaGP.fit`.
    random_state : int
        Seed of everything that is random in learning.
    progress : bool
        Whether a bar shows how far learning is.
    options : dict or None
        Further options of `MetaGP`, such as `{"rungs": ["fpca"]}`, or `{"hidden": (32, 32)}` with a mean.

    Attributes
    ----------
    priors_ : dict
        By variable, the `MetaGP` that `pretrain` has learned.
    models_ : dict
        By variable, the `MetaGP` that `fit` has used.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from metaprior.adapters.sktime import MetaGPForecaster
    >>> days = pd.MultiIndex.from_product([range(8), range(12)], names=["day", "hour"])
    >>> past = pd.DataFrame({"load": np.sin(days.codes[1] / 2) + days.codes[0] / 4}, index=days)
    >>> forecaster = MetaGPForecaster("constant", "rbf", progress=False).pretrain(past)
    >>> forecaster.fit(pd.Series([0.6, 1.1, 1.4], name="load")).predict_interval(fh=[1, 2]).shape
    (2, 2)
    """

    _tags = {  # noqa: RUF012
        "authors": ["The metaprior developers"],
        "python_dependencies": ["skpro"],
        "y_inner_mtype": FRAMES,
        "X_inner_mtype": FRAMES,
        "capability:multivariate": True,
        "capability:exogenous": False,
        "capability:insample": True,
        "capability:missing_values": True,
        "capability:pred_int": True,
        "capability:pred_int:insample": True,
        "capability:pretrain": True,
        "capability:random_state": True,
        "capability:unequal_length": True,
        "capability:update": True,
        "pretrain:fitted_params": ["priors_", "pretrained_on_", "dated_"],
        "property:randomness": "deterministic",
        "requires-fh-in-fit": False,
    }
    _config = {"remember_data": False}  # noqa: RUF012 (what is known is kept here, once)

    priors_: dict[Hashable, MetaGP]
    pretrained_on_: dict[Hashable, Tasks]
    models_: dict[Hashable, MetaGP]

    def __init__(
        self,
        mean: str | Mean | None = None,
        kernel: str | Kernel | None = None,
        *,
        align: Align = "start",
        context_lengths: int | Sequence[int] | None = None,
        budget: float | None = None,
        support: Support | None = None,
        integer: bool = False,
        random_state: int = 0,
        progress: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.mean, self.kernel, self.align, self.context_lengths = mean, kernel, align, context_lengths
        self.budget, self.support, self.integer = budget, support, integer
        self.random_state, self.progress, self.options = random_state, progress, options
        super().__init__()
        self._y = self._X = None  # sktime looks at them once a user has set remember_data

    def _check_X_y(self, X: Any = None, y: Any = None, **how: Any) -> Any:  # noqa: N802
        """As sktime does, which says of unsorted times, among all else, that they are none of its formats."""
        check_sorted(y)
        return super()._check_X_y(X=X, y=y, **how)

    def _pretrain(self, y: pd.DataFrame, X: Any = None, fh: Any = None) -> Self:
        panel = Panel.of(y, self.align)
        found = {name: _known(panel.tasks(k)) for k, name in enumerate(y.columns)}
        for name, tasks in found.items():
            if not len(tasks):
                raise DataError(f"column {name!r} has no values: there is nothing to learn from.")
        self._learn_priors(found, panel.dated)
        return self

    def _pretrain_update(self, y: pd.DataFrame, X: Any = None, fh: Any = None) -> Self:
        """Learn again, from the series of before and these."""
        if not hasattr(self, "priors_"):
            return self._pretrain(y)
        panel = Panel.of(y, self.align)
        self._check_times(panel)
        found = {}
        for k, name in enumerate(self._priors_of(y.columns)):
            found[name] = _together(self.pretrained_on_[name], _known(panel.tasks(k)))
        self._learn_priors(self.pretrained_on_ | found, panel.dated)
        return self

    def _learn_priors(self, tasks: dict[Hashable, Tasks], dated: bool) -> None:
        priors = {name: self._learned(some) for name, some in tasks.items()}
        self.priors_, self.pretrained_on_, self.dated_ = priors, tasks, dated

    def _fit(self, y: pd.DataFrame, X: Any = None, fh: Any = None) -> Self:
        self._cur_y = y
        panel = Panel.of(y, self.align)
        if hasattr(self, "priors_"):
            self._check_times(panel)
            self.models_ = dict(zip(y.columns, map(self.priors_.__getitem__, self._priors_of(y.columns)), strict=True))
        else:
            self.models_ = {name: self._own(_known(panel.tasks(k))) for k, name in enumerate(y.columns)}
        self._condition(panel)
        return self

    def _update(self, y: pd.DataFrame, X: Any = None, update_params: bool = True) -> Self:
        """Take in more points; update_params: whether what `fit` has learned without `pretrain` is learned again."""
        both = pd.concat([self._cur_y, y.set_axis(self._cur_y.columns, axis=1)])
        both = both[~both.index.duplicated(keep="last")].sort_index()
        if update_params:
            return self._fit(both)
        self._cur_y = both
        self._condition(Panel.of(both, self.align))
        return self

    def _condition(self, panel: Panel) -> None:
        contexts = [self._possible(panel.tasks(k)) for k in range(len(self.models_))]
        self._panel = panel
        self._conditionals = [
            model.condition(context) for model, context in zip(self.models_.values(), contexts, strict=True)
        ]
        if hasattr(self, "priors_"):
            for conditional in self._conditionals:
                _warn([_unlike(conditional.plausibility, panel.names)])

    def _learned(self, tasks: Tasks) -> MetaGP:
        given: dict[str, Any] = {"seed": self.random_state, "progress": self.progress}
        if self.mean is not None or self.kernel is not None:
            given["held_out"] = spare(len(tasks))
        else:
            given["budget"] = self.budget
            if self.context_lengths is not None:
                given["contexts"] = FirstSizes(tuple(np.atleast_1d(self.context_lengths).tolist()))
        return MetaGP(self.mean, self.kernel, **given | dict(self.options or {})).fit(self._possible(tasks))

    def _own(self, tasks: Tasks) -> MetaGP:
        """A model of what `fit` was given alone."""
        if not len(tasks):
            raise DataError("a series without values can be forecast from past series alone: call pretrain first.")
        if len(tasks) == 1 and self.mean is None and self.kernel is None:
            return MetaGP.of(GPPerTask().fit(self._possible(tasks)))
        return self._learned(tasks)

    def _possible(self, tasks: Tasks) -> Tasks:
        return tasks.with_possible(self.support, self.integer)

    def _check_times(self, panel: Panel) -> None:
        if panel.dated != self.dated_:
            was, now = ("dates" if dated else "whole numbers" for dated in (self.dated_, panel.dated))
            raise DataError(
                f"the past series were indexed by {was}, and here the index holds {now}: give the same kind."
            )

    def _priors_of(self, columns: Sequence[Hashable]) -> list[Hashable]:
        """The past variable that each of these is: that of its name, or of its place where all are called otherwise."""
        known = list(self.priors_)
        if all(name in self.priors_ for name in columns):
            return list(columns)
        if len(columns) == len(known) and not any(name in self.priors_ for name in columns):
            return known
        raise DataError(
            f"the past series had the variables {', '.join(map(str, known))}; here there are "
            f"{', '.join(map(str, columns))}: give those, or some of them, by the same names."
        )

    def _predict(self, fh: ForecastingHorizon, X: Any = None) -> pd.DataFrame:
        index, posteriors = self._posteriors(fh)
        return self._frame([posterior.mean for posterior in posteriors], index, self._cur_y.columns)

    def _predict_quantiles(self, fh: ForecastingHorizon, X: Any, alpha: Sequence[float]) -> pd.DataFrame:
        index, posteriors = self._posteriors(fh)
        values = [value for posterior in posteriors for value in posterior.quantiles(list(alpha))]
        return self._frame(values, index, self._get_columns(method="predict_quantiles", alpha=alpha))

    def _predict_var(self, fh: ForecastingHorizon, X: Any = None, cov: bool = False) -> pd.DataFrame:
        index, posteriors = self._posteriors(fh)
        if cov:
            return self._covariances(index, posteriors)
        return self._frame([posterior.sd.square() for posterior in posteriors], index, self._get_varnames())

    def _covariances(self, index: pd.Index, posteriors: Sequence[Posterior]) -> pd.DataFrame:
        """Between the times of each series: a row for each, and for each variable a column for each."""
        sizes = posteriors[0].points.sizes.tolist()
        times = index.get_level_values(-1)
        first = times[: sizes[0]]
        if not times.equals(first.append([first] * (len(sizes) - 1))):
            raise OptionError(
                "cov=True: the series are asked about at different times, and the columns are those of one series: fit "
                "each by itself, or ask for variances without cov."
            )
        values = [torch.cat(_covariance(posterior, self.random_state)) for posterior in posteriors]
        columns = pd.MultiIndex.from_product([self._get_varnames(), first])
        return pd.DataFrame(torch.cat(values, 1).numpy(), index=index, columns=columns)

    def _predict_proba(self, fh: ForecastingHorizon, X: Any = None, marginal: bool = True) -> PosteriorDistribution:
        index, posteriors = self._posteriors(fh)
        return PosteriorDistribution(posteriors, None, index, pd.Index(self._get_varnames()))

    def _posteriors(self, fh: ForecastingHorizon) -> tuple[pd.Index, list[Posterior]]:
        """The index of the forecast, and what each variable is there."""
        index, points = self._panel.ahead(fh, self.cutoff)
        if hasattr(self, "priors_"):
            _warn([_beyond(points, model) for model in self.models_.values()])
        return index, [conditional.at(points) for conditional in self._conditionals]

    def _frame(self, values: Sequence[Tensor], index: pd.Index, columns: Any) -> pd.DataFrame:
        found = torch.cat(list(values), 1).numpy()
        if not np.isfinite(found).all():
            raise NumericalError(
                "a forecast is not finite: the values are too large beside those that the prior was learned from. "
                "Are they in the same units?"
            )
        return pd.DataFrame(found, index=index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Quick ones: one prior among those that there are to choose from, and one of given structure."""
        return [
            {"progress": False, "options": {"rungs": ["shared gp"]}, "context_lengths": [2]},
            {"mean": "constant", "kernel": "rbf", "align": "index", "progress": False, "options": {"max_epochs": 2}},
        ]


def _known(tasks: Tasks) -> Tasks:
    """Those of which anything is known."""
    return tasks.select(tasks.sizes > 0)


def _together(first: Tasks, second: Tasks) -> Tasks:
    """The tasks of both; a series that has the name of an earlier one is another one."""
    names = [(name, "again") if name in set(first.ids) else name for name in second.ids]
    pairs = [(task.x, task.y) for tasks in (first, second) for task in tasks]
    return Tasks.from_pairs(pairs, [*first.ids, *names])


def _covariance(posterior: Posterior, seed: int) -> list[Tensor]:
    """Of each series, `[n, n]`."""
    exact = posterior.covariances()
    if exact is not None:
        return [one[0] for one in exact]
    drawn = posterior.samples(DRAWS, seed)[..., 0]
    return [torch.cov(some.mT).reshape(some.shape[1], -1) for some in drawn.split(posterior.points.sizes.tolist(), 1)]


def _unlike(plausibility: Tensor | None, names: Sequence[Hashable]) -> Note:
    strange = [] if plausibility is None else torch.nonzero(plausibility < IMPLAUSIBLE)[:, 0].tolist()
    said = [names[k] for k in strange]
    what = "series are unlike those the prior was learned from"
    named = first_names(said) if len(names) > 1 else ()
    return Note(len(said), what, len(names), named, ": their forecasts may be far off.")


def _beyond(points: Tasks, model: MetaGP) -> Note:
    low, high = model.trained_on_.x_range[0]
    outside = (points.x < low - NEAR * (high - low)) | (points.x > high + NEAR * (high - low))
    what = (
        f"times of the horizon lie outside those of the past series ({low:g} to {high:g}): forecasts there are a guess"
    )
    return Note(int(outside.sum()), what, len(points.x), then=".")


def _warn(notes: Sequence[Note]) -> None:
    for note in dict.fromkeys(told(notes)):
        warnings.warn(note, MetapriorWarning, stacklevel=5)
