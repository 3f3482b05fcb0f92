"""Warps: their own shape within the range of past values, straight beyond it, and one inverse for all of it."""

import math

import numpy as np
import pytest
import torch

from metaprior.priors import WARPS, make_warp

PAST = torch.tensor([[0.2, -3.0], [0.9, 0.5], [1.0, 2.0], [3.0, -20.0], [50.0, 4.0]]).double()
FROM_POSITIVE = ("log", "log-linear", "box-cox")
"""Warps that are learned from values above 0."""

EVERYWHERE = torch.tensor([-1e6, -333.0, -20.0, -3.0, -0.1, 0.0, 0.2, 1.0, 7.0, 50.0, 50.1, 400.0, 1e6]).double()
POSITIVE = torch.tensor([1e-3, 0.2, 0.7, 1.0, 20.0, 50.0, 51.0, 400.0, 1e6]).double()


def bent(kind, by, past=None):
    """A warp and values that it takes, within the past range and far outside; by: what its parameters are."""
    past = past if past is not None else PAST.abs() if kind in FROM_POSITIVE else PAST
    warp = make_warp(kind, past)
    warp = warp.bent_by(*(torch.full_like(start, by) for start in warp.learned.values()))
    values = POSITIVE if kind in ("log", "box-cox") else EVERYWHERE
    return warp, values[:, None].expand(-1, past.shape[1]).clone()


@pytest.mark.parametrize("by", [-0.7, 0.0, 1.2])
@pytest.mark.parametrize("kind", WARPS)
def test_the_inverse_is_one_everywhere(kind, by):
    warp, y = bent(kind, by)
    t = warp(y)
    assert t.isfinite().all()
    assert (t.diff(dim=0) > 0).all()
    assert torch.allclose(warp.inverse(t), y, rtol=1e-9, atol=1e-9)
    there = torch.linspace(-0.9, 60, 50).double()[:, None].expand(-1, 2) / (warp.power if kind == "box-cox" else 1.0)
    assert torch.allclose(warp(warp.inverse(there)), there, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("by", [-0.7, 0.0, 1.2])
@pytest.mark.parametrize("kind", WARPS)
def test_the_slope_is_the_derivative_everywhere(kind, by):
    warp, y = bent(kind, by)
    y.requires_grad_()
    warp(y).sum().backward()
    assert torch.allclose(warp.log_slope(y.detach()), y.grad.log(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", WARPS)
def test_beyond_the_past_range_it_goes_on_straight_and_without_a_kink(kind):
    warp, _ = bent(kind, -0.7)
    lower, upper = warp.bent_range() if kind != "identity" else (warp.lower, warp.upper)
    ends = [(upper, 1.0), (lower, -1.0)] if lower is not None else [(upper, 1.0)]
    for end, side in ends:
        steps = warp(end + side * torch.tensor([[0.0], [10.0], [20.0], [1000.0]]).double()).diff(dim=0)
        slope = side * warp.log_slope(end[None]).exp()[0]
        assert torch.allclose(steps, slope * torch.tensor([[10.0], [10.0], [980.0]]).double(), rtol=1e-9)
        inside, outside = (warp.log_slope((end + side * step)[None]) for step in (-1e-9, 1e-9))
        assert torch.allclose(inside, outside, atol=1e-6)


@pytest.mark.parametrize("kind", ["log", "box-cox"])
def test_towards_zero_a_warp_of_positive_values_keeps_its_own_shape(kind):
    warp, _ = bent(kind, -0.7)
    y = warp.lower * 1e-3
    power = warp.power if kind == "box-cox" else torch.zeros(2)
    assert torch.allclose(warp.log_slope(y), (power - 1) * (y / warp.unit).log() - warp.unit.log())
    assert (warp.inverse(torch.tensor([[-1e4, -1e4]]).double()) >= 0).all()


def test_below_a_tenth_of_the_least_past_value_the_log_linear_warp_is_straight():
    warp, _ = bent("log-linear", 0.0)
    floor = PAST.abs().amin(0) / 10
    above = torch.stack([floor, 3 * floor, 50 * floor])
    assert torch.allclose(warp(above), (above / warp.unit).log())
    below = torch.stack([floor / 2, 0 * floor, -floor, -1e6 * floor])
    assert warp.allowed(below).all()
    assert torch.allclose(warp(below), (floor / warp.unit).log() + below / floor - 1)
    assert not make_warp("log-linear", PAST).allowed(PAST).any(0)[1]  # a past value below 0: there is no logarithm


def test_what_lies_below_all_that_box_and_cox_reach_is_zero():
    warp, _ = bent("box-cox", -0.7)
    floor = -1 / warp.power
    assert torch.equal(warp(torch.zeros(1, 2).double())[0], floor)
    assert torch.equal(
        warp.inverse(torch.stack([floor - 1e-9, floor - 5.0, torch.full_like(floor, -math.inf)])), 0 * PAST[:3]
    )
    assert not warp.allowed(torch.zeros(1, 2).double()).any()
    plain, _ = bent("box-cox", 0.0)  # λ = 1: straight, with a slope at 0 as well
    assert torch.allclose(plain.log_slope(torch.zeros(1, 2).double()), -plain.unit.log())


@pytest.mark.parametrize("kind", WARPS)
def test_values_that_are_all_the_same_leave_a_warp_that_works(kind):
    warp, y = bent(kind, -0.7, past=torch.full((4, 1), 3.0).double())
    t = warp(y)
    assert (t.diff(dim=0) > 0).all()
    assert torch.allclose(warp.inverse(t), y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["box-cox", "yeo-johnson"])
@pytest.mark.parametrize("raw", [-800.0, -400.0, -40.0, -10.6, -10.0, 40.0])
def test_a_power_near_zero_is_no_special_case(kind, raw):
    """Against the definition with as many digits as it takes; at −10.6 the power is 5e-5."""
    warp, _ = bent(kind, 0.0)
    others = [torch.zeros_like(warp.unit)] * (len(warp.learns) - 1)
    warp = warp.bent_by(torch.full_like(warp.unit, raw), *others)
    inside = torch.linspace(0.3, 40.0, 20).double()[:, None].expand(-1, 2).clone().requires_grad_()
    t = warp(inside)
    t.sum().backward()
    assert torch.allclose(warp.log_slope(inside.detach()), inside.grad.log(), rtol=1e-12, atol=1e-12)
    assert torch.allclose(warp.inverse(t), inside, rtol=1e-12)
    power, unit = np.longdouble(float(warp.power[0].detach())), np.longdouble(float(warp.unit[0]))
    ratio = np.log(inside[:, 0].detach().numpy().astype(np.longdouble) / unit + (kind == "yeo-johnson"))
    expected = np.expm1(power * ratio) / power if power > 0 else ratio
    assert t[:, 0].detach().numpy() == pytest.approx(expected.astype(float), rel=1e-12)


@pytest.mark.parametrize("kind", WARPS)
def test_a_range_that_an_older_file_holds_is_taken_as_it_is(kind):
    warp, y = bent(kind, -0.7)
    lower = warp.lower / 100 if kind in FROM_POSITIVE else warp.lower - 100.0
    warp = WARPS[kind](**warp.tensors | {"lower": lower, "upper": warp.upper + 100.0})
    assert torch.allclose(warp.inverse(warp(y)), y, rtol=1e-9, atol=1e-9)
