# %% [markdown]
# # Class probabilities of a support vector machine, done right
#
# `SVC(probability=True)` fits a sigmoid to cross-validated scores after the fact, and is on its way out of scikit-learn.
# Sollich (2002) gives the machine a probability model of its own: its labels have three values, the third is "don't
# know", and the evidence has to be normalised by the probability that nobody said it. `bp.BayesianSVC` chooses its
# hyperparameters by that evidence, and averages the model's own probabilities over the posterior.
#
# The data are Ripley's: diabetes among Pima women, 200 to train on and 332 to test, and the sex of crabs. They are found
# through the environment variable BSVR_PP_DATA.

# %%
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV, calibration_curve
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import bsvr_pp as bp
from bsvr_pp.datasets import load

plt.rcParams["figure.dpi"] = 70
warnings.simplefilter("ignore")  # bounds of the Gaussian process's search


def machines():
    """Five classifiers; SVC is tuned by a grid search, and then calibrated."""
    grid = {"svc__C": [0.1, 1, 10, 100], "svc__gamma": [0.003, 0.01, 0.03, 0.1, 0.3]}
    svc = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)
    kernel = ConstantKernel(1.0) * RBF(3.0)
    return {
        "BayesianSVC": bp.BayesianSVC(random_state=0),
        "SVC, grid, calibrated": CalibratedClassifierCV(svc, cv=5),
        "Gaussian process": make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0)),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    }


def judge(X, y, X_test, y_test):
    """Test log loss, errors and seconds; and the probabilities."""
    rows, probabilities = {}, {}
    for name, machine in machines().items():
        began = time.perf_counter()
        machine.fit(X, y)
        seconds = time.perf_counter() - began
        P = probabilities[name] = machine.predict_proba(X_test)[:, 1]
        rows[name] = {
            "log loss": log_loss(y_test, P),
            "errors": int(np.sum((P > 0.5) != (y_test > 0))),
            "seconds": seconds,
        }
    return pd.DataFrame(rows).T.round(3), probabilities


# %% [markdown]
# ## Pima

# %%
train, test = load("pima_train"), load("pima_test")
table, probabilities = judge(train.X, train.y, test.X, test.y)
table

# %% [markdown]
# The machine's own probabilities are as good as those of the calibrated SVC, without a grid and without
# cross-validation; the Gaussian process and logistic regression are 0.011 and 0.012 ahead on these data, where hardly
# anything is to be had from a kernel.
#
# A calibration curve: among the women to whom a probability of 30 % was given, how many had diabetes?

# %%
plt.figure(figsize=(5, 4))
plt.plot([0, 1], [0, 1], color="0.7")
for name, P in probabilities.items():
    share, given = calibration_curve(test.y > 0, P, n_bins=6, strategy="quantile")
    plt.plot(given, share, "o-", label=name, ms=4)
plt.xlabel("probability")
plt.ylabel("share of diabetes")
plt.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Crabs
#
# Sex from five lengths and the species; the classes are nearly separable.

# %%
crabs = load("crabs")
X, X_test, y, y_test = train_test_split(crabs.X, crabs.y, test_size=0.6, random_state=0, stratify=crabs.y)
judge(X, y, X_test, y_test)[0]

# %% [markdown]
# Here the kernel pays: the machine gives the best probabilities, the Gaussian process comes second, and all make two or
# three errors.
#
# ## On your own data
#
# `bp.BayesianSVC().fit(X, y).predict_proba(X_new)`: a second or two for two hundred points, minutes for a thousand. Look at
# `log_evidence_` to compare kernels, at `relevance_` for the inputs, and at a calibration curve before you believe any
# probability.
