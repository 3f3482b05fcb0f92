"""A fitted method as plain values and arrays of numbers: what a browser computes with, at any point.

A few words say every kind of model. A prior is a mean, features of each point, and one kernel of those: products of the
first features plus a stationary kernel of the others. A method is a prior in some units, a mixture of methods, a warp,
a recalibration or a single value. Whatever follows from what was learned is computed here, once, and not told twice.
"""

from __future__ import annotations

import base64
import math
from functools import singledispatchmethod
from typing import Any

import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, LinearMean, Mean, MultitaskMean, ZeroMean
from torch import Tensor, nn

from metaprior.errors import OptionError
from metaprior.inference import Calibration, KeptMethod, normal_nodes, quadrature_rule
from metaprior.methods import (
    FPCA,
    MAML,
    UNLIKELY,
    Combination,
    ContextMean,
    GPPerTask,
    HierarchicalGP,
    HyperPosterior,
    LastValue,
    LearnedPrior,
    Mixture,
    NeuralNetwork,
    PointMethod,
    Warped,
    grid_of_kernels,
)
from metaprior.priors import (
    AdditiveBasis,
    Basis,
    BasisKernel,
    BasisMean,
    DeepKernel,
    DeepMean,
    DeepNoise,
    EigenfunctionKernel,
    FixedNoise,
    FourierBasis,
    HierarchicalKernel,
    LearnedNoise,
    Network,
    PolynomialBasis,
    Prior,
    SharedCurve,
    SharedMean,
    SplineBasis,
    TensorBasis,
    Warp,
    shape_name,
)
from metaprior.selection import NEAREST, Auto
from metaprior.tasks import Possible, Scaler

Node = dict[str, Any]
"""What a browser makes one thing of: `kind` says which, the rest is what it needs."""


class Description:
    """A method, told: `said` is what JSON takes, `numbers` the arrays that it refers to, one after the other."""

    def __init__(self, method: KeptMethod, possible: tuple[Possible, ...]) -> None:
        self._pieces: list[bytes] = []
        self._length = 0
        self._known: dict[int, tuple[Tensor, Node]] = {}
        with torch.no_grad():
            self.said = self._within(self.method(method), possible)

    @property
    def numbers(self) -> str:
        """All arrays, in base64."""
        return base64.b64encode(b"".join(self._pieces)).decode()

    def array(self, values: Tensor) -> Node:
        """Where an array lies among the numbers, in its own precision; one that was told before is not told again."""
        if id(values) in self._known:
            return self._known[id(values)][1]
        plain = values.detach().cpu().contiguous()
        single = plain.dtype == torch.float32
        content = plain.numpy().astype("<f4" if single else "<f8").tobytes()
        told: Node = {"at": self._length, "shape": list(values.shape)} | ({"single": True} if single else {})
        self._known[id(values)] = values, told  # kept, so that no other array gets its id
        self._pieces.append(content + b"\0" * (-len(content) % 8))
        self._length += len(self._pieces[-1])
        return told

    def _within(self, told: Node, possible: tuple[Possible, ...]) -> Node:
        if not possible:
            return told
        ends = [[None if math.isinf(end) else end for end in (one.lower, one.upper)] for one in possible]
        return {"kind": "possible", "ends": ends, "whole": [one.whole for one in possible], "method": told}

    @singledispatchmethod
    def method(self, method: Any) -> Node:
        """A fitted method."""
        raise _impossible("method", method)

    @method.register
    def _(self, method: Auto) -> Node:
        inside = self.method(method.method_)
        names = list(method.chosen_)
        if isinstance(method.method_, Combination):
            inside["names"] = names
        elif "names" not in inside:
            inside["name"] = names[0]
        evidence, sizes = method.usual_
        usual = {"evidence": self.array(evidence), "sizes": self.array(sizes.double()), "nearest": NEAREST}
        return {"kind": "calibrated", **_calibration(method.calibration_), "usual": usual, "method": inside}

    @method.register
    def _(self, method: Combination) -> Node:
        members = [self.method(one) for one in method.methods]
        names = [one.saved_as for one in method.methods]  # type: ignore[attr-defined]
        shares = [math.log(weight) for weight in method.weights]
        return {"kind": "mixture", "members": members, "log_shares": shares, "names": names}

    @method.register
    def _(self, method: Warped) -> Node:
        return {"kind": "warped", "warp": _warp(method.warp_), "method": self.method(method.method)}

    @method.register
    def _(self, method: LearnedPrior) -> Node:
        return self._in_units(method.prior_, method.scaler_, bool(method.task_x_))

    @method.register
    def _(self, method: FPCA) -> Node:
        return self._in_units(method.prior_, method.scaler_)

    @method.register
    def _(self, method: HyperPosterior) -> Node:
        members = [self.method(one) for one in method.members_]
        return {
            "kind": "mixture",
            "members": members,
            "log_shares": [-math.log(len(members))] * len(members),
            "by_evidence": True,
        }

    @method.register
    def _(self, method: HierarchicalGP) -> Node:
        members = [self._in_units(prior, method.scaler_, bool(method.task_x_)) for prior in method.priors_]
        if len(members) == 1:
            return members[0]
        return {"kind": "mixture", "members": members, "log_shares": method.log_shares_.tolist(), "by_evidence": True}

    @method.register
    def _(self, method: Mixture) -> Node:
        return {
            "kind": "mixture",
            "members": [self._in_units(prior, method.scaler_) for prior in method.priors_],
            "log_shares": [math.log(share) for share in method.shares_],
            "by_evidence": True,
            "unlikely": UNLIKELY,
            "names": [f"kind {c + 1}" for c in range(len(method.priors_))],
        }

    @method.register
    def _(self, method: GPPerTask) -> Node:
        choices, belief = grid_of_kernels()
        grid = {"choices": choices.tolist(), "belief": belief.tolist()}
        return {"kind": "per task", "scaler": _scaler(method.scaler_), **grid}

    @method.register
    def _(self, method: PointMethod) -> Node:
        variance = {"sizes": method.variance_.sizes.tolist(), "variances": method.variance_.variances.tolist()}
        return {"kind": "single values", "values": self.values(method), "variance": variance}

    @singledispatchmethod
    def values(self, method: PointMethod) -> Node:
        """A method that predicts single values."""
        raise _impossible("method", method)

    @values.register(LastValue)
    @values.register(ContextMean)
    def _(self, method: Any) -> Node:
        return {"kind": method.saved_as, "without": method.prior_mean_.tolist()}

    @values.register
    def _(self, method: NeuralNetwork) -> Node:
        network = self.network(method.mean_.network)
        return {"kind": "network", "scaler": _scaler(method.scaler_), "network": network}

    @values.register
    def _(self, method: MAML) -> Node:
        start = method.start_
        told = {"steps": start.steps, "rates": start.log_rates.double().exp().tolist()}
        return {
            "kind": "adapted network",
            "scaler": _scaler(method.scaler_),
            "network": self.network(start.network),
            **told,
        }

    def _in_units(self, prior: Prior, scaler: Scaler, takes_task_x: bool = False) -> Node:
        return {
            "kind": "prior",
            "scaler": _scaler(scaler),
            "task_x": takes_task_x,
            "mean": self.mean(prior.mean),
            "kernel": self.kernel(prior.kernel),
            "noise": self.noise(prior.noise),
            "degrees": None if prior.degrees is None else float(prior.degrees()),
        }

    @singledispatchmethod
    def mean(self, mean: Mean) -> Node:
        """A mean function."""
        raise _impossible("mean", mean)

    @mean.register
    def _(self, mean: ZeroMean) -> Node:
        return {"kind": "linear", "weights": [], "bias": [0.0]}

    @mean.register
    def _(self, mean: ConstantMean) -> Node:
        return {"kind": "linear", "weights": [], "bias": [float(mean.constant)]}

    @mean.register
    def _(self, mean: LinearMean) -> Node:
        bias = 0.0 if mean.bias is None else float(mean.bias)
        return {"kind": "linear", "weights": [mean.weights.flatten().tolist()], "bias": [bias]}

    @mean.register
    def _(self, mean: MultitaskMean) -> Node:
        parts = [self.mean(one) for one in mean.base_means]
        if any(part["kind"] != "linear" for part in parts):
            raise _impossible("mean", mean)
        weights = [row for part in parts for row in part["weights"]]
        return {"kind": "linear", "weights": weights, "bias": [part["bias"][0] for part in parts]}

    @mean.register
    def _(self, mean: DeepMean) -> Node:
        return self.network(mean.network)

    @mean.register
    def _(self, mean: BasisMean) -> Node:
        return {"kind": "basis", "basis": self.basis(mean.basis), "times": self.array(mean.coefficients)}

    @mean.register
    def _(self, mean: SharedMean) -> Node:
        return {"kind": "curve", "curve": self.curve(mean.curve), "times": self.array(mean.weights)}

    @singledispatchmethod
    def kernel(self, kernel: Kernel) -> Node:
        """A kernel, as features of each point and what is made of two of them."""
        return {"features": [{"kind": "inputs"}], "first": 0, **_stationary(kernel)}

    @kernel.register
    def _(self, kernel: DeepKernel) -> Node:
        return {"features": [self.network(kernel.network)], "first": 0, **_stationary(kernel.base_kernel)}

    @kernel.register
    def _(self, kernel: BasisKernel) -> Node:
        told = {"kind": "basis", "basis": self.basis(kernel.basis), "times": self.array(kernel.loadings)}
        return {"features": [told], "first": kernel.loadings.shape[1], "shape": None}

    @kernel.register
    def _(self, kernel: EigenfunctionKernel) -> Node:
        functions = kernel.network.outputs
        features = [self.network(kernel.network) | {"factor": 1 / math.sqrt(functions)}]
        if kernel.rest is None:
            return {"features": features, "first": functions, "shape": None}
        features.append(self.network(kernel.rest.network))
        return {"features": features, "first": functions, **_stationary(kernel.rest.base_kernel)}

    @kernel.register
    def _(self, kernel: HierarchicalKernel) -> Node:
        shared = {"kind": "curve", "curve": self.curve(kernel.curve), "times": self.array(kernel.left_open)}
        level, own = {"kind": "constant", "value": kernel.level}, {"kind": "inputs", "lengths": kernel.lengths.tolist()}
        curve = {"shape": "matern_3", "length": 1.0, "variance": kernel.base_kernel.deviation**2}
        return {"features": [shared, level, own], "first": kernel.base_kernel.first, **curve}

    @singledispatchmethod
    def noise(self, noise: nn.Module) -> Node:
        """A noise variance at each point."""
        raise _impossible("noise", noise)

    @noise.register(LearnedNoise)
    @noise.register(FixedNoise)
    def _(self, noise: Any) -> Node:
        return {"kind": "constant", "value": float(noise(torch.zeros(1, dtype=torch.float64)))}

    @noise.register
    def _(self, noise: DeepNoise) -> Node:
        told = {"floor": noise.level.floor, "raw": float(noise.level.raw)}
        return {"kind": "network", "network": self.network(noise.network), **told}

    def network(self, network: Network) -> Node:
        """Its layers, and what stands between them."""
        layers = [{"weight": self.array(one.weight), "bias": self.array(one.bias)} for one in network.linear]
        return {"kind": "network", "layers": layers, "activation": type(network.activation).__name__.lower()}

    def curve(self, curve: SharedCurve) -> Node:
        """The shared curve of a hierarchy."""
        told = {name: getattr(curve, name).tolist() for name in ("centres", "lengths", "lower", "upper")}
        return told | {"deviation": curve.deviation, "level": curve.level, "root": self.array(curve.root)}  # type: ignore[arg-type]

    @singledispatchmethod
    def basis(self, basis: Basis) -> Node:
        """A basis of functions."""
        raise _impossible("basis", basis)

    @basis.register
    def _(self, basis: SplineBasis) -> Node:
        told = basis.described() | {"knots": basis.knots.tolist()}
        return told | {"whitening": self.array(basis.whitening)}

    @basis.register(PolynomialBasis)
    @basis.register(FourierBasis)
    def _(self, basis: Any) -> Node:
        return dict(basis.described())

    @basis.register
    def _(self, basis: TensorBasis) -> Node:
        return {"kind": "tensor", "first": self.basis(basis.first), "second": self.basis(basis.second)}

    @basis.register
    def _(self, basis: AdditiveBasis) -> Node:
        pairs = zip(basis.parts, basis.rotations, strict=True)
        parts = [
            {"kind": "basis", "basis": self.basis(part), "times": self.array(rotation)} for part, rotation in pairs
        ]
        return {"kind": "additive", "level": basis.level, "parts": parts}


def integration() -> Node:
    """Where distributions are asked for their moments: probabilities with weights, and normal scores."""
    probabilities, weights = normal_nodes()
    return {"probabilities": probabilities.tolist(), "weights": weights.tolist(), **quadrature_rule()}


def _stationary(kernel: Kernel) -> Node:
    name = shape_name(kernel)
    if name is None:
        raise _impossible("kernel", kernel)
    length, variance = float(kernel.base_kernel.lengthscale), float(kernel.outputscale)
    return {"shape": name, "length": length, "variance": variance}


def _scaler(scaler: Scaler) -> Node:
    return {name: getattr(scaler, name).tolist() for name in ("x_shift", "x_scale", "y_shift", "y_scale")}


def _warp(warp: Warp) -> Node:
    """A warp by what bends it: its power, the unit of it, and the range within which it does."""
    unit = getattr(warp, "zoomed", warp.unit)
    power = getattr(warp, "power", torch.zeros_like(warp.unit))
    ends = [None if end is None else end.tolist() for end in warp.bent_range()]
    return {"name": warp.name, "unit": unit.tolist(), "power": power.tolist(), "lower": ends[0], "upper": ends[1]}


def _calibration(calibration: Calibration) -> Node:
    right, own = calibration.knots()
    return {"right": right.tolist(), "own": own.tolist(), "spread": calibration.spread}


def _impossible(what: str, given: Any) -> OptionError:
    return OptionError(
        f"the {what} {type(given).__name__} cannot be computed in a browser, so there is no page for this model: use "
        "`metaprior predict`, or a mean and a kernel by name."
    )
