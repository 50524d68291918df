"""The PyTensor operation: values, gradients and failures on every back end."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from numba import njit
from problems import smooth

from bsvr_pp.core.approximations import laplace, laplace_gradient, mean_field, mean_field_gradient
from bsvr_pp.core.approximations.mean_field import mean_field_core
from bsvr_pp.core.covariance.covariance import as_covariance
from bsvr_pp.losses import absolute, gaussian, hinge, soft_insensitive
from bsvr_pp.model.operation import APPROXIMATIONS, LatentEvidence, latent_evidence
from tests.helpers import differences

DIRECT = {
    "laplace": lambda *a: laplace(*a).log_evidence,
    "laplace_local": lambda *a: laplace(*a, curvature="local").log_evidence,
    "mean_field": lambda *a: mean_field(*a).log_evidence,
}


@pytest.mark.slow_cases(*(f"{approximation}-NUMBA" for approximation in APPROXIMATIONS))
@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_value_and_gradient_through_a_kernel(approximation, mode):
    _, y = smooth(15)
    x = np.linspace(-3, 3, 15)
    scale, C, epsilon = pt.dscalars("scale", "C", "epsilon")
    K = pt.exp(-0.5 * ((x[:, None] - x) / scale) ** 2) + 1e-6 * np.eye(15)
    value, converged, _ = latent_evidence(approximation, "soft_insensitive", K, 0.1 * scale, y, [C, epsilon, 0.3])
    inputs = [scale, C, epsilon]
    # A prior beside it, as in a model: the back end fuses the scalars.
    total = value - 0.5 * pt.log(scale) ** 2 - 0.1 * C + 0.1 * C + 0.5 * pt.log(scale) ** 2
    function = pytensor.function(inputs, [total, converged, *pt.grad(total, inputs)], mode=mode)
    at = np.array([1.2, 5.0, 0.1])
    found, flag, *gradient = (float(part) for part in function(*at))
    assert flag == 1
    direct = DIRECT[approximation](
        np.exp(-0.5 * ((x[:, None] - x) / 1.2) ** 2) + 1e-6 * np.eye(15), y - 0.12, soft_insensitive(5.0, 0.1, 0.3)
    )
    assert found == pytest.approx(direct, abs=1e-9)
    assert gradient == pytest.approx(differences(lambda at: function(*at)[0], at, 1e-6), rel=1e-4, abs=1e-4)


GRADIENTS = {
    "laplace": laplace_gradient,
    "laplace_local": lambda *args: laplace_gradient(*args, curvature="local"),
    "mean_field": mean_field_gradient,
}


def arguments(K, y, parameters, start=None, jitter=0.0):
    """Arguments of `LatentEvidence` for exact targets of weight 1."""
    nowhere = np.zeros((2, len(y))) if start is None else start
    return K, np.zeros(len(y)), y, y, np.ones(len(y)), parameters, np.array(jitter), nowhere


@pytest.mark.slow
@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_python_and_compiled_code_get_the_gradients(approximation):
    K, y = smooth(12)
    value, gradient = GRADIENTS[approximation](K, y, soft_insensitive(5.0, 0.1, 0.3))
    python = LatentEvidence(approximation, "soft_insensitive").function()
    for function in (python, njit(python)):
        given = arguments(K.copy(), y.copy(), np.array([[5.0], [0.1], [0.3]]))
        out, d_K, d_mean, d_lower, d_upper, d_parameters, converged, _ = function(*given)
        np.testing.assert_array_equal(given[0], K)
        np.testing.assert_array_equal(given[2], y)
        assert out == pytest.approx(value, rel=1e-8)
        assert converged == 1.0
        np.testing.assert_allclose(d_K, gradient.K, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(d_mean, gradient.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(d_lower, -d_mean)
        np.testing.assert_array_equal(d_upper, 0.0)
        assert d_parameters[0, 0] == pytest.approx(gradient.parameters["C"], rel=1e-6)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("columns", [1, 3, 15], ids=["one column", "few columns", "more columns than rows"])
@pytest.mark.parametrize("jitter", [0.0, 0.3])
def test_a_root_has_the_evidence_of_its_matrix_and_the_gradient_by_the_root(approximation, columns, jitter):
    rng = np.random.default_rng(2)
    root, y = 0.7 * rng.normal(size=(12, columns)), rng.normal(size=12)
    parameters = np.array([[5.0], [0.1], [0.3]])
    by_root = LatentEvidence(approximation, "soft_insensitive", by_root=True).function()
    found = by_root(*arguments(root, y, parameters, jitter=jitter))
    expected = LatentEvidence(approximation, "soft_insensitive").function()(
        *arguments(root @ root.T, y, parameters, jitter=jitter)
    )
    assert found[6] == expected[6] == 1.0
    assert found[0] == pytest.approx(expected[0], rel=1e-9)
    np.testing.assert_allclose(found[1], 2 * expected[1] @ root, rtol=1e-5, atol=1e-6)
    for i in (2, 5):
        np.testing.assert_allclose(found[i], expected[i], rtol=1e-5, atol=1e-6)
    step = 1e-6 * rng.normal(size=root.shape)
    ends = [by_root(*arguments(root + sign * step, y, parameters, jitter=jitter))[0] for sign in (1, -1)]
    assert (ends[0] - ends[1]) / 2 == pytest.approx((found[1] * step).sum(), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(("C", "beta"), [(1.0, 0.3), (5.0, 0.3), (30.0, 0.0), (0.3, 1.0)])
def test_a_loose_mismatch_costs_little_accuracy(C, beta):
    """Of second order in the evidence, of first order in its gradients."""
    K, y = smooth(40)
    given = arguments(K, y, np.array([[C], [0.1], [beta]]))
    exact = LatentEvidence("mean_field", "soft_insensitive").function()(*given)
    loose = LatentEvidence("mean_field", "soft_insensitive", 1e-4).function()(*given)
    assert loose[6] == 1.0
    assert loose[0] == pytest.approx(exact[0], abs=1e-7)
    for i in (1, 2, 5):
        scale = np.abs(exact[i]).max()
        np.testing.assert_allclose(loose[i], exact[i], atol=1e-3 * scale)
    assert not np.array_equal(loose[1], exact[1])


def test_vector_parameters_and_labels():
    K, y = smooth(12)
    C = pt.dvector("C")
    value, _, _ = latent_evidence("mean_field", "gaussian", K, np.zeros(12), y, [C])
    function = pytensor.function([C], [value, pt.grad(value, C)], mode="FAST_COMPILE")
    at = np.linspace(1, 3, 12)
    found, gradient = function(at)
    assert found == pytest.approx(mean_field(K, y, gaussian(at)).log_evidence)
    assert gradient.shape == (12,)
    labels = np.sign(y)
    value, _, _ = latent_evidence("laplace_local", "hinge", K, np.zeros(12), labels, [2.0])
    assert value.eval() == pytest.approx(laplace(K, labels, hinge(2.0), curvature="local").log_evidence)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_the_start_changes_nothing_but_the_way(approximation, beta):
    """From zeros, from the solution nearby, and from nonsense."""
    K, y = smooth(25)
    solve = LatentEvidence(approximation, "soft_insensitive").function()
    parameters = np.array([[5.0], [0.2], [beta]])

    def found(K, start):
        return solve(*arguments(K, y, parameters, start, 1e-6))

    nothing = np.zeros((2, 25))
    cold = found(K, nothing)
    warm = found(K, found(1.05 * K, nothing)[7])
    lost = found(K, np.array([[1e4], [1e-3]]) * np.random.default_rng(0).uniform(size=(2, 25)))
    for other in (warm, lost):
        assert other[6] == 1
        for i in (0, 1, 2, 5):  # value, and gradients by K, mean and the parameters
            np.testing.assert_allclose(other[i], cold[i], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found(K, cold[7])[7], cold[7], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("scale", [0.1, 3.0, 30.0])
def test_sites_are_a_start_for_another_covariance_and_mean(scale):
    K, y = smooth(60)
    noise = soft_insensitive(5.0, 0.2, 0.3)

    def sweeps(K, t, start):
        found, _ = mean_field_core(as_covariance(K).structure, t, noise.sites(t), start, 3e-3)
        assert found.converged
        return found.iterations

    known = LatentEvidence("mean_field", "soft_insensitive").function()(
        *arguments(K, y, np.array([[5.0], [0.2], [0.3]]), np.zeros((2, 60)), 0.0)
    )[7]
    shifted = known.copy()
    shifted[0] -= shifted[1] * 0.3
    assert sweeps(scale * K, y - 0.3, shifted) <= 4 < sweeps(scale * K, y - 0.3, np.zeros((2, 60)))


@pytest.mark.parametrize("mode", ["FAST_COMPILE", "NUMBA"])
def test_a_failed_solve_is_a_value(mode):
    """Where it does not fail, value and gradient are those of the core."""
    K = pt.dmatrix("K")
    value, converged, _ = latent_evidence("mean_field", "absolute", K, np.zeros(2), np.ones(2), [1.0])
    function = pytensor.function([K], [value, converged, pt.grad(value, K)], mode=mode)
    found, flag, gradient = function(np.eye(2))
    expected, by = mean_field_gradient(np.eye(2), np.ones(2), absolute(1.0))
    assert (float(found), flag) == (pytest.approx(expected, rel=1e-8), 1)
    np.testing.assert_allclose(gradient, by.K, rtol=1e-6, atol=1e-8)
    found, flag, gradient = function(np.full((2, 2), np.nan))
    assert found == -np.inf
    assert flag == 0
    np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_value_and_gradients_of_intervals_and_weights(approximation):
    """Ends on both sides, on one, and equal; weights of exact targets."""
    K, y = smooth(6)
    noise = soft_insensitive(5.0, 0.1, 0.3)
    solve = LatentEvidence(approximation, "soft_insensitive").function()
    lower = np.array([y[0], -0.5, 0.2, -np.inf, y[4], 0.1])
    upper = np.array([y[0], 0.4, np.inf, 0.3, y[4], 0.3])
    start, parameters, jitter = np.zeros((2, 6)), np.array([[5.0], [0.1], [0.3]]), np.array(0.0)
    mean, ones = np.full(6, 0.05), np.ones(6)

    def at(low, high, offset=mean):
        return solve(K, offset, low, high, ones, parameters, jitter, start)

    value, _, by_mean, by_lower, by_upper, _, converged, _ = at(lower, upper)
    assert converged == 1.0
    direct = noise.between(lower, upper)
    options = {} if approximation == "mean_field" else {"curvature": "local" if "local" in approximation else "exact"}
    function = mean_field if approximation == "mean_field" else laplace
    assert float(value) == pytest.approx(function(K, y, direct, mean=mean, **options).log_evidence, abs=1e-8)
    h, still = 1e-5, np.zeros(6)
    for i, e in enumerate(h * np.eye(6)):
        moves = [(by_mean[i], still, still, e)]
        if lower[i] == upper[i]:
            moves.append((by_lower[i] + by_upper[i], e, e, still))
        else:
            moves += [(by_lower[i], e, still, still)] * bool(np.isfinite(lower[i]))
            moves += [(by_upper[i], still, e, still)] * bool(np.isfinite(upper[i]))
        for slope, low, high, offset in moves:
            after, before = (float(at(lower + s * low, upper + s * high, mean + s * offset)[0]) for s in (1, -1))
            assert slope == pytest.approx((after - before) / (2 * h), abs=2e-4)
    assert (by_lower[3], by_upper[2]) == (0.0, 0.0)
    weight = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 1.0])
    weighted = solve(K, mean, y, y, weight, parameters, jitter, start)
    found = function(K, y, noise.weighted(weight), mean=mean, **options).log_evidence
    assert float(weighted[0]) == pytest.approx(found, abs=1e-8)


@pytest.mark.parametrize("approximation", APPROXIMATIONS)
def test_what_is_not_a_number_or_not_ordered_has_no_value(approximation):
    K, y = smooth(4)
    solve = LatentEvidence(approximation, "absolute").function()
    zeros, ones = np.zeros(4), np.ones(4)
    bad_K, bad_y = K.copy(), y.copy()
    bad_K[2, 1] = bad_y[1] = np.nan
    fixed = np.array([[2.0]]), np.array(0.0), np.zeros((2, 4))
    assert solve(K, zeros, y, y, ones, *fixed)[6] == 1.0
    for K_, mean, lower, upper, rest in (
        (bad_K, zeros, y, y, fixed),
        (K, bad_y, y, y, fixed),
        (K, zeros, bad_y, bad_y, fixed),
        (K, zeros, y, y, (np.array([[np.nan]]), *fixed[1:])),
        (K, zeros, y + np.array([0.0, 0.0, 1.0, 0.0]), y, fixed),
    ):
        value, *gradients, converged, _ = solve(K_, mean, lower, upper, ones, *rest)
        assert (float(value), float(converged)) == (-np.inf, 0.0)
        assert all(not np.any(gradient) for gradient in gradients)
