# %% [markdown]
# # Comparing approximations
# Which inference can be trusted on these data, and what does it cost? `bp.compare` puts the results in one table,
# compares the evidences with annealed sampling, and states in words which problems it found with each method. The first
# example is the sinc data. The second is a difficult data set: an impact with increasing noise and outliers.

# %%
import logging
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np

import bsvr_pp as bp
from bsvr_pp.datasets import sinc

logging.disable(logging.INFO)  # of the sampler
plt.rcParams["figure.dpi"] = 60
warnings.simplefilter("ignore", bp.ConvergenceWarning)  # convergence is in the table

methods = [
    bp.MAP(),
    bp.Laplace(),
    bp.Laplace(curvature="local"),
    bp.MeanField(),
    bp.NUTS(latent=bp.MeanField(), draws=500, tune=400, chains=4, target_accept=0.95),
]


def run(X, y):
    """All methods on the default model."""
    model = bp.default_model(X, y)
    return model, {m.name: bp.fit(m, model, random_seed=0, progressbar=False) for m in methods}


# %% [markdown]
# ## Sinc
# The scores in the table are computed on test points that were not used for training.

# %%
data = sinc(105, random_seed=2)
train, test = data.split(0.24, 0)
scale = train.X.std()
model, results = run(train.X / scale, train.y)
table = bp.compare(results, reference="NUTS (mean field)", X_test=test.X / scale, y_test=test.y, model=model)
table[["evidence at theta", "evidence error", "k-hat", "mlpd", "crps", "elpd", "seconds"]].round(3)

# %%
print(table.attrs["summary"])
for method, verdict in table["verdict"].items():
    print(f"{method}: {verdict}")

# %% [markdown]
# `evidence error` is the difference from the annealed log evidence, which is exact up to its small standard error. Mean
# field agrees with it. The error of exact Laplace can have either sign; it depends on how many points happen to lie on
# the curved part of the loss. Local Laplace is too high.

# %%
bp.plot_predictive({name: results[name] for name in ("Laplace", "mean field", "NUTS (mean field)")}, model=model)
plt.show()

# %%
names = ["C", "epsilon", "amplitude", "lengthscale"]
picture = az.plot_dist(results["NUTS (mean field)"], var_names=names)
az.add_lines(picture, values={name: float(results["mean field"]["posterior"][name][0, 0]) for name in names})
plt.show()

# %% [markdown]
# The optimum of the evidence, the lines, is a point estimate; NUTS shows the uncertainty of the hyperparameters that it ignores. C
# and epsilon have the widest posteriors: if the noise is Gaussian, a wide tube with a large C explains the data as well
# as a narrow one. NUTS therefore samples the standard deviation and the shape of the noise instead, and its chains
# agree. The prediction intervals of new targets hardly change.
#
# ## An impact
# The function is constant, then changes quickly, then oscillates with decreasing amplitude, and one lengthscale has to
# fit all of this. In addition the noise increases, and a few targets are outliers. (The data are simulated similarly to
# the well-known motorcycle accident data.)

# %%
rng = np.random.default_rng(1)
time = np.sort(rng.uniform(0, 6, 90))
path = np.where(time < 1.5, 0.0, -np.exp(-0.8 * (time - 1.5)) * np.sin(2.6 * (time - 1.5)) * 2.0)
acceleration = path + rng.normal(size=90) * np.where(time < 1.5, 0.03, 0.25)
acceleration[rng.choice(90, 5, replace=False)] += rng.choice([-2, 2], 5)
X, y = ((time - time.mean()) / time.std())[:, None], acceleration / acceleration.std()
model, results = run(X, y)
table = bp.compare(results, reference="NUTS (mean field)", model=model)
table[["evidence at theta", "evidence error", "k-hat", "elpd", "seconds"]].round(3)

# %%
print(table.attrs["summary"])
for method, verdict in table["verdict"].items():
    print(f"{method}: {verdict}")

# %%
bp.plot_predictive({name: results[name] for name in ("Laplace", "mean field", "NUTS (mean field)")}, model=model)
plt.show()

# %% [markdown]
# The outliers do not change the curve under any inference. All results share one error of the model: it assumes the
# same noise everywhere, so that the bands are too wide in the second before the impact. In PyMC `C` may be a vector.
#
# ## On your own data
# `bsvr-pp compare data.csv` does all of this for a CSV file and writes `report.html`. Trust mean field if its evidence
# agrees with the annealed one. If k-hat is above 0.7, or if the verdict names a problem, use NUTS.
