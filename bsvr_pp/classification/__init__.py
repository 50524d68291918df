"""Sollich's classification (2002): the label of a support vector machine, its evidences, and its hyperparameters.

`bsvr_pp.SVMLabel` and the estimators `bsvr_pp.BayesianSVC` and `bsvr_pp.BayesianOrdinalSVC` are public names of the
package itself. The names here are loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
