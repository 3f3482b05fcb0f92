"""Log probabilities keep their digits in both tails, whatever a distribution is made of."""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch
from mpmath import mp, mpf
from scipy import special, stats

from metaprior import Tasks, condition, score
from metaprior.inference import (
    CalibratedPosterior,
    Calibration,
    Gathered,
    IndependentGaussians,
    MixturePosterior,
    MovedPosterior,
    PossiblePosterior,
    UserPosterior,
    WarpedPosterior,
    normal_log_cdf,
    normal_score,
)
from metaprior.methods import LearnedPrior
from metaprior.priors import Degrees, Prior, make_warp
from metaprior.scoring import covers, pit_share
from metaprior.selection.trying import Question, Seen, combined
from metaprior.splits import Given
from metaprior.tasks import Possible, Scaler
from tests.problems import known_rbf

REACH = (0.5, 1.2, 1.7, 2.3)
"""Of a recalibration: narrow in the middle, wide outside."""

FAR = (-400.0, -60.0, -37.0, -12.0, -8.3, -3.0, -0.4, 0.0, 0.4, 3.0, 8.3, 12.0, 37.0, 60.0, 400.0)
"""Deviations from the mean."""


def points(count=1):
    return Tasks.from_inputs([np.arange(float(count))])


def normal(mean=0.0, sd=1.0):
    return IndependentGaussians(points(), *torch.tensor([[[mean]], [[sd]]], dtype=torch.float64))


def student(degrees=4.5):
    plain = known_rbf()
    prior = Prior(plain.mean, plain.kernel, 0.1, learn=(), degrees=Degrees(degrees))
    return condition(prior, Tasks.from_pairs([([0.5], [1.0])])).at(points())


def mixture(*parts, weights=(0.3, 0.7)):
    return MixturePosterior(list(parts), torch.tensor([weights], dtype=torch.float64).log())


def at(value):
    return torch.tensor([[value]], dtype=torch.float64)


def log_of_tails(cdf, sf):
    """Logs of two probabilities that are 1 together: of the larger one from the smaller one."""
    return float(mp.log(cdf) if cdf < sf else mp.log1p(-sf)), float(mp.log(sf) if sf < cdf else mp.log1p(-cdf))


def exact(name, deviations):
    """A posterior, a value so many deviations from its mean, and the logs of both tails in 50 digits."""
    with mp.workdps(50):
        d = mpf(deviations)
        if name == "normal":
            return normal(3.0, 2.0), 3.0 + 2.0 * deviations, log_of_tails(mp.ncdf(d), mp.ncdf(-d))
        if name == "student":
            found = student()
            nu, scale = mpf(float(found.degrees[0])), mpf(float(found._scale[0, 0]))
            y = float(found.mean[0, 0]) + float(scale) * deviations
            t = (mpf(y) - mpf(float(found.mean[0, 0]))) / scale
            tail = mp.betainc(nu / 2, mpf(1) / 2, 0, nu / (nu + t * t), regularized=True) / 2
            return found, y, log_of_tails(*((tail, 1 - tail) if t < 0 else (1 - tail, tail)))
        if name == "mixture":
            found = mixture(normal(-1.0, 0.5), normal(2.0, 1.5))
            tails = [
                sum(mpf(w) * mp.ncdf(sign * (d - m) / s) for w, m, s in ((0.3, -1, 0.5), (0.7, 2, 1.5)))
                for sign in (1, -1)
            ]
            return found, deviations, log_of_tails(*tails)
        if name == "warped":
            warp = make_warp("yeo-johnson", torch.tensor([[0.5], [2.0], [-3.0]]).double())
            y = float(warp.inverse(at(deviations)))
            return WarpedPosterior(normal(), warp), y, log_of_tails(mp.ncdf(d), mp.ncdf(-d))
        assert name == "recalibrated"
        right, own = (part.tolist() for part in Calibration(REACH).knots())
        size = float(np.interp(abs(deviations), [0.0, *own], [0.0, *right]))
        if abs(deviations) > own[-1]:
            size = right[-1] + abs(deviations) - own[-1]
        z = mpf(math.copysign(size, deviations))
        return CalibratedPosterior(normal(), Calibration(REACH)), deviations, log_of_tails(mp.ncdf(z), mp.ncdf(-z))


@pytest.mark.parametrize("deviations", FAR)
@pytest.mark.parametrize("name", ["normal", "student", "mixture", "warped", "recalibrated"])
def test_both_tails_of_every_family_have_their_digits(name, deviations):
    posterior, y, (log_cdf, log_sf) = exact(name, deviations)
    rel = 1e-10 if name == "warped" else 1e-12  # its value goes through a power and back
    assert posterior.log_cdf(y).item() == pytest.approx(log_cdf, rel=rel, abs=1e-14)
    assert posterior.log_sf(y).item() == pytest.approx(log_sf, rel=rel, abs=1e-14)
    score = posterior.normal_score(y).item()
    assert special.log_ndtr(-abs(score)) == pytest.approx(min(log_cdf, log_sf), rel=rel)


def density_ratio(degrees, at, further):
    """Of Student's density, between two places."""
    return ((1 + further**2 / degrees) / (1 + at**2 / degrees)) ** (-(degrees + 1) / 2)


@pytest.mark.parametrize("degrees", [2.2, 3.0, 40.0, 1e6])
def test_the_tail_of_student_is_a_power_however_far_out(degrees):
    found = student(degrees)
    nu, scale, mean = (float(part.flatten()[0]) for part in (found.degrees, found._scale, found.mean))
    for t in (-45.0, -1e3, -1e30, -1e140):
        with mp.workdps(40):
            n = mpf(nu)
            log_constant = mp.loggamma((n + 1) / 2) - mp.loggamma(n / 2) - mp.log(n * mp.pi) / 2
            # ∫ from |t|: by the density there and its ratio further out, over a unit that the slope gives
            T = -mpf(t)
            unit = (n + T * T) / ((n + 1) * T)
            places = [T, *(T + unit * mpf(4) ** k for k in range(-1, 8)), mp.inf]
            area = mp.quad(partial(density_ratio, n, T), places)
            expected = float(log_constant - (n + 1) / 2 * mp.log1p(T * T / n) + mp.log(area))
        assert found.log_cdf(mean + scale * t).item() == pytest.approx(expected, rel=1e-9)
        assert found.log_sf(mean - scale * t).item() == pytest.approx(expected, rel=1e-9)


def test_what_answers_by_another_posterior_has_its_tails():
    one, scaler = student(), Scaler.fit(Tasks.from_pairs([([0.0, 1.0], [10.0, 14.0])]))
    y, wider = -1e6, -1e5
    cases = {
        "units": (UserPosterior(one, one.points, scaler), float(scaler.unscale_mean(at(y))), scaler.unscale_mean),
        "moved": (MovedPosterior(one, torch.device("cpu")), y, None),
        "gathered": (Gathered(one.points, [(torch.tensor([0]), one)]), y, None),
        "support": (PossiblePosterior.of(one, [Possible(-1e9, 1e9)]), y, None),
        "one component": (mixture(one, weights=(1.0,)), y, None),
    }
    for name, (found, value, unscaled) in cases.items():
        upper = wider if unscaled is None else float(unscaled(at(wider)))
        assert found.log_cdf(value).item() == pytest.approx(one.log_cdf(y).item(), rel=1e-12), name
        assert found.log_sf(value).item() == pytest.approx(one.log_sf(y).item(), rel=1e-12, abs=1e-14), name
        expected = one.log_interval_probability(y, wider).item()
        assert found.log_interval_probability(value, upper).item() == pytest.approx(expected, rel=1e-9), name


def test_a_normal_score_is_that_of_either_tail():
    z = torch.tensor([-1e5, -300.0, -38.0, -20.0, -1.0, 0.0, 0.5, 8.3, 37.0, 1e4, -math.inf, math.inf]).double()
    assert normal_score(normal_log_cdf(z), normal_log_cdf(-z)).numpy() == pytest.approx(z.numpy(), rel=1e-14)


@pytest.mark.parametrize("name", ["normal", "student", "mixture", "recalibrated"])
def test_the_probability_of_a_step_is_symmetric_and_a_density_where_the_step_is_narrow(name):
    made = {
        "normal": normal(),
        "student": dataclasses.replace(student(), gaussian=normal()),
        "mixture": mixture(normal(0.0, 0.5), normal(0.0, 1.5)),
        "recalibrated": CalibratedPosterior(mixture(normal(0.0, 0.5), normal(0.0, 1.5)), Calibration(REACH)),
    }
    found = made[name]
    for place in (0.3, 2.0, 9.0, 39.0):
        for width in (1.0, 1e-2, 1e-4, 1e-6, 1e-9):
            low, high = place - width / 2, place + width / 2
            upper = found.log_interval_probability(low, high).item()
            assert found.log_interval_probability(-high, -low).item() == pytest.approx(upper, rel=1e-8)
            if width < 1e-3:
                assert upper - math.log(width) == pytest.approx(found.log_density(place).item(), rel=1e-4, abs=1e-4)


def test_between_two_components_a_step_has_the_little_that_both_leave_there():
    """Half lies below and half above: the difference of the cdf has no digit, and a density is none of a wide step."""
    found = mixture(normal(-20.0, 0.5), normal(20.0, 0.5), weights=(0.5, 0.5))
    with mp.workdps(50):
        expected = mp.log(mp.ncdf(mpf(-34)) - mp.ncdf(mpf(-46)))
    assert found.log_interval_probability(-3.0, 3.0).item() == pytest.approx(float(expected), rel=1e-12)
    right = CalibratedPosterior(found, Calibration.identity())
    assert right.log_interval_probability(-3.0, 3.0).item() == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("sd", [0.02, 0.1, 0.3, 1.0, 10.0])
def test_recorded_densities_have_no_jump_and_fall_with_the_distance(sd):
    """At one deviation they fell from −20.7 to −70.5: a mass below 1e-9 gave way to the density of the point."""
    found, step = normal(0.0, sd), torch.ones(1).double()
    y = np.linspace(0.0, 0.5 + 12 * sd, 600)
    density = np.array([found.log_recorded_density(value, step).item() for value in y])
    with mp.workdps(50):
        expected = [float(mp.log(mp.ncdf(mpf(0.5 - v) / mpf(sd)) - mp.ncdf(mpf(-0.5 - v) / mpf(sd)))) for v in y]
    assert density == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert (np.diff(density) <= 1e-12).all()
    mirrored = np.array([found.log_recorded_density(-value, step).item() for value in y])
    assert mirrored == pytest.approx(density, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("deviations", [0.0, 3.0, 8.3, 12.0, 37.0, 200.0])
def test_whole_numbers_have_their_log_probability_in_both_tails(deviations):
    """From 8.2 deviations above it was −690.8, where the lower tail had −38.6."""
    for sign in (-1, 1):
        found = PossiblePosterior.of(normal(0.3, 2.0), [Possible(whole=True)])
        y = round(0.3 + sign * 2.0 * deviations)
        with mp.workdps(50):
            z = [(mpf(y) + half - mpf(0.3)) / 2 for half in (-mpf(0.5), mpf(0.5))]
            ends = sorted([-z[0], -z[1]] if y > 0.3 else z)
            expected = float(mp.log(mp.ncdf(ends[1]) - mp.ncdf(ends[0])))
        assert found.log_density(float(y)).item() == pytest.approx(expected, rel=1e-11)
        assert found.joint_log_density(float(y)).item() == pytest.approx(expected, rel=1e-11)


def test_one_outlier_above_counts_as_much_as_one_below():
    y = np.random.default_rng(0).normal(5, 2, 249).round()
    whole = points(250)
    means, sds = torch.full((250, 1), 5.0).double(), torch.full((250, 1), 2.0).double()
    found = PossiblePosterior.of(IndependentGaussians(whole, means, sds), [Possible(whole=True)])
    above, below = (found.log_density(np.append(y, end)).mean().item() for end in (30.0, -20.0))
    assert above == pytest.approx(below, rel=1e-12)
    assert above > -3.0


def test_very_large_whole_numbers_have_the_density_of_a_step():
    found = PossiblePosterior.of(normal(1e17, 1e16), [Possible(whole=True)])
    assert found.log_density(1.1e17).item() == pytest.approx(stats.norm(1e17, 1e16).logpdf(1.1e17))


def test_a_whole_number_has_its_probability_whatever_the_step_it_was_recorded_in():
    """Blood pressures are even numbers, and the numbers between them are possible all the same."""
    found = PossiblePosterior.of(normal(0.3, 2.0), [Possible(whole=True)])
    expected = stats.norm(0.3, 2.0).cdf(4.5) - stats.norm(0.3, 2.0).cdf(3.5)
    for step in (0.0, 1.0, 2.0):
        recorded = found.log_recorded_density(4.0, torch.tensor([step]).double())
        assert recorded.exp().item() == pytest.approx(expected)


# what held-out predictions keep of them


class Says:
    """A method that answers with these posteriors."""

    def __init__(self, means, sds):
        self.means, self.sds = means, sds

    def condition(self, context):
        return self

    evidence = None

    def at(self, target):
        return IndependentGaussians(target, *(torch.tensor(one).double()[:, None] for one in (self.means, self.sds)))


KINDS = {
    "anything": ((), 0.0),
    "rounded": ((), 1.0),
    "whole": ((Possible(whole=True),), 1.0),
    "limited": ((Possible(0.0, 40.0),), 0.0),
    "limited and rounded": ((Possible(0.0, 40.0),), 1.0),
    "whole and limited": ((Possible(0.0, 40.0, True),), 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_predictions_of_an_ensemble_are_those_of_its_posterior(kind):
    """Mixed and recalibrated from what candidates said, far out in both tails, as the ensemble itself says it."""
    support, step = KINDS[kind]
    y = np.array([0.0, 1.0, 2.0, 3.0, 7.0, 12.0, 26.0, 39.0, 40.0])
    tasks = dataclasses.replace(Tasks.from_pairs([(np.arange(9.0), y)]), possible=support)
    whole = Given(lambda tasks: {"blank": tasks.select(range(len(tasks))).context_target(0, seed=0)})
    question = Question.of(tasks, torch.arange(1), whole, torch.tensor([step]).double(), ["blank"])
    methods = {"one": Says([2.0] * 9, [0.7] * 9), "two": Says([4.0] * 9, [0.4] * 9)}
    seen = {name: question.answer(method) for name, method in methods.items()}
    calibration, weights = Calibration(REACH), {"one": 0.25, "two": 0.75}
    ensemble = mixture(*(method.at(question.target) for method in methods.values()), weights=(0.25, 0.75))
    recalibrated = CalibratedPosterior(ensemble, calibration)
    said = combined(seen, weights)
    for found, posterior in ((said, ensemble), (said.calibrated(calibration), recalibrated)):
        own = PossiblePosterior.of(posterior, support) if support else posterior
        expected = own.log_recorded_density(y, torch.tensor([step]).double()).flatten()
        assert found.density.numpy() == pytest.approx(expected.numpy(), rel=1e-7, abs=1e-9)
        assert (found.density > -1e4).all()
        for ours, theirs in zip(found.pit, own.pit_interval(y), strict=True):
            assert ours.numpy() == pytest.approx(theirs.flatten().numpy(), abs=1e-12)
    assert isinstance(said, Seen)
    plain = score(
        PossiblePosterior.of(ensemble, support) if support else ensemble, question.target, torch.tensor([step])
    )
    mean = (said.density * question.values.weight).sum() / question.values.weight.sum()
    assert plain.values["log_likelihood"].item() == pytest.approx(mean.item(), rel=1e-9)
    assert plain.values["coverage_90"].item() == pytest.approx(covers(*said.pit, 90).mean().item())
    assert plain.values["pit_90"].item() == pytest.approx(pit_share(*said.pit, 90).mean().item())


def test_a_learned_prior_says_whole_numbers_by_the_same_tails():
    """Through scaler, warp and recalibration at once."""
    rng = np.random.default_rng(0)
    tasks = Tasks.from_pairs([(np.arange(6.0), rng.poisson(4, 6).astype(float) + 1) for _ in range(10)])
    plain = LearnedPrior("constant", "rbf", max_epochs=5, progress=False).fit(tasks)
    context, target = tasks.context_target(2, seed=0)
    found = plain.condition(context).at(target)
    whole = PossiblePosterior.of(found, [Possible(whole=True)])
    for deviations in (-20.0, 20.0):
        y = (found.mean + deviations * found.sd).round()
        low, high = (stats.norm(found.mean.numpy(), found.sd.numpy()), y.numpy())
        tail = low.logcdf if deviations < 0 else low.logsf
        inner, outer = (tail(high - np.sign(deviations) * side / 2) for side in (1, -1))
        expected = inner + np.log1p(-np.exp(outer - inner))
        assert whole.log_density(y).numpy() == pytest.approx(expected, rel=1e-9)
