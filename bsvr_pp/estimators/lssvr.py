"""Least squares support vector regression, and the related Bayesian radial basis function network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist
from sklearn.base import BaseEstimator, RegressorMixin

from bsvr_pp.core.arrays import Array, check_varies, is_number, numbers
from bsvr_pp.core.docs import shared
from bsvr_pp.core.losses import gaussian
from bsvr_pp.estimators.base import SavedEstimator
from bsvr_pp.estimators.training_data import TrainingData, merge_rows
from bsvr_pp.estimators.validation import Columns, Learned, new_inputs, training_arrays, warn_of_merged
from bsvr_pp.inference.budget import check_memory
from bsvr_pp.inference.prediction.distribution import PredictiveDistribution

Kernel = Literal["rbf"] | Callable[[Array, Array], Array]

_GRID = {"gamma": [1.0, 10.0, 100.0, 1e3, 1e4], "lengthscale": [0.1, 0.3, 1.0, 3.0]}  # in median distances
_DIAGONAL = 64  # rows of one call of the kernel for its diagonal


@shared
@dataclass(eq=False, repr=False)
class LSSVR(SavedEstimator, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Least squares support vector regression with a bias.

    Minimises ½‖w‖² + ½γ Σ s_i e_i², y_i = w·φ(x_i) + b + e_i, with sample weights s_i, by the dual linear system
    (Mesquita et al. 2019, (6)). The solution is the mean of a Gaussian process with noise variance 1/γ, a flat prior on
    b, and s_i copies of row i.

    Parameters
    ----------
    gamma : float or "auto"
        Weight of the squared errors.
    lengthscale : float or "auto"
        Lengthscale of the Gaussian kernel, in the units of the inputs.
    kernel : "rbf" or callable
        The kernel exp(-‖x - x'‖²/(2·lengthscale²)), or a function that maps inputs (n, d) and (m, d) to an (n, m)
        array, such as a Gaussian process kernel of scikit-learn.
    selection : {"evidence", "loo"}
        Criterion that "auto" optimises: the restricted likelihood of the Gaussian process, or the squared leave-one-out
        errors.

    Attributes
    ----------
    dual_coef_ : (n,) array
        Coefficients α, which are γ times the residuals and the sample weights; their sum is 0.
    intercept_ : float
        Bias b.
    gamma_, lengthscale_ : float
        Values used; lengthscale_ is NaN for a callable kernel.
    loo_residuals_ : (n,) array
        Leave-one-out residuals: each target minus the prediction of the model fitted without it, in closed form. Of
        equal rows one is left out; NaN for rows of weight 0.
    log_evidence_ : float
        Restricted log likelihood, with the scale of the targets at its optimum.
    noise_variance_ : float
        Noise variance of the targets at that scale.
    result_ : xarray.DataTree
        The rows and what `from_result` needs to solve the system again.

    Notes
    -----
    Time grows as n³ and memory as n²: practical to about 4000 rows.

    <curve>
    >>> svr = bp.LSSVR().fit(X, y + 3.0)
    >>> svr.predict([[0.5]]).round(2).tolist()
    [3.48]
    """

    _learned: ClassVar = ("gamma_", "lengthscale_", "n_features_in_")

    gamma: float | Literal["auto"] = "auto"
    lengthscale: float | Literal["auto"] = "auto"
    kernel: Kernel = "rbf"
    selection: Literal["evidence", "loo"] = "evidence"

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Solve the linear system.

        <inputs>
        y : (n,) array
            Targets.
        <counts>

        Raises
        ------
        ValueError
            If an option is out of range, the data are not finite or the kernel is not positive semidefinite.
        """
        self._check_options()
        inputs, targets, columns = training_arrays(self, X, y, sample_weight, y_numeric=True, least=2)
        rows = merge_rows(inputs, targets.astype(np.float64), sample_weight)
        check_varies("y", rows.y)
        warn_of_merged(rows)
        check_memory(type(self).__name__, len(rows.y), "BayesianSVR fits local blocks")
        try:
            solution = self._solved(rows, *self._select(rows))
        except LinAlgError:
            raise ValueError(
                "kernel must be positive semidefinite, and gamma so small that 1/gamma on its diagonal is not lost in "
                f"rounding, got kernel={self.kernel!r} and gamma={self.gamma!r}"
            ) from None
        return self._keep(solution, columns)

    def _solved(self, rows: TrainingData, gamma: float, lengthscale: float) -> LSSVRFit:
        return LSSVRFit(rows, self.kernel, gamma, lengthscale)

    def _read(self, rows: TrainingData, learned: Learned, columns: Columns, result: xr.DataTree) -> LSSVRFit:
        return self._solved(rows, learned["gamma_"], learned["lengthscale_"])

    def _attributes(self, fit: LSSVRFit, columns: Columns) -> Learned:
        return {
            "gamma_": fit.gamma,
            "lengthscale_": fit.lengthscale,
            "dual_coef_": fit.rows.spread(fit.alpha),
            "intercept_": fit.b,
            "loo_residuals_": np.append(fit.loo_residuals, np.nan)[fit.rows.place],
            "log_evidence_": fit.log_evidence,
            "noise_variance_": fit.scale / fit.gamma,
        }

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict targets.

        <new_inputs>
        return_std : bool
            Whether to return also the standard deviation of a new target, including the noise of the Gaussian process
            or the network.

        Returns
        -------
        mean, or mean and standard deviation, (n_new,) arrays
        """
        new = new_inputs(self, X)
        if not return_std:
            return self._fit.mean(new)
        mean, variance = self._fit.moments(new)
        return mean, np.sqrt(self._fit.noise_variance + variance)

    def predict_distribution(self, X: ArrayLike) -> PredictiveDistribution:
        """Predict the normal distribution of new targets at inputs (n_new, d), in units of the target."""
        mean, variance = self._fit.moments(new_inputs(self, X))
        noise = gaussian(C=1.0 / self._fit.noise_variance)
        return PredictiveDistribution(np.ones((1, mean.size)), mean[None], variance[None], (noise,))

    def _check_options(self) -> None:
        for name in ("gamma", "lengthscale"):
            value = getattr(self, name)
            automatic = isinstance(value, str) and value == "auto"
            if not (automatic or (is_number(value) and 1e-100 <= value <= 1e100)):
                raise ValueError(f"{name} must be a positive number or 'auto', got {value!r} (limits: 1e-100, 1e100)")
        if not callable(self.kernel) and not (isinstance(self.kernel, str) and self.kernel == "rbf"):
            raise ValueError(f"kernel must be 'rbf' or a function of two sets of inputs, got {self.kernel!r}")
        if callable(self.kernel) and not isinstance(self.lengthscale, str):
            raise ValueError(
                f"lengthscale is an option of kernel='rbf', got lengthscale={self.lengthscale!r} with a kernel function"
            )
        if not isinstance(self.selection, str) or self.selection not in ("evidence", "loo"):
            raise ValueError(f"selection must be 'evidence' or 'loo', got {self.selection!r}")

    def _select(self, rows: TrainingData) -> tuple[float, float]:
        """Return gamma and lengthscale; those that are "auto" are optimised on the log scale."""
        distances = pdist(rows.X)
        typical = float(np.median(distances[distances > 0])) if (distances > 0).any() else 1.0
        units = {"gamma": 1.0, "lengthscale": typical}
        given = {"gamma": self.gamma, "lengthscale": np.nan if callable(self.kernel) else self.lengthscale}
        free = [name for name, value in given.items() if value == "auto"]

        def options(logs: Array) -> tuple[float, float]:
            values = given | {name: units[name] * np.exp(log) for name, log in zip(free, logs, strict=True)}
            return float(values["gamma"]), float(values["lengthscale"])

        if not free:
            return options(np.empty(0))

        def loss(logs: Array) -> float:
            gamma, lengthscale = options(np.clip(logs, -12.0, 20.0))
            try:
                solution = LSSVRFit(rows, self.kernel, gamma, lengthscale)
            except LinAlgError:
                return np.inf
            if self.selection == "loo":
                return float(np.log(np.average(solution.loo_residuals**2, weights=rows.weight) + 1e-300))
            return -solution.log_evidence

        axes = np.meshgrid(*(np.log(_GRID[name]) for name in free), indexing="ij")
        grid = np.stack(axes, axis=-1).reshape(-1, len(free))
        losses = [loss(logs) for logs in grid]
        if min(losses) == np.inf:
            raise LinAlgError("no matrix of the grid is positive definite")
        start = grid[int(np.argmin(losses))]
        found = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6})
        return options(np.clip(found.x, -12.0, 20.0))


@shared
@dataclass(eq=False, repr=False)
class BayesianLSSVR(LSSVR):
    """A radial basis function network; its most probable weights approximate LS-SVR (Mesquita et al. 2019).

    y_n ~ N(b + Σ_i α_i k(x_n, x_i), σ²). The Gaussian prior of [b, α] gives the posterior precision (ΨᵀΨ + ε·s₁s₁ᵀ)/σ²,
    with the matrix Ψ of (6) and the first unit vector s₁. For small ε this prior is not a proper density, but the
    posterior is. As ε → 0 the posterior mean converges to the weights of `LSSVR`.

    Parameters
    ----------
    gamma, lengthscale, kernel, selection
        As in `LSSVR`, which determines the values for "auto".
    epsilon : float
        Prior precision of the bias, around the mean of the targets, in addition to the precision from the prior of α;
        positive.

    Attributes
    ----------
    mean_weights_, covariance_ : (m+1,) and (m+1, m+1) arrays
        Mean and covariance of the posterior of [b, α], for the m rows without repetitions and rows of weight 0. They
        have the order of the data if no row is repeated and all weights are 1.
    prior_is_proper_ : bool
        Whether the stated prior precision is positive definite: ε > γ⁻²·s/(1+s), s = 1ᵀ(2Ω/γ + I/γ²)⁻¹1.

    Notes
    -----
    The paper has σ² = 1 in the units of the targets. Here it is the ``noise_variance_`` of `LSSVR`: predictions then do
    not depend on the units or the zero of the targets, as in the paper for targets minus their mean, divided by σ. With
    increasing distance from the data the standard deviation first increases. It then decreases to the standard
    deviation of the bias, where the kernels vanish.

    <curve>
    >>> svr = bp.BayesianLSSVR(gamma=10.0, lengthscale=1.0).fit(X, 5 * y)
    >>> mean, sd = svr.predict([[0.5]], return_std=True)
    >>> bool(sd[0] > np.sqrt(svr.noise_variance_))
    True
    """

    epsilon: float = 1e-6

    def _check_options(self) -> None:
        super()._check_options()
        if not (is_number(self.epsilon) and self.epsilon > 0):
            raise ValueError(f"epsilon must be a positive number, got {self.epsilon!r}")

    def _solved(self, rows: TrainingData, gamma: float, lengthscale: float) -> NetworkFit:
        return NetworkFit(rows, self.kernel, gamma, lengthscale, self.epsilon)

    def _attributes(self, fit: LSSVRFit, columns: Columns) -> Learned:
        names = "mean_weights", "covariance", "prior_is_proper"
        return super()._attributes(fit, columns) | {f"{name}_": getattr(fit, name) for name in names}

    def predict_f(self, X: ArrayLike) -> tuple[Array, Array]:
        """Predict mean and standard deviation of the function, φᵀμ* and √(φᵀΣ*φ) with φ = [1, k(x, x_1), ...]."""
        mean, variance = self._fit.moments(new_inputs(self, X))
        return mean, np.sqrt(variance)


class LSSVRFit:
    """Solution of the system (6) of Mesquita et al. 2019 by a Cholesky factorisation of H = Ω + 1/(γ·weight)."""

    def __init__(self, rows: TrainingData, kernel: Kernel, gamma: float, lengthscale: float) -> None:
        self.rows, self.kernel, self.gamma, self.lengthscale = rows, kernel, gamma, lengthscale
        weight, centre = rows.weight, float(np.average(rows.y, weights=rows.weight))
        y = rows.y - centre  # sums of large targets cancel
        n, count = y.size, float(weight.sum())
        K = self._kernel(rows.X, rows.X)
        if (apart := np.abs(K - K.T).max()) > 1e-6 * np.abs(K).max():
            raise ValueError(f"kernel must be symmetric, and k(a, b) and k(b, a) differ by up to {apart:.3g}")
        H = K + np.diag(1.0 / (gamma * weight))
        self._factor = cho_factor(H, lower=True)
        self._ones = cho_solve(self._factor, np.ones(n))
        self._total = float(self._ones.sum())
        self.bias = float(self._ones @ y) / self._total  # around the centre
        self.b = centre + self.bias
        self.alpha: Array = cho_solve(self._factor, y - self.bias)
        left = np.diag(cho_solve(self._factor, np.eye(n))) - self._ones**2 / self._total
        self.loo_residuals: Array = (
            self.alpha * np.maximum(weight, 1.0) / (left + gamma * weight * np.maximum(weight - 1.0, 0.0))
        )
        half_log_det = float(np.log(np.diag(self._factor[0])).sum()) + 0.5 * float(np.log(weight).sum())
        half_log_det -= 0.5 * (count - n) * float(np.log(gamma))
        freedom = count - min(1.0, count / n)  # N - 1, but positive if the effective number of rows is small
        self.scale = max(float(y @ self.alpha), 0.0) / freedom
        quadratic = 0.5 * freedom * np.log(2 * np.pi * max(self.scale, 1e-300)) + 0.5 * freedom
        self.log_evidence = float(-quadratic - half_log_det - 0.5 * np.log(self._total))

    def _kernel(self, A: Array, B: Array) -> Array:
        if callable(self.kernel):
            return numbers("what kernel gives", self.kernel(A, B), (len(A), len(B)))
        return np.asarray(np.exp(-0.5 * cdist(A, B, "sqeuclidean") / self.lengthscale**2))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise of new targets."""
        return max(self.scale / self.gamma, np.finfo(float).tiny)

    def result(self) -> xr.DataTree:
        """Return an empty tree: rows and hyperparameters suffice."""
        return xr.DataTree()

    def mean(self, new: Array) -> Array:
        """Return the mean of the function at new inputs."""
        return self._kernel(new, self.rows.X) @ self.alpha + self.b

    def moments(self, new: Array) -> tuple[Array, Array]:
        """Return the mean of the function at new inputs, and its variance, including the variance of b."""
        cross = self._kernel(new, self.rows.X)
        parts = np.array_split(new, max(1, -(-len(new) // _DIAGONAL)))
        prior = np.concatenate([np.diag(self._kernel(part, part)) for part in parts])
        solved = cho_solve(self._factor, cross.T)
        variance = prior - np.einsum("ij,ji->i", cross, solved) + (1.0 - solved.sum(axis=0)) ** 2 / self._total
        return cross @ self.alpha + self.b, self.scale * np.maximum(variance, 0.0)


class NetworkFit(LSSVRFit):
    """The posterior of the weights of a radial basis function network, and the solution of (6)."""

    def __init__(self, rows: TrainingData, kernel: Kernel, gamma: float, lengthscale: float, epsilon: float) -> None:
        super().__init__(rows, kernel, gamma, lengthscale)
        n, self._widths = rows.y.size, np.sqrt(np.append(1.0, rows.weight))[:, None]
        unit = np.eye(n + 1)
        self._of_bias = self._solved(unit[:1, 1:], unit[:1, 0])[:, 0]
        square = float(self._of_bias @ self._of_bias)
        self._shrink = epsilon / (1.0 + epsilon * square)
        self._half_shrink = float(-np.expm1(-0.5 * np.log1p(epsilon * square))) / square
        self.mean_weights, root = self._posterior(unit[:, 1:], unit[:, 0])
        self.covariance: Array = root.T @ root
        omega, scaled = self._kernel(rows.X, rows.X), gamma**2 * rows.weight
        inner = np.linalg.solve(2 * omega / gamma + np.diag(1.0 / scaled), np.ones(n)).sum()
        self.prior_is_proper = bool(epsilon > inner / (gamma**2 * (1 + inner)))

    def mean(self, new: Array) -> Array:
        """Return the mean (15)."""
        return self.moments(new)[0]

    def moments(self, new: Array) -> tuple[Array, Array]:
        """Return the mean (15), and the variance (16) without the noise."""
        mean, root = self._posterior(self._kernel(new, self.rows.X), np.ones(len(new)))
        return mean, np.sum(root**2, axis=0)

    def _posterior(self, cross: Array, total: Array) -> tuple[Array, Array]:
        """Return the mean of φᵀ[b, α], (m,), for φ = [total, cross], and a root (n + 1, m) of the covariance.

        The covariance of [b, α] has entries near (nγ)², which cancel in sums; its root times φ has none that are large.
        The coefficient of w equal rows is the sum of w equal ones: ΨᵀΨ becomes Ψ·D·Ψ with D = diag(1, w), and ε enters
        by Sherman-Morrison.
        """
        solved = self._solved(cross, total)
        along = self._of_bias @ solved
        mean = cross @ self.alpha + self.b * total - self.bias * self._shrink * along
        return mean, np.sqrt(self.noise_variance) * (solved - self._half_shrink * np.outer(self._of_bias, along))

    def _solved(self, cross: Array, total: Array) -> Array:
        """Return D^(-1/2)·Ψ⁻¹φ for φ = [total, cross], (n + 1, m)."""
        solved = cho_solve(self._factor, cross.T)
        first = (solved.sum(axis=0) - total) / self._total
        return np.vstack([first, solved - np.outer(self._ones, first)]) / self._widths
