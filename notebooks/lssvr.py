# %% [markdown]
# # Least squares support vector regression as a Bayesian network
#
# LS-SVR replaces the tube by squared errors: one linear system instead of a quadratic program. Mesquita et al. (2019)
# read it as the posterior mean of a radial basis function network, which gives it error bars.

# %%
import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

plt.rcParams["figure.dpi"] = 70
data = sinc(40, noise=0.1, random_seed=2)
X, y = data.X, data.y

# %% [markdown]
# ## The machine
#
# `gamma` (the weight of the errors) and the lengthscale maximise the restricted likelihood; leave-one-out residuals come
# in closed form from the same factorisation.

# %%
machine = bp.LSSVR().fit(X, y)
print(f"gamma {machine.gamma_:.1f}, lengthscale {machine.lengthscale_:.2f}")
print(f"root mean square of the leave-one-out residuals {np.sqrt(np.mean(machine.loo_residuals_**2)):.3f}")

# %% [markdown]
# ## Its Bayesian twin
#
# As ε → 0 the posterior mean of the network is the LS-SVR; the difference shrinks in proportion to ε.

# %%
grid = np.linspace(-16, 16, 200)[:, None]
scale = 1 / np.sqrt(machine.noise_variance_)  # the network's noise has variance 1
for epsilon in (1.0, 1e-2, 1e-4):
    twin = bp.BayesianLSSVR(machine.gamma_, machine.lengthscale_, epsilon=epsilon).fit(X, y * scale)
    gap = np.abs(twin.predict(grid) / scale - machine.predict(grid)).max()
    print(f"epsilon {epsilon:.0e}: largest difference {gap:.1e}; the stated prior is proper: {twin.prior_is_proper_}")

# %%
mean, sd = twin.predict(grid, return_std=True)
plt.figure(figsize=(7, 3))
plt.fill_between(grid[:, 0], (mean - 2 * sd) / scale, (mean + 2 * sd) / scale, alpha=0.25, lw=0)
plt.plot(grid, mean / scale)
plt.plot(X, y, "o", ms=3, color="0.4")
plt.show()

# %% [markdown]
# The band widens just outside the data, and falls back to that of the bias farther out, where all kernels vanish: the
# prior of the weights is informed by the data. A Gaussian process would keep its prior width there.
#
# ## On your own data
#
# `bp.LSSVR().fit(X, y).predict(X_new, return_std=True)` uses the Gaussian process behind the machine. Where the noise
# has heavy tails, prefer `bp.BayesianSVR`.
