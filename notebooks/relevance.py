# %% [markdown]
# # Which inputs matter
# Automatic relevance determination (ARD) uses one lengthscale for each input. Maximising the evidence makes the
# lengthscales of irrelevant inputs long. The data are five columns of the diabetes data of scikit-learn and two added
# columns of pure noise.

# %%
import logging
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import bsvr_pp as bp

logging.disable(logging.INFO)  # of the sampler
plt.rcParams["figure.dpi"] = 70
bunch = load_diabetes()
rng = np.random.default_rng(0)
rows = rng.permutation(len(bunch.target))[:120]
columns = ["sex", "bmi", "bp", "s3", "s5"]
names = [*columns, "noise 1", "noise 2"]
real = bunch.data[np.ix_(rows, [bunch.feature_names.index(column) for column in columns])]
X = np.hstack([real, rng.normal(size=(120, 2))])
y = bunch.target[rows]

# %% [markdown]
# ## By evidence
# The estimator standardises the inputs; `relevance_` is 1/lengthscale² for standardised inputs.

# %%
svr = bp.BayesianSVR(inference="mean_field", restarts=3, random_state=0).fit(X, y)
order = np.argsort(svr.relevance_)
plt.figure(figsize=(6, 3.5))
plt.barh(np.array(names)[order], np.sqrt(svr.relevance_[order]))
plt.xlabel("1 / lengthscale (standardised)")
plt.tight_layout()
plt.show()

# %% [markdown]
# ## Uncertainty of the lengthscales
# An optimum has no error bars. Sampling the hyperparameters, with the latent function integrated out, shows which
# lengthscales the data determine. The posteriors of relevant columns are narrow; those of the others follow their
# prior.

# %%
Z, t = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
model = bp.default_model(Z, t)
method = bp.NUTS(latent=bp.MeanField(), draws=500, tune=400, chains=4, target_accept=0.95)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", bp.ConvergenceWarning)  # what it says is printed below
    result = bp.fit(method, model, random_seed=0, progressbar=False)
relevance = 1 / result["posterior"]["lengthscale"]
low, middle, high = (relevance.quantile(q, ("chain", "draw")).values for q in (0.05, 0.5, 0.95))
order = np.argsort(middle)
plt.figure(figsize=(6, 3.5))
plt.hlines(np.array(names)[order], low[order], high[order], lw=2)
plt.plot(middle[order], np.array(names)[order], "o")
plt.xscale("log")
plt.xlabel("1 / lengthscale, median and 90 %")
plt.tight_layout()
plt.show()
print(f"R-hat at most {result.attrs['r_hat']:.3f}, ESS at least {result.attrs['ess']:.0f}: {result.attrs['message']}")

# %% [markdown]
# ## On your own data
# Interpret only clear differences; intervals that overlap give no ranking. Two redundant inputs share their relevance:
# to test this, remove one of them and compare the evidence.
