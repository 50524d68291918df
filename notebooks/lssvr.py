# %% [markdown]
# # Least squares support vector regression
# LS-SVR replaces the ε-insensitive loss by squared errors, and the quadratic program by one linear system. Its
# solution is the mean of a Gaussian process, which gives error bars.

# %%
import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

plt.rcParams["figure.dpi"] = 70
data = sinc(40, noise=0.1, random_seed=2)
X, y = data.X, data.y

# %% [markdown]
# ## The estimator
# `gamma` (the weight of the errors) and the lengthscale maximise the restricted likelihood. The leave-one-out residuals
# are computed in closed form from the same factorisation.

# %%
lssvr = bp.LSSVR().fit(X, y)
print(f"gamma {lssvr.gamma_:.1f}, lengthscale {lssvr.lengthscale_:.2f}")
print(f"root mean square of the leave-one-out residuals {np.sqrt(np.mean(lssvr.loo_residuals_**2)):.3f}")

# %% [markdown]
# ## Error bars
# The solution is the mean of a Gaussian process with a flat prior on the bias. Its band has the width of the prior
# where there are no data.

# %%
grid = np.linspace(-16, 16, 200)[:, None]
mean, sd = lssvr.predict(grid, return_std=True)
plt.figure(figsize=(7, 3))
plt.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.25, lw=0)
plt.plot(grid, mean)
plt.plot(X, y, "o", ms=3, color="0.4")
plt.show()

# %% [markdown]
# ## On your own data
# `bp.LSSVR().fit(X, y).predict(X_new, return_std=True)` uses the Gaussian process that corresponds to the LS-SVR. For
# noise with heavy tails use `bp.BayesianSVR`.
