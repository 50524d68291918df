"""The paper's statements on its toy data (Sollich 2002, section 7)."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

slow = pytest.mark.slow  # experiments of the papers

FILE = Path(__file__).parents[2] / "models" / "svm_toy.py"
SPEC = importlib.util.spec_from_file_location("svm_toy_study", FILE)
STUDY = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = STUDY  # dataclasses look up their module
SPEC.loader.exec_module(STUDY)


@pytest.mark.slow
def test_svm_toy_has_the_density_and_labels_of_the_joint_model():
    """Inputs avoid the gap |f| < 1, (12), and labels follow P(y|f), (10)."""
    C, f, y, gap = 2.0, [], [], []
    for seed in range(20):
        toy = STUDY.svm_toy(30, C=C, random_seed=seed)
        at = np.interp(toy.data.X[:, 0], toy.grid, toy.f)
        f, y = [*f, *at], [*y, *toy.data.y]
        nu = np.exp(-C * np.maximum(1 - toy.f, 0)) + np.exp(-C * np.maximum(1 + toy.f, 0))
        gap.append((np.mean(np.abs(at) < 0.5), np.sum(nu[np.abs(toy.f) < 0.5]) / nu.sum()))
    odds = C * (np.array(f) + np.clip(f, -1, 1))
    p = 1 / (1 + np.exp(-odds))
    residual = (np.array(y) > 0) - p
    assert abs(residual.sum()) < 4 * np.sqrt((p * (1 - p)).sum())
    assert abs((residual * odds).sum()) < 4 * np.sqrt((odds**2 * p * (1 - p)).sum())
    found, expected = np.mean(gap, axis=0)
    assert abs(found - expected) < 0.04
    assert np.mean(np.abs(f) < 1) < 0.45  # 63 % under the prior


@slow
def test_the_posterior_mean_is_larger_in_modulus_than_the_mode():
    larger = []
    for seed in range(3):
        found, mean, mode = STUDY.probabilities(STUDY.svm_toy(random_seed=seed), STUDY.prior())
        larger.append(np.mean(np.abs(mean) > np.abs(mode)))
        moderation = {name: np.mean(np.abs(p - 0.5)) for name, p in found.items()}
        assert moderation["average"] < moderation["mean"]  # the full average is the most moderate
    assert np.mean(larger) > 0.8


@slow
def test_the_normalised_evidences_are_larger_than_the_naive_one():
    toy = STUDY.svm_toy(random_seed=1)
    naive, conditional, joint = STUDY.evidences(toy.data.X, toy.data.y, STUDY.prior())
    assert naive < min(conditional, joint)


@slow
def test_the_study_runs(tmp_path, monkeypatch):
    for name in ("C_LINE", "SCALES"):
        monkeypatch.setattr(STUDY, name, getattr(STUDY, name)[[2, 4, 6]])
    monkeypatch.setattr(STUDY, "AMPLITUDES", np.array([0.5, 1.0, 2.0, 4.0]))
    monkeypatch.setattr(STUDY, "N", 20)
    seeds = (0, 1)
    peaks = STUDY.peak_table("C", STUDY.C_LINE, [STUDY.set_line(s, "C") for s in seeds])
    assert (peaks.frame["median"].between(*STUDY.C_LINE[[0, -1]])).all()
    assert STUDY.amplitude_table([STUDY.set_amplitudes(s) for s in seeds]).frame["sets"].between(0, 2).all()
    divergences = STUDY.probability_table([STUDY.set_divergences(s) for s in seeds])
    assert (divergences.frame["nats"] > 0).all()
    STUDY.figure(STUDY.toy(0)).savefig(tmp_path / "toy.png")
    assert (tmp_path / "toy.png").stat().st_size > 10_000


@slow
def test_functions_that_survive_avoid_the_gap_and_have_larger_regions():
    frame = STUDY.prior_table(STUDY.prior_draws(particles=60)).frame
    for column, error in (("share in the gap", "its error"), ("changes of sign", "its error ")):
        before, after = frame[column]
        assert after < before - 4 * np.hypot(*frame[error])


@slow
def test_surfaces_agree_with_the_lines(tmp_path, monkeypatch):
    """At the truth all surfaces have the value of the evidences themselves; Laplace shifts all three alike."""
    rows, columns = np.array([0.5, 1.0]), np.array([0.6, STUDY.AMPLITUDE])
    values = np.array([STUDY.surface_row("figure-5", 1, r, columns) for r in rows])
    toy = STUDY.toy(1)
    assert np.allclose(values[1, 1, :3], STUDY.evidences(toy.data.X, toy.data.y, STUDY.prior(), 30, 1), atol=1e-8)
    shift = values[:, :, 3:] - values[:, :, :3]
    assert np.allclose(shift, shift[:, :, :1]) and (np.abs(shift) > 1e-3).any()
    at = STUDY.surface_prior("figure-6", 2.0, 2.5)
    assert at == STUDY.prior()
    frame = STUDY.surface_table("figure-5", values[None], rows, columns).frame
    assert frame.loc[("naive", "annealing"), "largest"] == values[:, :, 0].max()
    STUDY.surface_figure("l", "K0", rows, columns, values).savefig(tmp_path / "surface.png")
    monkeypatch.setattr(STUDY, "SIDE", 8)
    STUDY.figure_2(0).savefig(tmp_path / "prior.png")


@slow
def test_the_score_has_mean_zero_at_the_truth_for_the_normalised_evidences():
    """(17), for C and the length scale; not for the naive evidence, and for (30) as far as N̂ is the normaliser."""
    mean, error = STUDY.mean_scores([STUDY.set_scores(s) for s in range(100, 140)], STUDY.exact_score())
    naive, conditional, joint, exact = np.abs(mean) / error
    assert (naive > 4).all()
    assert (conditional < 3.5).all() and (exact < 3.5).all()
    assert (joint < naive).all()
