# %% [markdown]
# # A first model
# This notebook formulates support vector regression as a probability model: a Gaussian process, support vector noise
# and priors. The same model then runs under MAP (the support vector machine itself), Laplace evidence, mean field and
# NUTS.

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
# The data are sixty points of sin(x)/x with noise. One point in twelve is an outlier.

# %%
data = sinc(60, noise=0.1, outliers=0.08, random_seed=4)
plt.figure(figsize=(7, 3))
plt.plot(data.X, data.y, "o", ms=4)
plt.show()

# %% [markdown]
# ## The model
# `C` is the inverse scale of the noise. `epsilon` is the half-width of the tube, in which the loss is zero. `beta` is
# the smooth fraction of the tube. `bp.GP` accepts any kernel of `pm.gp.cov`; the constant kernel is the bias of the
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
# `bp.MAP` computes the most probable function from the dual of support vector regression, to a relative duality gap of
# 1e-8. Hyperparameters that are not given maximise the evidence; a grid search is not needed.

# %%
svm = bp.fit(bp.MAP(), model, random_seed=0, progressbar=False)
support = svm["latent_posterior"]["support"].values
print(f"{(support == 0).sum()} points are no support vectors, {(support > 0).sum()} are")
print(f"relative duality gap {svm.attrs['duality_gap']:.1e}")

# %% [markdown]
# ## Error bars
# Mean field gives the posterior of the function, and its evidence is smooth in the hyperparameters. The outliers hardly
# change the fit, since the loss is linear outside the tube.

# %%
result = bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False)
bp.plot_predictive({"MAP": svm, "mean field": result}, model=model)
plt.show()

# %% [markdown]
# ## Sample the hyperparameters
# `bp.NUTS(latent=bp.MeanField())` integrates the latent function out, so that NUTS samples only three hyperparameters.
# The result is a DataTree that ArviZ reads directly.

# %%
sampled = bp.fit(bp.NUTS(latent=bp.MeanField(), draws=500, tune=500, chains=4), model, random_seed=0, progressbar=False)
az.summary(sampled, var_names=["lengthscale", "C", "epsilon"], kind="stats")

# %% [markdown]
# Is the approximation good enough? `bp.verify` weights the draws by unbiased estimates of the exact evidence, and
# prints corrected means and standard deviations. If k-hat is below 0.7, the corrected values can be trusted.

# %%
print(bp.verify(sampled, model=model, progressbar=False, random_seed=0))

# %% [markdown]
# ## On your own data
# `bp.default_model(X, y)` makes a model with priors that follow the scale of the data. `bsvr-pp compare FILE.csv` runs
# the methods on a CSV file and writes a report page. `bp.BayesianSVR` is a scikit-learn estimator.
