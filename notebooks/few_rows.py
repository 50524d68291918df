# %% [markdown]
# # Few rows: hyperparameters integrated out
# Twenty rows leave the hyperparameters of a kernel model open. Predictions at the best hyperparameters are then too
# sure. `bp.Integrated` averages over weighted points of their posterior, and `bp.NUTS` over thousands of draws.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import bsvr_pp as bp

plt.rcParams["figure.dpi"] = 70
rng = np.random.default_rng(3)
X = np.sort(rng.uniform(-3, 3, size=20))[:, None]
y = np.sin(1.5 * X[:, 0]) + 0.25 * rng.laplace(size=20)

with pm.Model() as model:
    lengthscale = pm.LogNormal("lengthscale", 0.0, 1.0)
    C = pm.LogNormal("C", 1.0, 1.0)
    f = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale)).prior("f", X=X)
    bp.SoftInsensitive("y", mu=f, C=C, epsilon=0.1, beta=0.8, observed=y)

# %% [markdown]
# ## The points
# The contours are the posterior of the two hyperparameters, with f integrated out by mean field. The size of a point is
# its weight.

# %% alt: Contours of the posterior of two hyperparameters, with 64 weighted points and with draws of NUTS
at_optimum = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)
integrated = bp.fit(bp.Integrated(), model, random_seed=0, progressbar=False)
nuts = bp.NUTS(latent=bp.MeanField(), draws=500, tune=500)
sampled = bp.fit(nuts, model, random_seed=0, progressbar=False)

grid = np.meshgrid(np.linspace(-2, 2, 25), np.linspace(-1, 3, 25))
density = np.empty(grid[0].shape)
for i in np.ndindex(density.shape):
    point = {"lengthscale": np.exp(grid[0][i]), "C": np.exp(grid[1][i])}
    evidence = bp.log_evidence(bp.MeanField(), model, hyperparameters=point).value
    density[i] = evidence - 0.5 * grid[0][i] ** 2 - 0.5 * (grid[1][i] - 1.0) ** 2

figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharex=True, sharey=True, layout="constrained")
for axis, (title, result) in zip(axes, {"64 points": integrated, "NUTS": sampled}.items(), strict=True):
    axis.contour(*grid, density - density.max(), levels=[-8, -4, -2, -1, -0.2], colors="0.6")
    drawn = np.log([result["posterior"][name].values.ravel() for name in ("lengthscale", "C")])
    if result is integrated:
        drawn, counts = np.unique(drawn, axis=1, return_counts=True)
        axis.scatter(*drawn, s=8 * counts, alpha=0.5)
    else:
        axis.plot(*drawn, ".", alpha=0.4)
    axis.set(title=title, xlabel="log lengthscale")
axes[0].set_ylabel("log C")
plt.show()

# %% [markdown]
# ## Intervals before and after
# Between the rows and outside them, intervals that average over the points are wider.

# %% alt: Intervals at the optimum, integrated, and by NUTS
new = np.linspace(-5, 5, 200)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
results = {"at the optimum": at_optimum, "integrated": integrated, "NUTS": sampled}
for axis, (title, result) in zip(axes, results.items(), strict=True):
    low, high = bp.predict(result, new, model=model, quantiles=[0.05, 0.95])["y_quantile"].values
    axis.fill_between(new[:, 0], low, high, alpha=0.3)
    axis.plot(new[:, 0], np.sin(1.5 * new[:, 0]), "k--", lw=1)
    axis.plot(X[:, 0], y, "k.")
    axis.set(title=f"{title}: mean width {np.mean(high - low):.2f}", ylim=(-3.5, 3.5))
plt.show()

# %% [markdown]
# ## The evidence
# The evidence with the hyperparameters integrated out compares models whose hyperparameters differ. Draws of NUTS give
# the same by `bp.integrated_evidence`.

# %%
by_nuts = bp.integrated_evidence(sampled, model=model, random_seed=0)
seconds = {name: round(result.attrs["sampling_time"], 1) for name, result in results.items()}
print({name: round(integrated.attrs[name], 2) for name in ("log_evidence", "log_evidence_error", "k_hat")})
print(round(by_nuts.value, 2), round(by_nuts.standard_error, 2), seconds)

# %% [markdown]
# ## On your own data
# `bp.BayesianSVR` averages over points up to 300 rows. In PyMC write `bp.fit(bp.Integrated(), model)`. If k-hat is above
# 0.7 and the points do not move, the result says so: sample the hyperparameters with `bp.NUTS(latent=bp.MeanField())`.
