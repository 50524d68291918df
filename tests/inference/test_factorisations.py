"""How often a covariance is factored, counted where LAPACK is called."""

import subprocess
import sys

import pytest

# Counts every Cholesky factorisation: those of compiled code by a symbol of our own, those of SciPy and NumPy by name.
COUNTED = """
import ctypes

import numba.extending
import numpy as np
import scipy.linalg

count = 0
address_of = numba.extending.get_cython_function_address


def counted(module, name):
    address = address_of(module, name)
    if name != "dpotrf":
        return address
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)
    original = kind(address)

    def call(*arguments):
        global count
        count += 1
        original(*arguments)

    counted.kept = kind(call)
    return ctypes.cast(counted.kept, ctypes.c_void_p).value


def by_name(function):
    def call(*arguments, **options):
        global count
        count += 1
        return function(*arguments, **options)

    return call


numba.extending.get_cython_function_address = counted
for module in (scipy.linalg, np.linalg):
    for name in ("cholesky", "solve", "inv"):
        setattr(module, name, by_name(getattr(module, name)))

import bsvr_pp as bp
from bsvr_pp.datasets import sinc
from bsvr_pp.model.reader import read_model
"""

SCRIPT = """
data = sinc(40, random_seed=1)
model = bp.default_model(data.X, data.y, kernel="rbf")
for method in (bp.Laplace(), bp.Laplace("local"), bp.MeanField()):
    for lengthscale in (0.05, 20.0):  # of full rank, and of low rank
        at = {"amplitude": 1.0, "inverse_lengthscale": 1 / lengthscale, "C": 5.0, "epsilon": 0.1}
        problem = read_model(model)
        K, mean, noise = problem.at(problem.complete(at))
        assert (K.rank < 40) == (lengthscale == 20.0), K.rank
        count = 0
        method.solve(K, problem.targets, noise, mean)
        own, count = count, 0
        result = bp.fit(method, model, hyperparameters=at, random_seed=0, progressbar=False)
        assert own > 0
        for X in (data.X[:5], data.X[5:]):
            bp.predict(result, X, model=model)
        bp.loo(result, model=model)
        print(method.name, own, count, sep=", ")
"""


@pytest.mark.slow
def test_fit_and_predictions_factor_once_more_than_the_solve():
    done = subprocess.run([sys.executable, "-c", COUNTED + SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    for line in lines:
        own, whole = map(int, line.split(", ")[1:])
        assert whole <= own + 1, line
