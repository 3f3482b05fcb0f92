"""Model-agnostic meta-learning (Finn et al. 2017): a start from which a few gradient steps fit a new task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self, Unpack

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from metaprior.errors import OptionError
from metaprior.files import State
from metaprior.inference import LOG_2PI
from metaprior.learning import Stochastic, Training, train
from metaprior.methods.network import network_of, network_state
from metaprior.methods.points import PointMethod
from metaprior.priors import Network, NetworkOptions
from metaprior.seeds import affine_seed, generator_of
from metaprior.splits import Contexts
from metaprior.tasks import ContextTarget, Scaler, Task, Tasks, buckets, pad

POINTS = 32
"""Points of a task that one update looks at, at most: its context and its target together."""

WIDTH = 200
"""Numbers that a network makes of each point, about: what decides how many tasks fit in memory together."""

MOST_STEPS = 1000
"""Inner steps; what needs more has no start to speak of."""

Parameters = dict[str, Tensor]


class Start(nn.Module):
    """What MAML learns: the parameters to start from, and the step size of each of them (its logarithm)."""

    def __init__(self, network: Network, rate: float, steps: int, *, learn_rates: bool, first_order: bool) -> None:
        super().__init__()
        if not 0 <= steps <= MOST_STEPS or not 0 < rate < math.inf:
            raise OptionError(f"{steps} inner steps of size {rate}: give 0 to {MOST_STEPS:,} steps of a size above 0.")
        self.network, self.steps, self.first_order = network, steps, first_order
        names = [name for name, _ in network.named_parameters()]
        value = torch.full((len(names),), math.log(rate), dtype=next(network.parameters()).dtype)
        self.log_rates = nn.Parameter(value, requires_grad=learn_rates)

    def adapt(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n p"], weight: Float[Tensor, " n"]) -> Parameters:
        """The parameters after the inner steps on one task's squared error; weight 0 leaves a point out."""
        parameters: Parameters = dict(self.network.named_parameters())
        for _ in range(self.steps):
            gradient = grad(self.error)(parameters, x, y, weight)
            if self.first_order:
                gradient = {name: value.detach() for name, value in gradient.items()}
            steps = zip(parameters, self.log_rates.exp(), strict=True)
            parameters = {name: parameters[name] - rate * gradient[name] for name, rate in steps}
        return parameters

    def error(self, parameters: Parameters, x: Tensor, y: Tensor, weight: Float[Tensor, " n"]) -> Tensor:
        """The mean squared error over the points of weight 1; 0 without any."""
        squares = (self.at(parameters, x) - y).square().mean(-1)
        return (weight * squares).sum() / weight.sum().clamp(min=1.0)

    def at(self, parameters: Parameters, x: Float[Tensor, "n d"]) -> Float[Tensor, "n p"]:
        """The network with these parameters."""
        values: Tensor = functional_call(self.network, parameters, (x,))
        return values


class Episode(NamedTuple):
    """Some tasks to adapt to, padded, and which of their points are context and which are target."""

    x: Float[Tensor, "b n d"]
    y: Float[Tensor, "b n p"]
    context: Bool[Tensor, "b n"]
    target: Bool[Tensor, "b n"]


class MAML(PointMethod):
    """A network that starts where a few gradient steps on a new task's context fit it best.

    inner_steps, inner_rate: of those steps; learn_rates: the size of a step is learned too, one for each weight matrix
    and bias. first_order: without second derivatives, cheaper and a little worse. contexts: how meta-tasks are split,
    in training and for the variance; by default at random, with few points more often than many.
    """

    saved_as = "maml"
    start_: Start
    scaler_: Scaler
    training_: Training

    def __init__(
        self,
        *,
        inner_steps: int = 5,
        inner_rate: float = 0.03,
        learn_rates: bool = True,
        first_order: bool = False,
        contexts: Contexts | None = None,
        held_out: float | Tasks = 0.1,
        seed: int = 0,
        rate: float = 3e-3,
        batch_size: int = 64,
        max_epochs: int = 15,
        patience: int = 5,
        progress: bool | str = True,
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(contexts=contexts, held_out=held_out, seed=seed)
        self.inner_steps, self.inner_rate = inner_steps, inner_rate
        self.learn_rates, self.first_order = learn_rates, first_order
        self.rate, self.batch_size, self.max_epochs, self.patience = rate, batch_size, max_epochs, patience
        self.progress, self.network = progress, network

    def learn(self, training: Tasks, held_out: Tasks) -> None:
        """Adam on the error after adaptation, until that of the held-out tasks stops falling."""
        self.scaler_ = Scaler.fit(training)
        options: NetworkOptions = {"dtype": torch.float32, **self.network}
        network = Network(training.d, training.p, seed=affine_seed(self.seed, factor=2), **options)
        self.start_ = Start(
            network, self.inner_rate, self.inner_steps, learn_rates=self.learn_rates, first_order=self.first_order
        )
        updates = MetaUpdates(self.start_, self._episodes(training), self.rate)
        splits = self.asked(held_out)
        self.training_ = train(
            self.start_,
            updates,
            lambda: self._log_density(splits),
            max_epochs=self.max_epochs,
            check_every=1,
            patience=self.patience,
            tolerance=1e-3,
            held_out=held_out.ids,
            progress=(self.progress if isinstance(self.progress, str) else "maml") if self.progress else False,
        )

    @torch.no_grad()
    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The adapted network of each task at its points."""
        given, points = self.scaler_.scale(context), self.scaler_.scale(at)
        out = torch.empty(len(points.x), context.p, dtype=torch.float64)
        like = next(self.start_.network.parameters())
        for which in buckets(given.sizes + points.sizes, beside=WIDTH):
            known, wanted = pad(given, which), pad(points, which)
            x = known.inputs.distinct[known.inputs.index].to(like)
            parameters = vmap(self.start_.adapt)(x, known.y.to(like), known.mask.to(like))
            found = vmap(self.start_.at)(parameters, wanted.inputs.distinct[wanted.inputs.index].to(like))
            rows = points.offsets[which][:, None] + torch.arange(wanted.mask.shape[1])
            out[rows[wanted.mask]] = found[wanted.mask].to(out)
        return self.scaler_.unscale_mean(out)

    def learned(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        structure, tensors = network_state(self.start_.network, self.scaler_)
        steps = {"steps": self.start_.steps, "first_order": self.start_.first_order}
        return structure | steps, tensors | {"log_rates": self.start_.log_rates}

    @classmethod
    def relearned(cls, state: State) -> Self:
        network, scaler = network_of(state)
        method = cls(inner_steps=state.structure["steps"], first_order=state.structure["first_order"])
        start = Start(network, 1.0, method.inner_steps, learn_rates=True, first_order=method.first_order)
        start.log_rates.data = state.tensor("log_rates", tuple(start.log_rates.shape))
        method.start_, method.scaler_ = start, scaler
        return method

    def _episodes(self, training: Tasks) -> Episodes:
        scale = self.scaler_.scale
        if self.contexts is None:
            return RandomEpisodes(scale(training), self.batch_size, self.seed)
        splits = [ContextTarget(scale(context), scale(target)) for context, target in self.asked(training)]
        return GivenEpisodes(splits, self.batch_size, self.seed)

    def _log_density(self, splits: Sequence[ContextTarget]) -> float:
        """Per value of the held-out tasks, under a Gaussian with their own mean squared error, over all the splits."""
        found = []
        for context, target in splits:
            if len(target.x) > 0:
                squares = (self.values(context, target) - target.y).div(self.scaler_.y_scale).square()
                found.append(math.log(max(float(squares.mean()), 1e-300)))
        return -0.5 * (sum(found) / max(len(found), 1) + LOG_2PI + 1)


class Episodes(ABC):
    """A pass over the meta-tasks in random order, some at a time."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self.count, self.batch_size, self.generator = count, batch_size, generator_of(seed)

    def __iter__(self) -> Iterator[Episode]:
        for chosen in torch.randperm(self.count, generator=self.generator).split(self.batch_size):
            yield self.of(chosen)

    @abstractmethod
    def of(self, chosen: Int[Tensor, " b"]) -> Episode:
        """Some of the tasks, split into context and target."""


class RandomEpisodes(Episodes):
    """Random contexts, drawn anew each time: of 1 to n − 1 points, a small number more often than a large one."""

    def __init__(self, tasks: Tasks, batch_size: int, seed: int) -> None:
        super().__init__(len(tasks), batch_size, seed)
        self.tasks = tasks

    def of(self, chosen: Int[Tensor, " b"]) -> Episode:
        sizes = self.tasks.sizes[chosen]
        columns = torch.arange(int(sizes.max()))
        keys = torch.rand(len(chosen), len(columns), generator=self.generator, dtype=torch.float32)
        order = torch.where(columns < sizes[:, None], keys, 2.0).argsort(1)[:, :POINTS]
        seen = sizes.clamp(max=order.shape[1])
        power = torch.rand(len(chosen), generator=self.generator, dtype=torch.float32)
        known = (seen.double() ** power).long().clamp(max=seen - 1)
        rank = torch.arange(order.shape[1])
        rows = self.tasks.offsets[chosen][:, None] + torch.where(rank < seen[:, None], order, 0)
        context = rank < known[:, None]
        return Episode(self.tasks.x[rows], self.tasks.y[rows], context, (rank < seen[:, None]) & ~context)


class GivenEpisodes(Episodes):
    """Contexts and targets that were split before, in one or several ways; of long ones some random points."""

    def __init__(self, splits: Sequence[ContextTarget], batch_size: int, seed: int) -> None:
        super().__init__(sum(len(split.context) for split in splits), batch_size, seed)
        self.pairs = [pair for context, target in splits for pair in zip(context, target, strict=True)]

    def of(self, chosen: Int[Tensor, " b"]) -> Episode:
        known, wanted = ([self._some(self.pairs[i][part]) for i in chosen.tolist()] for part in (0, 1))
        joined = [(torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]])) for a, b in zip(known, wanted, strict=True)]
        x, y = (nn.utils.rnn.pad_sequence([pair[k] for pair in joined], batch_first=True) for k in (0, 1))
        rank = torch.arange(x.shape[1])
        first = torch.tensor([len(part[0]) for part in known])[:, None]
        total = first + torch.tensor([len(part[0]) for part in wanted])[:, None]
        return Episode(x, y, rank < first, (rank >= first) & (rank < total))

    def _some(self, task: Task) -> tuple[Tensor, Tensor]:
        if len(task.x) <= POINTS // 2:
            return task.x, task.y
        rows = torch.randperm(len(task.x), generator=self.generator)[: POINTS // 2]
        return task.x[rows], task.y[rows]


class MetaUpdates(Stochastic):
    """Adam on the mean error of the targets after adapting to their contexts, an update for each episode."""

    def __init__(self, start: Start, episodes: Episodes, rate: float) -> None:
        learned = [parameter for parameter in start.parameters() if parameter.requires_grad]
        super().__init__(torch.optim.Adam(learned, lr=rate), episodes.generator)
        self.start, self.episodes = start, episodes
        self.entries = episodes.batch_size * POINTS**2

    def losses(self) -> Iterator[tuple[Callable[[], Tensor], int]]:
        for episode in self.episodes:
            yield lambda episode=episode: self.error(episode), len(episode.x)  # type: ignore[misc]

    def error(self, episode: Episode) -> Tensor:
        """The targets' error, averaged over the tasks that have any."""
        like = next(self.start.network.parameters())
        x, y, context, target = (values.to(like) for values in episode)
        parameters = vmap(self.start.adapt)(x, y, context)
        errors: Tensor = vmap(self.start.error)(parameters, x, y, target)
        return errors.sum() / (target.sum(1) > 0).sum().clamp(min=1)
