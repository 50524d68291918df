# %% [markdown]
# # Least squares support vector regression as a Bayesian network
# LS-SVR replaces the ε-insensitive loss by squared errors, and the quadratic program by one linear system. Mesquita et
# al. (2019) interpret its solution as the posterior mean of a radial basis function network, which gives error bars.

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
# ## The Bayesian network
# As ε → 0 the posterior mean of the network converges to the LS-SVR; the difference is proportional to ε.

# %%
grid = np.linspace(-16, 16, 200)[:, None]
for epsilon in (1.0, 1e-2, 1e-4):
    bayesian = bp.BayesianLSSVR(lssvr.gamma_, lssvr.lengthscale_, epsilon=epsilon).fit(X, y)
    gap = np.abs(bayesian.predict(grid) - lssvr.predict(grid)).max()
    print(
        f"epsilon {epsilon:.0e}: largest difference {gap:.1e}; the stated prior is proper: {bayesian.prior_is_proper_}"
    )

# %%
mean, sd = bayesian.predict(grid, return_std=True)
plt.figure(figsize=(7, 3))
plt.fill_between(grid[:, 0], mean - 2 * sd, mean + 2 * sd, alpha=0.25, lw=0)
plt.plot(grid, mean)
plt.plot(X, y, "o", ms=3, color="0.4")
plt.show()

# %% [markdown]
# The band widens just outside the range of the data. Farther out, where all kernels vanish, it narrows to the width
# given by the bias alone. The reason is that the functions are sums of kernels centred at the data. A Gaussian process
# would keep its prior width there.
#
# ## On your own data
# `bp.LSSVR().fit(X, y).predict(X_new, return_std=True)` uses the Gaussian process that corresponds to the LS-SVR. For
# noise with heavy tails use `bp.BayesianSVR`.
