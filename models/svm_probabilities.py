"""Class probabilities on real data: Pima and crabs, the outlook of Sollich 2002.

There is one table per data set, with the log loss and the error on the test set and the seconds of the fit. The methods
are `BayesianSVC` (three evidences, three probabilities), the calibrated support vector machine of scikit-learn with and
without a grid search, its Gaussian process classifier, and logistic regression. Pima has the 200 and 332 rows of
Ripley; the crabs are split in halves. Sollich quotes an error of 18.9 % on Pima, with one lengthscale per input chosen
by the naive evidence.

A single test set is not conclusive. The last table therefore has ten random splits (--quick: two) of Pima, crabs, and
the breast cancer and two-moons data of scikit-learn, and compares the log losses split by split.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from experiments import Report, Table
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bsvr_pp.datasets import load
from bsvr_pp.estimators.svc import BayesianSVC

MINUTES = (2, 12)

GRID = {"svc__C": np.logspace(-1, 3, 7), "svc__gamma": np.logspace(-3, 1, 7)}
# Number of training rows in the random splits.
TRAINING = {"pima": 200, "crabs": 100, "breast cancer": 150, "moons": 100}
COMPARED = (
    "BayesianSVC",
    "  one length scale",
    "SVC, grid, calibrated",
    "SVC, nested grid, calibrated",
    "Gaussian process",
    "  the same, one length scale",
    "logistic regression",
)


class CalibratedGrid(CalibratedClassifierCV):
    """A grid search on all training data, then calibration of its best model; cheaper than a nested search."""

    def fit(self, X, y):
        """Search and calibrate."""
        self.estimator = GridSearchCV(make_pipeline(StandardScaler(), SVC()), GRID).fit(X, y).best_estimator_
        return super().fit(X, y)


def gaussian_process(shape):
    """Build the Gaussian process classifier of scikit-learn with an offset and lengthscales of the given shape."""
    kernel = ConstantKernel() * RBF(shape) + ConstantKernel()
    return make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel, random_state=0))


def classifiers(d):
    """All classifiers by name, for d inputs."""
    svc = make_pipeline(StandardScaler(), SVC())
    sollich = {"evidence": "conditional", "random_state": 0}
    return {
        "BayesianSVC": BayesianSVC(**sollich),
        "  at the posterior mean": BayesianSVC(**sollich, probability="mean"),
        "  at the mode": BayesianSVC(**sollich, probability="map"),
        "  joint evidence": BayesianSVC(random_state=0, evidence="joint"),
        "  naive evidence": BayesianSVC(random_state=0, evidence="naive"),
        "  one length scale": BayesianSVC(**sollich, ard=False),
        "  normalised at each point": BayesianSVC(random_state=0),
        "SVC, calibrated": CalibratedClassifierCV(svc),
        "SVC, grid, calibrated": CalibratedGrid(),
        "SVC, nested grid, calibrated": CalibratedClassifierCV(GridSearchCV(svc, GRID)),
        "Gaussian process": gaussian_process(np.ones(d)),
        "  the same, one length scale": gaussian_process(1.0),
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    }


def splits(name, seed=None):
    """Inputs and labels to train on, and to test: Ripley's rows of Pima and halves of the crabs, or at random."""
    if seed is None:
        train, test = (load("pima_train"), load("pima_test")) if name == "pima" else load("crabs").split(0.5, 0)
        return train.X, train.y, test.X, test.y
    if name == "pima":
        both = load("pima_train"), load("pima_test")
        X, y = (np.concatenate([getattr(part, key) for part in both]) for key in ("X", "y"))
    elif name == "crabs":
        X, y = load("crabs").X, load("crabs").y
    else:
        found = (
            make_moons(600, noise=0.3, random_state=seed) if name == "moons" else load_breast_cancer(return_X_y=True)
        )
        X, y = found
    X, X_test, y, y_test = train_test_split(X, y, train_size=TRAINING[name], random_state=seed)
    return X, y, X_test, y_test


def score(name, label, seed=None):
    """Log loss and error of one classifier on one data set, and its seconds of wall clock and of computing."""
    X, y, X_test, y_test = splits(name, seed)
    classifier = classifiers(X.shape[1])[label]
    began, used = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's optimiser at its bounds
        classifier.fit(X, y)
    seconds, computing = time.perf_counter() - began, time.process_time() - used
    probabilities = np.clip(classifier.predict_proba(X_test), 0, 1)  # the Gaussian process exceeds 1 by rounding
    loss, error = log_loss(y_test, probabilities), 1 - classifier.score(X_test, y_test)
    return {"classifier": label, "log loss": loss, "error": error, "seconds": seconds, "CPU seconds": computing}


def split_table(name, rows):
    """Mean over random splits, and how much more than `BayesianSVC` each classifier loses, split by split."""
    frame = pd.DataFrame(rows)
    losses = np.array([frame.loc[frame["classifier"] == label, "log loss"] for label in COMPARED])
    table = frame.groupby("classifier", sort=False).mean()
    table["more log loss"] = (losses - losses[0]).mean(axis=1)
    table["its error"] = (losses - losses[0]).std(axis=1, ddof=1) / np.sqrt(losses.shape[1])
    title = f"{name}: {losses.shape[1]} random splits, {TRAINING[name]} to fit"
    return Table(f"splits-{name.replace(' ', '-')}", title, table)


def run(job):
    """Make one table per data set."""
    tables = []
    for name in ("pima", "crabs"):
        X, y, _, y_test = splits(name)
        rows = job.each(score, [{"name": name, "label": label} for label in classifiers(X.shape[1])], name)
        title = f"{name}: {len(y)} to fit, {len(y_test)} to test"
        tables.append(Table(name, title, pd.DataFrame(rows).set_index("classifier")))
    for name in TRAINING:
        parts = [
            {"name": name, "label": k, "seed": job.seed + i} for i in range(2 if job.quick else 10) for k in COMPARED
        ]
        tables.append(split_table(name, job.each(score, parts, f"splits of {name}")))
    return Report(tables)
