# %% [markdown]
# # Censored times and ordered grades
# A target may be known only to lie in an interval. A patient who leaves a study without the event has a time that is
# larger than the time of observation; a grade says between which two unknown cut points a latent target lies. Both have
# the same likelihood, the probability of an interval under support vector noise.

# %%
import logging

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from sklearn.datasets import load_diabetes

import bsvr_pp as bp

logging.getLogger("pymc").setLevel(logging.ERROR)
plt.rcParams["figure.dpi"] = 70

# %% [markdown]
# ## Survival times
# The trial is simulated. The median time in months is a function of the dose, and the log of the time has Laplace
# noise, so that a few patients live much shorter or longer than others. Patients enter at different times before the
# study ends, and of those who are alive then we know only that their times are longer.

# %% alt: Times of patients against dose; between doses 4 and 6 all times are censored
rng = np.random.default_rng(3)
dose = np.sort(rng.uniform(0, 10, 80))


def log_median(dose):
    """The true log of the median time, in months."""
    return 1.5 + 2.0 * np.exp(-((dose - 5) ** 2) / 8)


log_time = log_median(dose) + 0.3 * rng.laplace(size=dose.size)
log_end = np.log(rng.uniform(3, 24, dose.size))  # end of the observation of each patient
observed = log_time < log_end
known = np.minimum(log_time, log_end)
print(f"{(~observed).sum()} of {dose.size} times are censored")
plt.figure(figsize=(7, 3))
plt.semilogy(dose[observed], np.exp(known[observed]), "o", ms=4, label="time of the event")
plt.semilogy(dose[~observed], np.exp(known[~observed]), "^", ms=5, color="grey", label="censored")
plt.xlabel("dose")
plt.ylabel("months")
plt.legend()
plt.show()

# %% [markdown]
# ## The model in PyMC
# `pm.Censored` of a noise with the Gaussian process as its location is all that is needed. Mean field integrates the
# function out, and the hyperparameters maximise the evidence times their priors.

# %%
X = dose[:, None]
with pm.Model() as model:
    lengthscale = pm.InverseGamma("lengthscale", 3, 5)
    amplitude = pm.HalfNormal("amplitude", 1)
    C = pm.LogNormal("C", 1, 1)
    kernel = amplitude**2 * pm.gp.cov.ExpQuad(1, ls=lengthscale) + pm.gp.cov.Constant(10.0)
    f = bp.GP(cov_func=kernel).prior("f", X=X)
    noise = bp.SoftInsensitive.dist(mu=f, C=C, epsilon=0.05, beta=0.3)
    pm.Censored("log_time", noise, lower=None, upper=log_end, observed=known)
    result = bp.fit(bp.MeanField(), random_seed=0, progressbar=False)
print(f"converged: {bool(result.attrs['converged'])}")
az.summary(result, var_names=["lengthscale", "amplitude", "C"], kind="stats")[["mean"]]

# %% [markdown]
# ArviZ checks the model: the survival curve of the data (Kaplan and Meier's, which counts censored times correctly)
# should lie among those of data that the model predicts.

# %% alt: The Kaplan-Meier curve of the data lies within the curves of predicted data
az.plot_ppc_censored(result, figure_kwargs={"figsize": (7, 3)})
plt.show()

# %% [markdown]
# ## What happens without the intervals
# The estimator takes the structured array of scikit-survival, or the two ends of each interval. Two ways are common and
# wrong: to drop the censored rows, and to keep the limits as if they were times. Both lose the patients for whom the
# treatment works.

# %% alt: The true median time has its maximum of 33 months at dose 5; intervals come near it, the two other ways reach 16
fields = [("event", bool), ("time", float)]
targets = {
    "as intervals": (X, np.array(list(zip(observed, np.exp(known), strict=True)), dtype=fields)),
    "dropped": (X[observed], np.exp(known[observed])),
    "kept as exact": (X, np.exp(known)),
}
machines = {
    way: bp.BayesianSVR(kernel="rbf", restarts=1, log_targets=True, random_state=0).fit(*data)
    for way, data in targets.items()
}
grid = np.linspace(0, 10, 100)[:, None]
plt.figure(figsize=(7, 3))
plt.semilogy(grid, np.exp(log_median(grid)), "k", lw=1, label="truth")
for (way, svr), style in zip(machines.items(), ("-", "--", ":"), strict=True):
    plt.semilogy(grid, svr.predict(grid), style, lw=2, label=f"censored rows {way}")
plt.xlabel("dose")
plt.ylabel("median months")
plt.legend(fontsize="small")
plt.show()
truth = log_median(grid[:, 0])
errors = {way: np.sqrt(np.mean((np.log(svr.predict(grid)) - truth) ** 2)) for way, svr in machines.items()}
pd.Series(errors, name="error of the log median").to_frame().round(3)

# %% [markdown]
# ## Survival functions
# The probability to live longer than a given time, for three doses; the concordance is the share of the pairs of known
# order that are predicted in this order.

# %% alt: Survival functions of three doses; half of the patients live longer than 7, 15 and 44 months
svr = machines["as intervals"]
months = np.linspace(0.5, 60, 100)
plt.figure(figsize=(7, 3))
curves = svr.predict_distribution([[1.0], [3.0], [5.0]]).sf(months[:, None]).T
for one, curve in zip((1, 3, 5), curves, strict=True):
    plt.plot(months, curve, label=f"dose {one}")
plt.xlabel("months")
plt.ylabel("probability to live longer")
plt.ylim(0, 1)
plt.legend()
plt.show()
print(f"concordance {svr.score(*targets['as intervals']):.2f}")

# %% [markdown]
# ## Ordered grades
# The diabetes data of scikit-learn contain a measure of the progression of the disease after one year. We cut it into
# four grades, as a physician would report it.

# %%
inputs, progression = load_diabetes(return_X_y=True, as_frame=True)
grade = np.digitize(progression, [90, 150, 220])
rows = rng.permutation(len(grade))
train, test = rows[:200], rows[200:]

# %% [markdown]
# The latent target is a Gaussian process plus noise of standard deviation 1, and the cut points are learned. The shape of
# the default noise is learned too: `tails_` is 1 for Laplace noise, in which a wrong grade has a bounded influence, and
# near 0 for Gaussian noise, which is the ordered probit model. The evidence is a probability of the grades; here it
# prefers noise that is nearly Gaussian.

# %%
options = {"kernel": "rbf", "ard": False, "restarts": 1, "random_state": 0}
rows = {}
for name, kind in {"Gaussian": "gaussian", "Laplace": "absolute", "learned": "soft_insensitive"}.items():
    svc = bp.BayesianOrdinalSVC(kind, **options).fit(inputs.iloc[train], grade[train])
    probability = svc.predict_proba(inputs.iloc[test])
    rows[name] = {
        "log loss": -np.log(probability[np.arange(test.size), grade[test]]).mean(),
        "mean absolute error": np.abs(svc.predict(inputs.iloc[test]) - grade[test]).mean(),
        "log evidence": svc.log_evidence_,
    }
    print(f"{name} noise: cut points {svc.cutpoints_.round(2)}, amplitude {svc.amplitude_:.2f}")
print(f"tails {svc.tails_:.2f}")
pd.DataFrame(rows).T.round(3)

# %% [markdown]
# The probabilities of the grades along one input, the body mass index, with the others at their means:

# %% alt: Probabilities of four grades against the body mass index; low grades give way to high grades
line = pd.DataFrame(np.zeros((100, inputs.shape[1])), columns=inputs.columns)
line["bmi"] = np.linspace(inputs["bmi"].min(), inputs["bmi"].max(), 100)
plt.figure(figsize=(7, 3))
plt.stackplot(line["bmi"], svc.predict_proba(line).T, labels=[f"grade {label}" for label in svc.classes_], alpha=0.8)
plt.xlabel("body mass index, centred and scaled")
plt.ylabel("probability")
plt.margins(0)
plt.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## On your own data
# `bp.BayesianSVR().fit(X, y)` takes y as a structured array of event and time, and with `intervals=True` as two columns,
# the ends of the intervals; `log_targets=True` models the log of positive times. `bp.BayesianOrdinalSVC().fit(X, y)`
# takes labels that sort in their order. From a file: `bsvr-pp fit FILE.csv --target time --event observed
# --log-target`, or `--target grade --ordinal`. `bp.Interval` and `bp.Ordinal` are the distributions for models of your
# own.
