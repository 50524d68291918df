"""The Gaussian process of the benchmark "tables" against scikit-learn's."""

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from benchmarks.tables import Process


def test_the_gradient_by_products_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    X, kernel = rng.normal(size=(40, 3)), ConstantKernel(2.0) * RBF([0.7, 1.5, 4.0]) + WhiteKernel(0.3)
    options = {"kernel": kernel, "optimizer": None, "normalize_y": True}
    models = [model(**options).fit(X, np.sin(X[:, 0])) for model in (Process, GaussianProcessRegressor)]
    found, expected = (model.log_marginal_likelihood(kernel.theta, eval_gradient=True) for model in models)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8)
