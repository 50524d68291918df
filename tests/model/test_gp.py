"""The Gaussian process records its prior, in every copy of the model."""

import numpy as np
import pymc as pm
from pymc.model.fgraph import clone_model

import bsvr_pp as bp
from bsvr_pp.model.gp import prior_of

X = np.linspace(-2, 2, 6)[:, None]


def build(**options):
    with pm.Model() as model:
        lengthscale = pm.LogNormal("lengthscale", 0, 1)
        gp = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(2.0))
        gp.prior("f", X=X, **options)
    return model, gp


def test_record_survives_copies_of_the_model():
    model, _ = build()
    for copy in (clone_model(model), pm.do(model, {"lengthscale": 1.0})):
        assert prior_of(copy["f"]).name == "f"
    assert prior_of(model["lengthscale"]) is None


def test_sums_and_conditional_as_in_pymc():
    with pm.Model():
        total = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)) + bp.GP(cov_func=pm.gp.cov.Constant(2.0))
        assert isinstance(total, bp.GP)
        total.prior("f", X=X)
        assert total.conditional("g", X + 0.1).eval(mode="FAST_COMPILE").shape == (6,)
