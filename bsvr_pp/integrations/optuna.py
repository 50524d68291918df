"""A sampler of Optuna for objectives some of whose values are grossly wrong, and some of whose trials fail.

The model is a Gaussian process with soft insensitive noise, by mean field, on the search space as a unit cube. It is
fitted to asinh of the robustly standardised values, and values that the others contradict are set aside. The next trial
maximises the log expected improvement (Ament et al. 2023, (8)) of f over its smallest posterior mean at the trials,
since the best value may be wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr
from scipy.stats import qmc

try:
    from optuna._transform import _SearchSpaceTransform as Cube
    from optuna.distributions import BaseDistribution, FloatDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import intersection_search_space
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial
except ImportError:
    raise ImportError("samplers of Optuna need optuna: pip install 'bsvr-pp[optuna]'") from None

from bsvr_pp._arrays import Array
from bsvr_pp._checks import check_count
from bsvr_pp._compiler import threads_for
from bsvr_pp.estimators.standard_models import StandardModel
from bsvr_pp.estimators.training_data import as_given
from bsvr_pp.inference.approximate import MeanField, at_optima
from bsvr_pp.inference.protocol import Options
from bsvr_pp.model.priors import BETA, location_and_scale
from bsvr_pp.model.problem import Point

__all__ = ["BayesianSVRSampler"]

_SEARCHED = 5  # trials between two searches for hyperparameters
_FAILED = 0.75  # quantile of the values that a trial without a value has
_CONTRADICTED, _LARGE = 4.0, 1.0  # residual of a value that is set aside, in median residuals and in units of asinh
_MOST, _ROUNDS = 0.3, 5  # largest share of values that are set aside, and rounds in which they are found
_CANDIDATES, _KEPT, _CHILDREN = 1024, 10, 20  # points of the first round, parents of a later one, and their children
_WIDTH = 12.0**0.5  # of a cube in which points have standard deviation 1
_STEPS = 0.2 * 0.6 ** np.arange(14)  # lengths of the steps from a parent to its children


class BayesianSVRSampler(BaseSampler):
    """Bayesian optimisation with a model that sets wrong values aside, for one objective without constraints.

    Parameters
    ----------
    seed : int, optional
        Random seed; the same seed and the same trials give the same next trial, also in a study that was loaded.
    n_startup_trials : int
        Number of trials with a value before the model is used; until then parameters are drawn at random.

    Raises
    ------
    ValueError
        If an option is out of range, or a study has several objectives or constraints.

    Notes
    -----
    The hyperparameters are searched at every fifth trial. Parameters that not all finished trials have are drawn at
    random. A trial that failed, was pruned or runs in another worker counts as the upper quartile of the values, and
    may be set aside. The only state is that of the study: the last hyperparameters are kept for speed alone.

    Examples
    --------
    >>> import optuna
    >>> from bsvr_pp.integrations.optuna import BayesianSVRSampler
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> sampler = BayesianSVRSampler(seed=0)
    >>> study = optuna.create_study(sampler=sampler)
    >>> study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 2) ** 2, n_trials=15)
    >>> abs(sampler.best_trial(study).params["x"] - 2) < 0.1
    True
    """

    def __init__(self, *, seed: int | None = None, n_startup_trials: int = 10) -> None:
        check_count("n_startup_trials", n_startup_trials, 2)
        if seed is not None:
            check_count("seed", seed, 0)
        self._n_startup_trials, self._seed = n_startup_trials, seed
        self._searched: tuple[Any, ...] = (b"",)
        if seed is None:
            self.reseed_rng()

    def reseed_rng(self) -> None:
        """Draw another seed."""
        self._seed = int(np.random.default_rng().integers(2**32))

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Parameters that all finished trials have, with their distributions."""
        if len(study.directions) > 1:
            raise ValueError(f"study must have one objective for BayesianSVRSampler, got {len(study.directions)}")
        trials = study.get_trials(deepcopy=False)
        if any(key.split(":")[0] == "constraints" for each in trials for key in each.system_attrs):
            raise ValueError("study must have no constraints for BayesianSVRSampler: add a penalty to the objective")
        return {name: each for name, each in intersection_search_space(trials).items() if not each.single()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Draw a parameter at random."""
        seed = int(self._rng(trial, crc32(param_name.encode())).integers(2**32))
        return RandomSampler(seed).sample_independent(study, trial, param_name, param_distribution)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Parameters with the largest expected improvement."""
        rows = _read(study, search_space)
        if rows is None or rows.valued.sum() < self._n_startup_trials:
            return {}
        with threads_for(len(rows.y)):
            moments = self._fit(rows.X, rows.y)
            mean = moments(rows.X)[0]

            def score(X: Array) -> Array:
                f, variance = moments(X)
                return _log_expected_improvement(mean.min() - f, np.sqrt(variance))

            best = rows.X[np.argsort(mean)[:_KEPT]]
            return rows.cube.untransform(_maximised(score, best, rows.allowed, self._rng(trial)))

    def best_trial(self, study: Study) -> FrozenTrial:
        """Find the trial with the best posterior mean of a study with any sampler; the best value may be a wrong one.

        Parameters
        ----------
        study : Study
            The study, of which at least one trial has a value.

        Returns
        -------
        FrozenTrial
            The trial; that with the best value where all values are equal, or no parameter is in all trials.
        """
        best = study.best_trial
        rows = _read(study, self.infer_relative_search_space(study, best))
        if rows is None:
            return best
        with threads_for(len(rows.y)):
            mean = self._fit(rows.X, rows.y)(rows.X)[0]
        return rows.trials[int(np.argmin(np.where(rows.valued, mean, np.inf)))]

    def _fit(self, X: Array, y: Array) -> Callable[[Array], tuple[Array, ...]]:
        """Moments of f, with the hyperparameters of the first rows, whose number is a multiple of five."""
        first = len(y) - len(y) % _SEARCHED or len(y)
        given = X[:first].tobytes() + y[:first].tobytes()
        if self._searched[0] != given:
            location, unit = location_and_scale(y[:first])
            unit = unit or 1.0
            point, _ = _robust_fit(X[:first], np.arcsinh((y[:first] - location) / unit), {})
            self._searched = given, location, unit, point
        _, location, unit, point = self._searched
        return _robust_fit(X, np.arcsinh((y - location) / unit), point)[1]

    def _rng(self, trial: FrozenTrial, *more: int) -> np.random.Generator:
        """The generator of a trial: none is kept between trials."""
        return np.random.default_rng([self._seed, trial.number, *more])


class _Rows(NamedTuple):
    """Trials as points X (n, d) of the unit cube, values y (n,) to minimise, and which trials have a value."""

    trials: list[FrozenTrial]
    cube: Cube
    X: Array
    y: Array
    valued: NDArray[np.bool_]
    continuous: bool

    def allowed(self, X: Array) -> Array:
        """The nearest points of the search space."""
        X = np.clip(X, 0.0, 1.0)
        return X if self.continuous else np.array([self.cube.transform(self.cube.untransform(x)) for x in X])


def _read(study: Study, space: dict[str, BaseDistribution]) -> _Rows | None:
    """The trials with all parameters of a search space; None if there is nothing to learn from them."""
    trials = [t for t in study.get_trials(deepcopy=False) if space and space.items() <= t.distributions.items()]
    sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
    y = np.array([np.nan if t.state.name != "COMPLETE" else sign * t.value for t in trials])
    valued = np.isfinite(y)
    if not valued.any() or np.ptp(y[valued]) == 0:
        return None
    y[~valued] = np.quantile(y[valued], _FAILED)
    cube = Cube(space, transform_0_1=True)
    continuous = all(isinstance(each, FloatDistribution) and each.step is None for each in space.values())
    return _Rows(trials, cube, np.array([cube.transform(t.params) for t in trials]), y, valued, continuous)


def _robust_fit(X: Array, y: Array, point: Point) -> tuple[Point, Callable[[Array], tuple[Array, ...]]]:
    """Hyperparameters, unless given, and moments of f from the rows that the others do not contradict."""
    kept = np.ones(len(y), dtype=bool)
    X = _WIDTH * (X - 0.5)
    for _ in range(_ROUNDS):
        problem = StandardModel("soft_insensitive", "matern52", True, as_given(X[kept], y[kept]), BETA).problem
        fitted = at_optima(MeanField(), problem, point, Options(), np.random.default_rng(0))
        (part,), (posterior,) = fitted.components(problem), fitted.posteriors
        mean, variance = part.moments(X)
        mean[kept], variance[kept] = posterior.cavity_mean, posterior.cavity_variance
        residual = np.abs(y - mean)
        size = residual / np.sqrt(variance + problem.noise_at(fitted.points[0]).variance)
        limit = max(_CONTRADICTED * float(np.median(size)), float(np.quantile(size, 1.0 - _MOST)))
        again = (size <= limit) | (residual <= _LARGE)
        if (again == kept).all():
            break
        kept = again
    return fitted.points[0], lambda at: part.moments(_WIDTH * (at - 0.5))


def _maximised(score: Any, best: Array, allowed: Callable[[Array], Array], rng: np.random.Generator) -> Array:
    """The allowed point with the largest score: Sobol points and the best trials, then shorter and shorter steps."""
    X = np.concatenate([best, allowed(qmc.Sobol(best.shape[1], rng=rng).random(_CANDIDATES))])
    value = score(X)
    for step in _STEPS:
        top = np.argsort(-value)[:_KEPT]
        moved = np.repeat(X[top], _CHILDREN, axis=0)
        moved = allowed(moved + step * (rng.random(moved.shape) < 0.5) * rng.normal(size=moved.shape))
        X, value = np.concatenate([X[top], moved]), np.concatenate([value[top], score(moved)])
    return np.asarray(X[np.argmax(value)])


def _log_expected_improvement(gain: Array, deviation: Array) -> Array:
    """Log expectation of max(g, 0), g normal with mean ``gain``: log(s·Φ(z)·(z + φ(z)/Φ(z))), without underflow."""
    z = gain / deviation
    factor = np.where(z < -1e4, -1.0 / np.minimum(z, -1.0), z + np.sqrt(2.0 / np.pi) / erfcx(-z / np.sqrt(2.0)))
    return np.log(deviation) + log_ndtr(z) + np.log(factor)
