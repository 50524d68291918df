# %% [markdown]
# # Comparing approximations
#
# Which inference can be trusted on these data, and what does it cost? `bp.compare` lays results side by side, holds the
# evidences against annealed sampling at one common point of the hyperparameters, and says in words what speaks against
# each method. First the sinc data, then a set that is hard: an impact, with noise that grows and outliers.

# %%
import logging
import warnings

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
#
# The 25 points in the table's scores were not trained on.

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
# `evidence error` is the difference from the annealed evidence, which is exact up to its small standard error: mean
# field is on it. Exact Laplace is off one way or the other, as points happen to lie inside the rim of the tube or not,
# and local curvature runs high.

# %%
bp.plot_predictive({name: results[name] for name in ("Laplace", "mean field", "NUTS (mean field)")}, model=model)
plt.show()

# %%
bp.plot_hyperparameters(results)
plt.show()

# %% [markdown]
# The optimum of the evidence is a point; NUTS shows how much of the posterior it leaves out. Where its R-hat is high
# here, that is no fault of mean field: under Gaussian noise a wide tube with a large C explains the data too, and chains
# move between the two rarely. Intervals of new targets hardly change.
#
# ## An impact
#
# Nothing happens, then much does, then it rings out: one lengthscale has to serve all of it, the noise grows, and a few
# targets are simply wrong. (The data are simulated in the manner of the well-known motorcycle accidents.)

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
# The outliers do not pull the curve, whatever the inference. What no inference mends is the model: its noise is the same
# everywhere, so that the bands are too wide in the quiet second before the impact. `C` may be a vector in PyMC.
#
# ## On your own data
#
# `bsvr-pp compare data.csv` does all of this for a CSV file and writes `report.html`. Believe mean field where its
# evidence agrees with the annealed one; where k-hat is above 0.7 or the verdict objects, sample.
