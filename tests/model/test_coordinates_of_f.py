"""The latent function in the coordinates of an approximate posterior: the same density, other coordinates."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import toposort

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.model.marginalize import LATENT_COORDINATES, can_whiten, whiten
from bsvr_pp.model.reader import read_model
from tests.helpers import process_model, soft

DATA = sinc(12, random_seed=3)


def build(**options):
    with pm.Model(coords={"row": range(12)}) as model:
        lengthscale = pm.InverseGamma("lengthscale", 3, 3)
        C = pm.LogNormal("C", 1, 1, **options)
        X = pm.Data("X", DATA.X)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(2.0)).prior("f", X=X, dims="row")
        bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=DATA.y, dims="row")
    return model


@pytest.mark.slow
def test_the_density_is_that_of_the_model_times_the_jacobian():
    model = build()
    rng = np.random.default_rng(0)
    precision, natural = rng.gamma(1.0, 5.0, 12), rng.normal(0.0, 5.0, 12)
    precision[3] = 0.0
    copy = whiten(read_model(model), precision, natural)
    density, original = copy.compile_logp(mode="FAST_COMPILE"), model.compile_logp(mode="FAST_COMPILE")
    names = ["f_rotated_", "f"]
    at = copy.compile_fn(
        copy.replace_rvs_by_values([copy[name] for name in names]),
        inputs=copy.value_vars,
        on_unused_input="ignore",
        mode="FAST_COMPILE",
    )
    hyper = {"lengthscale_log__": np.array(0.3), "C_log__": np.array(0.7)}

    def u_of(v):
        return at({**hyper, LATENT_COORDINATES: v})[0]

    zero = u_of(np.zeros(12))
    jacobian = np.column_stack([u_of(e) - zero for e in np.eye(12)])
    v = rng.standard_normal(12)
    u, f = at({**hyper, LATENT_COORDINATES: v})
    assert u == pytest.approx(zero + jacobian @ v, rel=1e-9, abs=1e-12)
    expected = original({**hyper, "f_rotated_": u}) + np.linalg.slogdet(jacobian)[1]
    assert density({**hyper, LATENT_COORDINATES: v}) == pytest.approx(expected, rel=1e-10)
    assert f == pytest.approx(
        model.compile_fn(
            model.replace_rvs_by_values([model["f"]])[0], inputs=model.value_vars, on_unused_input="ignore"
        )({**hyper, "f_rotated_": u})
    )


def test_gaussian_noise_becomes_standard_normal_at_its_own_sites():
    model = process_model(pm.Normal, DATA.X, kernel=lambda: pm.gp.cov.Matern52(1, ls=1.3), sigma=0.2, observed=DATA.y)
    copy = whiten(read_model(model), np.full(12, 25.0), 25.0 * DATA.y)
    density = copy.compile_logp(mode="FAST_COMPILE")
    rng = np.random.default_rng(1)
    points = rng.standard_normal((5, 12))
    rest = [float(density({LATENT_COORDINATES: v})) + 0.5 * v @ v for v in points]
    assert rest == pytest.approx([rest[0]] * 5, abs=1e-8)


def test_names_and_dims():
    model = build()
    copy = whiten(read_model(model), np.ones(12), np.ones(12))
    assert {v.name for v in copy.free_RVs} == {"lengthscale", "C", LATENT_COORDINATES}
    assert {"f", "f_rotated_"} <= {v.name for v in copy.deterministics}
    assert tuple(copy.named_vars_to_dims["f"]) == ("row",)
    assert {v.name for v in model.free_RVs} == {"lengthscale", "C", "f_rotated_"}


def test_models_that_stay_as_they_are():
    assert can_whiten(read_model(build()))
    assert not can_whiten(read_model(build(initval=2.0)))
    centred = process_model(soft, DATA.X, prior={"reparameterize": False}, C=2.0, observed=DATA.y)
    assert not can_whiten(read_model(centred))


@pytest.mark.slow_cases("rbf", "rational_quadratic")
@pytest.mark.parametrize("kernel", ["rational_quadratic", "rbf", "linear"])
def test_each_factorisation_is_there_once(kernel):
    """In the density as PyMC builds it each is there twice, and so would be its gradient."""
    X = np.column_stack([DATA.X[:, 0], DATA.X[:, 0] ** 2])
    copy = whiten(read_model(bp.default_model(X, DATA.y, kernel=kernel)), np.ones(12), np.ones(12))
    density = copy.logp()
    names = [str(node.op) for node in toposort([density, *pt.grad(density, copy.value_vars)])]
    assert sum("PriorCholesky" in name for name in names) == 1
    assert sum("Cholesky{" in name for name in names) == 2
