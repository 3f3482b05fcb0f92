"""When to take the next blood samples of one patient, given a population of past ones.

    python examples/where_to_measure.py --out docs/figures/where-to-measure.png

Concentrations of a drug after a dose: every patient absorbs and clears it at rates of their own. 80 past patients gave
seven samples each, most of them early. Of a new one there are two early samples: when to take two more, if the whole
day is to be known? And how much better is that than the hours of a fixed schedule, over 60 new patients?
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from metaprior import MetaGP, Suggestion, Tasks

Array = np.ndarray[Any, Any]
Patient = Callable[[Array], Array]

HOURS = np.arange(0.5, 24.5, 0.5)
"""When blood may be taken, and what is to be known."""

EARLY, SCHEDULE, PAST, NEW = (0.5, 1.0), (12.0, 24.0), 80, 60
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a9099"


def new_patient(rng: np.random.Generator) -> Patient:
    """The concentration of one patient over the hours: absorption and clearance, both of the first order."""
    absorbed, cleared, volume = np.exp(rng.normal([0.3, -1.9, 2.3], [0.5, 0.4, 0.2]))
    scale = 100 / volume * absorbed / (absorbed - cleared)
    return lambda hours: scale * (np.exp(-cleared * hours) - np.exp(-absorbed * hours))


def measured(patient: Patient, hours: Sequence[float] | Array, rng: np.random.Generator) -> Array:
    """What the laboratory says, which is 5% off."""
    at = np.asarray(hours)
    values: Array = patient(at) * np.exp(0.05 * rng.normal(size=len(at)))
    return values


def population(rng: np.random.Generator) -> MetaGP:
    """What past patients have in common."""
    pairs, early = [], 1 / HOURS
    for _ in range(PAST):
        hours, patient = np.sort(rng.choice(HOURS, 7, replace=False, p=early / early.sum())), new_patient(rng)
        pairs.append((hours, measured(patient, hours, rng)))
    return MetaGP(progress=False).fit(Tasks.from_pairs(pairs), support=(0, None))


def compare(gp: MetaGP, rng: np.random.Generator) -> tuple[Array, Array]:
    """Errors of the whole day of new patients after two further samples: where suggested, and where scheduled."""
    patients = [new_patient(rng) for _ in range(NEW)]
    early = [(np.array(EARLY), measured(patient, EARLY, rng)) for patient in patients]
    chosen = [found.x[:, 0].numpy() for found in gp.suggest(Tasks.from_pairs(early), HOURS, 2)]
    truth, errors = np.stack([patient(HOURS) for patient in patients]), []
    for later in (chosen, [np.array(SCHEDULE)] * NEW):
        known = []
        for (hours, values), more, patient in zip(early, later, patients, strict=True):
            known.append((np.concatenate([hours, more]), np.concatenate([values, measured(patient, more, rng)])))
        mean = gp.predict(Tasks.from_pairs(known), HOURS).function.mean.numpy().reshape(truth.shape)
        errors.append(np.sqrt(np.square(mean - truth).mean(1)))
    return errors[0], errors[1]


def draw(gp: MetaGP, patient: Patient, values: Array, found: Suggestion, rng: np.random.Generator) -> Figure:
    """The patient before and after the samples that were suggested."""
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    more = found.x[:, 0].numpy()
    _band(left, gp, np.array(EARLY), values, patient)
    for order, hour in enumerate(more, 1):
        left.axvline(hour, color=ORANGE, lw=1.2, ls=":")
        place = {"xycoords": ("data", "axes fraction"), "rotation": 90, "va": "top", "ha": "right"}
        left.annotate(f"sample {order}", (hour, 0.97), color=ORANGE, fontsize=8, **place)  # type: ignore[arg-type]
    left.set_title("Two early samples, and when to take the next two", fontsize=10)
    known = np.concatenate([values, measured(patient, more, rng)])
    _band(right, gp, np.concatenate([EARLY, more]), known, patient)
    right.set_title("With these", fontsize=10)
    left.set_ylabel("concentration (mg/l)")
    right.legend(frameon=False, fontsize=8)
    return figure


def _band(axes: Axes, gp: MetaGP, hours: Array, values: Array, patient: Patient) -> None:
    curve = gp.condition(hours, values).at(HOURS).function
    lower, upper = (bound[:, 0].numpy() for bound in curve.interval(0.9))
    axes.fill_between(HOURS, lower, upper, color=BLUE, alpha=0.2, lw=0, label="90% of the curve")
    axes.plot(HOURS, curve.mean[:, 0].numpy(), color=BLUE, lw=1.8, label="mean")
    axes.plot(HOURS, patient(HOURS), color=GREY, ls="--", lw=1.2, label="truth")
    axes.plot(hours, values, "o", color="black", ms=4, label="samples")
    axes.set_xlabel("hours after the dose")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("where-to-measure.png"))
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    gp = population(rng)
    patient = new_patient(rng)
    values = measured(patient, EARLY, rng)
    known = gp.condition(EARLY, values)
    day, trough = known.suggest(HOURS, 2), known.suggest(HOURS[HOURS <= 12], 1, about=[24.0])
    before, after = float(day.sd[0]), float(day.sd[-1])
    print(f"to know the day: samples at hours {', '.join(f'{hour:g}' for hour in day.x[:, 0].tolist())}", end=": ")
    print(f"its deviation is expected to fall from {before:.2f} to {after:.2f} mg/l")
    print(f"to know hour 24, half a day before: a sample at hour {float(trough.x):g}", end=": ")
    print(f"from {float(trough.sd[0]):.2f} to {float(trough.sd[-1]):.2f} mg/l")
    suggested, scheduled = compare(gp, rng)
    gap = scheduled - suggested
    print(
        f"{NEW} new patients: error {suggested.mean():.3f} mg/l where suggested, {scheduled.mean():.3f} at hours",
        end=" ",
    )
    print(f"{' and '.join(f'{hour:g}' for hour in SCHEDULE)} ({gap.mean():+.3f} ± {gap.std() / NEW**0.5:.3f})")
    draw(gp, patient, values, day, rng).savefig(arguments.out, dpi=130)


if __name__ == "__main__":
    main()
