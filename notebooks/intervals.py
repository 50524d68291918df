# %% [markdown]
# # Intervals around an existing regressor
# You have a support vector regression (or any other regressor) that you do not want to change, and need prediction
# intervals. `bp.ResidualIntervals` fits a distribution to its out-of-sample residuals (Lin & Weng 2004). For a new
# model, use `bp.BayesianSVR`.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

import bsvr_pp as bp

plt.rcParams["figure.dpi"] = 70
warnings.simplefilter("ignore")
X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=0)

# %% [markdown]
# ## The existing regressor
# The regressor is an SVR that is tuned by a grid search over C, epsilon and gamma.

# %%
grid = {"svr__C": [10, 30, 100, 300], "svr__epsilon": [3, 10, 30], "svr__gamma": [0.01, 0.03, 0.1]}
svr = GridSearchCV(make_pipeline(StandardScaler(), SVR()), grid, cv=5).fit(X_train, y_train).best_estimator_

# %% [markdown]
# ## Its residuals
# `bp.ResidualIntervals` computes cross-validated residuals and applies the most powerful scale-invariant test of
# Gaussian against Laplace residuals.

# %%
intervals = bp.ResidualIntervals(svr, random_state=0).fit(X_train, y_train)
print(f"the residuals are taken as {intervals.family_}: p = {intervals.test_.p_value:.3f} for Gaussian ones")
plt.figure(figsize=(6, 3))
plt.hist(intervals.residuals_, bins=30, density=True, color="0.8")
r = np.linspace(-200, 200, 300)
scale = intervals.scale_
plt.plot(r, np.exp(-0.5 * (r / scale) ** 2) / (scale * np.sqrt(2 * np.pi)))
plt.show()

# %% [markdown]
# ## Comparison with a Bayesian model
# `BayesianSVR` needs no grid search: its hyperparameters maximise the evidence, and its intervals widen where there are
# few data.

# %%
own = bp.BayesianSVR(inference="mean_field", restarts=2, random_state=0).fit(X_train, y_train)
rows = {}
for name, model in {"SVR + residual intervals": intervals, "BayesianSVR": own}.items():
    row = {"MSE": np.mean((model.predict(X_test) - y_test) ** 2)}
    for coverage in (0.8, 0.95):
        low, high = model.predict_interval(X_test, coverage).T
        row[f"coverage of {coverage:.0%}"] = np.mean((low <= y_test) & (y_test <= high))
        row[f"width of {coverage:.0%}"] = np.mean(high - low)
    rows[name] = row
pd.DataFrame(rows).T.round(2)

# %% [markdown]
# ## On your own data
# Wrap your regressor: `bp.ResidualIntervals(your_regressor).fit(X, y).predict_interval(X_new, coverage=0.9)`. It warns
# if the size of the residuals depends on the prediction.
