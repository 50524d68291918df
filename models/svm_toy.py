"""The toy study of Sollich 2002, section 7: evidences, limits and class probabilities on simulated labels.

The following are computed over 24 simulated sets (--quick: 3):

- the mean score, that is, the derivative of each evidence with respect to log C and log lengthscale at the true values;
  by (17) it is zero for a normalised evidence, but not in general for the naive evidence;
- the maximum of each evidence along C·K₀ = 2.5 and along the lengthscale (figures 5 and 6);
- how often the evidence increases without limit with K₀, for this classifier and the logistic one (figures 6 to 8);
- the three class probabilities compared with the true ones, and the posterior mean compared with the mode (9, 10);
- the gaps and the regions of functions drawn from the prior without data, and given n = 50 known labels (figure 3).

There are also the surfaces of figures 5 and 6, averaged over six sets, and the other figures for the first set. The
printed maxima, C = 1.2 and 1.9, belong to a single data set that is not available.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from experiments import Report, Table, summarize
from matplotlib import pyplot as plt
from scipy.special import expit

from bsvr_pp.approximations import Covariance, annealed, find_mode, laplace
from bsvr_pp.classification.normaliser import Known, MeanKnown, averaged_gradient
from bsvr_pp.core.approximations.smc import Annealing
from bsvr_pp.core.losses.registry import label_probability
from bsvr_pp.losses import hinge
from bsvr_pp.tables.readers import Dataset

MINUTES = (1, 30)

C, AMPLITUDE, LENGTHSCALE, N = 2.0, 1.25, 0.05, 50
KINDS = ("naive", "conditional", "joint")
PLACES = (np.arange(100)[:, None] + 0.5) / 100  # grid of inputs, for the exact normaliser of the joint evidence
C_LINE = np.geomspace(0.6, 5.0, 9)  # along C·K₀ = 2.5
SCALES = LENGTHSCALE * np.geomspace(0.3, 3.0, 9)
AMPLITUDES = AMPLITUDE * np.geomspace(0.1, 1000.0, 9)
# Grids of the surfaces, over lengthscale and K₀, and over C and C·K₀. Where C is large and K₀ is small, functions with
# all labels known are rare, and 30 particles find too few of them. Such corners are omitted.
SURFACES = {
    "figure-5": ("lengthscale/0.05", "K0", np.logspace(-0.8, 0.8, 9), np.logspace(-0.6, 1.8, 9)),
    "figure-6": ("C", "C·K0", np.logspace(-0.5, 0.5, 9), np.logspace(0.0, 1.6, 9)),
}
SIDE = 32  # of the square in figure 2
GRID = 400  # inputs of a set
TRIALS = 2000  # functions drawn at a time


@dataclass(frozen=True)
class Toy:
    """Labels drawn from a known function, and that function on a grid of inputs."""

    data: Dataset
    grid: np.ndarray
    f: np.ndarray


def svm_toy(n=N, C=C, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE, random_seed=None):
    """Draw inputs and labels, -1 and +1, from the joint model of a support vector machine, (2) and (7).

    A function f is drawn from the Gaussian process on [0, 1], whose Gaussian kernel has variance ``amplitude``, and
    accepted with the probability that n labels contain no "don't know". This probability is N(f)ⁿ, (8), where N(f) is
    the mean of ν(f(x)); C is the inverse noise scale. The inputs, points of a grid, then have the density ν(f(x))/N(f),
    (12), and the labels the probability P(y|f(x)), (10).
    """
    rng = np.random.default_rng(random_seed)
    grid = (np.arange(GRID) + 0.5) / GRID
    spectrum, vectors = np.linalg.eigh(amplitude * np.exp(-0.5 * ((grid[:, None] - grid) / lengthscale) ** 2))
    kept = spectrum > 1e-10 * spectrum[-1]
    factor = vectors[:, kept] * np.sqrt(spectrum[kept])
    while True:
        f = rng.standard_normal((TRIALS, factor.shape[1])) @ factor.T
        above, below = (np.exp(-C * np.maximum(1 - label * f, 0)) / (1 + np.exp(-2 * C)) for label in (1, -1))
        survives = np.flatnonzero(rng.random(TRIALS) < (above + below).mean(axis=1) ** n)
        if survives.size:
            k = survives[0]
            break
    known = above[k] + below[k]
    place = np.sort(rng.choice(GRID, size=n, p=known / known.sum()))
    y = np.where(rng.random(n) < above[k, place] / known[place], 1.0, -1.0)
    return Toy(Dataset(grid[place, None], y, ("x",), "label"), grid, f[k])


@dataclass(frozen=True)
class Prior:
    """The toy's Gaussian kernel, and C."""

    C: float
    amplitude: float
    lengthscale: float

    def cross(self, A, B):
        """Covariance of f at the rows of A with f at those of B."""
        return self.amplitude * np.exp(-0.5 * ((A - B.T) / self.lengthscale) ** 2)

    def covariance(self, X):
        """Prior covariance at the inputs, with a jitter of a millionth."""
        jitter = 1e-6 * self.amplitude
        return Covariance(self.cross(X, X) + jitter * np.eye(len(X)), jitter=jitter)

    def scores(self, X, gradient):
        """Derivatives by log C and log length scale, from those by K and C."""
        by_log_scale = self.cross(X, X) * ((X - X.T) / self.lengthscale) ** 2
        return np.array([self.C * gradient.parameters["C"], np.sum(gradient.K * by_log_scale)])


@dataclass(frozen=True)
class Logistic:
    """Log likelihood of labels y in logistic classification with slope C, -Σ log(1 + exp(-C·y·f)), for draws of f."""

    C: float | np.ndarray
    y: np.ndarray

    def _margins(self, f):
        if np.shape(f)[1:] != np.shape(self.y):
            raise ValueError(f"y must have {np.shape(f)[1]} values as f has points, got {np.size(self.y)}")
        return np.asarray(self.y) * np.asarray(f)

    def __call__(self, f):
        """Log likelihood of each row of f (draws, n)."""
        return -np.logaddexp(0.0, -self.C * self._margins(f)).sum(axis=1)

    def slopes(self, f):
        """Derivatives by f, (draws, n), and by C, (draws,) for a number and (draws, n) for a vector."""
        margins = self._margins(f)
        against = expit(-self.C * margins)
        by_C = margins * against
        return self.C * self.y * against, {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}


class Hinge(Logistic):
    """The same in classification by a support vector machine, -Σ (log(1 + exp(-2·C)) + C·max(0, 1 - y·f))."""

    def __call__(self, f):
        """Log likelihood of each row of f (draws, n)."""
        return -(np.log1p(np.exp(-2.0 * self.C)) + self.C * self._missing(f)).sum(axis=1)

    def slopes(self, f):
        """Derivatives by f and C, as for logistic classification."""
        missing = self._missing(f)
        by_C = 2.0 * expit(-2.0 * self.C) - missing
        return self.C * self.y * (missing > 0), {"C": by_C if np.ndim(self.C) else by_C.sum(axis=1)}

    def _missing(self, f):
        return np.maximum(1.0 - self._margins(f), 0.0)


def prior(C=C, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE):
    """The true prior, or one with another hyperparameter."""
    return Prior(C, amplitude, lengthscale)


def anneal(K, y, likelihood, particles=100, seed=0):
    """Anneal with many powers and few moves, as normalisers need."""
    design = Annealing(particles, groups=16, moves=4, efficiency=0.93)
    return annealed(K, y, likelihood, design, random_seed=seed)


def masses(X, y, at, particles=100, seed=0):
    """Annealed runs of the naive evidence and of both normalisers."""
    K, rng = at.covariance(X), np.random.default_rng(seed)
    naive = anneal(K, y, hinge(at.C), particles, rng)
    return K, (naive, *(anneal(K, None, factor(at.C), particles, rng) for factor in (Known, MeanKnown)))


def evidences(X, y, at, particles=100, seed=0):
    """Naive, conditional and joint evidence, divided by n as in the paper."""
    _, (naive, *normalisers) = masses(X, y, at, particles, seed)
    return np.array([naive.log_evidence, *(naive.log_evidence - run.log_evidence for run in normalisers)]) / len(y)


def scores(X, y, at, particles=100, seed=0):
    """Derivatives of the three evidences by log C and log length scale, (3, 2), divided by n."""
    K, runs = masses(X, y, at, particles, seed)
    kinds = (Hinge(at.C, y), Known(at.C), MeanKnown(at.C))
    each = [at.scores(X, averaged_gradient(K, kind, run.f)) for kind, run in zip(kinds, runs, strict=True)]
    return np.array([each[0], each[0] - each[1], each[0] - each[2]]) / len(y)


def logistic_evidence(X, y, at, seed=0):
    """Evidence of the Gaussian process classifier, figure 8."""
    return anneal(at.covariance(X), None, Logistic(at.C, y), 50, seed).log_evidence / len(y)


class LatentDraws:
    """Equally weighted draws f (draws, n) at the training inputs, such as `annealed` returns; K is their prior."""

    def __init__(self, K, f):
        self._prior = K
        self._white = K.whiten(np.asarray(f).T)

    def mean(self, K_star):
        """Posterior mean of f at new inputs, from their covariance with the training inputs (n_new, n)."""
        return self._half(K_star).T @ self._white.mean(axis=1)

    def sample(self, K_star, k_star_diag, random_seed=None):
        """One draw of f at each new input (n_new) for each draw at the training inputs, (draws, n_new)."""
        half = self._half(K_star)
        rest = np.maximum(np.asarray(k_star_diag) - np.einsum("ij,ij->j", half, half), 0.0)
        noise = np.random.default_rng(random_seed).standard_normal((self._white.shape[1], rest.size))
        return self._white.T @ half + np.sqrt(rest) * noise

    def _half(self, K_star):
        return self._prior.whiten(np.asarray(K_star, dtype=float).T)


def probabilities(toy, at, seed=0):
    """On the grid: the true probability of +1, and by (33), (36) and (37); posterior mean and mode of f."""
    X, y, grid = toy.data.X, toy.data.y, toy.grid[:, None]
    K, cross = at.covariance(X), at.cross(grid, X)
    draws = LatentDraws(K, anneal(K, y, hinge(at.C), 500, seed).f)
    mean, mode = draws.mean(cross), cross @ find_mode(K, y, hinge(at.C)).dual_coef
    sampled = draws.sample(cross, np.full(len(grid), at.amplitude), seed)
    found = {"true": label_probability(toy.f, at.C), "average": label_probability(sampled, at.C).mean(axis=0)}
    found |= {"mean": label_probability(mean, at.C), "map": label_probability(mode, at.C)}
    return found, mean, mode


def toy(seed):
    """A set of the paper's size."""
    return svm_toy(N, random_seed=seed)


def set_scores(seed):
    """`scores` of one set."""
    data = toy(seed).data
    return scores(data.X, data.y, prior(), seed=seed)


def set_line(seed, name):
    """The evidences of one set along "C", with C·K₀ fixed, or "lengthscale"."""
    data = toy(seed).data
    ways = [prior(c, C * AMPLITUDE / c) for c in C_LINE] if name == "C" else [prior(lengthscale=s) for s in SCALES]
    return np.array([evidences(data.X, data.y, at, 30, seed) for at in ways])


def set_amplitudes(seed):
    """Return whether each evidence of one set still increases at the largest K₀: conditional, joint, logistic."""
    data = toy(seed).data
    line = np.array([evidences(data.X, data.y, prior(amplitude=a), 30, seed) for a in AMPLITUDES])
    logistic = [logistic_evidence(data.X, data.y, prior(amplitude=a), seed) for a in AMPLITUDES]
    return [bool(v[-1] > v[:-3].max()) for v in (line[:, 1], line[:, 2], np.array(logistic))]


def set_divergences(seed):
    """Divergence of the three predictions from the truth on one set; share of inputs where |mean| > |mode|."""
    found, mean, mode = probabilities(toy(seed), prior(), seed)
    p = found.pop("true")
    each = {k: np.mean(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))) for k, q in found.items()}
    return each, float(np.mean(np.abs(mean) > np.abs(mode)))


def surface_prior(name, row, column):
    """The prior at a point of one of the `SURFACES`."""
    if name == "figure-5":
        return prior(amplitude=column, lengthscale=LENGTHSCALE * row)
    return prior(C=row, amplitude=column / row)


def surface_row(name, seed, row, columns):
    """A row of a surface: three evidences with the naive part by annealing, and three with Laplace's, (columns, 6)."""
    data = toy(seed).data
    out = []
    for column in columns:
        at = surface_prior(name, row, column)
        found = evidences(data.X, data.y, at, 30, seed)
        naive = laplace(at.covariance(data.X), data.y, hinge(at.C)).log_evidence / N
        out.append(np.concatenate([found, found + naive - found[0]]))
    return np.array(out)


def prior_draws(particles=100, seed=0):
    """Draw functions on `PLACES` from the process, n = 0, and from the prior (8) given that n = 50 labels are known."""
    K = prior().covariance(PLACES)
    before = K.draw(16 * particles, np.random.default_rng(seed))
    return before, anneal(K, None, MeanKnown(C, weight=N / len(PLACES)), particles, seed).f


def exact_score(particles=600, seed=0):
    """Derivatives of log of the normaliser (7), uniform inputs, by log C and log length scale, divided by n.

    The joint evidence (30) uses the normaliser N̂ of the observed inputs instead, which is an approximation.
    """
    at, factor = prior(), MeanKnown(C, weight=N / len(PLACES))
    K = at.covariance(PLACES)
    return at.scores(PLACES, averaged_gradient(K, factor, anneal(K, None, factor, particles, seed).f)) / N


def mean_scores(each, exact):
    """The mean score at the truth and its standard error, both (4, 2): three evidences, and the joint one with (7)."""
    found = np.array(each)
    found = np.concatenate([found, found[:, :1] - exact], axis=1)
    return found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(len(found))


def score_table(each, exact):
    """(17): the mean score of a normalised evidence is zero."""
    mean, error = mean_scores(each, exact)
    frame = pd.DataFrame(
        {
            "by log C": mean[:, 0],
            "its error": error[:, 0],
            "by log lengthscale": mean[:, 1],
            "its error ": error[:, 1],
        },
        index=pd.Index([*KINDS, "joint, exact"], name="evidence"),
    )
    return Table("scores", f"Mean score at the truth over {len(each)} sets of {N}, divided by n", frame)


def peak_table(name, values, lines):
    """Find the maximum of the average evidence, and the maxima for the single sets."""
    found = np.array(lines)
    rows = {}
    for k, kind in enumerate(KINDS):
        each, mean = values[found[:, :, k].argmax(axis=1)], found[:, :, k].mean(axis=0)
        low, middle, high = np.quantile(each, [0.25, 0.5, 0.75])
        rows[kind] = {"of the mean": _vertex(values, mean), "median": middle, "quarter": low, "three quarters": high}
    frame = pd.DataFrame(rows).T.rename_axis("evidence")
    title = f"Maximum of the evidence over {name}, for the average evidence and for each set"
    return Table(
        f"peaks-{name}", title, frame, "Sollich 2002 prints C = 1.2 and 1.9 for one set." if name == "C" else ""
    )


def _vertex(values, mean):
    """Compute the maximum of the parabola through the best three values, in logs."""
    k = int(np.clip(mean.argmax(), 1, len(values) - 2))
    a, b, _ = np.polyfit(np.log(values[k - 1 : k + 2]), mean[k - 1 : k + 2], 2)
    return float(np.exp(-b / (2 * a))) if a < 0 else float(values[mean.argmax()])


def amplitude_table(each):
    """Count how often the evidence still increases at the largest K₀."""
    counts = np.sum(each, axis=0)
    frame = pd.DataFrame({"sets": counts}, index=pd.Index(["conditional", "joint", "logistic"], name="evidence"))
    return Table("amplitudes", f"Sets, of {len(each)}, whose evidence still increases at the largest K0", frame)


def probability_table(each):
    """Divergence of the three predictions from the truth."""
    frame = summarize([{"prediction": k, "nats": v} for found, _ in each for k, v in found.items()], "prediction")
    larger = np.mean([share for _, share in each])
    note = f"The posterior mean is larger in modulus than the mode at {larger:.0%} of the inputs."
    return Table("probabilities", "Divergence of class probabilities from the truth", frame, note)


def prior_table(draws):
    """Check figure 3: functions given known labels avoid the gap, and their regions are larger."""
    rows = {}
    for name, f in zip(("n = 0", f"n = {N}"), draws, strict=True):
        gap, changes = (np.abs(f) < 1).mean(axis=1), (np.diff(np.sign(f), axis=1) != 0).sum(axis=1)
        rows[name] = {
            "share in the gap": gap.mean(),
            "its error": gap.std() / np.sqrt(len(f)),
            "changes of sign": changes.mean(),
            "its error ": changes.std() / np.sqrt(len(f)),
        }
    return Table(
        "figure-3", "Functions of the prior: where |f| < 1, and how often f changes its sign", pd.DataFrame(rows).T
    )


def surface_table(name, values, rows, columns):
    """Find the maximum of the average evidence, and correlate the surfaces by annealing and by Laplace."""
    across, along = SURFACES[name][:2]
    mean, found = values.mean(axis=0), {}
    for k, kind in enumerate(KINDS):
        for j, way in ((k, "annealing"), (k + 3, "Laplace")):
            r, c = np.unravel_index(mean[:, :, j].argmax(), mean.shape[:2])
            found[kind, way] = {across: rows[r], along: columns[c], "largest": mean[r, c, j]}
        likeness = np.corrcoef(mean[:, :, k].ravel(), mean[:, :, k + 3].ravel())[0, 1]
        found[kind, "Laplace"]["correlation"] = likeness
    frame = pd.DataFrame(found).T.rename_axis(["evidence", "naive part"])
    return Table(f"surface-{name}", f"Largest evidence on the grid of {name}, over {len(values)} sets, by n", frame)


def run(job):
    """All tables, and figures 2 to 10."""
    seeds = [{"seed": job.seed + s} for s in range(3 if job.quick else 24)]
    tables = [score_table(job.each(set_scores, seeds, "scores"), job.each(exact_score, [{}], "normaliser")[0])]
    for name, values in (("C", C_LINE), ("lengthscale", SCALES)):
        lines = job.each(set_line, [{**s, "name": name} for s in seeds], f"evidence over {name}")
        tables.append(peak_table(name, values, lines))
    tables.append(amplitude_table(job.each(set_amplitudes, seeds, "evidence over K0")))
    tables.append(probability_table(job.each(set_divergences, seeds, "class probabilities")))
    draws = job.each(prior_draws, [{"seed": job.seed}], "figure 3")[0]
    tables.append(prior_table(draws))
    figures = {"figure-2": figure_2(job.seed), "figure-3": figure_3(draws), "figures-4-to-10": figure(toy(job.seed))}
    for name, (across, along, rows, columns) in SURFACES.items():
        thinned = (rows[::4], columns[::4]) if job.quick else (rows, columns)
        each = [{"name": name, **s, "row": r, "columns": thinned[1].tolist()} for s in seeds[:6] for r in thinned[0]]
        found = np.array(job.each(surface_row, each, name.replace("-", " ")))
        values = found.reshape(-1, len(thinned[0]), *found.shape[1:])
        tables.append(surface_table(name, values, *thinned))
        figures[name] = surface_figure(across, along, *thinned, values.mean(axis=0))
    return Report(tables, figures)


def figure_2(seed):
    """Functions of three kernels on the unit square, and the probabilities of the label +1 that they make."""
    side = (np.arange(SIDE) + 0.5) / SIDE
    X = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
    apart = np.sqrt(((X[:, None] - X) ** 2).sum(axis=-1))
    rough, smooth, finer = np.exp(-apart / 0.1), np.exp(-0.5 * (apart / 0.1) ** 2), np.exp(-0.5 * (apart / 0.05) ** 2)
    product = 1 + X @ X.T
    kernels = (
        ("exponential", 10 * rough, "K₀ = 1", rough),
        ("Gaussian", 10 * smooth, "l = 0.05", 10 * finer),
        ("polynomial, p = 5", product**5, "p = 10", product**10),
    )
    rng = np.random.default_rng(seed)

    def draw(K):
        spectrum, vectors = np.linalg.eigh(K)
        white = rng.standard_normal(len(K))
        return (vectors @ (np.sqrt(np.maximum(spectrum, 0)) * white)).reshape(SIDE, SIDE)

    drawn = plt.figure(figsize=(10, 10), layout="constrained")
    for i, (name, first, change, second) in enumerate(kernels):
        f = draw(first)
        solid = drawn.add_subplot(3, 3, 3 * i + 1, projection="3d")
        solid.plot_surface(*np.meshgrid(side, side, indexing="ij"), f, cmap="viridis")
        solid.set_title(name)
        for j, (title, values) in enumerate((("P(y = 1)", f), (change, draw(second)))):
            flat = drawn.add_subplot(3, 3, 3 * i + 2 + j)
            grey = label_probability(values, C).T
            flat.imshow(grey, cmap="gray", vmin=0, vmax=1, origin="lower", extent=(0, 1, 0, 1))
            flat.set_title(title)
    return drawn


def figure_3(draws):
    """Plot one function from the prior without data, and one given that n = 50 labels are known."""
    drawn, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, style, f in zip(("n = 0", f"n = {N}"), ("-", "--"), draws, strict=True):
        axis.plot(PLACES[:, 0], f[0], style, label=name)
    axis.axhspan(-1, 1, color="0.9")
    axis.set(xlabel="x", ylabel="f")
    axis.legend()
    return drawn


def surface_figure(across, along, rows, columns, values):
    """Naive, conditional and joint evidence, the naive part by annealing and by Laplace; crosses at the largest."""
    drawn, axes = plt.subplots(3, 2, figsize=(9, 11), sharex=True, sharey=True, layout="constrained")
    for j, axis in enumerate(axes.T.flat):
        level = values[:, :, j].T
        best = np.unravel_index(level.argmax(), level.shape)
        # values more than one nat per point below the maximum are not shown
        lines = axis.contourf(rows, columns, np.maximum(level, level.max() - 1.0), 20)
        axis.plot(rows[best[1]], columns[best[0]], "r+", ms=12)
        drawn.colorbar(lines, ax=axis)
        axis.set(
            xscale="log",
            yscale="log",
            xticks=rows[::4],
            yticks=columns[::4],
            title=f"{KINDS[j % 3]}, {'annealing' if j < 3 else 'Laplace'}",
        )
        for scale in (axis.xaxis, axis.yaxis):
            scale.set_major_formatter("{x:.3g}")
            scale.set_minor_formatter("")
    for axis in axes[-1]:
        axis.set_xlabel(across)
    for axis in axes[:, 0]:
        axis.set_ylabel(along)
    return drawn


def figure(toy):
    """Figures 4 and 6 to 10 for one set, and the evidences along lines."""
    X, y = toy.data.X, toy.data.y
    drawn, axes = plt.subplots(3, 2, figsize=(11, 11), layout="constrained")
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
    return drawn
