"""Leave-one-out predictive densities of any result, in the format of `arviz.compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from arviz_stats.utils import ELPDData
from numpy.typing import NDArray

from bsvr_pp.inference.component import latent_posterior
from bsvr_pp.inference.methods import method_of
from bsvr_pp.inference.protocol import Method
from bsvr_pp.inference.result import check_match, check_result
from bsvr_pp.model.problem import Problem, read_model

__all__ = ["CavityLOO", "checked_for_loo", "loo"]

Array = NDArray[np.float64]


@dataclass(kw_only=True, repr=False)
class CavityLOO(ELPDData):
    """Leave-one-out from the cavities of a Gaussian approximation, at its own hyperparameters.

    This is an `ELPDData` of ArviZ; ``inference`` is the name of the approximation. With blocks each target is predicted
    from the others of its own block.
    """

    _kind: ClassVar[str] = "loo"

    inference: str
    n_blocks: int = 1

    def _header(self) -> str:
        return (
            f"Leave-one-out from the cavities of {self.inference} at fixed hyperparameters, "
            + (f"each target from its own block of {self.n_blocks}, " if self.n_blocks > 1 else "")
            + f"{self.n_data_points} observations."
        )


def loo(result: xr.DataTree, *, model: pm.Model | None = None) -> ELPDData:
    """Expected log predictive density of each target given the others.

    For Laplace and mean field it is computed from the cavities, at fixed hyperparameters (fitted to all targets): log ∫
    N(f_i; mean_i - v_i·dual_coef_i, v_i) p(y_i|f_i) df_i with v_i = 1/(1/variance_i - site_precision_i). For mean field
    this is exact if the other sites do not change. For Laplace it treats the sites as Gaussian; it is least reliable
    for a point that determines its fit alone. With blocks each target is predicted from the others of its own block.
    For NUTS the draws are reweighted by PSIS (`arviz.loo`); if f was integrated out, the cavity densities of each draw
    replace p(y_i|f_i).

    Parameters
    ----------
    result : DataTree
        Result of `fit`.
    model : pm.Model, optional
        The model of the result; by default that of the surrounding ``with``.

    Returns
    -------
    ELPDData
        ``elpd``, ``se``, ``p``, ``elpd_i``; `arviz.compare` compares several such objects.

    Raises
    ------
    ValueError
        For MAP, which has no posterior of f, for labels, or if result and model do not belong together.
    TypeError
        If result is not one of `fit`.

    Examples
    --------
    >>> import bsvr_pp as bp
    >>> from bsvr_pp.datasets import sinc
    >>> data = sinc(15, random_seed=1)
    >>> model = bp.default_model(data.X, data.y, kernel="rbf")
    >>> at = {"amplitude": 1.0, "inverse_lengthscale": 0.5, "C": 5.0, "epsilon": 0.1}
    >>> result = bp.fit(bp.MeanField(), model, hyperparameters=at, progressbar=False)
    >>> bp.loo(result, model=model).n_data_points
    15
    """
    problem, method = checked_for_loo(result, model)
    if "leave_one_out" in result.children:
        densities = result["leave_one_out"].to_dataset()
        likelihood = xr.DataTree.from_dict({"log_likelihood": densities, "posterior": result["posterior"].to_dataset()})
        return az.loo(likelihood, var_name=problem.target, pointwise=True)
    if "dual_coef" not in result["latent_posterior"].to_dataset():
        return az.loo(result, var_name=problem.target, pointwise=True)
    posterior, noise = latent_posterior(problem, result)
    pointwise = posterior.log_loo(problem.targets, noise)
    in_sample: Array = noise.tilted(posterior.mean, posterior.variance, problem.targets)[0]
    observed = result["observed_data"].to_dataset()[problem.target]
    return CavityLOO(
        elpd=float(pointwise.sum()),
        se=float(np.sqrt(pointwise.size) * pointwise.std()),
        p=float(in_sample.sum() - pointwise.sum()),
        n_samples=1,
        n_data_points=pointwise.size,
        scale="log",
        warning=not result.attrs["converged"],
        good_k=np.nan,
        elpd_i=observed.copy(data=pointwise),
        inference=method.name,
        n_blocks=1 if problem.blocks is None else len(problem.blocks),
    )


def checked_for_loo(result: xr.DataTree, model: pm.Model | None) -> tuple[Problem, Method]:
    """Return model and method of a result that has a posterior of f, and targets that are not labels.

    Raises
    ------
    ValueError
        If it has not, or if result and model do not belong together.
    TypeError
        If result is not one of `fit`.
    """
    check_result("result", result)
    problem = read_model(model)
    if refusal := problem.loss.targets.refusal("leave one out"):
        raise ValueError(refusal)
    method = method_of(result)
    if method.capabilities.plug_in:
        raise ValueError(
            f"result must have a posterior of f, and {method.name} has none: use Laplace(), MeanField() or NUTS()"
        )
    check_match(problem, result)
    return problem, method
