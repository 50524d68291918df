"""Sets of 15,000 to 3,000,000 rows: `BayesianSVR` compared with what others use for so many rows.

The sets are those of the folder ``large`` of the data folder, and a simulated robot arm (`arm`). Each has one split:
the first of its ten 90/10 splits if it has them, the last tenth in time for flights3m, the last month for
era_wind_months, which has the data of era_wind, and otherwise a random one. Each pair of a set and a method is one line
of the file of results, so that they can be run one by one.

Errors, densities and scores are in units of the standard deviation of the training targets. The continuous ranked
probability score (CRPS) is computed from 99 quantiles. The negative log density (NLPD) is that of the predictive
distribution itself. Seconds are those of the clock, with the choice of hyperparameters. For `BayesianSVR` the processor
seconds of the fit and the processor milliseconds of a prediction are beside them, since one fit serves several lines.

Stochastic variational inference (SVGP; Hensman, Matthews & Ghahramani 2015) is that of GPyTorch, which
``benchmarks/requirements-large.txt`` installs; without it the method is left out, and the command says so. LightGBM and
CatBoost are those of the benchmark ``middle``; their intervals hold 96 %, between the second and the 98th of 99
quantiles.

(The set "bike" of the same folder is no test of a model: its target is a function of its inputs, in logs.)
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor

import bsvr_pp as bp
from benchmarks.finished import finished
from benchmarks.peers import Density, catboost, lightgbm
from benchmarks.scores import LEVELS, Array, crps
from benchmarks.side_by_side import Timing, publish
from bsvr_pp.datasets import data_folder
from bsvr_pp.losses import soft_insensitive
from bsvr_pp.model.priors import BETA, location_and_scale

Scores = dict[str, float]
Lines = dict[str, Scores]  # by the label of the line
Splits = tuple[Array, Array, Array, Array]  # training inputs, test inputs, training targets, test targets

SETS = (
    "arm",
    "elevators",
    "pol",
    "protein",
    "keggdirected",
    "nycflights13",
    "era_wind",
    "era_wind_months",
    "flights3m",
)
COLUMNS = ("RMSE", "NLPD", "CRPS", "coverage", "fit", "ms", "seconds", "GB")
_TAILS = np.array([0.025, 0.975])
_DENSE = 4000
_THREADS = 2
PREDICTIONS: dict[str, dict[str, Any]] = {
    "own rows, chosen": {"blocks": bp.LocalBlocks()},
    "own block": {"blocks": bp.LocalBlocks(neighbours=None)},
    "own 64 rows, one noise": {"blocks": bp.LocalBlocks(neighbours=64), "noise_scales": False},
    "own 64 rows": {"blocks": bp.LocalBlocks(neighbours=64), "noise_scales": True},
    "own 128 rows": {"blocks": bp.LocalBlocks(neighbours=128), "noise_scales": True},
}
_INDUCING, _BATCH, _EPOCHS = 512, 1024, 100
_GROWTH, _PATIENCE = 1e-3, 5  # smallest relative growth of the bound of SVGP in so many epochs


def read(name: str) -> tuple[Array, Array, NDArray[np.bool_] | None]:
    """Inputs and targets of a set, and its test rows if it has a split."""
    if name == "arm":
        return *arm(), None
    with np.load(data_folder() / "large" / f"{name.removesuffix('_months')}.npz") as file:
        mask = file["test_mask"][:, 0] if "test_mask" in file else None
        X, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
    return X, y, X[:, 0] == X[:, 0].max() if name.endswith("_months") else mask


def arm(rows: int = 40_000) -> tuple[Array, Array]:
    """Angles of eight joints, and the distance of the end of the arm from a point: smooth, and without noise.

    The links have the length 1/8, and each joint turns about an axis at right angles to that of the joint before.
    """
    X, end = np.random.default_rng(0).uniform(-1.87, 1.87, (rows, 8)), np.zeros((rows, 3))
    x, y, z = np.broadcast_to(np.eye(3)[:, None], (3, rows, 3))
    for joint, angle in enumerate(X.T[:, :, None]):
        x, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
        y, z = (z, -across) if joint % 2 == 0 else (-z, across)
        end = end + x / 8
    return X, np.linalg.norm(end - [0.3, -0.2, 0.4], axis=1)


def split(name: str, rows: int | None, test_rows: int | None) -> Splits:
    """Training and test data, at most so many random rows of each."""
    X, y, mask = read(name)
    rng = np.random.default_rng(0)
    if mask is None:
        mask = np.zeros(len(y), dtype=bool)
        last = np.arange(len(y)) >= len(y) - len(y) // 10
        mask[last if name == "flights3m" else rng.permutation(len(y))[: len(y) // 10]] = True
    train, test = np.flatnonzero(~mask), np.flatnonzero(mask)
    if rows is not None and rows < len(train):
        train = np.sort(rng.choice(train, rows, replace=False))
    if test_rows is not None and test_rows < len(test):
        test = np.sort(rng.choice(test, test_rows, replace=False))
    varies = np.ptp(X[train], axis=0) > 0
    return X[train][:, varies], X[test][:, varies], y[train], y[test]


def bayesian(X: Array, X_test: Array, y: Array, y_test: Array) -> Lines:
    """Scores of `BayesianSVR` in blocks: predictions of blocks, and of fits of their own on the nearest rows.

    The scales of the noise are in all cases those of the number of nearest rows that was chosen.
    """
    began = time.process_time()
    svr = bp.BayesianSVR(blocks=bp.LocalBlocks(n_jobs=_THREADS), random_state=0).fit(X, y)
    fitted = time.process_time() - began
    lines = {}
    for label, options in PREDICTIONS.items():
        began = time.process_time()
        scores = _of_estimator(svr.set_params(**options), X_test, y_test)
        lines[label] = scores | {"fit": fitted, "ms": 1e3 * (time.process_time() - began) / len(y_test)}
    return lines


def dense(X: Array, X_test: Array, y: Array, y_test: Array) -> Lines:
    """Scores of `BayesianSVR` on 4,000 random rows, one start."""
    rows = np.random.default_rng(0).permutation(len(y))[:_DENSE]
    svr = bp.BayesianSVR(blocks=None, restarts=1, random_state=0).fit(X[rows], y[rows])
    return {"dense 4000": _of_estimator(svr, X_test, y_test)}


def constant(X: Array, X_test: Array, y: Array, y_test: Array) -> Lines:
    """Scores of a constant with soft insensitive noise, both by maximum likelihood."""
    location, unit = location_and_scale(y)
    targets, beta = (y - location) / unit, BETA

    def minus_log_likelihood(parameters: Array) -> float:
        centre, log_C, log_epsilon = parameters
        noise = soft_insensitive(np.exp(log_C), np.exp(log_epsilon), beta)
        return -float(np.mean(noise.log_density(targets - centre)))

    centre, log_C, log_epsilon = minimize(minus_log_likelihood, [0.0, 0.0, -2.0], method="Nelder-Mead").x
    noise, m = soft_insensitive(np.exp(log_C), np.exp(log_epsilon), beta), len(y_test)
    mean, levels = location + unit * centre, np.append(LEVELS, _TAILS)
    quantiles = np.tile(mean + unit * noise.quantile(levels)[:, None], m)
    log_density = noise.log_density((y_test - mean) / unit) - np.log(unit)
    return {"constant": _scores(y_test, np.full(m, mean), log_density, quantiles[:-2], quantiles[-2:])}


def boosting(X: Array, X_test: Array, y: Array, y_test: Array) -> Lines:
    """Error of histogram gradient boosting with its defaults."""
    return {"boosting": _scores(y_test, HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(X_test))}


def svgp(X: Array, X_test: Array, y: Array, y_test: Array) -> Lines:
    """Scores of GPyTorch's SVGP: 512 learnt inducing points, a Matérn 5/2 kernel with a lengthscale for each input."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(2)
    centre, width, location, unit = X.mean(axis=0), X.std(axis=0), y.mean(), y.std()
    inputs, new = (torch.as_tensor((each - centre) / width, dtype=torch.float32) for each in (X, X_test))
    targets = torch.as_tensor((y - location) / unit, dtype=torch.float32)

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self, inducing: Any) -> None:
            posterior = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
            strategy = gpytorch.variational.VariationalStrategy(self, inducing, posterior)
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=inducing.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model(inputs[torch.randperm(len(inputs))[:_INDUCING]].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(targets))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    history: list[float] = []
    for _ in range(_EPOCHS):
        total = 0.0
        for rows in torch.randperm(len(targets)).split(_BATCH):
            optimizer.zero_grad()
            loss = -bound(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            total += float(loss) * len(rows) / len(targets)
        history.append(-total)
        earlier = history[-1 - _PATIENCE] if len(history) > _PATIENCE else -np.inf
        if history[-1] - earlier < _GROWTH * abs(history[-1]):
            break
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        found = [likelihood(model(part)) for part in new.split(_BATCH)]
    mean = location + unit * np.concatenate([each.mean.double().numpy() for each in found])
    deviation = unit * np.sqrt(np.concatenate([each.variance.double().numpy() for each in found]))
    quantiles = mean + norm.ppf(np.append(LEVELS, _TAILS))[:, None] * deviation
    log_density = norm.logpdf(y_test, mean, deviation)
    return {"SVGP": _scores(y_test, mean, log_density, quantiles[:-2], quantiles[-2:]) | {"epochs": len(history)}}


METHODS: dict[str, Callable[..., Lines]] = {
    "BayesianSVR": bayesian,
    "dense 4000": dense,
    "SVGP": svgp,
    "boosting": boosting,
    "LightGBM": lambda X, X_test, y, y_test: {"LightGBM": _of_density(lightgbm(X, y), X_test, y_test)},
    "CatBoost": lambda X, X_test, y, y_test: {"CatBoost": _of_density(catboost(X, y), X_test, y_test)},
    "constant": constant,
}
NEEDS = {"SVGP": ("gpytorch", "torch"), "LightGBM": ("lightgbm",), "CatBoost": ("catboost",)}


def _of_estimator(svr: Any, X_test: Array, y_test: Array) -> Scores:
    """Scores of a fitted `BayesianSVR`."""
    found = svr.predict_distribution(X_test)
    with svr._local().threads():
        quantiles, ends = (found.ppf(np.asarray(levels)[:, None]) for levels in (LEVELS, _TAILS))
        return _scores(y_test, found.mean(), found.logpdf(y_test), quantiles, ends)


def _of_density(predict: Callable[[Array, Array], Density], X_test: Array, y_test: Array) -> Scores:
    """Scores of a peer, whose intervals hold 96 %."""
    log_density, quantiles, mean = predict(X_test, y_test)
    found = _scores(y_test, mean, log_density, quantiles, quantiles[[1, -2]])
    return {name: score for name, score in found.items() if np.isfinite(score)}  # quantiles alone have no density


def _scores(
    y: Array, prediction: Array, log_density: Array | None = None, quantiles: Array | None = None, ends: Any = None
) -> Scores:
    """Scores in the units of y; without a distribution only the error."""
    out = {"RMSE": float(np.sqrt(np.mean((y - prediction) ** 2)))}
    if log_density is not None and quantiles is not None:
        out["NLPD"], out["CRPS"] = -float(np.mean(log_density)), crps(y, quantiles)
        out["coverage"] = float(np.mean((y >= ends[0]) & (y <= ends[1])))
    return out


def _scaled(scores: Scores, unit: float) -> Scores:
    """Scores in units of the standard deviation of the training targets."""
    factor = {"RMSE": 1 / unit, "CRPS": 1 / unit}
    shift = {"NLPD": -np.log(unit)}
    return {name: float(value * factor.get(name, 1.0) + shift.get(name, 0.0)) for name, value in scores.items()}


def measure(name: str, method: str, rows: int | None, test_rows: int | None) -> list[dict[str, Any]]:
    """Run one method on one set; one line, or several for several kinds of predictions."""
    X, X_test, y, y_test = split(name, rows, test_rows)
    began = time.perf_counter()
    lines = METHODS[method](X, X_test, y, y_test)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    common = {"rows": len(y), "tested": len(y_test), **dict.fromkeys(COLUMNS, np.nan)}
    common |= {"seconds": time.perf_counter() - began, "GB": memory}
    unit = float(np.std(y))
    return [{"label": label} | common | _scaled(scores, unit) for label, scores in lines.items()]


def table(lines: pd.DataFrame) -> Timing:
    """All results, by set."""
    out = Timing(
        "errors and scores in standard deviations of the target; coverage of 95 % intervals",
        ("set", "rows", "method", *COLUMNS),
    )
    for row in sorted(
        lines.to_dict("records"), key=lambda row: (SETS.index(row["set"]), [*METHODS].index(row["method"]))
    ):
        numbers = ("" if np.isnan(row[key]) else f"{row[key]:.3g}" for key in COLUMNS)
        out.add(row["set"], row["rows"], row["label"], *numbers)
    return out


def main(
    sets: Annotated[str, typer.Option(help=f"Any of {', '.join(SETS)}; separated by commas.")] = ",".join(SETS[:-1]),
    methods: Annotated[str, typer.Option(help=f"Any of {', '.join(METHODS)}; separated by commas.")] = "",
    rows: Annotated[int | None, typer.Option(help="Largest number of training rows; for trials.")] = None,
    test_rows: Annotated[int | None, typer.Option(help="Largest number of test rows.")] = None,
    out: Annotated[Path, typer.Option(help="File of results; finished lines are kept.")] = Path("bsvr-pp-large.csv"),
    save: Annotated[bool, typer.Option(help="Write to results.md.")] = False,
) -> None:
    """Compare methods for many rows."""
    chosen = methods.split(",") if methods else list(METHODS)
    for method in chosen:
        missing = [package for package in NEEDS.get(method, ()) if find_spec(package) is None]
        if missing:
            print(f"{method} is left out: it needs {' and '.join(missing)} (benchmarks/requirements-large.txt)")
            chosen = [name for name in chosen if name != method]
    parts = [{"set": name, "method": method} for name in sets.split(",") for method in chosen]
    found = finished(out, parts, lambda **part: measure(part["set"], part["method"], rows, test_rows))
    publish("large", [table(found)], save)
