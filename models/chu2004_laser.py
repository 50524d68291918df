"""One-step predictions of the Santa Fe laser with error bars, Chu, Keerthi & Ong 2004, Fig. 5.

Eight values predict the next one. The first 1000 points are for training (normalised), the next 100 for testing; the
model has one lengthscale and β = 0.3. The paper states that the error bars are wide where the predictions fail (points
1051 to 1080).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from chu2004 import model
from experiments import Report, Table
from matplotlib import pyplot as plt

import bsvr_pp as bp
from bsvr_pp.datasets import data_folder

MINUTES = (1, 2)

LAGS, TRAIN, TEST = 8, 1000, 100
METHODS = {"BSVR": bp.Laplace(), "mean field": bp.MeanField()}


def windows():
    """Inputs and targets, normalised by the training points, with the scale."""
    path = data_folder() / "santa_fe_laser.csv"
    if not path.is_file():
        raise FileNotFoundError(f"no data set at {path}: set BSVR_PP_DATA to the folder of the papers' data")
    series = pd.read_csv(path).iloc[: TRAIN + TEST, -1].to_numpy(dtype=float)
    centre, scale = series[:TRAIN].mean(), series[:TRAIN].std()
    series = (series - centre) / scale
    X = np.lib.stride_tricks.sliding_window_view(series, LAGS)[:-1]
    y = series[LAGS:]
    n = TRAIN - LAGS
    return X[:n], y[:n], X[n:], y[n:], (centre, scale)


def predict(method, start=None):
    """Predictions and error bars √(σ_t² + σ_n²) in the laser's units; mean field keeps Laplace's hyperparameters."""
    X, y, X_test, y_test, (centre, scale) = windows()
    svm = model(X, y, ard=False)
    result = bp.fit(
        METHODS[method],
        svm,
        hyperparameters=start,
        objective="evidence",
        restarts=2,
        random_seed=0,
        progressbar=False,
    )
    found = result["posterior"].to_dataset().isel(chain=0, draw=0)
    prediction = bp.predict(result, X_test, model=svm, y_new=y_test)
    return {
        "hyperparameters": {name: float(found[name]) for name in ("lengthscale", "C", "epsilon", "bias")},
        "log evidence": result.attrs["log_evidence"],
        "prediction": centre + scale * prediction["y_mean"].values,
        "error bar": scale * np.sqrt(prediction["y_variance"].values),
        "target": centre + scale * y_test,
        "log density": float(prediction["y_log_density"].mean() - np.log(scale)),
    }


def run(job):
    """The figure, and what it shows in numbers."""
    first = job.each(predict, [{"method": "BSVR"}], "BSVR")[0]
    restarted = {"method": "mean field", "start": first["hyperparameters"]}
    found = {"BSVR": first, "mean field": job.each(predict, [restarted], "mean field")[0]}
    rows = {}
    at = np.arange(TRAIN + 1, TRAIN + TEST + 1)
    hard = (at >= 1051) & (at <= 1080)
    for name, f in found.items():
        error = f["prediction"] - f["target"]
        rows[name] = {
            "ASE": np.mean(error**2),
            "ASE, 1051-1080": np.mean(error[hard] ** 2),
            "ASE elsewhere": np.mean(error[~hard] ** 2),
            "mean bar, 1051-1080": f["error bar"][hard].mean(),
            "mean bar elsewhere": f["error bar"][~hard].mean(),
            "inside ±2 bars": np.mean(np.abs(error) <= 2 * f["error bar"]),
            "mean log density": f["log density"],
            "log evidence": f["log evidence"],
        }
    frame = pd.DataFrame(rows).T.rename_axis("method")
    note = "Mean field at the hyperparameters of Laplace. The paper gives only the figure."
    return Report(
        [Table("figure-5", "Fig. 5: errors and error bars on the laser", frame, note)], {"figure-5": draw(found)}
    )


def draw(found):
    """Predictions above, errors within two error bars below."""
    drawn, axes = plt.subplots(2, len(found), figsize=(13, 6), sharex=True, sharey="row", layout="constrained")
    at = np.arange(TRAIN + 1, TRAIN + TEST + 1)
    for (above, below), (name, f) in zip(axes.T, found.items(), strict=True):
        above.plot(at, f["target"], "-", label="laser")
        above.plot(at, f["prediction"], ".", label="prediction")
        above.set_title(name)
        above.legend()
        below.plot(at, f["prediction"] - f["target"], ".")
        below.fill_between(at, -2 * f["error bar"], 2 * f["error bar"], alpha=0.3)
        below.set(xlabel="time", ylabel="prediction - laser")
    return drawn
