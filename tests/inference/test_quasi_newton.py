"""Climbing: against the known maximum of functions with scale, edges and jumps."""

import numpy as np
import pytest

from bsvr_pp.inference.search.quasi_newton import ascend


def bowl(centre, widths):
    def evaluate(x):
        z = (x - centre) / widths
        return -0.5 * float(z @ z), -z / widths

    return evaluate


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_the_maximum_of_a_bowl_far_away(scale):
    centre = np.array([12.0, -7.0, 0.5])
    evaluate = bowl(centre, np.array([1.0, 3.0, 0.2]))
    found = ascend(lambda x: tuple(scale * part for part in evaluate(x)), np.zeros(3), n_rows=10)
    assert found.converged
    np.testing.assert_allclose(found.x, centre, atol=0.02)


def test_no_step_goes_far():
    seen = []
    evaluate = bowl(np.array([1.0, 1.0]), np.full(2, 1e-3))

    def watched(x):
        seen.append(x)
        return evaluate(x)

    ascend(watched, np.zeros(2), n_rows=10)
    assert np.abs(seen).max() <= 3.0
    assert np.linalg.norm(seen[1]) <= 1.0 + 1e-9
    assert np.abs(np.diff(seen, axis=0)).max() <= 1.0 + 1e-9


def test_a_jump_ends_the_search_at_the_best_point_seen():
    """Beyond x = 1 the function falls by 5, while its gradient still points there."""
    found = ascend(lambda x: (float(x[0]) - 5.0 * (x[0] > 1), np.ones(1)), np.zeros(1), n_rows=10)
    assert found.converged
    assert found.value == pytest.approx(1.0, abs=0.05)
    assert found.x[0] == found.value


@pytest.mark.parametrize(("steepness", "n_rows"), [(20, 2000), (50, 2000), (200, 2000), (50, 10)])
def test_creeping_along_the_edge_of_a_jump_is_left_off(steepness, n_rows):
    """A bowl with a saw's fine teeth: the gradient points up everywhere, and leads nowhere."""
    bowl_at = bowl(np.array([1.0, -2.0]), np.array([1.0, 3.0]))

    def evaluate(x):
        value, gradient = bowl_at(x)
        return value + steepness * float((x - np.floor(100 * x) / 100).sum()), gradient + steepness

    found = ascend(evaluate, np.zeros(2), n_rows=n_rows)
    assert found.converged
    assert found.value > (-0.5 if n_rows > 10 else -2.0)
    assert found.n_evaluations <= 30


def test_a_wall_of_failures_is_no_end():

    def evaluate(x):
        return (-np.inf, np.zeros(1)) if x[0] > 2.5 else (-((x[0] - 2.0) ** 2), -2 * (x - 2.0))

    assert ascend(evaluate, np.array([-1.0]), n_rows=10).x == pytest.approx([2.0], abs=1e-3)


def test_the_edge_is_reported():
    found = ascend(lambda x: (float(x.sum()), np.ones(2)), np.zeros(2), n_rows=10)
    np.testing.assert_array_equal(found.x, 30.0)
    assert "edge" in found.message


def test_nothing_to_search_is_one_evaluation():
    found = ascend(lambda x: (3.0, x), np.empty(0), n_rows=10)
    assert (found.value, found.n_evaluations, found.converged) == (3.0, 1, True)


def test_a_start_without_a_value_is_reported():
    found = ascend(lambda x: (-np.inf, np.zeros(2)), np.ones(2), n_rows=10)
    assert (found.converged, found.n_evaluations) == (False, 1) and "no evidence at the start" in found.message


def test_bearing_jumps_leads_higher(monkeypatch):
    """A bowl cut by sixty planes, beyond each of which it lies lower by 2: beside a search that insists on ascent."""
    widths = np.geomspace(0.3, 3.0, 6)
    bowl_at = bowl(np.zeros(6), widths)

    def highest(seed):
        rng = np.random.default_rng(seed)
        normals, offsets = rng.normal(size=(60, 6)), rng.normal(size=60) * 3

        def evaluate(x):
            value, gradient = bowl_at(x)
            return value - 2.0 * float(np.sum(normals @ x > offsets)), gradient

        return ascend(evaluate, 4.0 * widths, n_rows=1000).value

    bearing = [highest(seed) for seed in range(6)]
    monkeypatch.setattr("bsvr_pp.inference.search.quasi_newton._LARGEST", 0.0)
    assert sum(bearing) > sum(highest(seed) for seed in range(6)) + 20.0


def test_a_search_goes_on_where_it_was_left():
    evaluate = bowl(np.array([5.0, -3.0, 2.0]), np.array([1.0, 3.0, 0.3]))
    whole = ascend(evaluate, np.zeros(3), n_rows=10)
    first = ascend(evaluate, np.zeros(3), n_rows=10, limit=6)
    assert not first.converged
    assert first.message == f"unfinished after {first.n_evaluations} evaluations"
    assert 6 <= first.n_evaluations < whole.n_evaluations
    second = ascend(evaluate, first.x, n_rows=10, curvature=first.curvature)
    assert len(first.curvature) > 0
    assert second.converged
    np.testing.assert_allclose(second.x, whole.x, atol=0.02)
    assert first.n_evaluations + second.n_evaluations <= 2 * whole.n_evaluations


def test_the_tolerance_ends_a_search_early():
    evaluate = bowl(np.array([5.0, -3.0, 2.0]), np.array([1.0, 3.0, 0.3]))
    exact, rough = (ascend(evaluate, np.zeros(3), n_rows=10, tolerance=t) for t in (0.0, 1e-2))
    assert rough.converged
    assert rough.n_evaluations < exact.n_evaluations
    assert exact.value - rough.value <= 1e-2


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_value_at_its_edge_is_held_while_others_climb(side):
    """Rising for ever in one direction, with a maximum in two others."""

    def evaluate(x):
        bend = np.array([0.0, 1.0, 4.0])
        gradient = np.array([side, 0.0, 0.0]) - bend * (x - [0.0, 31.5, -2.0])
        value = float(side * x[0] - 0.5 * bend @ (x - [0.0, 31.5, -2.0]) ** 2)
        return 1e-3 * value, 1e-3 * gradient

    found = ascend(evaluate, np.array([0.0, 2.5, 0.0]), n_rows=10)
    np.testing.assert_allclose(found.x, [30.0 * side, 31.5, -2.0], atol=0.01)
    assert found.message == "the gradient vanishes; a hyperparameter ran to the edge of the search"


def test_the_end_is_the_best_point_and_not_the_last():
    """Beyond the edge of a plateau the function falls slowly, by less than what is borne."""
    best = []

    def evaluate(x):
        best.append(float(x[0] - 1.5 * np.floor(x[0] / 1.3)))
        return best[-1], np.ones(1)

    found = ascend(evaluate, np.zeros(1), n_rows=10_000)
    assert found.value == max(best)
    assert found.value == pytest.approx(float(found.x[0] - 1.5 * np.floor(found.x[0] / 1.3)))


@pytest.mark.parametrize("size", [1, 4])
def test_second_derivatives_do_not_end_a_search_early(size):
    """A flat direction counts as a steep one in the first step, whose small ascent is no sign of the optimum."""

    def evaluate(x):
        return float(-(x @ x)), -2.0 * x

    found = ascend(evaluate, np.full(size, 0.6 / size**0.5), 100, tolerance=0.1, second=2.0 * np.eye(size))
    assert found.converged and found.value > -0.1
