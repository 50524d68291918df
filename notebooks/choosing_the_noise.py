# %% [markdown]
# # Choosing the noise
# Which noise do your data have? This notebook compares five noise models on one data set by evidence and leave-one-out:
# the soft insensitive loss, its special cases (epsilon-insensitive, Huber, Laplace) and Gaussian noise. The last
# section shows quantile regression.

# %%
import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

plt.rcParams["figure.dpi"] = 70
data = sinc(100, noise=0.1, outliers=0.1, random_seed=1)

# %% [markdown]
# ## One model for each noise
# `bp.default_model` takes the name of the noise. Mean field works for every loss, and its evidence can be compared
# between losses.

# %%
noises = ("soft_insensitive", "epsilon_insensitive", "huber", "absolute", "gaussian")
models = {noise: bp.default_model(data.X, data.y, noise=noise) for noise in noises}
results = {noise: bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False) for noise, model in models.items()}
loos = {noise: bp.loo(results[noise], model=models[noise]) for noise in noises}
grid = np.linspace(-10, 10, 200)[:, None]
truth = np.sinc(grid[:, 0] / np.pi)
table = pd.DataFrame(
    {
        "log evidence": {noise: results[noise].attrs["log_evidence"] for noise in noises},
        "elpd (leave-one-out)": {noise: loos[noise].elpd for noise in noises},
        "error to the truth": {
            noise: float(
                np.sqrt(np.mean((bp.predict(results[noise], grid, model=models[noise])["f_mean"] - truth) ** 2))
            )
            for noise in noises
        },
    }
)
table.sort_values("log evidence", ascending=False).round(3)

# %% [markdown]
# Evidence and leave-one-out agree on the main result: with outliers, noise with linear tails is much better than
# Gaussian noise, and its fit is closer to the true function. The differences between robust noise models are small;
# `az.compare` shows which differences are significant.

# %%
az.compare(loos)[["rank", "elpd", "elpd_diff", "dse"]]

# %%
for noise in ("soft_insensitive", "gaussian"):
    bp.plot_predictive({noise: results[noise]}, model=models[noise])
    plt.show()

# %% [markdown]
# ## Quantiles
# With quantile noise (`pm.AsymmetricLaplace` in PyMC) the latent function is a quantile of the target. Three models
# give three curves. The posterior of such a curve is not calibrated, because the noise is only a working likelihood.

# %%
plt.figure(figsize=(7, 3))
plt.plot(data.X, data.y, "o", ms=3, color="0.5")
for level in (0.1, 0.5, 0.9):
    model = bp.default_model(data.X, data.y, noise="pinball", quantile=level)
    result = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)
    plt.plot(grid, bp.predict(result, grid, model=model)["f_mean"], label=f"{level:.0%}")
plt.ylim(-1, 1.5)
plt.legend()
plt.show()

# %% [markdown]
# ## On your own data
# Fit each noise model by `bp.fit(bp.MeanField(), bp.default_model(X, y, noise=...))`, look at the log evidence, and
# check the ranking by `az.compare` with the results of `bp.loo`. If the two rankings differ, the evidence depends on
# the priors, or a few points have a large influence.
