"""The toy study of Sollich 2002, section 7: evidences, limits and class probabilities on simulated labels.

Run it as ``python models/svm_toy.py [sets] [--out FOLDER]``. It prints, over that many simulated sets (24):

- the mean score, the derivative of each evidence by log C and log length scale at the true values: (17) says that it
  is zero for a normalised evidence, and says nothing of the naive one;
- where each evidence peaks along C·K₀ = 2.5 and along the length scale (figures 5 and 6);
- how often the evidence grows without end with K₀, for this classifier and the logistic one (figures 6 to 8);
- the three class probabilities against those that made the labels, and the posterior mean beside the mode (9, 10);

and with ``--out`` draws the figures of the first set. The printed peaks, C = 1.2 and 1.9, are of one set, not at hand.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from bsvr_pp.approximations import find_mode, laplace, mean_field
from bsvr_pp.classification.chaining import chained
from bsvr_pp.classification.factors import Factors
from bsvr_pp.classification.gradient import mass_gradient
from bsvr_pp.classification.kernel import LabelPrior
from bsvr_pp.classification.probability import Draws, label_probability
from bsvr_pp.datasets import svm_toy
from bsvr_pp.losses import hinge

C, AMPLITUDE, LENGTHSCALE, N = 2.0, 1.25, 0.05, 50
KINDS = ("naive", "conditional", "joint")
PLACES = (np.arange(100)[:, None] + 0.5) / 100  # of the inputs, for the normaliser of the joint evidence itself
C_LINE = np.geomspace(0.6, 5.0, 9)  # along C·K₀ = 2.5
SCALES = LENGTHSCALE * np.geomspace(0.3, 3.0, 9)
AMPLITUDES = AMPLITUDE * np.geomspace(0.1, 1000.0, 9)


def prior(C=C, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE):
    """The toy's kernel, without an offset (1e-12 of one)."""
    return LabelPrior(np.log([C, amplitude, 1e-12, lengthscale]))


def masses(X, y, at, particles=100, seed=0):
    """Chained runs of the naive evidence and of both normalisers."""
    K, labels = at.covariance(X), mean_field(at.covariance(X), y, hinge(at.C))
    start = labels if labels.converged else None
    rng = np.random.default_rng(seed)
    naive = chained(K, Factors("hinge", at.C, y), start=start, particles=particles, random_seed=rng)
    both = [chained(K, Factors(k, at.C), particles=particles, random_seed=rng) for k in ("survival", "mean_survival")]
    return K, (naive, *both)


def evidences(X, y, at, particles=100, seed=0):
    """Naive, conditional and joint evidence, divided by n as in the paper."""
    _, (naive, *normalizers) = masses(X, y, at, particles, seed)
    return np.array([naive.log_mass, *(naive.log_mass - run.log_mass for run in normalizers)]) / len(y)


def scores(X, y, at, particles=100, seed=0):
    """Derivatives of the three evidences by log C and log length scale, (3, 2), divided by n."""
    K, runs = masses(X, y, at, particles, seed)
    kinds = (Factors("hinge", at.C, y), Factors("survival", at.C), Factors("mean_survival", at.C))
    each = [at.gradient(X, mass_gradient(K, factors, run.f))[[0, 3]] for factors, run in zip(kinds, runs, strict=True)]
    return np.array([each[0], each[0] - each[1], each[0] - each[2]]) / len(y)


def logistic_evidence(X, y, at, seed=0):
    """Evidence of the Gaussian process classifier, figure 8."""
    run = chained(at.covariance(X), Factors("logistic", at.C, y), particles=50, random_seed=seed)
    return run.log_mass / len(y)


def probabilities(toy, at, seed=0):
    """On the grid: the true probability of +1, and by (33), (36) and (37); posterior mean and mode of f."""
    X, y, grid = toy.data.X, toy.data.y, toy.grid[:, None]
    K, cross = at.covariance(X), at.cross(grid, X)
    start = mean_field(K, y, hinge(at.C))
    draws = Draws(K, chained(K, Factors("hinge", at.C, y), start=start, random_seed=seed).f)
    mean, mode = draws.mean(cross), cross @ find_mode(K, y, hinge(at.C)).dual_coef
    average = draws.average_probability(cross, at.variance(len(grid)), at.C, seed)
    found = {"true": label_probability(toy.f, at.C), "average": average}
    found |= {"mean": label_probability(mean, at.C), "map": label_probability(mode, at.C)}
    return found, mean, mode


def study(sets):
    """All tables, over this many simulated sets."""
    toys = [svm_toy(N, C=C, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE, random_seed=s) for s in range(sets)]
    print_scores(toys)
    print_peaks(toys, "C along C·K0 = 2.5", C_LINE, lambda c: prior(c, 2.5 / c))
    print_peaks(toys, "lengthscale", SCALES, lambda scale: prior(lengthscale=scale))
    print_amplitudes(toys)
    print_probabilities(toys)


def exact_score(particles=600, seed=0):
    """Derivatives of log of the normaliser (7), uniform inputs, by log C and log length scale, divided by n.

    The joint evidence (30) has the normaliser N̂ of the inputs at hand instead, which is an approximation.
    """
    at, factors = prior(), Factors("mean_survival", C, count=N)
    K = at.covariance(PLACES)
    f = chained(K, factors, particles=particles, random_seed=seed).f
    return at.gradient(PLACES, mass_gradient(K, factors, f))[[0, 3]] / N


def print_scores(toys):
    """The mean score at the truth, with its standard error."""
    found = np.array([scores(t.data.X, t.data.y, prior(), seed=s) for s, t in enumerate(toys)])
    found = np.concatenate([found, found[:, :1] - exact_score()], axis=1)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(toys))
    print(f"mean score at the truth over {len(toys)} sets, of n = {N}, divided by n")
    for kind, m, e in zip((*KINDS, "joint, exact"), mean, error, strict=True):
        print(f"  {kind:12s} by log C {m[0]:+.4f} ± {e[0]:.4f}   by log lengthscale {m[1]:+.4f} ± {e[1]:.4f}")
    return mean, error


def print_peaks(toys, name, values, at):
    """Where the average evidence peaks, and where those of the sets do."""
    found = np.array([[evidences(t.data.X, t.data.y, at(v), 30, s) for v in values] for s, t in enumerate(toys)])
    print(f"peak of the evidence over {name}")
    for k, kind in enumerate(KINDS):
        each, mean = values[found[:, :, k].argmax(axis=1)], found[:, :, k].mean(axis=0)
        low, middle, high = np.quantile(each, [0.25, 0.5, 0.75])
        print(
            f"  {kind:12s} on average {_vertex(values, mean):.3g}; of the sets {middle:.3g} ({low:.3g} to {high:.3g})"
        )


def _vertex(values, mean):
    """Peak of the parabola through the best three values, in logs."""
    k = int(np.clip(mean.argmax(), 1, len(values) - 2))
    a, b, _ = np.polyfit(np.log(values[k - 1 : k + 2]), mean[k - 1 : k + 2], 2)
    return float(np.exp(-b / (2 * a))) if a < 0 else float(values[mean.argmax()])


def print_amplitudes(toys):
    """How often the evidence still grows at the largest K₀."""
    grows = {"conditional": 0, "joint": 0, "logistic": 0}
    for s, t in enumerate(toys):
        X, y = t.data.X, t.data.y
        line = np.array([evidences(X, y, prior(amplitude=a), 30, s) for a in AMPLITUDES])
        logistic = [logistic_evidence(X, y, prior(amplitude=a), s) for a in AMPLITUDES]
        for name, values in (("conditional", line[:, 1]), ("joint", line[:, 2]), ("logistic", np.array(logistic))):
            grows[name] += int(values[-1] > values[:-3].max())
    shares = ", ".join(f"{name} {count} of {len(toys)}" for name, count in grows.items())
    print(f"evidence largest as K0 grows without end: {shares}")


def print_probabilities(toys):
    """Divergence of the three predictions from the truth, and the posterior mean beside the mode."""
    rows, larger = [], []
    for s, t in enumerate(toys):
        found, mean, mode = probabilities(t, prior(), s)
        p = found.pop("true")
        rows.append([np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))) for q in found.values()])
        larger.append(np.mean(np.abs(mean) > np.abs(mode)))
    print("mean divergence of class probabilities from the truth, in nats")
    for name, m, e in zip(found, np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(toys)), strict=True):
        print(f"  {name:8s} {m:.4f} ± {e:.4f}")
    print(f"posterior mean larger in modulus than the mode: {np.mean(larger):.0%} of the inputs")


def figures(folder):
    """Figures 3 to 10 for the first set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    toy = svm_toy(N, C=C, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE, random_seed=0)
    X, y = toy.data.X, toy.data.y
    figure, axes = plt.subplots(3, 2, figsize=(11, 11), layout="constrained")
    lines = (
        ("C along C·K₀ = 2.5", C_LINE, lambda c: prior(c, 2.5 / c)),
        ("length scale", SCALES, lambda scale: prior(lengthscale=scale)),
        ("K₀", AMPLITUDES, lambda a: prior(amplitude=a)),
    )
    axes[0, 0].plot(toy.grid, toy.f, "k-", label="target f")
    axes[0, 0].plot(X, y, "o", label="labels")
    for axis, (name, values, at) in zip((axes[0, 1], axes[1, 0], axes[1, 1]), lines, strict=True):
        line = np.array([evidences(X, y, at(v)) for v in values])
        for k, kind in enumerate(KINDS):
            axis.semilogx(values, line[:, k], label=kind)
        priors = [at(v) for v in values]
        axis.semilogx(
            values,
            [laplace(p.covariance(X), y, hinge(p.C)).log_evidence / N for p in priors],
            ":",
            label="naive, Laplace (32)",
        )
        axis.set(xlabel=name, ylabel="log evidence / n")
    axes[1, 1].semilogx(
        AMPLITUDES, [logistic_evidence(X, y, prior(amplitude=a)) for a in AMPLITUDES], "--", label="logistic"
    )
    found, mean, mode = probabilities(toy, prior())
    for name, values in found.items():
        axes[2, 0].plot(toy.grid, values, label=name)
    axes[2, 0].set(xlabel="x", ylabel="P(y = 1)")
    axes[2, 1].plot(toy.grid, mean, "--", label="posterior mean")
    axes[2, 1].plot(toy.grid, mode, label="mode")
    axes[2, 1].set(xlabel="x", ylabel="f")
    for axis in axes.flat:
        axis.legend(fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "svm_toy.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The toy study of Sollich 2002, section 7.")
    parser.add_argument("sets", nargs="?", type=int, default=24)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    began = time.perf_counter()
    study(options.sets)
    if options.out:
        figures(options.out)
    print(f"{time.perf_counter() - began:.0f} s")
