"""A Gaussian process of BoTorch with fixed hyperparameters, pseudo-targets and linear sites, in double precision.

It is exact for any number of rows: from 800 rows GPyTorch would replace Cholesky's factor by iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import ArrayLike

from bsvr_pp.core.arrays import Array
from bsvr_pp.model import kernels as cov
from bsvr_pp.model.inputs import Warped

try:
    import botorch
    import gpytorch
    import torch
    from torch import Tensor
except ImportError as missing:
    raise ImportError("models of BoTorch need botorch: pip install 'bsvr-pp[botorch]'") from missing

if TYPE_CHECKING:
    from botorch.posteriors import Posterior
    from botorch.sampling import MCSampler
    from gpytorch.distributions import MultivariateNormal
    from pytensor.tensor import TensorLike

_PROBES, _LINEAR = 100, 1e-9  # random points beside the rows, and relative error there, of a warp that is linear


@contextmanager
def _exactly() -> Iterator[None]:
    """Disable approximations for many rows and the lower bound of the noise in the block."""
    with gpytorch.settings.max_cholesky_size(10**9), gpytorch.settings.min_fixed_noise(double_value=0.0):
        yield


def _tensor(value: ArrayLike) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


class FixedKernel(gpytorch.kernels.Kernel):
    """A kernel of `FORMS` with fixed parameters, on all columns by default, and the kernels that it combines."""

    def __init__(
        self,
        form: str,
        parameters: Mapping[str, ArrayLike],
        columns: Sequence[int] = (),
        parts: Sequence[FixedKernel] = (),
    ) -> None:
        super().__init__()
        self.form, self.columns, self.parts = form, list(columns) or slice(None), torch.nn.ModuleList(parts)
        for name, number in parameters.items():
            self.register_buffer(name, _tensor(number))

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **options: object) -> Tensor:
        """Return the covariance of inputs (..., n, d) and (..., m, d), or of pairs of them."""
        return self.at(x1, x2) if diag else self.at(x1.unsqueeze(-2), x2.unsqueeze(-3))

    def at(self, x: Tensor, z: Tensor) -> Tensor:
        """Return the covariance of inputs whose axes before the last are broadcast."""
        return FORMS[self.form][1](self, x[..., self.columns], z[..., self.columns])


class LinearSites(gpytorch.means.Mean):
    """Prior mean with linear sites: a constant, and Σ k(x, x_i)·a_i over their rows."""

    def __init__(self, constant: float, kernel: FixedKernel, rows: Array, dual_coef: Array) -> None:
        super().__init__()
        self.constant, self.kernel = constant, kernel
        self.register_buffer("rows", _tensor(rows))
        self.register_buffer("dual_coef", _tensor(dual_coef))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean at inputs (..., n, d)."""
        return self.constant + self.kernel.forward(x, self.rows) @ self.dual_coef


class FixedGP(botorch.models.SingleTaskGP):
    """`SingleTaskGP` on pseudo-targets, with linear sites; new targets have the variance of the noise."""

    def __init__(self, X: Array, y: Array, variance: Array, prior: LinearSites, noise_variance: float) -> None:
        modules = {"covar_module": prior.kernel, "mean_module": prior, "outcome_transform": None}
        with _exactly(), botorch.settings.validate_input_scaling(False):  # the kernel standardises
            super().__init__(_tensor(X), _tensor(y)[:, None], _tensor(variance)[:, None], **modules)
        self.register_buffer("noise_variance", _tensor(noise_variance).reshape(1, 1))
        self.eval()

    def __call__(self, *args: Tensor, **options: object) -> MultivariateNormal:
        with _exactly():
            return super().__call__(*args, **options)

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        **options: object,
    ) -> Posterior:
        """Return the posterior of f, or with ``observation_noise=True`` of new targets."""
        noise = self.noise_variance if observation_noise is True else observation_noise
        return super().posterior(X, output_indices, noise, **options)

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **options: object
    ) -> FixedGP:
        """Return models given draws of new targets."""
        noise = self.noise_variance if observation_noise is None else observation_noise
        return super().fantasize(X, sampler, noise, **options)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **options: object) -> FixedGP:
        """Return the model given new targets."""
        options.setdefault("noise", self.noise_variance.expand(*X.shape[:-1], 1))
        with _exactly():
            return super().condition_on_observations(X, Y, **options)


def fixed(kernel: pm.gp.cov.Covariance, value: Callable[[TensorLike], Array], X: Array) -> FixedKernel:
    """Convert a PyMC kernel of inputs X (n, d), with values of its parameters; a factor may be a number."""
    name, columns = type(kernel).__name__, list(map(int, getattr(kernel, "active_dims", ())))
    if isinstance(kernel, pm.gp.cov.Combination):
        return FixedKernel(name, {}, parts=[fixed(part, value, X) for part in kernel._factor_list])
    if not isinstance(kernel, pm.gp.cov.BaseCovariance) and np.ndim(number := value(kernel)) == 0:
        return FixedKernel("Constant", {"c": number})
    if isinstance(kernel, Warped):
        scales = {"constants": value(kernel.args[2]), "share": value(kernel.args[3])}
        return FixedKernel(name, scales, columns, [fixed(kernel.cov_func, value, X[:, columns])])
    if isinstance(kernel, pm.gp.cov.WarpedInput):
        d, inside = len(columns), X[:, columns]
        far = inside.mean(axis=0) + 10.0 * inside.std(axis=0) * np.random.default_rng(0).normal(size=(_PROBES, d))
        points = np.vstack([np.zeros(d), np.eye(d), inside, far])
        images = value(kernel.w(pt.constant(points), kernel.args))
        origin, slope, rows = images[0], images[1 : 1 + d] - images[0], images[1 + d :]
        if np.abs(origin + points[1 + d :] @ slope - rows).max() <= _LINEAR * np.abs(images - origin).max():
            parts = [fixed(kernel.cov_func, value, rows[: len(X)])]
            return FixedKernel("Affine", {"slope": slope, "offset": origin}, columns, parts)
    if not FORMS.get(name, ((),))[0] or type(kernel) not in (getattr(pm.gp.cov, name, None), getattr(cov, name, None)):
        known = ", ".join(each for each, (parameters, _) in FORMS.items() if parameters)
        raise ValueError(
            f"fitted must have a kernel of sums and products of {known}, and no levels_ (kernel='rational_quadratic' "
            f"has none), got {name}"
        )
    return FixedKernel(name, {each: value(getattr(kernel, each)) for each in FORMS[name][0]}, columns)


def in_units(kernel: FixedKernel, centre: Array, width: Array, unit: float) -> FixedKernel:
    """Return the covariance of ``unit`` times f, from inputs before their standardisation."""
    inside = FixedKernel("Affine", {"slope": np.diag(1.0 / width), "offset": -centre / width}, parts=[kernel])
    return FixedKernel("Prod", {}, parts=[FixedKernel("Constant", {"c": unit**2}), inside])


def _half_square(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    return 0.5 * ((x - z) / k.ls).square().sum(-1)


def _matern(k: FixedKernel, x: Tensor, z: Tensor, order: int) -> Tensor:
    r = ((2 * order + 1) * (2.0 * _half_square(k, x, z) + 1e-12)).sqrt()  # as in PyMC, and differentiable at 0
    return (1.0 + r + (order - 1) * r.square() / 3.0) * torch.exp(-r)


def _rational_quadratic(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    gamma = k.inverse_alpha.clamp_min(cov.FLAT)
    return k.variance * torch.exp(-torch.log1p(gamma * _half_square(k, x, z)) / gamma)


def _main_effects(k: FixedKernel, x: Tensor, z: Tensor) -> Tensor:
    e = torch.exp(-0.5 * ((x - z) / k.ls).square())
    effects, details = k.amplitude**2 * e, (k.amplitude * k.detail) ** 2 * e**16
    products = 0.5 * (effects.sum(-1).square() - effects.square().sum(-1))
    return (effects + details).sum(-1) + k.pairs**2 * products


def _on_scales(k: FixedKernel, x: Tensor) -> Tensor:
    column, above, below, centre, unit, location, scale = k.constants.T
    columns, y = column.long(), x.clone()
    z = (x[..., columns] - centre) / unit

    def grown(z: Tensor, power: Tensor) -> Tensor:
        p = power.clamp_min(1e-9)
        return torch.expm1(p * torch.log1p(z.clamp_min(0.0))) / p

    g = location + scale * (grown(z, above) - grown(-z, below))
    y[..., columns] = x[..., columns] + k.share * (g - x[..., columns])
    return y


# Parameters and values of the kernels of `pm.gp.cov` and `bp.cov`, by the names of their classes.
FORMS: dict[str, tuple[tuple[str, ...], Callable[[FixedKernel, Tensor, Tensor], Tensor]]] = {
    "ExpQuad": (("ls",), lambda k, x, z: torch.exp(-_half_square(k, x, z))),
    "Matern32": (("ls",), partial(_matern, order=1)),
    "Matern52": (("ls",), partial(_matern, order=2)),
    "RationalQuadratic": (("ls", "inverse_alpha", "variance"), _rational_quadratic),
    "MainEffects": (("amplitude", "ls", "detail", "pairs"), _main_effects),
    "Linear": (("c",), lambda k, x, z: ((x - k.c) * (z - k.c)).sum(-1)),
    "Constant": (("c",), lambda k, x, z: k.c.expand(torch.broadcast_shapes(x.shape[:-1], z.shape[:-1]))),
    "Affine": ((), lambda k, x, z: k.parts[0].at(k.offset + x @ k.slope, k.offset + z @ k.slope)),
    "Warped": ((), lambda k, x, z: k.parts[0].at(_on_scales(k, x), _on_scales(k, z))),
    "Add": ((), lambda k, x, z: sum(part.at(x, z) for part in k.parts)),
    "Prod": ((), lambda k, x, z: math.prod(part.at(x, z) for part in k.parts)),
}
