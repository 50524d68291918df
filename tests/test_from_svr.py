"""The mode of a PyMC model at given hyperparameters is the machine of LIBSVM, as docs/how-to/from-svr.md says."""

import numpy as np
import pymc as pm
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.svm import SVR

import bsvr_pp as bp


def simulated():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.laplace(size=80)


def standardised(data, target, rows=slice(None)):
    X, y = data[rows], target[rows]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


SETS = {
    "simulated": simulated,
    "diabetes": lambda: standardised(*load_diabetes(return_X_y=True), slice(120)),
    "iris": lambda: standardised(*(lambda X: (X[:, :3], X[:, 3]))(load_iris().data), slice(None, None, 2)),
}


@pytest.mark.slow_cases("diabetes-1.0-0.05", "simulated-3.0-0.4")
@pytest.mark.parametrize(
    ("name", "C", "gamma"), [("simulated", 3.0, 0.4), ("diabetes", 1.0, 0.05), ("iris", 10.0, 0.3)]
)
def test_the_mode_is_the_machine_of_libsvm(name, C, gamma):
    X, y = SETS[name]()
    with pm.Model() as model:
        kernel = pm.gp.cov.ExpQuad(X.shape[1], ls=(2 * gamma) ** -0.5) + pm.gp.cov.Constant(1e6)
        f = bp.GP(cov_func=kernel).prior("f", X=X, jitter=0.0)
        bp.EpsilonInsensitive("y", mu=f, C=C, epsilon=0.1, observed=y)
    mode = bp.fit(bp.MAP(), model, hyperparameters={}, progressbar=False)
    libsvm = SVR(C=C, epsilon=0.1, gamma=gamma, tol=1e-12).fit(X, y)
    new = 0.9 * X[::3] + 0.1
    np.testing.assert_allclose(bp.predict(mode, new, model=model)["f_mean"], libsvm.predict(new), atol=2e-6)
    dual = np.zeros(len(y))
    dual[libsvm.support_] = libsvm.dual_coef_[0]
    np.testing.assert_allclose(mode["latent_posterior"]["dual_coef"], dual, atol=1e-3 * C)
