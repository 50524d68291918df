"""Mesquita et al. 2019, outlook: hyperpriors on γ, ε and σ², sampled by NUTS.

The model is [0; y] = Ψθ + e with e ~ N(0, σ²I), θ = [b; α], b ~ N(0, 1/ε) and a flat prior on α. At σ = 1 its posterior
of θ is that of the paper, N(μ*, Σ*). Given the hyperparameters everything is Gaussian, so that θ is integrated out and
NUTS samples three parameters.

Result: Ψ is square, so that a flat α fits every data set exactly, and the data contain hardly any information on the
hyperparameters. The posterior is determined by the Jacobian 1/|Ω + I/γ|, which grows with γ until 1/γ is below the
smallest eigenvalue of Ω. The posterior of γ is therefore orders of magnitude away from its prior for any targets, even
for pure noise. With a flat prior on log γ the posterior is improper. It is better to choose γ and the lengthscale by
`bp.LSSVR`, with the evidence of the Gaussian process or by leave-one-out.
"""

from __future__ import annotations

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from experiments import Report, Table

from bsvr_pp.datasets import sinc

MINUTES = (1, 3)

LENGTHSCALE = 0.5**0.5
NAMES = ("gamma", "epsilon", "sigma")


def network(X, y):
    """The model with θ integrated out."""
    omega = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(-1) / LENGTHSCALE**2)
    n = len(y)
    with pm.Model() as model:
        gamma = pm.LogNormal("gamma", 0.0, 1.0)
        epsilon = pm.LogNormal("epsilon", -2.0, 1.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        top = np.concatenate([[0.0], np.ones(n)])
        rest = pt.concatenate([np.ones((n, 1)), omega + pt.eye(n) / gamma], axis=1)
        psi = pt.concatenate([top[None, :], rest], axis=0)
        pm.Potential("targets", log_marginal(psi, np.concatenate([[0.0], y]), epsilon, sigma))
    return model


def log_marginal(psi, z, epsilon, sigma):
    """Log ∫ N(z; Ψθ, σ²I) N(b; 0, 1/ε) dθ: with A = ΨᵀΨ + σ²ε·s₁s₁ᵀ the posterior of θ is N(A⁻¹Ψᵀz, σ²A⁻¹)."""
    first = np.zeros((len(z), len(z)))
    first[0, 0] = 1.0
    factor = pt.linalg.cholesky(psi.T @ psi + sigma**2 * epsilon * first)
    half = pt.linalg.solve_triangular(factor, psi.T @ z, lower=True)
    misfit = (z @ z - half @ half) / sigma**2
    return 0.5 * pt.log(epsilon / (2 * np.pi)) - pt.log(pt.diag(factor)).sum() - 0.5 * misfit


def posterior(seed, targets, draws):
    """Means and standard deviations of the log hyperparameters, and R-hat."""
    data = sinc(40, random_seed=seed)
    y = data.y if targets == "sinc" else np.random.default_rng(seed).normal(size=40)
    with network(data.X, y):
        samples = pm.sample(draws, tune=draws, chains=2, cores=1, random_seed=seed, progressbar=False)
    out = {"R-hat": max(float(v) for v in az.rhat(samples).data_vars.values())}
    for name in NAMES:
        values = np.log(samples["posterior"][name].values)
        out |= {f"log {name}": values.mean(), f"log {name} within": values.std()}
    out["divergences"] = int(samples["sample_stats"]["diverging"].sum())
    return out


def run(job):
    """Compare the posteriors for sinc and for targets of pure noise with the priors."""
    draws = 300 if job.quick else 1000
    kinds = ("sinc", "noise")
    found = job.each(posterior, [{"seed": job.seed, "targets": kind, "draws": draws} for kind in kinds], "NUTS")
    rng = np.random.default_rng(job.seed)
    prior = {"log gamma": 0.0, "log gamma within": 1.0, "log epsilon": -2.0, "log epsilon within": 1.0}
    sigma = np.log(np.abs(rng.normal(size=100_000)))
    prior |= {"log sigma": sigma.mean(), "log sigma within": sigma.std()}
    frame = pd.DataFrame([prior, *found], index=["prior", *kinds]).rename_axis("targets")
    note = "Posterior mean and standard deviation. With a flat α the factor 1/|Ω + I/γ| determines the posterior of γ."
    return Report([Table("hyperpriors", "Hyperpriors on γ, ε and σ, n = 40", frame, note)])
