"""Mean field compared with Laplace, annealing and NUTS for ε-insensitive noise, Gao, Gunn & Harris 2002.

The paper states the mean-field (TAP) equations, an iteration for them with learning rate 0.05, and error bars (5.3). It
has no experiment, but expects moments "with much more possible accuracy" than those of a Gaussian around the mode. This
file makes that experiment on sinc data with noise from the model, at given hyperparameters. It compares the log
evidence with annealing, the mean and the standard deviation of f with NUTS over f, and the coverage of 95 % intervals
for new targets. It also runs the printed iteration, with (3.11) and (5.3) corrected. Its fixed point is that of
expectation propagation. It converges on few points; on these fifty points it oscillates with the printed rate.

--quick uses two draws of the data and shorter chains.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pymc as pm
from experiments import Report, Table, summarize

import bsvr_pp as bp
from bsvr_pp.approximations import mean_field
from bsvr_pp.losses import epsilon_insensitive

MINUTES = (4, 100)

C, EPSILON, N = 10.0, 0.1, 50
METHODS = {
    "Laplace": bp.Laplace(),
    "Laplace (local)": bp.Laplace(curvature="local"),
    "mean field": bp.MeanField(),
}


def draw(seed):
    """Return the data, and 2000 test points."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-10, 10, (N + 2000, 1)), axis=0)[rng.permutation(N + 2000)]
    y = np.sinc(X[:, 0] / np.pi) + epsilon_insensitive(C, EPSILON).sample(N + 2000, rng)
    return X[:N], y[:N], X[N:], y[N:]


def model(X, y):
    """Build the model with given hyperparameters."""
    with pm.Model() as svm:
        f = bp.GP(cov_func=0.3 * pm.gp.cov.ExpQuad(1, ls=2.0) + pm.gp.cov.Constant(1.0)).prior("f", X=X)
        bp.EpsilonInsensitive("y", mu=f, C=C, epsilon=EPSILON, observed=y)
    return svm


def compare(seed, draws):
    """Run every method on one data set."""
    X, y, X_test, y_test = draw(seed)
    svm = model(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nuts = bp.fit(bp.NUTS(draws=draws, tune=draws), svm, random_seed=seed, progressbar=False)
        truth = bp.log_evidence(bp.Annealed(), svm, hyperparameters={}, random_seed=seed)
    f = nuts["posterior"]["f"].stack(sample=("chain", "draw"))
    f_mean, f_sd = f.mean("sample").values, f.std("sample").values
    rows = []
    for name, method in {**METHODS, "NUTS": None}.items():
        result = nuts if method is None else bp.fit(method, svm, progressbar=False)
        prediction = bp.predict(result, X_test, model=svm)
        low, high = (prediction["y_quantile"].sel(quantile=q).values for q in (0.025, 0.975))
        row = {"method": name, "inside 95 %": np.mean((low <= y_test) & (y_test <= high)), "width": (high - low).mean()}
        row["seconds"] = result.attrs["sampling_time"]
        if method is not None:
            latent = result["latent_posterior"]
            sd = np.sqrt(latent["variance"].values)
            row["log evidence - annealed"] = result.attrs["log_evidence"] - truth.value
            row["mean off, in sd"] = np.sqrt(np.mean(((latent["mean"].values - f_mean) / f_sd) ** 2))
            row["sd / that of NUTS"] = np.exp(np.mean(np.log(np.maximum(sd, 1e-12) / f_sd)))
        else:
            row["log evidence - annealed"] = row["mean off, in sd"] = row["sd / that of NUTS"] = np.nan
        rows.append(row)
    return rows


def printed_iteration(seed, rate, inner=30, tolerance=1e-6, most=200):
    """Run the algorithm of section 4, and compare its result with that of expectation propagation."""
    X, y, _, _ = draw(seed)
    K = 0.3 * np.exp(-0.5 * ((X - X.T) / 2.0) ** 2) + 1.0
    noise = epsilon_insensitive(C, EPSILON)
    w, local = np.zeros(N), np.diag(K).copy()
    site = np.full(N, np.inf)
    began = time.perf_counter()
    rounds, moved = 0, np.inf
    while moved > tolerance and rounds < most:
        before, spread = w.copy(), local.copy()
        for _ in range(inner):
            for i in range(N):
                cavity = K[i] @ w - local[i] * w[i]  # (3.10)
                mean = noise.tilted(cavity[None], local[i : i + 1], y[i : i + 1])[1][0]
                w[i] += rate * ((mean - cavity) / local[i] - w[i])  # F/G, (3.7)
        cavity = K @ w - local * w
        variance = noise.tilted(cavity, local, y)[2]
        change = np.minimum((variance - local) / local**2, -1e-12)  # ∂w/∂⟨y⟩, (3.11) corrected
        site = -local - 1.0 / change
        local = 1.0 / np.diag(np.linalg.inv(np.diag(site) + K)) - site
        rounds, moved = rounds + 1, max(np.max(np.abs(w - before)), np.max(np.abs(local - spread)))
    found = mean_field(K, y, noise)
    return {
        "rate": rate,
        "converged": float(moved <= tolerance),
        "sweeps of w": rounds * inner,
        "seconds": time.perf_counter() - began,
        "sweeps of ours": found.n_iter,
        "largest difference of f": float(np.max(np.abs(K @ w - found.mean))),
        "largest relative difference of Σ": float(np.max(np.abs(1.0 / site / found.site_precision - 1.0))),
    }


def run(job):
    """Both tables."""
    repeats, draws = (2, 500) if job.quick else (20, 2000)
    seeds = [{"seed": job.seed + s} for s in range(repeats)]
    rows = [row for rows in job.each(compare, [{**s, "draws": draws} for s in seeds], "methods") for row in rows]
    note = f"{repeats} draws of {N} points." if job.quick else ""
    rates = [{**s, "rate": rate} for rate in (0.05, 0.01) for s in seeds]
    iteration = summarize(job.each(printed_iteration, rates, "printed iteration"), "rate")
    return Report(
        [
            Table("methods", "Approximations compared with annealing and NUTS, sinc", summarize(rows, "method"), note),
            Table("iteration", "The printed iteration after 200 rounds", iteration, note),
        ]
    )
