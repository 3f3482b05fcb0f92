"""The deep mean's network on its own: trained by squared error on all points of the meta-tasks, blind to contexts."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self, Unpack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metaprior.files import State
from metaprior.inference import LOG_2PI
from metaprior.learning import LBFGS, Training, train
from metaprior.methods.points import PointMethod
from metaprior.priors import ACTIVATIONS, DeepMean, Network, NetworkOptions
from metaprior.seeds import affine_seed
from metaprior.splits import Contexts
from metaprior.tasks import Inputs, Scaler, Tasks, on_one_grid


class NeuralNetwork(PointMethod):
    """The same prediction for every task: what the meta-tasks have in common at each input."""

    saved_as = "neural network"
    mean_: DeepMean
    scaler_: Scaler
    training_: Training

    def __init__(
        self,
        *,
        contexts: Contexts | None = None,
        held_out: float | Tasks = 0.1,
        seed: int = 0,
        max_epochs: int = 3000,
        progress: bool | str = True,
        **network: Unpack[NetworkOptions],
    ) -> None:
        super().__init__(contexts=contexts, held_out=held_out, seed=seed)
        self.max_epochs, self.progress, self.network = max_epochs, progress, network

    def learn(self, training: Tasks, held_out: Tasks) -> None:
        """L-BFGS on the squared error, until that of the held-out tasks stops falling."""
        scaler = Scaler.fit(training)
        points, judged = (_Squares.of(scaler.scale(tasks)) for tasks in (training, held_out))
        mean = DeepMean(training.d, training.p, seed=affine_seed(self.seed, factor=2), **self.network)
        updates = LBFGS(list(mean.parameters()), lambda: points.error(mean), entries=points.x.shape[0])
        self.training_ = train(
            mean,
            updates,
            lambda: judged.log_density(mean),
            max_epochs=self.max_epochs,
            held_out=held_out.ids,
            progress=(self.progress if isinstance(self.progress, str) else "network") if self.progress else False,
        )
        self.mean_, self.scaler_ = mean, scaler

    def learned(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return network_state(self.mean_.network, self.scaler_)

    @classmethod
    def relearned(cls, state: State) -> Self:
        network, scaler = network_of(state)
        method = cls()
        method.mean_ = DeepMean(1, seed=0, hidden=())
        method.mean_.network, method.scaler_ = network, scaler
        return method

    @torch.no_grad()
    def values(self, context: Tasks, at: Tasks) -> Float[Tensor, "N p"]:
        """The network at each point, computed once per distinct one."""
        inputs = Inputs.of(self.scaler_.scale(at).x[None])
        return self.scaler_.unscale_mean(self.mean_(inputs.distinct)[inputs.index[0]])


def network_state(network: Network, scaler: Scaler) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A network and its scaling as structure and tensors."""
    layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    widths = [layers[0].in_features, *(layer.out_features for layer in layers)]
    names = {make: name for name, (make, _) in ACTIVATIONS.items()}
    structure = {"widths": widths, "activation": names[type(network.activation)], "dtype": str(layers[0].weight.dtype)}
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    return structure, tensors | scaler.as_tensors()


def network_of(state: State) -> tuple[Network, Scaler]:
    """What `network_state` gave; the widths are checked against the tensors before anything is made."""
    widths, activation = state.structure["widths"], state.structure["activation"]
    for k in range(len(widths) - 1):
        state.tensor(f"network.layers.{2 * k}.weight", (widths[k + 1], widths[k]))
    dtype = torch.float32 if state.structure["dtype"] == "torch.float32" else torch.float64
    options: NetworkOptions = {"hidden": widths[1:-1], "activation": activation, "dtype": dtype}
    network = Network(widths[0], widths[-1], seed=0, **options)
    network.load_state_dict(state.part("network."))
    return network, Scaler.from_tensors(state.tensors)


class _Squares(NamedTuple):
    """All that a squared error needs of many points: share, mean and total variance of y at each distinct x."""

    x: Float[Tensor, "u d"]
    share: Float[Tensor, " u"]
    y: Float[Tensor, "u p"]
    rest: float

    @staticmethod
    def of(tasks: Tasks) -> _Squares:
        if on_one_grid(tasks):
            n = int(tasks.sizes[0])
            y = tasks.y.view(len(tasks), n, tasks.p)
            share = torch.full((n,), 1 / n, dtype=torch.float64)
            return _Squares(tasks.x[:n], share, y.mean(0), float(y.var(0, correction=0).mean()))
        inputs = Inputs.of(tasks.x[None])
        index, (u, p) = inputs.index[0], (len(inputs.distinct), tasks.p)
        count = torch.zeros(u, dtype=torch.float64).index_add_(0, index, torch.ones(len(index), dtype=torch.float64))
        y = torch.zeros(u, p, dtype=torch.float64).index_add_(0, index, tasks.y) / count[:, None]
        rest = float((tasks.y - y[index]).square().mean())
        return _Squares(inputs.distinct, count / len(index), y, rest)

    def error(self, mean: DeepMean) -> Tensor:
        """The mean squared error over all points."""
        at_distinct: Tensor = (mean(self.x) - self.y).square().mean(1)
        return (self.share * at_distinct).sum() + self.rest

    @torch.no_grad()
    def log_density(self, mean: DeepMean) -> float:
        """Per value, under a Gaussian whose variance is the mean squared error itself."""
        return -0.5 * (math.log(max(float(self.error(mean)), 1e-300)) + LOG_2PI + 1)
