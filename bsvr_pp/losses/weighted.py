"""Sample weights: a row of weight w has the likelihood p(y|f)^w, which is that of w equal rows with the same f.

Energies and log normaliser of its site are w times those of one row, so that all approximations take it as it is. For
the mode and for exact inference one row of weight w is the same as w rows. For expectation propagation it is not: w
sites of one row each approximate the same factor w times, while one site of weight w matches the moments of the whole
factor, which is more accurate. The estimators therefore merge equal rows into one row with a weight.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsvr_pp._compiler import VECTOR
from bsvr_pp._separate import separate
from bsvr_pp.losses.pieces import PIECES, Pieces, empty

__all__ = ["weighted"]

Array = NDArray[np.float64]


@separate(PIECES, PIECES, VECTOR)
def weighted(pieces: Pieces, weight: Array) -> Pieces:
    """The table of the sites p(y|f)^weight, one row per weight.

    Parameters
    ----------
    pieces : Pieces
        The table of p(y|f): one row for all points, or one row per point.
    weight : (n,) array
        Weights, > 0.

    Examples
    --------
    >>> import numpy as np
    >>> from bsvr_pp.losses import absolute
    >>> from bsvr_pp.losses.weighted import weighted
    >>> weighted(absolute(C=2.0).sites(np.zeros(2)), np.array([1.0, 3.0])).slope[:, 2].tolist()
    [2.0, 6.0]
    """
    out = empty(pieces.d_energy.shape[0], weight.shape[0], pieces.knots.shape[1])
    for i in range(weight.shape[0]):
        k, w = i if pieces.knots.shape[0] > 1 else 0, weight[i]
        out.knots[i] = pieces.knots[k]
        out.value[i] = w * pieces.value[k]
        out.slope[i] = w * pieces.slope[k]
        out.curvature[i] = w * pieces.curvature[k]
        out.d_energy[:, i] = w * pieces.d_energy[:, k]
        out.log_normalizer[i] = w * pieces.log_normalizer[k]
        out.d_log_normalizer[:, i] = w * pieces.d_log_normalizer[:, k]
    return out
