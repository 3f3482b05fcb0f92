"""Step function regression (Tab. 1): four priors meta-learned on steps, and how far they are from the limit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from jaxtyping import Float
from torch import Tensor

from metaprior.inference import KeptMethod, Method
from metaprior.learning import OptimizerName
from metaprior.methods import FPCA, LearnedPrior
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
from metaprior.scoring import Scores, evaluate
from metaprior.seeds import generator_of
from metaprior.selection import Auto
from metaprior.splits import random_sizes
from metaprior.tasks import ContextTarget, Tasks

SETTINGS = (1, 5, 20)
SMALLEST = 1e-3
"""The noise floor (variance) at which the eigenfunctions' joint density is compared with the limit's at the same."""

GAINS = (4.0, 12.0, 30.0)
"""How rough φ may start: steps at 25 places need a rough one. The evidence of held-out steps chooses."""

FLOORS = (1e-1, 1e-2, 1e-3, 1e-4)
"""Noise floors (variances) to choose from."""

TO_TRY = ("learned both", "auto", "fpca", "eigenfunctions", "learned mean", "learned kernel", "vanilla")
"""Of the methods that were run, the first of these is kept."""

HIDDEN, FUNCTIONS = (128, 64), 32
EPOCHS: dict[OptimizerName, int] = {"algorithm1": 20, "adam": 3000, "lbfgs": 3000}
QUICK_EPOCHS: dict[OptimizerName, int] = {"algorithm1": 1, "adam": 100, "lbfgs": 20}


def run(options: Options) -> Results:
    """The whole experiment. The test functions are touched only after every choice is made."""
    chosen = options.chosen(tuple(METHODS))
    seeds = derived_seeds(options.seed, ["meta", "test", "held out", "contexts"])
    meta_count, test_count = (500, 100) if options.quick else (10_000, 1_000)
    held_out, training = draw_steps(meta_count, seeds["meta"]).split(0.1, seeds["held out"])
    test = draw_steps(test_count, seeds["test"])
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "optimizer": options.learned_by,
        "meta_functions": meta_count,
        "held_out_functions": len(held_out),
        "test_functions": test_count,
        "hidden": list(HIDDEN),
        "activation": "sigmoid",
        "initialisation": INITIALISATION,
    }
    results = begin("step", settings, options)
    settings = results.settings
    contexts = contexts_of(test, SETTINGS, seeds["contexts"])
    if chosen != ("bayes limit",) and "noise_floor" not in settings:
        with timed(results, "choice of the noise floor"):
            floor, tried = choose_floor(training, held_out, options, seeds["contexts"])
        settings |= {
            "noise_floor": floor,
            "noise_floor_chosen_by": "held-out MSE of learned both, summed over the three ñ; the same for all methods",
            "held_out_mse_by_noise_floor": tried,
            "training": {},
        }
    given = _Given(training, held_out, options, settings.get("noise_floor", FLOORS[0]))
    best = next((name for name in TO_TRY if name in (*chosen, *results.parts)), None)
    for name in missing(results, chosen, options):
        with timed(results, name):
            fitted = METHODS[name]
            if fitted is None:
                _score_bayes_limit(results, contexts)
                continue
            method = fitted(given)
            score_contexts(results, name, method, contexts)
        note_method(settings, name, method)
        if name == best:
            assert isinstance(method, KeptMethod)
            results.model = method
        if name == "eigenfunctions":
            assert isinstance(method, LearnedPrior)
            settings["eigenfunctions"] = {
                "functions": FUNCTIONS,
                "gain": method.spec.gain,
                "noise_floor": SMALLEST,
                "joint_log_likelihood_of_the_linear_limit_there": _limits(training, contexts),
            }
        if name in CONFIGURATIONS:
            _reconstruct(results, name, method, seeds["contexts"])
    results.example = [([-1.2], [0.0]), ([-0.3], [0.0]), ([0.9], [1.0])]
    results.close()
    return results


def draw_steps(count: int, seed: int) -> Tasks:
    """Heaviside steps and mirrored ones, located uniformly on [−1, 1], at 50 points of [−2, 2]."""
    generator = generator_of(seed)
    location = 2 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 1
    mirrored = torch.rand(count, 1, generator=generator, dtype=torch.float32) < 0.5
    x = _grid()
    y = (x[:, 0] >= location) ^ mirrored
    return Tasks.from_pairs([(x, values) for values in y.double()])


def choose_floor(training: Tasks, held_out: Tasks, options: Options, seed: int) -> tuple[float, dict[str, list[float]]]:
    """The noise floor with the lowest held-out MSE, summed over ñ, and the MSEs of all floors.

    Steps are noise-free, so evidence alone always takes the smallest floor. It is judged by `learned both`, the
    method of the lowest error, briefly trained, and then shared by all four.
    """
    tried = {}
    for floor in FLOORS:
        gp = _learned("learned both", floor, held_out, options, brief=True).fit(training)
        tried[floor] = [evaluate(gp, *held_out.context_target(n, seed)).summary("mse").mean for n in SETTINGS]
    best = min(FLOORS, key=lambda floor: sum(tried[floor]))
    return best, {f"{floor:g}": [round(mse, 5) for mse in found] for floor, found in tried.items()}


def linear_limit(noise: float) -> LearnedPrior:
    """The GP with the step process's own mean and covariance: what a Gaussian with this noise can reach."""
    return LearnedPrior(lambda x: torch.full_like(x[..., 0], 0.5), StepKernel(), noise=noise, learn=(), scale=False)


class StepKernel(Kernel):  # type: ignore[misc]
    """The covariance of the step process: `(1 − |u − u'|) / 4` with u = x clipped to [−1, 1].

    Two points agree unless the step falls between them, which has probability `|u − u'| / 2`.
    """

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: Any) -> Tensor:
        u1, u2 = x1[..., 0].clamp(-1, 1), x2[..., 0].clamp(-1, 1)
        gap = u1 - u2 if diag else u1[..., :, None] - u2[..., None, :]
        return (1 - gap.abs()) / 4


def _limits(training: Tasks, contexts: dict[int, ContextTarget]) -> dict[str, float]:
    """The joint log likelihood of the linear limit at the eigenfunctions' noise floor, for each ñ."""
    limit = linear_limit(SMALLEST).fit(training)
    return {str(n): evaluate(limit, *split).summary("joint_log_likelihood").mean for n, split in contexts.items()}


def bayes_mean(context: Tasks, target: Tasks) -> Float[Tensor, "N 1"]:
    """The exact posterior mean of the step process at the target's points: no method has a lower expected MSE.

    Between two neighbouring points of the grid all step locations look the same, so the process has finitely many
    functions, each with the probability of its gap; the context leaves those that agree with it.
    """
    x = _grid()[:, 0]
    edges = torch.cat([torch.tensor([-1.0], dtype=x.dtype), x[(x > -1) & (x < 1)], torch.ones(1, dtype=x.dtype)])
    weight = torch.cat([edges.diff(), edges.diff()]) / 4
    location = (edges[:-1] + edges[1:]) / 2
    means = []
    for (_, cx, cy), (_, tx, _) in zip(context, target, strict=True):
        agrees = (_functions(location, cx[:, 0]) == cy[:, 0]).all(1)
        posterior = weight * agrees
        means.append((posterior @ _functions(location, tx[:, 0])) / posterior.sum())
    return torch.cat(means)[:, None]


def _functions(location: Float[Tensor, " h"], x: Float[Tensor, " n"]) -> Float[Tensor, "2h n"]:
    heaviside = (x >= location[:, None]).double()
    return torch.cat([heaviside, 1 - heaviside])


def _score_bayes_limit(results: Results, contexts: dict[int, ContextTarget]) -> None:
    for n, (context, target) in contexts.items():
        squares = (bayes_mean(context, target) - target.y).square()
        per_task = squares.reshape(len(target), -1).mean(1)  # all targets are of one size
        results.add("bayes limit", str(n), Scores(target.ids, {"mse": per_task}))


class _Given(NamedTuple):
    """What the methods learn from, and with which noise floor."""

    training: Tasks
    held_out: Tasks
    options: Options
    floor: float


def _auto(given: _Given) -> Method:
    training, held_out, options, _ = given
    both = Tasks.from_pairs([(task.x, task.y) for part in (training, held_out) for task in part])
    rungs = ("shared gp", "fpca") if options.quick else ("shared gp", "fpca", "learned both", "eigenfunctions")
    contexts = random_sizes(SETTINGS, options.seed)
    return Auto(contexts=contexts, rungs=rungs, seed=options.seed, progress=options.progress).fit(both)


def _fpca(given: _Given) -> Method:
    progress = "fpca" if given.options.progress else False
    return FPCA(held_out=given.held_out, progress=progress).fit(given.training)


def _of_the_paper(name: str, given: _Given) -> Method:
    return _learned(name, given.floor, given.held_out, given.options).fit(given.training)


def _eigenfunctions(given: _Given) -> LearnedPrior:
    """One prior `φ(x)ᵀφ(x')` with a constant mean; how rough φ starts is chosen by a short training of each."""
    training, held_out, options, _ = given

    def prior(gain: float, epochs: int) -> LearnedPrior:
        label = f"eigenfunctions, gain {gain:g}" if options.progress else False
        return LearnedPrior(
            "constant", "eigenfunctions", functions=FUNCTIONS, gain=gain, noise_floor=SMALLEST, hidden=HIDDEN,
            scale=False, max_epochs=epochs, held_out=held_out, seed=options.seed, progress=label,
        )  # fmt: skip

    brief, most = (10, 20) if options.quick else (200, 3000)
    tried = [prior(gain, brief).fit(training) for gain in GAINS]
    best = max(tried, key=lambda one: one.training_.best.held_out_evidence)
    assert best.spec.gain is not None
    return prior(best.spec.gain, most).fit(training)


METHODS: dict[str, Callable[[_Given], Method] | None] = {
    **{name: partial(_of_the_paper, name) for name in CONFIGURATIONS},
    "maml": lambda given: fit_maml(given.training, given.options, given.held_out, hidden=HIDDEN),
    "fpca": _fpca,
    "eigenfunctions": _eigenfunctions,
    "auto": _auto,
    "bayes limit": None,
    "linear limit": lambda given: linear_limit(given.floor).fit(given.training),
}
"""The rows, each with what fits it; the Bayes limit is no method, but a formula."""


def _learned(name: str, floor: float, held_out: Tasks, options: Options, brief: bool = False) -> LearnedPrior:
    mean, kernel = CONFIGURATIONS[name]
    optimizer = "lbfgs" if brief else options.learned_by
    epochs = 300 if brief else EPOCHS[optimizer]
    return LearnedPrior(
        mean,
        kernel,
        noise_floor=floor,
        hidden=HIDDEN,
        scale=False,
        optimizer=optimizer,
        max_epochs=QUICK_EPOCHS[optimizer] if options.quick else epochs,
        held_out=held_out,
        seed=options.seed,
        progress=(f"noise floor {floor:g}" if brief else name) if options.progress else False,
    )


def _reconstruct(results: Results, name: str, method: Method, seed: int) -> None:
    """A Heaviside step as each prior sees it from ñ points, for the figure."""
    x = _grid()
    heaviside = Tasks.from_pairs([(x, (x >= 0).double())])
    dense = torch.linspace(-2, 2, 401, dtype=torch.float64)
    results.curves["x"] = dense.numpy()
    everywhere = Tasks.from_inputs([dense])
    for n in SETTINGS:
        context, _ = heaviside.context_target(n, seed + n)
        function = method.predict(context, everywhere).function
        results.curves |= {
            f"{n} context x": context.x[:, 0].numpy(),
            f"{n} context y": context.y[:, 0].numpy(),
            f"{name} {n} mean": function.mean[:, 0].numpy(),
            f"{name} {n} sd": function.sd[:, 0].numpy(),
        }


def _grid() -> Float[Tensor, "50 1"]:
    return torch.linspace(-2, 2, 50, dtype=torch.float64)[:, None]
