"""Without the library of an integration there is one sentence with the command that installs it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import bsvr_pp as bp
from bsvr_pp.integrations.botorch import to_botorch

X = np.linspace(-1.0, 1.0, 6)[:, None]


def exported():
    model = bp.default_model(X, X[:, 0], kernel="rbf")
    at = {"amplitude": 1.0, "inverse_lengthscale": 1.0, "C": 5.0, "epsilon": 0.1}
    return to_botorch(bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False), model)


@pytest.mark.parametrize(("library", "call"), [("botorch", exported)])
def test_a_missing_library_is_named_with_its_extra(library, call, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=rf"^{library} is not installed: pip install 'bsvr-pp\[{library}\]'$"):
        call()
