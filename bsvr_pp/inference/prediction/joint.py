"""Targets at several new inputs together: one latent function, and noise that is independent given it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from bsvr_pp._arrays import Array
from bsvr_pp.approximations import Covariance, mean_field
from bsvr_pp.inference.prediction.component import Component, NoiseOfRows, noise_of_rows
from bsvr_pp.inference.protocol import ConvergenceWarning


@dataclass(frozen=True, slots=True)
class JointTargets:
    """f + noise at the inputs X together; ``parts`` makes the components, since each holds a factor of n² numbers."""

    parts: Callable[[], Iterable[Component]]
    X: Array
    noise_of: NoiseOfRows | None = None

    def draw(self, size: int, rng: np.random.Generator) -> Array:
        """Draws (size, n)."""
        out, parts = np.empty((size, len(self.X))), list(self.parts())
        weights = np.array([part.weight for part in parts])
        chosen = rng.choice(len(parts), size=size, p=weights / weights.sum())
        for i in np.unique(chosen):
            at = np.flatnonzero(chosen == i)
            out[at] = parts[i].draw(self.X, at.size, rng)
        return out

    def log_density(self, z: Array) -> float:
        """Log density at z (n,): the evidence of mean field, whose prior is the posterior of f, for each component."""
        logs, weights, converged = [], [], True
        for part in self.parts():
            if part.scales is not None:
                raise ValueError("the noise has several scales, and a joint density takes one: use noise_scales=False")
            if part.site_precision is None:
                raise ValueError("f was sampled, and a joint density takes an f that is integrated out")
            noise = (self.noise_of or noise_of_rows(part.problem, self.X))(part.point)
            mean, covariance = part.jointly(self.X)
            values, vectors = np.linalg.eigh(covariance)  # rounding errors leave it indefinite
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            found = mean_field(Covariance(root @ root.T), z, noise, mean=mean)
            logs.append(found.log_evidence)
            weights.append(part.weight)
            converged = converged and found.converged
        if not converged:
            warnings.warn("mean field of the joint density did not converge", ConvergenceWarning, stacklevel=3)
        return float(logsumexp(logs, b=np.array(weights) / np.sum(weights)))
