# %% [markdown]
# # A first model
#
# Support vector regression as a probability model: a Gaussian process, support vector noise, priors. The same model
# then runs as MAP (the support vector machine itself), Laplace evidence, mean field and NUTS.

# %%
import logging

import arviz as az
import matplotlib.pyplot as plt
import pymc as pm

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams["figure.dpi"] = 70

# %% [markdown]
# ## Data with outliers
#
# Sixty points of sin(x)/x with noise, one in twelve of them thrown far off.

# %%
data = sinc(60, noise=0.1, outliers=0.08, random_seed=4)
plt.figure(figsize=(7, 3))
plt.plot(data.X, data.y, "o", ms=4)
plt.show()

# %% [markdown]
# ## The model
#
# `C` is the inverse scale of the noise, `epsilon` half the width of the tube in which a residual costs nothing, `beta`
# the share of the tube's rim that is smooth. `bp.GP` takes any kernel of `pm.gp.cov`; the constant is the bias of the
# support vector machine.

# %%
with pm.Model() as model:
    lengthscale = pm.InverseGamma("lengthscale", 3, 5)
    C = pm.LogNormal("C", 1, 1.5)
    epsilon = pm.LogNormal("epsilon", -2, 1)
    gp = bp.GP(cov_func=pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(10.0))
    f = gp.prior("f", X=data.X)
    bp.SoftInsensitive("y", mu=f, C=C, epsilon=epsilon, beta=0.3, observed=data.y)

# %% [markdown]
# ## The support vector machine
#
# `bp.MAP` finds the most probable function, by the dual of support vector regression, to a relative duality gap of
# 1e-8. Hyperparameters that are not given maximise the evidence: no grid search.

# %%
machine = bp.fit(bp.MAP(), model, random_seed=0, progressbar=False)
support = machine["latent_posterior"]["support"].values
print(f"{(support == 0).sum()} points are no support vectors, {(support > 0).sum()} are")
print(f"relative duality gap {machine.attrs['duality_gap']:.1e}")

# %% [markdown]
# ## Error bars
#
# Mean field gives the posterior of the function, its evidence is smooth in the hyperparameters. The outliers hardly
# move the fit: beyond the tube the loss is linear.

# %%
result = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)
bp.plot_predictive({"MAP": machine, "mean field": result}, model=model)
plt.show()

# %% [markdown]
# ## Sample the hyperparameters
#
# `bp.NUTS(latent=bp.MeanField())` integrates the function out inside the model, so that NUTS sees three dimensions.
# The result is a DataTree: ArviZ takes it as it is.

# %%
sampled = bp.fit(bp.NUTS(latent=bp.MeanField(), draws=500, tune=500, chains=4), model, random_seed=0, progressbar=False)
az.summary(sampled, var_names=["lengthscale", "C", "epsilon"], kind="stats")

# %% [markdown]
# Is the approximation good enough? `bp.verify` weights the draws by unbiased estimates of the exact evidence. A k-hat
# below 0.7 says that they can be trusted, after the correction that it prints.

# %%
print(bp.verify(sampled, model=model, progressbar=False, random_seed=0))

# %% [markdown]
# ## On your own data
#
# `bp.default_model(X, y)` is a model with priors that follow the scale of the data; `bsvr-pp compare FILE.csv` runs the
# methods on a CSV file and writes a page about it; `bp.BayesianSVR` is a scikit-learn estimator.
