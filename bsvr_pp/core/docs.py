"""Passages that several docstrings share: a line such as ``<new_inputs>`` stands for one of them.

`shared` puts them into the docstrings of a function or a class, and `docs/docstrings.py` into the pages.
"""

from __future__ import annotations

import re
from textwrap import indent
from types import FunctionType

PASSAGES = {
    "new_inputs": """\
Parameters
----------
X : (n_new, d) array
    New inputs.""",
    "diagonal": """\
diagonal : (n_new,) or (n_new, q) array, optional
    With ``kernel="precomputed"``, k(x, x) of the new rows. By default the value of the training rows, if all are the
    same.""",
    "quantiles": """\
<new_inputs>
quantiles : sequence of float
    Levels between 0 and 1.

Returns
-------
(n_new, number of quantiles) array

Raises
------
ValueError
    If a quantile is out of range.""",
    "inputs": """\
Parameters
----------
X : (n, d) array or DataFrame
    Inputs; the columns of a DataFrame are encoded if they are not numbers.""",
    "counts": """\
sample_weight : (n,) array, optional
    Weights, >= 0: a row of weight w counts as w copies of the row, and a row of weight 0 is left out.""",
    "not_converged": """\
Warns
-----
ConvergenceWarning
    If the optimum or the chains did not converge.""",
    "model": """\
model : pm.Model, optional
    The model; by default the model of the surrounding ``with`` block.""",
    "scored": """\
Parameters
----------
estimator : estimator, Pipeline or search
    A fitted regressor with `predict_distribution`, a pipeline that ends in one, or a search of either. Anything else is
    a TypeError.
X : (n, d) array
    Inputs.
y : (n,) array
    Targets.
sample_weight : (n,) array, optional
    Weights of the targets in the mean. With metadata routing they are requested by
    ``set_score_request(sample_weight=True)``, which returns another scorer.""",
    "no_result": """\
TypeError
    If result is not one of `fit`.""",
    "curve": """\
Examples
--------
>>> import numpy as np, bsvr_pp as bp
>>> X = np.linspace(-3, 3, 30)[:, None]
>>> y = np.sin(X[:, 0]) + 0.1 * np.cos(9 * X[:, 0])""",
    "on_arrays": """\
Examples
--------
>>> import numpy as np
>>> from bsvr_pp.approximations import BlockDiagonal, Covariance, find_mode, laplace, mean_field
>>> from bsvr_pp.losses import absolute, epsilon_insensitive, gaussian, soft_insensitive""",
    "sinc_model": """\
Examples
--------
>>> import bsvr_pp as bp
>>> from bsvr_pp.datasets import sinc
>>> data = sinc(15, random_seed=1)
>>> model = bp.default_model(data.X, data.y, kernel="rbf")
>>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}""",
    "sinc_result": """\
<sinc_model>
>>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)""",
    "pymc_model": """\
Examples
--------
>>> import numpy as np, pymc as pm, bsvr_pp as bp
>>> X = np.linspace(-3, 3, 12)[:, None]
>>> with pm.Model() as model:
...     C = pm.LogNormal("C", 1, 1.5)
...     f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
...     _ = bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.3, observed=np.sin(X[:, 0]))""",
}


def filled(text: str) -> str:
    """Put the passages into a docstring, indented as their lines are."""
    return re.sub(r"(?m)^( *)<(\w+)>$", lambda found: indent(filled(PASSAGES[found[2]]), found[1]), text)


def shared[T](documented: T) -> T:
    """Put the passages into the docstrings of a function, or of a class and its methods."""
    members = vars(documented).values() if isinstance(documented, type) else ()
    functions = [getattr(member, "__func__", member) for member in members]  # also of methods of the class
    for each in (documented, *(member for member in functions if isinstance(member, FunctionType))):
        if each.__doc__:
            each.__doc__ = filled(each.__doc__)
    return documented
