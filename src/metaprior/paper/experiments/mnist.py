"""MNIST image completion (Tab. S2): an image is a function of the pixel's coordinates; a few pixels are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float, UInt8
from torch import Tensor

from metaprior.data import load_digits, load_mnist
from metaprior.inference import Method
from metaprior.learning import OptimizerName
from metaprior.methods import FPCA, LearnedPrior, MeanFitOnTarget, Mixture, NeuralNetwork
from metaprior.paper.options import Options, derived_seeds
from metaprior.paper.running import (
    INITIALISATION,
    begin,
    contexts_of,
    fit_maml,
    missing,
    note_method,
    score_contexts,
    timed,
)
from metaprior.priors import CONFIGURATIONS
from metaprior.report import Results
from metaprior.scoring import evaluate
from metaprior.seeds import generator_of
from metaprior.splits import Given
from metaprior.tasks import ContextTarget, Scaler, SharedInputs, Tasks

SETTINGS = (3, 50, 300)
QUICK_SETTINGS = (3, 10, 30)
FLOORS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Noise floors (variances) to choose from."""

HIDDEN = (128, 64)
EPOCHS: dict[OptimizerName, int] = {"algorithm1": 1, "adam": 500, "lbfgs": 500}
BRIEF = 100
"""Epochs of the trainings that choose the noise floor."""

JUDGES = 300
"""Held-out images that the choices are made by."""

FITTED = 1_000
"""Test images that `mean fit on target` is run on: a network for each of 10,000 would take an hour."""

SHOWN = 3
"""Images in the figure."""

KINDS, KIND_RANK, FEW = (10, 20, 30), 100, 10_000
"""Numbers of kinds that a mixture may have, components of each, and images that its noise is chosen with."""


def run(options: Options) -> Results:
    """The whole experiment. The test images are touched only after every choice is made."""
    chosen = options.chosen(tuple(METHODS))
    seeds = derived_seeds(options.seed, ["held out", "contexts", "fitted images"])
    images = _Images(options, seeds["held out"])
    sizes = QUICK_SETTINGS if options.quick else SETTINGS
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "data": "8 × 8 digits" if options.quick else "MNIST",
        "optimizer": options.learned_by,
        "meta_images": len(images.training) + len(images.held_out),
        "held_out_images": len(images.held_out),
        "test_images": len(images.test),
        "hidden": list(HIDDEN),
        "activation": "sigmoid",
        "initialisation": INITIALISATION,
        "training": {},
    }
    results = begin("mnist", settings, options)
    experiment = _Experiment(images, sizes, seeds, options, results)
    for name in missing(results, chosen, options):
        experiment.add(name)
    results.close()
    return results


class _Images:
    """Images as tasks on one grid of pixels, with values in [0, 1]."""

    def __init__(self, options: Options, seed: int) -> None:
        if options.quick:
            digits, _ = load_digits()
            training, test, white = digits[300:], digits[:300], 16.0
        else:
            mnist = load_mnist(options.data)
            training, test, white = mnist.train, mnist.test, 255.0
        self.shape = tuple(test.shape[1:])
        self.grid = pixels(*self.shape)
        order = torch.randperm(len(training), generator=generator_of(seed))
        held_out, rest = order.tensor_split([len(training) // 10])
        self.held_out = self._tasks(training[held_out], white, "meta", held_out)
        self.training = self._tasks(training[rest], white, "meta", rest)
        self.test = self._tasks(test, white, "test", torch.arange(len(test)))

    def _tasks(self, images: UInt8[Tensor, "m h w"], white: float, part: str, numbers: Tensor) -> Tasks:
        ids = [f"{part} {i}" for i in numbers.tolist()]
        return Tasks.on_grid(self.grid, images.flatten(1).double().div_(white), ids)


class _Experiment:
    """Fits each method and adds its rows."""

    def __init__(
        self, images: _Images, sizes: tuple[int, ...], seeds: dict[str, int], options: Options, results: Results
    ) -> None:
        self.images, self.sizes, self.seeds = images, sizes, seeds
        self.options, self.results = options, results
        self.contexts = contexts_of(images.test, sizes, seeds["contexts"])
        self.judges = images.held_out.select(range(min(JUDGES, len(images.held_out))))
        self.fitted: dict[str, Method] = {}
        self._show_truth()

    def add(self, name: str) -> None:
        """One method's rows."""
        if name in (*CONFIGURATIONS, "mean fit on target"):
            _ = self.floor  # its time is its own
        if name == "mean fit on target":
            self._vanilla()
        with timed(self.results, name):
            method = self.fitted[name] if name in self.fitted else METHODS[name](self, name)
            only = None
            if name == "mean fit on target":
                order = torch.randperm(len(self.images.test), generator=generator_of(self.seeds["fitted images"]))
                only = order[: 50 if self.options.quick else FITTED].sort().values.tolist()
            score_contexts(
                self.results,
                name,
                method,
                self.contexts,
                only=only,
                progress=self.options.progress,
                beside_paper=not self.options.quick,
            )
        note_method(self.results.settings, name, method)
        self._show(name, method)

    @property
    def floor(self) -> float:
        """The noise floor with the lowest held-out MSE of `learned both`, summed over ñ; the same for all methods.

        Images are noise-free, so evidence alone always takes the smallest floor, and predicts badly between pixels.
        """
        settings = self.results.settings
        if "noise_floor" not in settings:
            with timed(self.results, "choice of the noise floor"):
                tried = {floor: self._mse(self.prior("learned both", floor, brief=True)) for floor in FLOORS}
            settings |= {
                "noise_floor": min(FLOORS, key=lambda floor: sum(tried[floor])),
                "noise_floor_chosen_by": "held-out MSE of learned both, summed over the ñ; the same for all methods",
                "held_out_mse_by_noise_floor": _rounded(tried),
            }
        return float(settings["noise_floor"])

    def _show_truth(self) -> None:
        """The first test images, and which of their pixels are known, for the figure."""
        h, w = self.images.shape
        self.results.curves["truth"] = self.images.test.select(range(SHOWN)).y.reshape(SHOWN, h, w).numpy()
        for n, (context, _) in self.contexts.items():
            context = context.select(range(SHOWN))
            seen = torch.zeros(SHOWN, h, w, dtype=torch.bool)
            row, column = context.x.long().unbind(1)
            seen[context.task_of_row, row, column] = True
            self.results.curves[f"{n} mask"] = seen.numpy()

    def _show(self, name: str, method: Method) -> None:
        """The same images as a method completes them."""
        everywhere = Tasks.from_inputs([self.images.grid] * SHOWN, self.images.test.ids[:SHOWN])
        for n, (context, _) in self.contexts.items():
            mean = method.predict(context.select(range(SHOWN)), everywhere).mean
            self.results.curves[f"{name} {n} mean"] = mean.reshape(SHOWN, *self.images.shape).cpu().numpy()

    def network(self, name: str) -> Method:
        network = NeuralNetwork(
            contexts=Given(self._contexts),
            held_out=self.images.held_out,
            seed=self.options.seed,
            max_epochs=self._epochs("lbfgs"),
            progress=self.label(name),
            hidden=HIDDEN,
        )
        return network.fit(self.images.training)

    def fit_on_target(self, name: str) -> Method:
        own = MeanFitOnTarget(self._vanilla().prior_, seed=self.options.seed, hidden=HIDDEN, dtype=torch.float32)
        return own.fit(self.images.test)

    def mixture(self, name: str) -> Method:
        """Kinds of digits without labels: the noise by the error on held-out images, the kinds by their evidence."""
        training, few = self.images.training, self.images.training.select(range(min(FEW, len(self.images.training))))
        variance = float(Scaler.fit(few).y_scale.square())
        rank = min(KIND_RANK, len(self.images.grid) // 2)
        tried = {}
        for noise in FLOORS[1:]:
            options: dict[str, Any] = {"noise_floor": noise / variance, "device": self.options.device}
            tried[noise] = self._mse(Mixture(KINDS[0], rank=rank, held_out=self.judges, **options).fit(few))
        best = min(tried, key=lambda noise: sum(tried[noise]))
        options |= {"noise_floor": best / variance, "held_out": self.images.held_out, "progress": self.label(name)}
        mixture = Mixture(KINDS, rank=rank, seed=self.options.seed, **options).fit(training)
        self.results.settings["mixture"] = {
            "noise": best,
            "held_out_mse_by_noise": _rounded(tried),
            "kinds": len(mixture.models_),
            "rank": rank,
            "held_out_evidence_by_kinds": {str(one.kinds): round(one.held_out_evidence, 4) for one in mixture.tried_},
            "notes": list(mixture.notes_),
        }
        return mixture

    def _vanilla(self) -> LearnedPrior:
        """The prior whose kernel and noise `mean fit on target` takes."""
        if "vanilla" not in self.fitted:
            with timed(self.results, "vanilla"):
                self.fitted["vanilla"] = self.prior("vanilla", self.floor)
        found = self.fitted["vanilla"]
        assert isinstance(found, LearnedPrior)
        return found

    def prior(self, name: str, floor: float, brief: bool = False) -> LearnedPrior:
        optimizer = "lbfgs" if brief else self.options.learned_by
        label = f"noise floor {floor:g}" if brief else name
        gp = LearnedPrior(
            *CONFIGURATIONS[name],
            noise_floor=floor,
            hidden=HIDDEN,
            scale=False,
            optimizer=optimizer,
            max_epochs=min(BRIEF, self._epochs("lbfgs")) if brief else self._epochs(optimizer),
            held_out=self.images.held_out,
            device=self.options.device,
            seed=self.options.seed,
            progress=self.label(label),
        )
        return gp.fit(self.images.training)

    def linear_limit(self, name: str) -> Method:
        """The GP with the training images' own mean and covariance, and the noise that suits held-out images best."""
        moments = grid_moments(self.images.training)
        device = self.options.device
        limits = {noise: linear_limit(self.images.training, noise, moments).to(device) for noise in FLOORS}
        tried = {noise: self._mse(gp) for noise, gp in limits.items()}
        best = min(FLOORS, key=lambda noise: sum(tried[noise]))
        self.results.settings |= {"linear_limit_noise": best, "held_out_mse_by_linear_limit_noise": _rounded(tried)}
        return limits[best]

    def label(self, name: str) -> str | bool:
        return name if self.options.progress else False

    def _mse(self, method: Method) -> list[float]:
        return [evaluate(method, *split).summary("mse").mean for split in self._contexts(self.judges).values()]

    def _contexts(self, tasks: Tasks) -> dict[str, ContextTarget]:
        some = tasks.select(range(min(JUDGES, len(tasks))))
        return {str(n): some.context_target(n, self.seeds["contexts"] + n) for n in self.sizes}

    def _epochs(self, optimizer: OptimizerName) -> int:
        return min(EPOCHS[optimizer], BRIEF) if self.options.quick else EPOCHS[optimizer]


METHODS: dict[str, Callable[[_Experiment, str], Method]] = {
    "neural network": _Experiment.network,
    "mean fit on target": _Experiment.fit_on_target,
    **dict.fromkeys(CONFIGURATIONS, lambda run, name: run.prior(name, run.floor)),
    "maml": lambda run, name: fit_maml(run.images.training, run.options, run.judges, hidden=HIDDEN),
    "fpca": lambda run, name: FPCA(
        held_out=run.images.held_out, device=run.options.device, progress=run.label(name)
    ).fit(run.images.training),
    "mixture": _Experiment.mixture,
    "linear limit": _Experiment.linear_limit,
}
"""The rows, each with what fits it."""


def pixels(height: int, width: int) -> Float[Tensor, "n 2"]:
    """The coordinates of all pixels, row by row."""
    return torch.cartesian_prod(torch.arange(height), torch.arange(width)).double()


Moments = tuple[Float[Tensor, " n"], Float[Tensor, "n n"]]


def grid_moments(tasks: Tasks) -> Moments:
    """Mean and covariance, over the tasks, of their values on the grid."""
    batch = SharedInputs.of(torch.arange(len(tasks)), tasks.x[: int(tasks.sizes[0])], tasks.y.view(len(tasks), -1, 1))
    return batch.mean[0, :, 0], batch.scatter[0]


def linear_limit(training: Tasks, noise: float, moments: Moments | None = None) -> LearnedPrior:
    """The GP with the tasks' own mean and covariance on their grid: what a Gaussian can reach."""
    mean, covariance = moments or grid_moments(training)
    width = int(training.x[: len(mean), 1].max()) + 1
    some = training.select(range(min(100, len(training))))
    at = GridKernel(covariance, width)
    return LearnedPrior(
        lambda x: mean.to(x)[at.position(x)], at, noise=noise, learn=(), scale=False, held_out=None
    ).fit(some)


class GridKernel(Kernel):  # type: ignore[misc]
    """A covariance given as a matrix over the pixels of an image."""

    def __init__(self, covariance: Float[Tensor, "n n"], width: int) -> None:
        super().__init__()
        self.register_buffer("matrix", covariance)
        self.width = width

    def position(self, x: Float[Tensor, "*n 2"]) -> Tensor:
        """The number of each pixel."""
        row, column = x.long().unbind(-1)
        return row * self.width + column

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        first, second = self.position(x1), self.position(x2)
        values: Tensor = self.matrix[first, second] if diag else self.matrix[first[..., :, None], second[..., None, :]]
        return values


def _rounded(tried: dict[float, list[float]]) -> dict[str, list[float]]:
    return {f"{noise:g}": [round(mse, 5) for mse in found] for noise, found in tried.items()}
