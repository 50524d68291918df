"""Each option in a dense fit, in blocks and in a folder: it works, or its refusal says why not.

Each function fits by one option, and asserts what would be false if the option were ignored.
"""

from functools import partial

import numpy as np
import pytest
from scipy import sparse

import bsvr_pp as bp

NEW = np.linspace(0.5, 11.5, 60)[:, None]
WAVE = np.sin(NEW[:, 0])
FAST = {"kernel": "rbf", "restarts": 1}
KEEP = FAST | {"outliers": "keep"}


def fitted(size, n, path, y, weight=None, *, X=None, by=bp.BayesianSVR, **options):
    """A fit of n rows: densely, in blocks, or in a folder."""
    blocks = {"dense": None, "blocks": max(n // 4, n // 20), "folder": max(n // 4, n // 20)}[size]
    estimator = by(blocks=min(blocks, 1000) if blocks else None, random_state=0, **options)
    X = inputs(n) if X is None else X
    if size == "folder":
        model = bp.fit_folder(estimator, X, y, folder=path / "model", sample_weight=weight)
        model.solve()  # which effects, joint draws and dual coefficients need
        return model
    return estimator.fit(X, y) if weight is None else estimator.fit(X, y, weight)


def inputs(n):
    return np.random.default_rng(0).uniform(0.0, 12.0, (n, 1))


def wave(n, noise=0.1):
    """Targets at the inputs, and the random numbers of a test."""
    rng = np.random.default_rng(1)
    return np.sin(inputs(n)[:, 0]) + noise * rng.laplace(size=n), rng


def error(model):
    return np.abs(model.predict(NEW) - WAVE).mean()


def sample_weight(fit, n, path):
    """Half of the targets are wrong by 3, and count little."""
    y, _ = wave(n)
    wrong = np.arange(n) % 2 == 0
    model = fit(np.where(wrong, y + 3.0, y), np.where(wrong, 1e-3, 2.0), noise_scales=False, **KEEP)
    assert error(model) < 0.1


def intervals(fit, n, path):
    """The middles of half of the intervals are wrong by 1."""
    y, rng = wave(n)
    wide = 2.2 * (rng.random(n) < 0.5)
    assert error(fit(np.stack([y - 0.1 * (wide > 0), y + wide], axis=1), intervals=True, **KEEP)) < 0.15


def censored(fit, n, path):
    y, _ = wave(n)
    known = np.array([*zip(y < 0.4, np.minimum(y, 0.4), strict=True)], [("event", bool), ("time", float)])
    model = fit(known, **KEEP)
    assert model.predict(NEW).max() > 0.7
    assert model.score(inputs(n), known) > 0.8


def two_classes(fit, n, path):
    y, _ = wave(n, 0.2)
    svc = fit(np.where(y > 0, "a", "b"), by=bp.BayesianSVC)
    probability = svc.predict_proba(NEW)[:, 0]
    assert (probability[WAVE > 0.5] > 0.85).all() and (probability[WAVE < -0.5] < 0.15).all()
    weighted = fit(np.where(y > 0, "a", "b"), np.where(y > 0, 1.0, 5.0), by=bp.BayesianSVC)
    assert weighted.predict_proba(NEW)[:, 0].mean() < probability.mean() - 0.02
    svc.save(path / "svc.nc")
    np.testing.assert_allclose(bp.BayesianSVC.load(path / "svc.nc").predict_proba(NEW)[:, 0], probability, rtol=1e-9)


def three_classes(fit, n, path, by=bp.BayesianSVC, **options):
    y, _ = wave(n, 0.1)
    svc = fit(np.array(["a", "b", "c"])[np.digitize(y, [-0.4, 0.4])], by=by, **options)
    probability, middle = svc.predict_proba(NEW), np.abs(WAVE) < 0.15
    assert probability.shape == (60, 3)
    for chosen, label in ((WAVE < -0.7, 0), (middle, 1), (WAVE > 0.7, 2)):
        assert (probability[chosen].argmax(axis=1) == label).all()
    svc.save(path / "svc.nc")
    np.testing.assert_allclose(by.load(path / "svc.nc").predict_proba(NEW), probability, rtol=1e-9)


def integrated(fit, n, path):
    assert len(fit(wave(n)[0], inference=bp.Integrated(), **KEEP)._fit.fitted.points) > 1


def pinball(fit, n, path):
    y, _ = wave(n, 0.3)
    model = fit(y, noise="pinball", quantile=0.9, **FAST)
    assert np.mean(y < model.predict(inputs(n))) == pytest.approx(0.9, abs=0.05)


def default_kernel(fit, n, path):
    """Main effects, their products from 400 rows, categories, and scales of inputs."""
    y, rng = wave(n)
    kind = rng.integers(0, 4, n)
    X = np.column_stack([np.exp(inputs(n)[:, 0] / 3.0), kind])
    steps = np.array([0.0, 2.0, -1.0, 1.0])
    model = fit(y + steps[kind], X=X, restarts=1, outliers="keep")
    kernel = model._fit.model
    assert (kernel.kernel, kernel.levels, kernel.warping.columns) == ("main_effects", (1,), (0, 1))
    assert kernel.pairs == (n >= 400)
    new = np.column_stack([np.exp(NEW[:, 0] / 3.0), np.arange(60) % 4])
    assert np.abs(model.predict(new) - WAVE - steps[np.arange(60) % 4]).mean() < 0.15


def skewed_targets(fit, n, path):
    """The noise is wide where targets are large."""
    y = (2.0 + wave(n)[0]) ** 2
    model = fit(y, restarts=1, outliers="keep", noise_scales=False)
    assert model.target_scale_[1] == y.min()
    assert np.abs(model.predict(NEW) - (2.0 + WAVE) ** 2).mean() < 0.15
    width = np.diff(model.predict_interval(NEW))[:, 0]
    assert np.median(width[WAVE > 0.7]) > 1.6 * np.median(width[WAVE < -0.7])


def gross_errors(fit, n, path):
    """The rows are found, and change nothing."""
    y, rng = wave(n)
    bad = np.sort(rng.choice(n, n // 20, replace=False))
    y[bad] += rng.choice([-1.0, 1.0], bad.size) * rng.uniform(10.0, 30.0, bad.size)
    if fit.args[0] == "folder":  # which keeps them, as its docstring says
        assert not hasattr(fit(y, **FAST), "outliers_")
        return
    with pytest.warns(UserWarning, match="are set aside"):
        model = fit(y, **FAST)
    assert np.isin(bad, model.outliers_).mean() > 0.95 and model.outliers_.size < 1.1 * bad.size
    assert error(model) < 0.05


@pytest.mark.filterwarnings("ignore:gross errors")
def far_wider_noise(fit, n, path):
    """A quarter of the rows has noise thirty times as wide, and targets are covered as often as asked."""
    rng = np.random.default_rng(2)
    y = np.sin(inputs(n)[:, 0]) + np.where(rng.random(n) < 0.25, 1.0, 0.03) * rng.standard_normal(n)
    model = fit(y, **FAST)
    assert np.ptp(np.log2(model.noise_scales_.factors)) >= 3.0
    low, high = model.predict_interval(inputs(n)).T
    assert np.mean((low < y) & (y < high)) == pytest.approx(0.9, abs=0.05)
    assert error(model) < 0.05


def noise_scales(fit, n, path):
    """Wide noise on one side: intervals are as wide there as the noise is."""
    wide = inputs(n)[:, 0] > 6.0
    model = fit(np.where(wide, wave(n, 0.5)[0], wave(n, 0.05)[0]), **KEEP)
    assert model.noise_scales_.several
    width = np.diff(model.predict_interval(NEW))[:, 0]
    assert np.median(width[NEW[:, 0] > 6.5]) > 4.0 * np.median(width[NEW[:, 0] < 5.5])
    model.noise_scales = False
    one = np.diff(model.predict_interval(NEW))[:, 0]
    assert np.median(one[NEW[:, 0] > 6.5]) < 2.0 * np.median(one[NEW[:, 0] < 5.5])


def monotone(fit, n, path):
    model = fit(wave(n)[0], monotone={0: 1}, **KEEP)
    assert np.diff(model.predict(NEW)).min() > -1e-3 and model.converged_


def effect(fit, n, path):
    found = bp.effect(fit(wave(n)[0], **KEEP), inputs(n), 0, values=9)
    np.testing.assert_allclose(found["mean"], np.sin(found.index), atol=0.15)


def add(fit, n, path):
    model = fit(wave(n)[0], **KEEP)
    before = model.predict_f([[12.6]])[1]
    model.add([[12.6]] * 3, [0.1, 0.2, 0.3])
    assert model.predict_f([[12.6]])[1] < 0.9 * before and len(model.dual_coef_) == n + 3


def sample_y(fit, n, path):
    model = fit(wave(n)[0], **KEEP)
    drawn, expected = model.sample_y(NEW[:9], 4000, random_state=1), model.predict_distribution(NEW[:9])
    levels = np.array([[0.1], [0.5], [0.9]])
    below = (expected.ppf(levels)[:, None] >= drawn.T).mean(axis=1)
    np.testing.assert_allclose(below, levels * np.ones(9), atol=0.03)


def save_and_load(fit, n, path):
    model = fit(wave(n)[0], **KEEP)
    if isinstance(model, bp.FolderModel):
        again = bp.FolderModel(model.folder)
    else:
        model.save(path / "svr.nc")
        again = bp.BayesianSVR.load(path / "svr.nc")
    np.testing.assert_allclose(again.predict_interval(NEW), model.predict_interval(NEW), rtol=1e-9)
    np.testing.assert_allclose(again.dual_coef_, model.dual_coef_, atol=1e-7)


def several_targets(fit, n, path):
    """Each from the rows that have it."""
    y, _ = wave(n)
    gaps = np.where(np.arange(n) % 3 == 0, np.nan, 2.0 - y)
    found = fit(np.column_stack([y, gaps]), **KEEP).predict(NEW)
    assert np.abs(found - np.column_stack([WAVE, 2.0 - WAVE])).mean() < 0.05


def shared(fit, n, path):
    """The second target has few rows, and the lengthscale of the first."""
    y, _ = wave(n)
    few = np.where(np.arange(n) % 20 == 0, 2.0 - y, np.nan)
    model = fit(np.column_stack([y, few]), shared=True, **KEEP)
    assert np.abs(model.predict(NEW)[:, 1] - 2.0 + WAVE).mean() < 0.25
    one, other = model.estimators_
    assert one.lengthscale_ == other.lengthscale_ and one.C_ != other.C_


def kernel_matrix(fit, n, path):
    K, new = (np.exp(-0.5 * (A - inputs(n).T) ** 2) for A in (inputs(n), NEW))
    svr = fit(wave(n)[0], X=K, **KEEP | {"kernel": "precomputed"})
    assert np.abs(svr.predict(new) - WAVE).mean() < 0.05


def sparse_inputs(fit, n, path):
    X = sparse.csr_array(np.hstack([np.eye(12)[np.arange(n) % 12], np.maximum(inputs(n) - 6.0, 0.0)]))
    f = X @ np.append(np.arange(12.0) % 5, 1.0)
    svr = fit(f + wave(n)[0] / 50, X=X, **KEEP)
    assert svr.score(X, f) > 0.98


OPTIONS = {
    each.__name__: each
    for each in (
        *(sample_weight, intervals, censored, two_classes, three_classes, integrated, pinball, default_kernel),
        *(skewed_targets, gross_errors, far_wider_noise, noise_scales, monotone, effect, add, sample_y, save_and_load),
        *(several_targets, shared, kernel_matrix, sparse_inputs),
    )
} | {"ordered_classes": partial(three_classes, by=bp.BayesianOrdinalSVC, **FAST)}
IN_MEMORY = "estimator must be a BayesianSVR in a folder"
REFUSED = {
    ("integrated", "blocks"): "takes a dense fit, and .* rows need blocks",
    ("monotone", "blocks"): "monotone takes a dense fit, and .* rows need blocks: use blocks=None",
    ("monotone", "folder"): "monotone takes a dense fit in memory, not a folder",
    ("integrated", "folder"): "inference must be mean field or Laplace in a folder",
    **{(option, "folder"): IN_MEMORY for option in ("two_classes", "three_classes", "ordered_classes")},
    ("several_targets", "folder"): "y has 2 columns: .* several targets need a folder each",
    ("shared", "blocks"): "shared=True takes a dense fit, and .* rows need blocks: use blocks=None",
    ("shared", "folder"): "shared=True takes several targets in memory, not a folder: use shared=False",
    ("kernel_matrix", "blocks"): "rows of a kernel matrix have no inputs, by which blocks are cut: use blocks=None",
    ("kernel_matrix", "folder"): "estimator must have blocks and a kernel of inputs with a name in a folder",
    ("sparse_inputs", "blocks"): "rows of a sparse matrix are fitted densely: use blocks=None, or reduce X by",
    ("sparse_inputs", "folder"): "data must be dense in a folder, got a sparse matrix: use TruncatedSVD",
    ("add", "folder"): "'FolderModel' object has no attribute 'add'",
}


def check(option, size, n, path):
    fit, refused = partial(fitted, size, n, path), REFUSED.get((option, size))
    if refused is None:
        OPTIONS[option](fit, n, path)
    else:
        with pytest.raises((AttributeError, ValueError), match=refused):
            OPTIONS[option](fit, n, path)


@pytest.mark.slow_cases(
    "integrated-dense",
    "skewed_targets-blocks",
    "skewed_targets-folder",
    "add-dense",
    "censored-folder",
    "effect-folder",
    "noise_scales-folder",
    "sample_y-folder",
    "sample_weight-folder",
    "intervals-folder",
    "pinball-folder",
    "far_wider_noise-folder",
    *(f"{option}-dense" for option in ("two_classes", "three_classes", "ordered_classes", "save_and_load", "monotone")),
    *(f"{option}-dense" for option in ("default_kernel", "gross_errors", "far_wider_noise", "noise_scales")),
    *(f"{option}-dense" for option in ("intervals", "sample_weight", "pinball", "censored", "shared", "sparse_inputs")),
    *(f"{option}-dense" for option in ("skewed_targets", "kernel_matrix", "effect", "sample_y", "several_targets")),
    "default_kernel-folder",
    *(f"{option}-blocks" for option in ("censored", "default_kernel", "far_wider_noise", "intervals", "sample_weight")),
    *("save_and_load-blocks", "pinball-blocks", "gross_errors-folder", "effect-blocks", "noise_scales-blocks"),
    *("gross_errors-blocks", "sample_y-blocks"),
    *(f"{classes}_classes-blocks" for classes in ("two", "three", "ordered")),
)
@pytest.mark.filterwarnings("ignore:gross errors")
@pytest.mark.parametrize("size", ["dense", "blocks", "folder"])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_works_at_each_size(option, size, tmp_path):
    check(option, size, 200 if size == "dense" else 240, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:gross errors")
@pytest.mark.parametrize("size", ["blocks", "folder"])
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_works_with_many_rows(option, size, tmp_path):
    check(option, size, 20_000, tmp_path)
