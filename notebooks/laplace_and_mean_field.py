# %% [markdown]
# # What Laplace gets wrong, and mean field gets right
# Laplace's approximation uses the curvature of the loss at the mode. The support vector loss has a curvature only on
# its curved part, between the tube and the linear tails. When a residual enters or leaves this part, the curvature
# jumps, and so does the evidence. Mean field uses averages over the posterior instead.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

plt.rcParams["figure.dpi"] = 70
data = sinc(40, noise=0.1, random_seed=0)


def model_with(beta):
    with pm.Model() as model:
        epsilon = pm.LogNormal("epsilon", -1.5, 1)
        f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=2.0)).prior("f", X=data.X)
        bp.SoftInsensitive("y", mu=f, C=10.0, epsilon=epsilon, beta=beta, observed=data.y)
    return model


# %% [markdown]
# ## Along the width of the tube
# The plot shows the log evidence by each method for a large and a small smooth fraction `beta`. The points are the
# exact values, estimated by annealing, with two standard errors.

# %%
widths = np.geomspace(0.02, 0.6, 60)
methods = {"Laplace": bp.Laplace(), "Laplace (local)": bp.Laplace(curvature="local"), "mean field": bp.MeanField()}
figure, axes = plt.subplots(1, 2, figsize=(9, 3.3), sharey=True, layout="constrained")
for axis, beta in zip(axes, (0.3, 0.02), strict=True):
    model = model_with(beta)
    for name, method in methods.items():
        values = [bp.log_evidence(method, model, hyperparameters={"epsilon": w}).value for w in widths]
        axis.plot(widths, values, label=name)
    for w in widths[::12]:
        truth = bp.log_evidence(bp.Annealed(particles=300), model, hyperparameters={"epsilon": w}, random_seed=0)
        axis.errorbar(w, truth.value, 2 * truth.standard_error, fmt="k.", capsize=2)
    axis.set(xscale="log", xlabel="epsilon", title=f"beta = {beta}")
    axis.set_xticks([0.02, 0.05, 0.1, 0.2, 0.5], ["0.02", "0.05", "0.1", "0.2", "0.5"], minor=False)
    axis.set_xticks([], minor=True)
axes[0].set_ylabel("log evidence")
axes[0].legend()
plt.show()

# %% [markdown]
# Mean field agrees with the exact values. Exact Laplace jumps, with larger jumps for smaller beta, and is too low where
# few points lie on the curved part of the loss. The locally integrated curvature removes the jumps but not the error.
# ## The reason, shown for one point
# The posterior of f at one point is its Gaussian cavity distribution times the noise factor. If the noise factor has a
# kink within the cavity distribution, the curvature at the mode is a poor measure of the width.

# %%
noise = bp.losses.soft_insensitive(C=10.0, epsilon=0.2, beta=0.02)
f = np.linspace(-1, 1, 2001)
rows = {}
for y in (0.0, 0.18, 0.5):
    cavity_variance = 0.05
    log_tilted = -0.5 * f**2 / cavity_variance + noise.log_density(y - f)
    density = np.exp(log_tilted - log_tilted.max())
    density /= density.sum()
    mean = (density * f).sum()
    K = np.array([[cavity_variance]])
    by = {"truth": np.sqrt((density * (f - mean) ** 2).sum())}
    by["Laplace"] = np.sqrt(bp.approximations.laplace(K, [y], noise).variance[0])
    by["Laplace (local)"] = np.sqrt(bp.approximations.laplace(K, [y], noise, curvature="local").variance[0])
    by["mean field"] = np.sqrt(bp.approximations.mean_field(K, [y], noise).variance[0])
    rows[f"y = {y}"] = by
pd.DataFrame(rows).T.round(4)

# %% [markdown]
# For a single point mean field is exact by construction: it matches the moments of the tilted distribution.
#
# ## On your own data
# Use `bp.MeanField()` unless it is too slow. Use `bp.Laplace()` with `beta` of at least 0.3 and several starts for a
# quick fit with sparse predictions. Do not use NUTS with exact Laplace and a small beta: it fails without a warning
# from the sampler.
