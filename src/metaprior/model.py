"""`MetaGP`: the one object most users meet. Fit it on past tasks, condition it on a new one."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, overload

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from metaprior.devices import device_of, within_memory
from metaprior.errors import DataError, MetapriorError, MetapriorWarning, OptionError
from metaprior.exports import to_botorch, to_gpytorch
from metaprior.files import UNREADABLE, State, load_method
from metaprior.frames import Measuring, Stream, Wanted, predict_batches, predict_table, suggest_table, suggest_tasks
from metaprior.inference import (
    Conditional,
    Evidence,
    KeptMethod,
    Method,
    Posterior,
    WithinPossible,
    moved,
    posterior_of,
)
from metaprior.learning import Training
from metaprior.methods import OF_ONE, SAMPLE, Begun, LearnedPrior, fit_parts
from metaprior.notes import told
from metaprior.options import Parameters, defaults_of, states
from metaprior.priors import Prior
from metaprior.scoring import Scores, scores_by_setting
from metaprior.selection import Auto
from metaprior.splits import Contexts, Given, both_sides, random_sizes
from metaprior.tasks import (
    Missing,
    Parts,
    Scaler,
    Support,
    Tasks,
    TrainedOn,
    as_tasks,
    check_task_x,
    long_table,
    oddities,
    oddities_of_past,
    wide_columns,
)

CPU = torch.device("cpu")


class MetaGP(Parameters, KeptMethod):
    """A Gaussian process whose prior is meta-learned.

        gp = MetaGP().fit(tasks)
        posterior = gp.condition(x, y).at(x_new)
        posterior.mean, posterior.interval(0.9)

    Without mean and kernel, the prior that suits the tasks is chosen on held-out ones, from simple to rich, and its
    bounds are recalibrated there (`Auto`, whose options are contexts, rungs, seed and progress). With a mean or a
    kernel, the prior is of that structure, and the options are those of `LearnedPrior`. With a kernel alone the mean is
    "constant", with a mean alone the kernel is "rbf"; the repr shows both.

    After `fit`, `method_` is what was learned; where it is one prior, `prior_`, `scaler_` and `training_` are its own.
    """

    saved_as = "metagp"
    fitted_as = "method_"
    method_: Any

    @states(Auto, LearnedPrior)
    def __init__(
        self,
        mean: str | Mean | Callable[[Tensor], Tensor] | None = None,
        kernel: str | Kernel | None = None,
        **options: Any,
    ) -> None:
        self.mean, self.kernel, self.options = mean, kernel, options
        self._make()  # an option that does not exist is told now

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Mean, kernel and every option that goes with them, which depend on whether the prior is chosen for you."""
        chosen = {"mean": self.mean, "kernel": self.kernel}
        return chosen | defaults_of(type(self._make())) | chosen | self.options

    def _effective_params(self) -> dict[str, Any]:
        return self.get_params() | self._structure()

    @classmethod
    def of(cls, method: Any) -> Self:
        """A method that was fitted by itself."""
        gp = cls()
        gp.method_, gp.trained_on_, gp.scores_ = method, method.trained_on_, getattr(method, "scores_", {})
        return gp

    def fit(
        self,
        tasks: Any,
        *,
        task: str | Sequence[str] | None = None,
        x: str | Sequence[str] | None = None,
        y: str | Sequence[str] | None = None,
        wide: str | None = None,
        task_x: str | Sequence[str] = (),
        clusters: str | Sequence[Any] | None = None,
        support: Support | None = None,
        integer: bool | Sequence[str] = False,
        missing: Missing = "error",
        start: MetaGP | None = None,
        checkpoint: str | Path | None = None,
        keep: bool = False,
    ) -> Self:
        """Meta-learn from past tasks: a `Tasks`, a table with the names of its columns, or `Shards`.

        A table has one row per observation, or, with wide="week_*", one per task (see `Tasks.from_table`).
        task_x: columns that say something of a task as a whole, such as age or diet, for mean and kernel to use.
        clusters: a column, or a label for each of the `Tasks`: groups that share a fate, such as the school of a pupil.
        They are held out whole, so that choice and bounds are right for tasks of new groups.
        support: the least and the greatest value that targets can have, `(0, None)`; integer: whether they are whole
        numbers. Means, bounds and draws are possible values then (see `Tasks.with_possible`).
        start: a fitted model to go on from, with its scaling. checkpoint: a file in which the training is kept while it
        runs; where there is one of the same training, it goes on there. keep: leave it when all is learned, for whoever
        removes it when the model is saved.
        """
        if isinstance(tasks, Parts):
            if any((task, x, y, wide, task_x, clusters, support, integer)) or missing != "error":
                raise DataError("tasks in parts know their columns: name them in Shards.open(folder, x=..., y=...).")
            self._fit_parts(tasks, start, None if checkpoint is None else Path(checkpoint))
            return self
        given = as_tasks(
            tasks,
            task=task,
            x=x,
            y=y,
            wide=wide,
            task_x=task_x,
            clusters=clusters,
            support=support,
            integer=integer,
            missing=missing,
        )
        if given is not tasks:
            _warn([*_left_out(given), *oddities_of_past(given)])
        if start is not None:
            _warn(told([start.trained_on_.note_on_earlier(given.ids)]))
        self.method_ = self._learned(given, start, checkpoint, keep)
        self.trained_on_, self.scores_ = self.method_.trained_on_, getattr(self.method_, "scores_", {})
        if given.columns.task_x and not self.trained_on_.columns.task_x:
            _warn(["the prior makes no use of the task columns, and does not ask for them again."])
        return self

    def _learned(
        self, tasks: Tasks, start: MetaGP | None, checkpoint: str | Path | None = None, keep: bool = False
    ) -> LearnedPrior | Auto:
        method = self._make()
        if start is None:
            return method.fit(tasks, checkpoint=checkpoint, keep=keep)
        earlier = copy(start._single())  # a loaded one may not know its own past, and the start stays as it was
        earlier.trained_on_ = start.trained_on_
        if not isinstance(method, LearnedPrior):
            raise OptionError("learning goes on from a prior of given mean and kernel: use start.like_new().")
        return method.fit(tasks, start=earlier, checkpoint=checkpoint, keep=keep)

    def _fit_parts(self, parts: Parts, start: MetaGP | None, folder: Path | None) -> None:
        """From a sample, and then on from there with all tasks: `notes_` is what a user should know."""
        held_out = self.options.get("held_out")
        decides = {name: value for name, value in self.options.items() if name not in ("progress", "held_out")}

        def begin(sample: Tasks) -> Begun:
            if start is not None:
                _warn(told([start.trained_on_.note_on_earlier(sample.ids)]))
            found = self._learned(sample, start)
            return Begun(found, found.weighed_by_ if isinstance(found, Auto) else found.training_.held_out)

        if self.options.get("thorough") and parts.tasks > SAMPLE:
            raise OptionError("thorough: every prior would learn from all tasks, and these are in parts. Leave it out.")
        self.method_, self.notes_ = fit_parts(
            parts,
            begin,
            SAMPLE if self.mean is None and self.kernel is None else OF_ONE,
            judge=held_out if isinstance(held_out, Tasks) else None,
            folder=folder,
            decides=(*self._structure().values(), sorted(decides.items()), start and start.trained_on_.salt),
            progress=bool(self.options.get("progress", True)),
        )
        self.trained_on_, self.scores_ = self.method_.trained_on_, getattr(self.method_, "scores_", {})
        _warn(self.notes_)

    def condition(self, x: Any, y: Any = None, *, task_x: Mapping[str, Any] | None = None) -> Conditional[Posterior]:
        """The prior conditioned on one new task's points, of which there may be none; ask it with `.at(x_new)`.

        Or on the contexts of many tasks at once: `gp.condition(tasks)`. Everything that is asked of it later is a view
        of what is computed now. task_x: what is known of the one task as a whole, where the prior was learned with
        that: `{"diet": "rich"}`.
        """
        self._check_fitted()
        context = x
        if isinstance(x, Tasks):
            if y is not None or task_x is not None:
                raise OptionError("y and task_x go with the points of one task; Tasks have their own (with_task_x).")
        else:
            if y is None:
                raise DataError("give the known points of one task, condition(x, y), or Tasks.")
            context = self._one_task(x, y, task_x)
        context.check_possible(self.trained_on_.columns.y, self.trained_on_.possible)
        conditional = self._conditioned(context)
        return conditional if context is x else _OfOneTask(conditional, self.trained_on_)

    def _conditioned(self, context: Tasks) -> Conditional[Posterior]:
        """The method conditioned on tasks with its columns."""
        known = self.trained_on_.columns
        for what, found, count in (("input", context.d, len(known.x)), ("target", context.p, len(known.y))):
            if found != count:
                raise DataError(f"{found} {what} columns, but the prior was learned on {count}: give the same columns.")
        if known.task_x:
            check_task_x(known.task_x, context)
        few = "Condition on fewer at a time, or use device='cpu'."
        with within_memory(f"what is known of {len(context):,} tasks", few):
            conditional: Conditional[Posterior] = self._within(self.method_).condition(context)
        return moved(conditional, CPU)

    def to(self, device: str) -> Self:
        """Learn and predict there from now on: "cpu", "cuda" or "auto". Answers come back to the CPU."""
        device_of(device)
        if device != self.device:
            self.options = self.options | {"device": device}
        if hasattr(self, "method_"):
            self.method_.to(device)
        return self

    @property
    def device(self) -> str:
        """Where it learns and predicts."""
        return str(self.options.get("device", "cpu"))

    def _within(self, method: Method) -> Method:
        """A method whose predictions are possible values of the targets."""
        possible = self.trained_on_.possible
        return WithinPossible(method, possible) if possible else method

    def _one_task(self, x: Any, y: Any, task_x: Mapping[str, Any] | None) -> Tasks:
        columns = self.trained_on_.columns
        if len(x) == len(y) == 0:
            context = Tasks.empty(["new task"], len(columns.x), len(columns.y))
        else:
            context = Tasks.from_pairs([(x, y)], ["new task"])
        if task_x is not None:
            order = {one.name: k for k, one in enumerate(columns.task_x)}
            ordered = sorted(task_x, key=lambda name: order.get(name, len(order)))
            context = context.with_task_x({name: [task_x[name]] for name in ordered}, columns.task_x)
            check_task_x(columns.task_x, context)
        return context

    @overload
    def predict(self, context: Tasks, at: Any) -> Posterior: ...
    @overload
    def predict(self, context: Any, at: Any, *, wide: str | None = None, **wanted: Any) -> Any: ...
    def predict(self, context: Any, at: Any, *, wide: str | None = None, **wanted: Any) -> Any:
        """The posterior of many target tasks: at their own points (`Tasks`), or at one array of points for all.

        With a table as context, a table of the same kind comes back: task and input columns, then mean, sd, lower and
        upper (mean_predicted … where a task or input column has that name). at: points, a second table, or "missing"
        (the rows without targets); rows of a table come back in its order and with its index. wide: of a table with one
        row per task, as in `fit`. wanted: level=0.9, latent=False, quantiles=(), samples=0, seed=0, missing="error".
        What a reader should know (points outside the past ranges, tasks unlike the past ones, rows that were left
        out) is said in warnings, of the category `MetapriorWarning`. Known values that the targets cannot have are an
        error.
        """
        self._check_fitted()
        if isinstance(context, Tasks):
            named = ", ".join([*wanted, *["wide"] * (wide is not None)])
            if named:
                raise OptionError(f"{named} belong to tables; ask the posterior: gp.predict(tasks, at).interval(0.9).")
            at = _points_of(context, at)
            _warn(told(self.trained_on_.outside(at, context)))
            return posterior_of(self, context, at)
        columns = self.trained_on_.columns
        if wide is not None:
            context = long_table(context, wide, wide_columns(wide, columns), empty=True)
        table, notes, _ = predict_table(self, columns, context, at, Wanted.of(wanted), gaps=wide is not None)
        _warn(notes)
        return table

    def predict_batches(self, batches: Iterable[Any], at: Any, **wanted: Any) -> Iterator[Any]:
        """Predictions of a table that comes as Arrow record batches, of which each holds whole tasks, as such batches.

        at and wanted: as in `predict`, and so is what comes out; of a second table those rows are predicted that are of
        a batch's tasks. The first batch decides on the types of all that come out. Draws (samples) are others than
        those of the whole table. What should be known is said in warnings when all have come.
        """
        self._check_fitted()
        stream = Stream(self, at, Wanted.of(wanted))
        return predict_batches(stream, batches, _warn)

    def suggest(self, context: Any, at: Any, points: int = 1, *, about: Any = None, **asked: Any) -> Any:
        """Where to measure each task next: so many of the places `at` that are expected to leave least open about it.

        About its curve at all of these places, or at the points `about`. With a table as context, a table of the same
        kind comes back: task, order, inputs, the deviation of the curve before and after, and the share that each
        point is expected to take from it; at may be a second table or "missing". With `Tasks`, a `Suggestion` for
        each. asked: seed=0, missing="error". Of one task: `gp.condition(x, y).suggest(at, points)`.
        """
        self._check_fitted()
        wanted = Measuring(points, about, **asked)
        if isinstance(context, Tasks):
            at = _points_of(context, at)
            _warn(told(self.trained_on_.outside(at, context)))
            return suggest_tasks(self, context, at, wanted)[0]
        found = suggest_table(self, self.trained_on_.columns, context, at, wanted)
        _warn(found.notes)
        return found.table

    def plausibility(self, context: Tasks) -> Tensor | None:
        """How usual each context is, from 0 to 1; None where the prior was not chosen on past tasks."""
        return self.condition(context).plausibility

    def to_gpytorch(self, x: Any, y: Any) -> ExactGP:
        """The posterior of one task as a GPyTorch model in evaluation mode, in the user's units.

        Of the prior itself: what `auto` has learned about how far its bounds must reach is not in it.
        """
        self._check_exportable()
        return to_gpytorch(self.prior_, self.scaler_, x, y)

    def to_botorch(self, x: Any, y: Any) -> Any:
        """The same as a BoTorch `SingleTaskGP`, for its acquisition functions."""
        self._check_exportable()
        return to_botorch(self.prior_, self.scaler_, x, y)

    def score(
        self,
        tasks: Any,
        context: int | Callable[[Tensor], Any],
        *,
        wide: str | None = None,
        missing: Missing = "error",
        seed: int = 0,
    ) -> Scores:
        """How well tasks are predicted from a few points each: the figures of `metaprior evaluate`.

        Args:
            tasks: `Tasks`, or a table with the columns that the model was fitted on.
            context: number of random context points; tasks with no more points are left out. Or a predicate on x that
                holds for the context points; tasks without points on both sides are left out.
            wide: value columns of a table with one row per task, as in `fit`.
            missing: "error" or "drop", for rows of a table with missing values.
            seed: of the random context points.
        """
        self._check_fitted()
        columns = self.trained_on_.columns._asdict()
        given = tasks if isinstance(tasks, Tasks) else as_tasks(tasks, **columns, wide=wide, missing=missing)
        if given is not tasks:
            _warn([*_left_out(given), *oddities(given)])
        _warn(self.notes_on_scored(given))
        if callable(context):
            contexts: Contexts = Given(lambda some: {"": both_sides(some, context)})
        else:
            contexts = random_sizes([context], seed)
        (scores,) = scores_by_setting(self, given, contexts).values()
        return scores

    def notes_on_scored(self, tasks: Tasks) -> list[str]:
        """What a reader of scores of these tasks should know. Values that the targets cannot have are an error."""
        trained_on = self.trained_on_
        trained_on.check_inputs(tasks)
        tasks.check_possible(trained_on.columns.y, trained_on.possible)
        return told([*trained_on.outside(tasks), trained_on.note_on_seen(tasks.ids)])

    @property
    def prior_(self) -> Prior:
        """The learned prior, in scaled units."""
        found: Prior = self._single().prior_
        return found

    @property
    def scaler_(self) -> Scaler:
        """What brings x and y to the prior's units."""
        found: Scaler = self._single().scaler_
        return found

    @property
    def training_(self) -> Training:
        """What happened in meta-learning."""
        found: Training = self._single().training_
        return found

    def like_new(self, **options: Any) -> MetaGP:
        """A model of the same structure that has learned nothing yet."""
        inner = self._single()
        if not isinstance(inner, LearnedPrior):
            raise DataError(f"the model is a {inner.saved_as}; learning can go on from a prior (mean and kernel) only.")
        return MetaGP(**(inner.structure() | options))

    def state(self) -> State:
        """What was learned, for a file."""
        self._check_fitted()
        return State(self.saved_as, {}, {}).with_parts({"method": self.method_.state()})

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The fitted model again."""
        gp = cls()
        gp.method_ = state.method("method")
        return gp

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu") -> Self:
        """Read a model back from its file, whatever it was learned on. device: where it is to predict."""
        device_of(device)
        found = load_method(path)
        if not hasattr(found, "trained_on_"):
            raise DataError(f"{path} does not say what it was trained on. Fit the model again.")
        gp = found if isinstance(found, cls) else cls.of(found)
        gp._check_answers(path)
        return gp.to(device)

    def _check_answers(self, path: str | Path) -> None:
        """Whether a model of a file can be asked: a file may be whole, and its parts not fit together."""
        about = self.trained_on_
        ends = [torch.tensor(one, dtype=torch.float64).T for one in (about.x_range, about.y_range)]
        x, y = (low + (high - low) * torch.tensor([[0.4], [0.6]], dtype=torch.float64) for low, high in ends)
        points = Tasks.from_pairs([(x, y)], ["a task"])
        if about.columns.task_x:
            typical = torch.tensor([about.task_x.typical], dtype=torch.float64)
            points = replace(points, columns=about.columns, covariates=typical)
        try:
            for context in (points, points.first_points(0)[0]):
                posterior = self._conditioned(context).at(x)
                lower, upper = posterior.interval(0.9)
                found = torch.stack([posterior.mean, posterior.sd, lower, upper])
                if not bool(found.isfinite().all() and (posterior.sd >= 0).all() and (lower <= upper).all()):
                    raise ValueError("what it predicts are no numbers")
        except UNREADABLE as error:
            if isinstance(error, MetapriorError):
                raise
            raise DataError(f"{path} does not fit together ({error}). Fit the model again.") from None

    def _make(self) -> LearnedPrior | Auto:
        if self.mean is None and self.kernel is None:
            try:
                return Auto(**self.options)
            except TypeError:
                known = sorted(set(inspect.signature(Auto).parameters))
                wrong = [name for name in self.options if name not in known]
                raise OptionError(
                    f"{', '.join(wrong)}: an option of a prior whose mean or kernel you choose, such as "
                    f"MetaGP('deep', 'deep', …). Where the prior is chosen for you, there are {', '.join(known)}."
                ) from None
        return LearnedPrior(**self._structure(), **self.options)

    def _structure(self) -> dict[str, Any]:
        """Mean and kernel; where only one of them is named, the other has its simple default."""
        mean, kernel = self.mean, self.kernel
        if mean is None and kernel is not None:
            mean = "constant"
        elif kernel is None and mean is not None:
            kernel = "rbf"
        return {"mean": mean, "kernel": kernel}

    def _single(self) -> Any:
        """The method itself, if it is one prior."""
        self._check_fitted()
        found = self.method_.method_ if isinstance(self.method_, Auto) else self.method_
        if not hasattr(found, "prior_") or found.prior_.degrees is not None:
            raise OptionError(
                f"this model is {_said(found)}, not one Gaussian-process prior: choose mean and kernel, such as "
                "MetaGP('deep', 'deep'), for a prior to look at, to go on from or to export."
            )
        return found

    def _check_exportable(self) -> None:
        if self._single() and self.trained_on_.columns.task_x:
            raise OptionError(
                "a prior that takes in task columns has inputs that a model of one task has not: it cannot be exported."
            )


class _OfOneTask(Conditional[Posterior]):
    """The conditional of one task, whose user is warned where it is asked outside the past ranges."""

    def __init__(self, conditional: Conditional[Posterior], trained_on: TrainedOn) -> None:
        self.conditional, self.trained_on, self.context = conditional, trained_on, conditional.context

    @property
    def evidence(self) -> Evidence | None:
        """The evidence of the task's context, where the method has one."""
        return self.conditional.evidence

    @property
    def plausibility(self) -> Tensor | None:
        """How usual the context is, where the method can tell."""
        return self.conditional.plausibility

    def posterior(self, points: Tasks) -> Posterior:
        """The posterior at these points."""
        asked = replace(points, covariates=self.context.covariates)
        _warn(told(self.trained_on.outside(asked, self.context)), stacklevel=4)
        return self.conditional.posterior(points)


def _said(method: Any) -> str:
    if hasattr(method, "prior_"):
        return "a Student-t process"
    return {"warped": "a prior of warped targets", "combination": "a mixture of several priors"}.get(
        method.saved_as, f"a {method.saved_as}"
    )


def load(path: str | Path, device: str = "cpu") -> MetaGP:
    """The model that a file holds, whatever its kind. device: where it is to predict, "cpu", "cuda" or "auto"."""
    return MetaGP.load(path, device)


def _points_of(context: Tasks, at: Any) -> Tasks:
    """Where tasks are asked, with what is known of each as a whole."""
    return at if isinstance(at, Tasks) else replace(context.at_points(at), covariates=context.covariates)


def _left_out(tasks: Tasks) -> list[str]:
    """What was left out when tasks were made of a table."""
    return [note for note in tasks.notes if note.startswith("dropped")]


def _warn(notes: Iterable[str], stacklevel: int = 3) -> None:
    """Each note once, where the user called."""
    for note in dict.fromkeys(notes):
        warnings.warn(note, MetapriorWarning, stacklevel=stacklevel)
