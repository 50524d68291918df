"""Hyperparameters of many rows: which rows each stage sees, what decides, and what is kept."""

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.core.approximations import LatentPosterior
from bsvr_pp.inference.protocol import Options
from bsvr_pp.inference.search import at_size
from bsvr_pp.inference.search.at_size import search_in_blocks
from bsvr_pp.model.blocks import ONE_BLOCK
from bsvr_pp.model.problem import Problem
from bsvr_pp.model.reader import read_model
from tests.helpers import climb_fails, small_stages, wave

N = 240


def search(n=N, method=None):
    X, y = wave(n)
    problem = read_model(bp.default_model(X, y, noise="gaussian"))
    rng = np.random.default_rng(0)
    return problem, search_in_blocks(problem, method or bp.MeanField(), rows=40, options=Options(1), rng=rng)


class Watched:
    """One search, the rows of each part of the problem that it took, and those that it predicted."""

    def __init__(self, n=N):
        self.taken, self.labels, self.predicted = [], [], []
        take, cross = Problem.take, Problem.cross
        place = {x: i for i, x in enumerate(wave(n)[0][:, 0])}

        def watched_take(problem, rows, blocks=ONE_BLOCK):
            if problem.targets.size == n:
                self.taken.append(rows)
                self.labels.append(blocks)
            return take(problem, rows, blocks)

        def watched_cross(problem, point, inputs):
            self.predicted.append(np.array([place[x] for x in inputs[:, 0]]))
            return cross(problem, point, inputs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Problem, "take", watched_take)
            patch.setattr(Problem, "cross", watched_cross)
            self.problem, self.found = search(n)
        self.subset, self.climbed, *others = self.taken
        self.conditioned = others[::2]  # before those that are predicted
        self.blocks = self.labels[1]


@pytest.fixture(scope="module", autouse=True)
def small():
    with small_stages(_SUBSET=50, _NEIGHBOURS=30):
        yield


@pytest.fixture(scope="module")
def watched(small):
    return Watched()


def test_rows_that_decide_were_seen_by_no_stage(watched):
    seen = set(watched.climbed) | set(watched.subset)
    held_out = watched.predicted
    assert len(held_out) == len(watched.conditioned)
    assert len(held_out) % 2 == 0  # at both sets of hyperparameters, in the same order
    half = len(held_out) // 2
    assert half <= 3
    for i in range(half):
        np.testing.assert_array_equal(held_out[i], held_out[half + i])
        np.testing.assert_array_equal(watched.conditioned[i], watched.conditioned[half + i])
    X = watched.problem.inputs[:, 0]
    for rows, given in zip(held_out, watched.conditioned, strict=True):
        assert not set(rows) & seen
        assert not set(rows) & set(given)
        assert (np.diff(rows) > 0).all()
        block = np.concatenate([rows, given])
        assert 1 <= rows.size <= block.size / 4
        assert np.ptp(X[block]) < 4.0
    assert sum(rows.size for rows in held_out[:half]) > 9


def test_the_density_of_the_rows_held_out(watched):
    """Against predictions of each row by the posterior of all rows that it is given."""
    half = len(watched.predicted) // 2
    subset, climbed = reversed(watched.found.optima) if watched.found.refined else watched.found.optima
    for at, optimum in enumerate((subset, climbed)):
        density = []
        for rows, given in zip(watched.predicted[:half], watched.conditioned[:half], strict=True):
            K, mean, noise = watched.problem.at(optimum.point)
            dense = K.dense()
            variance = 1.0 / noise.parameters["C"]
            inside = dense[np.ix_(given, given)] + variance * np.eye(given.size)
            weight = np.linalg.solve(inside, dense[np.ix_(given, rows)])
            centre = mean[rows] + weight.T @ (watched.problem.targets[given] - mean[given])
            spread = np.diag(dense)[rows] - np.einsum("ij,ij->j", weight, dense[np.ix_(given, rows)]) + variance
            density.append(
                -0.5 * (watched.problem.targets[rows] - centre) ** 2 / spread - 0.5 * np.log(2 * np.pi * spread)
            )
        assert watched.found.log_density[at] == pytest.approx(np.mean(np.concatenate(density)), abs=1e-4)


def test_the_larger_density_decides(watched):
    found = watched.found
    assert found.refined == (found.log_density[1] > found.log_density[0])
    assert found.point is found.optima[0].point
    first, second = found.optima
    assert ("in neighbourhoods" in first.message) == found.refined
    assert ("in neighbourhoods" in second.message) != found.refined
    assert first.converged and second.converged


@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("fails", [False, True])
def test_a_climb_may_end_at_its_number_of_evaluations_but_not_without_an_ascent(fails):
    with small_stages(_LIMIT=2) as patch:
        if fails:
            climb_fails(patch)
        else:
            patch.setattr(at_size, "_ENOUGH", 0.0)
        climb = next(each for each in search()[1].optima if "in neighbourhoods" in each.message)
    assert climb.converged != fails
    assert climb.message == "in neighbourhoods: " + (
        "no ascent from the best point" if fails else f"unfinished after {climb.n_evaluations} evaluations"
    )


@pytest.mark.slow
def test_a_failed_solve_is_no_density():
    class Failing(bp.MeanField):
        def solve(self, K, y, noise, mean=None):
            posterior = super().solve(K, y, noise, mean)
            object.__setattr__(posterior, "converged", False)
            return posterior

    _, found = search(method=Failing())
    assert (found.log_density == -np.inf).all()
    assert not found.refined


@pytest.mark.parametrize("n", [2, 8])
def test_very_few_rows_have_none_to_decide(n):
    _, found = search(n=n)
    assert np.isnan(found.log_density).all()
    assert not found.refined


@pytest.mark.slow
def test_rows_held_out_whose_f_is_known_have_a_density(monkeypatch):
    """Where a row repeats another without noise, rounding leaves no variance of f; before, that was an error."""
    problem, found = search()
    monkeypatch.setattr(LatentPosterior, "predict", lambda posterior, K, *rest: (np.zeros(len(K)), np.zeros(len(K))))
    checks = [(np.arange(20), np.arange(20, 25))]
    density = at_size._log_density(problem, bp.MeanField(), found.point, checks)
    C, y = problem.noise_at(found.point).parameters["C"], problem.targets[20:25]
    assert density == pytest.approx(np.mean(0.5 * np.log(C / (2 * np.pi)) - 0.5 * C * y**2), rel=1e-6)
