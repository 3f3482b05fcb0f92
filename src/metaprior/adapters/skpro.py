"""A posterior as a distribution of skpro: what probabilistic forecasts of sktime are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metaprior.extras import needs
from metaprior.inference import IndependentGaussians, Posterior
from metaprior.tasks import Tasks

with needs("metaprior.adapters.sktime", "sktime"):
    import pandas as pd
    from skpro.distributions.base import BaseDistribution

Array = np.ndarray[Any, Any]

NODES = 64
"""Probabilities at which the spread between two draws is integrated."""


class PosteriorDistribution(BaseDistribution):  # type: ignore[misc]
    """Of each row and column the posterior there; draws are of all rows of a task together.

    posteriors: one for each column, all at the same points, of one output each. rows: those of the points that are
    asked about; None for all.

    >>> import pandas as pd
    >>> from metaprior import MetaGP, Tasks
    >>> from metaprior.adapters.skpro import PosteriorDistribution
    >>> past = Tasks.on_grid([0, 1, 2], [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0], [3.0, 4.0, 5.0]])
    >>> gp = MetaGP("constant", "rbf", held_out=None, progress=False).fit(past)
    >>> posterior = gp.condition([0.0], [2.0]).at([[1.0], [2.0]])
    >>> PosteriorDistribution([posterior], index=pd.RangeIndex(2), columns=pd.Index(["y"])).quantile([0.1, 0.9]).shape
    (2, 2)
    """

    _tags = {  # noqa: RUF012
        "authors": ["The metaprior developers"],
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        posteriors: Sequence[Posterior],
        rows: Array | None = None,
        index: pd.Index | None = None,
        columns: pd.Index | None = None,
    ) -> None:
        self.posteriors, self.rows = posteriors, rows
        super().__init__(index=index, columns=columns)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> PosteriorDistribution:
        if np.isscalar(rowidx) and np.isscalar(colidx):
            return self._iat(rowidx, colidx)
        rows, columns = (_positions(key, size) for key, size in ((rowidx, self.shape[0]), (colidx, self.shape[1])))
        some = [self.posteriors[k] for k in columns]
        return type(self)(some, self._chosen[rows], self.index.take(rows), self.columns.take(columns))

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> PosteriorDistribution:
        return type(self)([self.posteriors[colidx]], self._chosen[[rowidx]])

    @property
    def _chosen(self) -> Array:
        return np.arange(self.posteriors[0].shape[0]) if self.rows is None else np.asarray(self.rows)

    def _mean(self) -> Array:
        return self._shaped([posterior.mean for posterior in self.posteriors])

    def _var(self) -> Array:
        return self._shaped([posterior.sd.square() for posterior in self.posteriors])

    def _cdf(self, x: Array) -> Array:
        return self._at_values(x, lambda posterior, values: posterior.cdf(values))

    def _ppf(self, p: Array) -> Array:
        return self._at_values(p, lambda posterior, values: posterior.inverse_cdf(values), inside=0.5)

    def _log_pdf(self, x: Array) -> Array:
        return self._at_values(x, lambda posterior, values: posterior.log_density(values))

    def _pdf(self, x: Array) -> Array:
        return cast(Array, np.exp(self._log_pdf(x)))

    def _energy_self(self) -> Array:
        """E|X − Y| of two draws, which is 4 ∫ (u − ½) q(u) du."""
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        u = torch.from_numpy((nodes + 1) / 2)
        share = torch.from_numpy(weights / 2) * 4 * (u - 0.5)
        found = [(share[:, None, None] * posterior.quantiles(u.tolist())).sum(0) for posterior in self.posteriors]
        return _summed(self._shaped(found))

    def _energy_x(self, x: Array) -> Array:
        """E|X − x|: the ranked probability score, and half of what two draws differ by."""
        return _summed(self._at_values(x, lambda posterior, values: posterior.crps(values))) + self._energy_self() / 2

    def _sample(self, n_samples: int | None = None) -> pd.DataFrame | float:
        count = 1 if n_samples is None else n_samples
        seed = int(np.random.randint(2**31))  # noqa: NPY002 (skpro draws from the global generator)
        drawn = [posterior.samples(count, seed + k)[:, self._chosen, 0] for k, posterior in enumerate(self.posteriors)]
        values = torch.stack(drawn, -1).reshape(-1, len(self.posteriors)).numpy()
        if self.ndim == 0:
            return float(values[0, 0]) if n_samples is None else pd.DataFrame(values)
        if n_samples is None:
            return pd.DataFrame(values, index=self.index, columns=self.columns)
        one = pd.DataFrame(index=self.index)
        labels = pd.concat([one] * count, keys=range(count)).index
        return pd.DataFrame(values, index=labels, columns=self.columns)

    def _at_values(
        self, values: Array, ask: Callable[[Posterior, Tensor], Tensor], inside: float | None = None
    ) -> Array:
        """What each posterior says of these values, of which there is one for each row and column.

        inside: what is asked at the rows that nobody asks about; their means, unless it is given.
        """
        given = np.broadcast_to(np.asarray(values, dtype=np.float64), self.shape).reshape(-1, len(self.posteriors))
        chosen, found = torch.from_numpy(self._chosen), []
        for k, posterior in enumerate(self.posteriors):
            asked = posterior.mean.clone() if inside is None else torch.full(posterior.shape, inside).double()
            asked[chosen, 0] = torch.from_numpy(given[:, k].copy())
            found.append(ask(posterior, asked))
        return self._shaped(found)

    def _shaped(self, found: Sequence[Float[Tensor, "N 1"]]) -> Array:
        values = torch.cat([column[self._chosen] for column in found], 1).numpy()
        return values.reshape(self.shape)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two of them: one with a row and a column by itself, and one of two columns."""
        points = Tasks.from_inputs([np.arange(3.0)])
        mean, sd = torch.tensor([[0.0], [1.0], [2.0]]).double(), torch.tensor([[1.0], [2.0], [0.5]]).double()
        one = IndependentGaussians(points, mean, sd)
        index, columns = pd.RangeIndex(3), pd.Index(["a", "b"])
        return [
            {"posteriors": [one, one], "index": index, "columns": columns},
            {"posteriors": [one], "rows": np.array([1])},
        ]


def _positions(key: Any, size: int) -> Array:
    """What a key of `iloc` asks for, as positions."""
    return cast(Array, np.arange(size)[slice(None) if key is None else np.atleast_1d(key)])


def _summed(values: Array) -> Array:
    """Energies are of rows."""
    return values.sum(1, keepdims=True) if values.ndim else values
