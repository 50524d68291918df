"""A Gaussian process of BoTorch with fixed hyperparameters, pseudo-targets and linear sites.

All is in double precision and exact for any number of rows: GPyTorch replaces Cholesky's factor by iterations from 800
rows, and small variances by 1e-6, unless it is told otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import botorch
import gpytorch
import torch
from torch import Tensor

from bsvr_pp.cov import FLAT
from bsvr_pp.integrations.botorch import Pseudo, Term

_EXACT = 10**9  # rows up to which Cholesky's factor is used


@contextmanager
def exactly() -> Iterator[None]:
    """Context of exact linear algebra."""
    settings = gpytorch.settings
    with settings.max_cholesky_size(_EXACT), settings.min_fixed_noise(double_value=0.0):
        yield


class FixedKernel(gpytorch.kernels.Kernel):
    """A kernel with fixed parameters, from its description as data."""

    def __init__(self, term: Term) -> None:
        super().__init__()
        self.form, self.columns = term.form, list(term.columns) or slice(None)
        for name, number in term.parameters.items():
            self.register_buffer(name, torch.as_tensor(number, dtype=torch.float64))
        self.parts = torch.nn.ModuleList(FixedKernel(part) for part in term.parts)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: Any) -> Tensor:
        """Covariance of inputs (..., n, d) and (..., m, d), or of pairs of them."""
        return self.at(x1, x2) if diag else self.at(x1.unsqueeze(-2), x2.unsqueeze(-3))

    def at(self, x: Tensor, z: Tensor) -> Tensor:
        """Covariance of inputs whose shapes without the last axis are broadcast."""
        return FORMS[self.form](self, x[..., self.columns], z[..., self.columns])


class LinearSites(gpytorch.means.Mean):
    """Prior mean with linear sites: a constant, and Σ k(x, x_i)·a_i over their rows."""

    def __init__(self, constant: float, kernel: FixedKernel, rows: Tensor, dual_coef: Tensor) -> None:
        super().__init__()
        self.constant, self.kernel = constant, kernel
        self.register_buffer("rows", rows)
        self.register_buffer("dual_coef", dual_coef)

    def forward(self, x: Tensor) -> Tensor:
        """Mean at inputs (..., n, d)."""
        return self.constant + self.kernel.forward(x, self.rows) @ self.dual_coef


class SiteNoise(gpytorch.likelihoods.FixedNoiseGaussianLikelihood):
    """Variances of pseudo-targets, and ``new``, the variance of the noise of new targets."""

    def __init__(self, variance: Tensor, new: Tensor) -> None:
        with exactly():
            super().__init__(variance)
        self.register_buffer("new", new)


class FixedGP(botorch.models.SingleTaskGP):
    """`SingleTaskGP` on pseudo-targets, whose new targets have the variance of the noise."""

    def __init__(self, given: Pseudo) -> None:
        X, y, variance, linear, dual_coef, new = (
            torch.as_tensor(each, dtype=torch.float64)
            for each in (given.X, given.targets, given.variance, given.linear, given.dual_coef, given.noise_variance)
        )
        kernel = FixedKernel(given.kernel)
        with botorch.settings.validate_input_scaling(False):  # its kernel standardises
            super().__init__(
                X,
                y[:, None],
                likelihood=SiteNoise(variance, new),
                covar_module=kernel,
                mean_module=LinearSites(given.mean, kernel, linear, dual_coef),
                outcome_transform=None,
            )
        self.eval()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Posterior of f in evaluation mode."""
        with exactly():
            return super().__call__(*args, **kwargs)

    def posterior(self, X: Tensor, output_indices: Any = None, observation_noise: Any = False, **options: Any) -> Any:
        """Posterior of f, or of new targets with ``observation_noise=True``."""
        noise = self.likelihood.new.reshape(1, 1) if observation_noise is True else observation_noise
        return super().posterior(X, output_indices, noise, **options)

    def fantasize(self, X: Tensor, sampler: Any, observation_noise: Any = None, **options: Any) -> Any:
        """Models conditioned on draws of new targets."""
        noise = self.likelihood.new.reshape(1, 1) if observation_noise is None else observation_noise
        return super().fantasize(X, sampler, noise, **options)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **options: Any) -> Any:
        """A model conditioned on new targets, by default with the variance of the noise."""
        options.setdefault("noise", self.likelihood.new.expand(*X.shape[:-1], 1))
        return super().condition_on_observations(X, Y, **options)

    def get_fantasy_model(self, inputs: Any, targets: Any, **options: Any) -> Any:
        """A model with more rows."""
        with exactly():
            return super().get_fantasy_model(inputs, targets, **options)


def _half_square(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    return 0.5 * ((x - z) / k.ls).square().sum(-1)


def _distance(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    return (2.0 * _half_square(k, x, z) + 1e-12).sqrt()  # as PyMC, and differentiable at 0


def _constant(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    return k.c.expand(torch.broadcast_shapes(x.shape[:-1], z.shape[:-1]))


def _rational(h: Tensor, inverse_alpha: Tensor) -> Tensor:
    return torch.exp(-torch.log1p(inverse_alpha * h) / inverse_alpha)


def _matern32(r: Tensor) -> Tensor:
    return (1.0 + math.sqrt(3.0) * r) * torch.exp(-math.sqrt(3.0) * r)


def _matern52(r: Tensor) -> Tensor:
    return (1.0 + math.sqrt(5.0) * r + 5.0 / 3.0 * r**2) * torch.exp(-math.sqrt(5.0) * r)


FORMS: dict[str, Callable[[FixedKernel, Tensor, Tensor], Tensor]] = {
    "Add": lambda k, x, z: sum(part.at(x, z) for part in k.parts),
    "Affine": lambda k, x, z: k.parts[0].at(k.offset + x @ k.slope, k.offset + z @ k.slope),
    "Constant": _constant,
    "ExpQuad": lambda k, x, z: torch.exp(-_half_square(k, x, z)),
    "Linear": lambda k, x, z: ((x - k.c) * (z - k.c)).sum(-1),
    "MainEffects": lambda k, x, z: (k.amplitude**2 * torch.exp(-0.5 * ((x - z) / k.ls).square())).sum(-1),
    "Matern12": lambda k, x, z: torch.exp(-_distance(k, x, z)),
    "Matern32": lambda k, x, z: _matern32(_distance(k, x, z)),
    "Matern52": lambda k, x, z: _matern52(_distance(k, x, z)),
    "Prod": lambda k, x, z: math.prod(part.at(x, z) for part in k.parts),
    "RatQuad": lambda k, x, z: _rational(_half_square(k, x, z), 1.0 / k.alpha),
    "RationalQuadratic": lambda k, x, z: (
        k.variance * _rational(_half_square(k, x, z), k.inverse_alpha.clamp_min(FLAT))
    ),
}
