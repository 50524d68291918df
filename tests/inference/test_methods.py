"""Options of the methods are checked."""

from __future__ import annotations

import pytest

import bsvr_pp as bp


def test_names_are_unique():
    methods = (bp.MAP(), bp.Laplace(), bp.Laplace(curvature="local"), bp.MeanField(), bp.NUTS())
    assert len({m.name for m in methods}) == len(methods)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bp.Laplace(curvature="flat"), "curvature must be 'exact' or 'local', got 'flat'"),
        (lambda: bp.NUTS(draws=0), "draws must be an integer of at least 1, got 0"),
        (lambda: bp.NUTS(chains=1.5), "chains must be an integer of at least 1, got 1.5"),
        (lambda: bp.NUTS(target_accept=1.0), "target_accept must lie strictly between 0 and 1, got 1.0"),
        (lambda: bp.NUTS(sampler="gibbs"), "sampler must be nutpie, .* got 'gibbs'"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
