"""The normalisers of Sollich (2002, section 5), and gradients of log evidences as averages over draws.

The naive evidence of labels (27) is divided by a normaliser: the mean under the prior of `Known` (28), for the evidence
of the labels given the inputs (25), or of `MeanKnown` (29), for that of labels and inputs (30). The factors are
symmetric in f and not log-concave, so that Gaussian approximations are poor, and annealing from the prior is used.

For log M = log ∫ N(f; 0, K) q(f) df, and the average over the density under the integral,

    d log M/dC = <d log q/dC>,    d log M/dK = ½(<f̂ f̂ᵀ> - K⁻¹) = ½ <g f̂ᵀ>,    f̂ = K⁻¹f, g = d log q/df,

The last form follows by partial integration. Its average has a smaller error, because g is bounded by C.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsvr_pp._checks import numbers
from bsvr_pp.approximations import smc
from bsvr_pp.approximations.gradient import Gradient
from bsvr_pp.covariance.covariance import Covariance, as_covariance
from bsvr_pp.losses.label import Known, MeanKnown
from bsvr_pp.losses.likelihood import Differentiable

__all__ = ["NORMALISERS", "EvidenceKind", "NormaliserCloud", "averaged_gradient"]

Array = NDArray[np.float64]
EvidenceKind = Literal["naive", "conditional", "joint"]

NORMALISERS = {"conditional": Known, "joint": MeanKnown}
_MOVES = 4  # moves of each particle: at each power of a new annealing, after each change of the hyperparameters
_EFFICIENCY = 0.8
_RENEWAL = 10  # number of changes of the hyperparameters after which the particles are annealed again,
_DRIFT = 0.4  # or change of log C


def averaged_gradient(K: ArrayLike | Covariance, likelihood: Differentiable, f: ArrayLike) -> Gradient:
    """Gradient of log ∫ N(f; 0, K) q(f) df from draws of the density under the integral.

    Parameters
    ----------
    K : (n, n) array or Covariance
        Prior covariance, positive definite.
    likelihood : Differentiable
        log q with its derivatives, such as `bsvr_pp.losses.label.Known`.
    f : (draws, n) array
        Draws, such as those of `annealed`.

    Returns
    -------
    Gradient
        Derivatives by K, the prior mean, and the parameters of the likelihood.

    Raises
    ------
    ValueError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.approximations import annealed
    >>> from bsvr_pp.approximations.normaliser import averaged_gradient
    >>> from bsvr_pp.losses.label import Logistic
    >>> likelihood = Logistic(1.0, [1.0])
    >>> gradient = averaged_gradient([[1.0]], likelihood, annealed([[1.0]], None, likelihood, random_seed=1).f)
    >>> bool(abs(gradient.parameters["C"]) < 0.05)  # the integral is ½ for every C
    True
    """
    covariance = as_covariance(K)
    draws = numbers("f", f, ("draws", covariance.size))
    by_f, by_parameter = likelihood.slopes(draws)
    cross = covariance.solve(draws.T @ by_f / len(draws))  # <f̂ gᵀ> = K⁻¹<f gᵀ>
    parameters: dict[str, float | Array] = {name: slopes.mean(axis=0) for name, slopes in by_parameter.items()}
    return Gradient(0.25 * (cross + cross.T), by_f.mean(axis=0), parameters)


class NormaliserCloud:
    """Particles of the density under a normaliser, which follow the hyperparameters of a stochastic optimisation.

    They are stored whitened, so that they follow a change of K, and are moved by a few elliptical slices after each
    change. They are annealed again at regular intervals and after larger changes of C. The reason is that slices mix
    slowly for large C, and with outdated particles C could grow without limit.

    Parameters
    ----------
    kind : {"conditional", "joint"}
        Evidence of the normaliser.
    particles : int
        Number of particles.
    rng : Generator
        Source of random numbers.
    weight : (n,) array, optional
        Sample weights of the labels.
    """

    def __init__(
        self,
        kind: Literal["conditional", "joint"],
        particles: int,
        rng: np.random.Generator,
        weight: Array | None = None,
    ) -> None:
        self.factor, self.particles, self.rng, self.weight = NORMALISERS[kind], particles, rng, weight
        self._white: Array = np.empty((0, 0))
        self._log_C, self._age = np.inf, 0

    def gradient(self, K: Covariance, C: float) -> Gradient:
        """Compute the gradient of the log normaliser at the next hyperparameters."""
        known, start = self.factor(C, weight=self.weight), smc.Start(np.zeros(K.size), K)
        if self._age >= _RENEWAL or abs(np.log(C) - self._log_C) > _DRIFT:
            self._age, self._log_C = 0, np.log(C)
            _, f = smc.find_powers(start, known, self.particles, _MOVES, _EFFICIENCY, self.rng)
        else:
            f = np.ascontiguousarray(K.unwhiten(self._white).T)
        f, _ = smc.move(start, known, f, known(f), 1.0, _MOVES, self.rng)
        self._white, self._age = K.whiten(f.T), self._age + 1
        return averaged_gradient(K, known, f)
