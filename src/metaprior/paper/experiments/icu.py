"""Patients in intensive care (Tab. 2): from the first 24 hours of a variable, predict the next 24."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from metaprior.data import load_physionet
from metaprior.inference import InUnits, Method, Posterior
from metaprior.learning import OptimizerName, Weighting
from metaprior.methods import FPCA, ContextMean, LastValue, LearnedPrior, MeanFitOnTarget, NeuralNetwork, Warped
from metaprior.paper.options import Options, derived_seeds
from metaprior.paper.published import PUBLISHED
from metaprior.paper.running import INITIALISATION, begin, fit_maml, missing, note_method, timed
from metaprior.priors import CONFIGURATIONS
from metaprior.progress import progress_bar
from metaprior.report import Results
from metaprior.scoring import score
from metaprior.selection import Auto
from metaprior.splits import Given
from metaprior.tasks import ContextTarget, Tasks

VARIABLES = ("GCS", "Urine", "HCT", "Creatinine", "BUN")
HIDDEN = (128, 64)
WEIGHTING: Weighting = "point"
"""Patients count the same however often they were measured, as they do in the table: those in a bad state are measured
often, and would otherwise decide the prior of all."""

GAIN, FEATURES = 1.0, 4
"""Smooth starts, because patients have few points; and four features where the paper's kernels have two, with which a
kernel cannot hold a patient's level, slow drift and quick changes apart. Both were chosen by cross-validation on set-a
(`benchmarks/icu_recipes.py`)."""

EPOCHS: dict[OptimizerName, int] = {"algorithm1": 20, "adam": 500, "lbfgs": 200}
CHECK_EVERY: dict[OptimizerName, int] = {"algorithm1": 1, "adam": 5, "lbfgs": 5}
PATIENCE = 10
QUICK = 300
"""Patients of each set in a quick run."""

PROBABILITIES = np.concatenate([[0.0005, 0.001, 0.0025], np.linspace(0.005, 0.995, 100), [0.9975, 0.999, 0.9995]])
"""Where the quantiles of the standardised residuals are taken, for the figure."""

SHOWN = 3
"""Patients of each variable in the figure."""


def run(options: Options) -> Results:
    """The whole experiment: set-a meta-trains, set-b is touched once."""
    chosen = options.chosen(tuple(METHODS))
    seeds = derived_seeds(options.seed, ["held out", "patients"])
    settings: dict[str, Any] = {
        "seed": options.seed,
        "quick": options.quick,
        "optimizer": options.learned_by,
        "context": "measurements of the first 24 hours (minutes < 1440)",
        "hidden": list(HIDDEN),
        "activation": "sigmoid",
        "weighting": WEIGHTING,
        "features": FEATURES,
        "initialisation": INITIALISATION.replace("gain 4", f"gain {GAIN:g}"),
        "meta_patients": {},
        "test_patients": {},
        "notes": [],
        "training": {},
    }
    with progress_bar("reading", 2, show=options.progress) as advance:
        meta = load_physionet("set-a", VARIABLES, options.data)
        advance("set-a")
        test = load_physionet("set-b", VARIABLES, options.data)
        advance("set-b")
    every = []
    for variable in VARIABLES:
        few = range(QUICK) if options.quick else range(len(meta[variable]))
        patients = _Patients(variable, meta[variable].select(few), test[variable], options, seeds)
        settings["meta_patients"][variable] = len(few)
        settings["test_patients"][variable] = len(patients.target)
        settings["notes"] += patients.notes
        every.append(patients)
    results = begin("icu", settings, options)
    parts = {f"{name}, {patients.variable}": (name, patients) for name in chosen for patients in every}
    for part in missing(results, parts, options):
        name, patients = parts[part]
        variable = patients.variable
        with timed(results, name):
            method = METHODS[name](patients, name)
            posterior = method.predict(patients.context, patients.target)
            scores = score(posterior, patients.target)
            results.add(name, variable, scores, PUBLISHED["icu"].get(name))
        note_method(results.settings, name, method, variable)
        _note_residuals(results, name, variable, posterior, patients.target)
        if name == "learned both":
            _show_patients(results, variable, method, patients, seeds["patients"])
    results.close()
    return results


def first_day(x: Tensor) -> Bool[Tensor, " N"]:
    """Whether each point lies in the first 24 hours."""
    return x[:, 0] < 24


class _Patients:
    """One variable's patients, and every method fitted to them, by its row."""

    def __init__(self, variable: str, meta: Tasks, test: Tasks, options: Options, seeds: dict[str, int]) -> None:
        self.variable, self.options = variable, options
        self.meta = meta
        self.held_out, self.training = meta.split(0.1, seeds["held out"])
        both_days = split_days(test)
        if options.quick:
            some = range(min(QUICK, len(both_days.target)))
            both_days = ContextTarget(both_days.context.select(some), both_days.target.select(some))
        self.context, self.target = both_days
        self.notes = [f"set-a, {variable}: {note}" for note in meta.notes]
        self.notes += [f"set-b, {variable}: {note}" for note in test.notes]
        self._vanilla: LearnedPrior | None = None

    def fit_on_target(self, name: str) -> Method:
        gp = self.learned("vanilla")
        options: dict[str, Any] = {"hidden": HIDDEN, "dtype": torch.float32, "progress": self.label(name)}
        own = MeanFitOnTarget(gp.prior_, seed=self.options.seed, **options)
        return InUnits(own, gp.scaler_).fit(self.training)

    def network(self, name: str) -> Method:
        epochs = 20 if self.options.quick else 500
        given: dict[str, Any] = self.asked | {"progress": self.label(name), "hidden": HIDDEN, "gain": GAIN}
        return NeuralNetwork(max_epochs=epochs, **given).fit(self.training)

    def maml(self, name: str) -> Method:
        given = (self.training, self.options, self.held_out, DAYS)
        return fit_maml(*given, label=f"{self.variable}, {name}", hidden=HIDDEN, gain=GAIN)

    def auto(self, name: str) -> Method:
        options = self.options
        given: dict[str, Any] = {"device": options.device, "seed": options.seed, "progress": self.label(name)}
        rungs = ("shared gp", "student") if options.quick else ()
        return Auto(contexts=DAYS, rungs=rungs, **given).fit(self.meta)

    @property
    def asked(self) -> dict[str, Any]:
        """What a method that predicts single values takes."""
        return {"contexts": DAYS, "held_out": self.held_out, "seed": self.options.seed}

    def learned(self, name: str) -> LearnedPrior:
        if name == "vanilla" and self._vanilla is not None:
            return self._vanilla
        gp = self.prior(name).fit(self.training)
        self._vanilla = gp if name == "vanilla" else self._vanilla
        return gp

    def prior(self, name: str) -> LearnedPrior:
        optimizer = self.options.learned_by
        epochs = EPOCHS[optimizer]
        return LearnedPrior(
            *CONFIGURATIONS.get(name, ("deep", "deep")),
            hidden=HIDDEN,
            gain=GAIN,
            features=FEATURES,
            optimizer=optimizer,
            max_epochs=min(epochs, 20) if self.options.quick else epochs,
            check_every=CHECK_EVERY[optimizer],
            patience=PATIENCE,
            weighting=WEIGHTING,
            held_out=self.held_out if name != "warped" else 0.1,
            device=self.options.device,
            seed=self.options.seed,
            progress=self.label(name),
        )

    def label(self, name: str) -> str | bool:
        return f"{self.variable}, {name}" if self.options.progress else False


def split_days(tasks: Tasks) -> ContextTarget:
    """The first day to condition on and the rest to predict, of the patients who have measurements in both."""
    context, target = tasks.context_target(where=first_day)
    both = (context.sizes > 0) & (target.sizes > 0)
    return ContextTarget(context.select(both), target.select(both))


DAYS = Given(lambda tasks: {"first day": split_days(tasks)})
"""Patients as they are at test."""

METHODS: dict[str, Callable[[_Patients, str], Method]] = {
    **dict.fromkeys(CONFIGURATIONS, _Patients.learned),
    "neural network": _Patients.network,
    "mean fit on target": _Patients.fit_on_target,
    "maml": _Patients.maml,
    "fpca": lambda of, name: FPCA(held_out=of.held_out, device=of.options.device, progress=of.label(name)).fit(
        of.training
    ),
    "warped": lambda of, name: Warped(of.prior(name), seed=of.options.seed).fit(of.training),
    "auto": _Patients.auto,
    "last value": lambda of, name: LastValue(**of.asked).fit(of.training),
    "context mean": lambda of, name: ContextMean(**of.asked).fit(of.training),
}
"""The rows, each with what fits it on set-a."""


def _note_residuals(results: Results, name: str, variable: str, posterior: Posterior, target: Tasks) -> None:
    """Quantiles of (y − mean) / sd over all test points: they show why an interval covers too much or too little."""
    standardised = ((target.y - posterior.mean.cpu()) / posterior.sd.cpu())[:, 0].numpy()
    results.curves["z probabilities"] = PROBABILITIES
    results.curves[f"{name} {variable} z"] = np.quantile(standardised, PROBABILITIES)


def _show_patients(results: Results, variable: str, method: Method, patients: _Patients, seed: int) -> None:
    """Some patients as the method sees them from their first day, for the figure."""
    known, wanted = patients.context.sizes, patients.target.sizes
    rich = torch.nonzero((known >= known.median()) & (wanted >= wanted.median()))[:, 0]
    order = np.random.default_rng(seed).permutation(rich.numpy())[:SHOWN].tolist()
    context, target = patients.context.select(order), patients.target.select(order)
    hours = torch.linspace(0, 48, 193, dtype=torch.float64)
    posterior = method.predict(context, Tasks.from_inputs([hours] * len(order), context.ids))
    lower, upper = posterior.interval(0.9)
    for j, (first, second) in enumerate(zip(context, target, strict=True)):
        label, rows = f"{variable} example {j}", slice(j * len(hours), (j + 1) * len(hours))
        results.curves |= {
            f"{label} x": torch.cat([first.x, second.x])[:, 0].numpy(),
            f"{label} y": torch.cat([first.y, second.y])[:, 0].numpy(),
            f"{label} hours": hours.numpy(),
            f"{label} mean": posterior.mean[rows, 0].cpu().numpy(),
            f"{label} lower": lower[rows, 0].cpu().numpy(),
            f"{label} upper": upper[rows, 0].cpu().numpy(),
        }
