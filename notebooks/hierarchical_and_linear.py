# %% [markdown]
# # Groups, coefficients and curves of coefficients
# Support vector noise is not only for a function of inputs. Here it belongs to a hierarchical regression without any
# Gaussian process, and then to a coefficient that varies with time. Both models are ordinary PyMC models in which mu is
# linear in Gaussian variables, so that every method integrates these out exactly.

# %%
import logging

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import bsvr_pp as bp

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams["figure.dpi"] = 70

# %% [markdown]
# ## Data: twelve groups, some with few rows
# Each group has a level and a slope of its own. The groups have 3 to 12 rows, and one target in twelve is wrong.

# %%
rng = np.random.default_rng(3)
sizes = np.tile([3, 4, 6, 12], 3)
group = np.repeat(np.arange(12), sizes)
n = group.size
true_level, true_slope = rng.normal(1.0, 0.6, 12), rng.normal(-0.5, 0.4, 12)
dose = rng.uniform(0.0, 3.0, n)
y = true_level[group] + true_slope[group] * dose + rng.normal(0.0, 0.15, n)
wrong = rng.choice(n, n // 12, replace=False)
y[wrong] += rng.choice([-3.0, 3.0], wrong.size)

# %% [markdown]
# ## Partial pooling
# Levels and slopes come from common distributions, whose means are Gaussian as well: `level` is centred, `slope` is
# written with a standard normal variable. Both forms are read alike. `dose` and `group` are `pm.Data`, so that new rows
# can have other values.


# %%
def pooled(noise):
    with pm.Model(coords={"group": np.arange(12)}) as model:
        x, g = pm.Data("dose", dose), pm.Data("group_of", group)
        spread = pm.HalfNormal("spread", 1.0, shape=2)
        level = pm.Normal("level", pm.Normal("mean_level", 0.0, 2.0), spread[0], dims="group")
        white = pm.Normal("white", dims="group")
        slope = pm.Deterministic("slope", pm.Normal("mean_slope", 0.0, 2.0) + spread[1] * white, dims="group")
        mu = level[g] + slope[g] * x
        if noise == "gaussian":
            pm.Normal("y", mu, pm.HalfNormal("sigma", 1.0), observed=y)
        else:
            C = pm.LogNormal("C", 1.0, 1.5)
            bp.SoftInsensitive("y", mu=mu, C=C, epsilon=0.05, beta=0.3, observed=y)
    return model


model = pooled("soft insensitive")
methods = (bp.MAP(), bp.Laplace(), bp.MeanField(), bp.NUTS(latent=bp.MeanField(), draws=500, tune=500, chains=2))
results = {method.name: bp.fit(method, model, random_seed=1, progressbar=False) for method in methods}
print(az.summary(results["mean field"], var_names=["mean_level", "mean_slope"], kind="stats", round_to=2))

# %% [markdown]
# The methods agree. MAP is the dual of a linear support vector machine: rows inside the tube have no part in it.

# %%
for name, result in results.items():
    found = result["posterior"]["level"].mean(["chain", "draw"]).values
    print(f"{name:20s} error of the levels {np.sqrt(np.mean((found - true_level) ** 2)):.3f}")
support = results["MAP"]["latent_posterior"]["support"].values
print(f"{(support == 0).sum()} of {n} rows are no support vectors")
print(bp.compare({k: v for k, v in results.items() if k != "MAP"}, model=model).iloc[:, :3].round(2))

# %% [markdown]
# ## What the noise does, and what pooling does
# Under Gaussian noise the wrong targets widen the noise of all rows and pull the groups with few rows. Without pooling,
# which is a least-squares line for each group, three rows with an error in one of them say little.

# %% alt: levels of twelve groups by three methods against the true ones; support vector noise with pooling is closest
gaussian = bp.fit(bp.MeanField(), pooled("gaussian"), random_seed=1, progressbar=False)
lines = np.array([np.polyfit(dose[group == k], y[group == k], 1)[1] for k in range(12)])
estimates = {
    "support vector noise, pooled": results["mean field"]["posterior"]["level"].mean(["chain", "draw"]).values,
    "Gaussian noise, pooled": gaussian["posterior"]["level"].mean(["chain", "draw"]).values,
    "a line for each group": lines,
}
plt.figure(figsize=(6, 4))
for (name, found), marker in zip(estimates.items(), "os^", strict=True):
    plt.plot(true_level, found, marker, label=f"{name}, error {np.sqrt(np.mean((found - true_level) ** 2)):.2f}")
plt.plot([-1, 3], [-1, 3], "k:", lw=1)
plt.ylim(-2, 4)
plt.xlabel("true level")
plt.ylabel("estimate")
plt.legend(fontsize=8, loc="upper left")
plt.show()

# %% [markdown]
# ## New rows
# A model without a process has no inputs: new rows are data. A group that the model does not know is refused.

# %%
new = {"dose": [0.0, 3.0], "group_of": [0, 0]}
prediction = bp.predict(results["mean field"], data=new, model=model)
print(prediction[["f_mean", "y_mean", "y_variance"]].to_dataframe().round(3))
try:
    bp.predict(results["mean field"], data={"dose": [1.0], "group_of": [-1]}, model=model)
except ValueError as error:
    print(error)

# %% [markdown]
# ## A coefficient that varies
# The effect of a covariate z may change with time: `slope(t) * z` with a process `slope`. It is linear in the process,
# whose kernel is evaluated once.

# %% alt: the effect of a covariate over time with a band of two standard deviations, and the true effect inside it
m = 120
t, z = np.sort(rng.uniform(0, 10, m)), rng.normal(size=m)
truth = np.sin(t) + 0.2 * t
target = 1.0 + truth * z + 0.1 * rng.laplace(size=m)
with pm.Model() as varying:
    covariate, time = pm.Data("z", z), pm.Data("t", t[:, None])
    ls = pm.InverseGamma("ls", 4, 6)
    slope = bp.GP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=ls)).prior("slope", X=time)
    level = pm.Normal("level", 0.0, 2.0)
    C = pm.LogNormal("C", 1.0, 1.5)
    bp.SoftInsensitive("target", mu=level + covariate * slope, C=C, epsilon=0.05, beta=0.3, observed=target)
fitted = bp.fit(bp.MeanField(), varying, random_seed=1, progressbar=False)
at = np.linspace(0, 10, 80)
effect = bp.predict(fitted, at[:, None], model=varying, data={"z": np.ones(80)}, component="slope")
mean, sd = effect["f_mean"].values, np.sqrt(effect["f_variance"].values)
plt.figure(figsize=(7, 3))
plt.fill_between(at, mean - 2 * sd, mean + 2 * sd, alpha=0.3)
plt.plot(at, mean, label="mean field")
plt.plot(at, np.sin(at) + 0.2 * at, "k:", label="truth")
plt.xlabel("time")
plt.ylabel("effect of z")
plt.legend()
plt.show()

# %% [markdown]
# ## On your own data
# Write mu as you would in PyMC, make what has one value a row `pm.Data`, and fit. If mu is not linear in its Gaussian
# variables, the message names the operation; `bp.NUTS()` samples such a model as it is.
