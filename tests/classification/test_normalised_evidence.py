"""The optimum of the normalised evidence of labels, against the evidence itself."""

import numpy as np
import pymc as pm
import pytest
from problems import factor_grid
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import bsvr_pp as bp
from bsvr_pp import classification
from bsvr_pp.approximations import annealed, mean_field
from bsvr_pp.classification.normalised_evidence import LabelPrior, NormalisedEvidence
from bsvr_pp.classification.normaliser import Known, MeanKnown
from bsvr_pp.core.approximations.posterior import Gradient
from bsvr_pp.inference.protocol import Options
from bsvr_pp.losses import hinge
from bsvr_pp.model.reader import read_model
from tests.helpers import differences


def small_model(X, y):
    """Kernel within reach of the quadrature."""
    with pm.Model() as built:
        C = pm.LogNormal("C", np.log(np.log(2.0)), 1.0)
        amplitude = pm.LogNormal("amplitude", 0.0, 0.7)
        linear = pm.LogNormal("linear", np.log(0.3), 0.7)
        lengthscale = pm.LogNormal("lengthscale", 0.5 * np.log(2.0), 2.0)
        line = pm.gp.cov.Linear(1, c=0.0)
        f = bp.GP(cov_func=amplitude * pm.gp.cov.ExpQuad(1, ls=lengthscale) + linear * line).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=C, observed=y)
    return built


X3, Y3 = np.array([[-1.0], [0.2], [1.3]]), np.array([-1.0, -1.0, 1.0])


@pytest.mark.slow
def test_gradients_of_the_prior_and_the_evidence_against_differences(exactly):
    problem = read_model(small_model(X3, Y3))
    prior = LabelPrior(problem, {}, bp.MeanField())
    G = np.random.default_rng(0).standard_normal((3, 3))
    G = G + G.T
    assert np.allclose(prior.start, [np.log(np.log(2)), 0.0, np.log(0.3), 0.5 * np.log(2)], atol=1e-3)
    x = prior.start + 0.1

    def value(x):
        K, C, log_prior = prior.at(x)
        return mean_field(K, Y3, hinge(C)).log_evidence - np.sum(G * K.dense()) - 0.7 * C + log_prior

    normaliser = Gradient(G, np.zeros(3), {"C": 0.7})
    found = prior.gradient(x, [normaliser])
    assert np.allclose(found, differences(value, x, 1e-5), rtol=1e-4)  # as in a search
    again = prior.gradient(x, [normaliser])  # from the last sites
    assert np.allclose(again, found, rtol=1e-4)
    held = LabelPrior(problem, {"C": np.array(2.0)}, bp.MeanField())
    assert held.start.size == 3 and held.at(held.start)[1] == pytest.approx(2.0)
    assert held.gradient(held.start, []).size == 3


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "factor"), [("conditional", Known), ("joint", MeanKnown)])
def test_the_ascent_ends_where_the_objective_is_largest(kind, factor):
    """Three points, by quadrature: no step of any hyperparameter does better by more than the noise."""
    problem = read_model(small_model(X3, Y3))
    prior = LabelPrior(problem, {}, bp.MeanField())

    def objective(x):
        K, C, log_prior = prior.at(x)
        return mean_field(K, Y3, hinge(C)).log_evidence - logsumexp(factor_grid(K.dense(), factor(C))[1]) + log_prior

    method = NormalisedEvidence(kind, steps=150, particles=400)
    found = method.run(problem, {}, Options(), np.random.default_rng(1))
    best = np.concatenate([np.ravel(v) for v in problem.to_unconstrained(found.points[0])])
    top = objective(best)
    assert top > objective(prior.start) and found.diagnosis()["converged"] == 1
    for i in range(best.size):
        for step in (-0.3, 0.3):
            assert objective(best + step * np.eye(best.size)[i]) < top + 0.01


@pytest.mark.slow
def test_each_evidence_is_larger_at_its_own_optimum():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (60, 1))
    y = np.where(np.sin(3 * X[:, 0]) > 0, 1.0, -1.0)
    problem = read_model(classification.default_label_model(X, y))
    prior = LabelPrior(problem, {}, bp.MeanField())
    found = {
        kind: NormalisedEvidence(kind).run(problem, {}, Options(), np.random.default_rng(1)).points[0]
        for kind in ("naive", "conditional")
    }

    def evidences(point):
        K, C, log_prior = prior.at(np.concatenate([np.ravel(v) for v in problem.to_unconstrained(point)]))
        naive = mean_field(K, y, hinge(C)).log_evidence + log_prior
        normaliser = annealed(
            K, None, Known(C), bp.Annealed(particles=500, groups=16, moves=4, efficiency=0.93), random_seed=2
        )
        return np.array([naive, naive - normaliser.log_evidence])

    naive, conditional = evidences(found["naive"]), evidences(found["conditional"])
    assert naive[0] > conditional[0] + 0.3 and conditional[1] > naive[1] + 0.3


@pytest.mark.slow
def test_C_does_not_run_away_beyond_what_the_evidence_wants():
    """Two splits of breast cancer, where C came out at 48 and 136 when particles were annealed by the step alone."""
    X, y = load_breast_cancer(return_X_y=True)
    for seed in (0, 6):
        part, _, labels, _ = train_test_split(X, y, train_size=150, random_state=seed)
        inputs = (part - part.mean(axis=0)) / part.std(axis=0)
        problem = read_model(classification.default_label_model(inputs, np.where(labels > 0, 1.0, -1.0)))
        found = NormalisedEvidence().run(problem, {}, Options(), np.random.default_rng(0))
        assert float(found.points[0]["C"]) < 40


@pytest.mark.slow
def test_a_straight_boundary_makes_the_linear_part_the_larger():
    """And without a line to be seen, as in a checkerboard, the smooth one."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.7, 1.7, (120, 2))
    shares = []
    for f in (4 * X[:, 0], 4 * np.sin(2.5 * X[:, 0]) * np.sin(2.5 * X[:, 1])):
        y = np.where(rng.random(120) < 1 / (1 + np.exp(-2 * f)), 1.0, -1.0)
        result = bp.fit(
            classification.NormalisedEvidence(),
            classification.default_label_model(X, y, ard=False),
            random_seed=0,
            progressbar=False,
        )
        at = {name: float(result["posterior"][name][0, 0]) for name in ("linear", "amplitude", "log_lengthscale")}
        line = at["linear"] * np.mean(X**2) * 2 / np.exp(2 * at["log_lengthscale"])
        shares.append(line / (line + at["amplitude"]))
    assert shares[0] > 2 * shares[1]


def labels_of_one_penalty(X, y, centre):
    with pm.Model() as built:
        C = pm.LogNormal("C", centre, 0.1)
        f = bp.GP(cov_func=4.0 * pm.gp.cov.ExpQuad(1, ls=1.0)).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=C, observed=y)
    return built


@pytest.mark.slow
def test_few_steps_are_not_steady():
    X, method = np.linspace(-2, 2, 12)[:, None], NormalisedEvidence("naive", steps=20)
    model = labels_of_one_penalty(X, np.where(np.arange(12) % 3 > 0, 1, -1), 8.0)
    with pytest.warns(bp.ConvergenceWarning, match="still moving after 20 steps"):
        bp.fit(method, model, objective="evidence", random_seed=1, progressbar=False)


@pytest.mark.slow
def test_the_objective_may_leave_the_hyperpriors_out():
    X, y = np.linspace(-2, 2, 12)[:, None], np.where(np.arange(12) > 5, 1, -1)
    found, method = {}, NormalisedEvidence("naive", steps=200)
    for centre in (-2.0, 2.0):
        for objective in ("posterior", "evidence"):
            model = labels_of_one_penalty(X, y, centre)
            result = bp.fit(method, model, objective=objective, random_seed=1, progressbar=False)
            found[centre, objective] = float(np.log(result["posterior"]["C"][0, 0]))
    assert found[2.0, "posterior"] - found[-2.0, "posterior"] > 3.5
    grid = np.linspace(-6.0, 3.0, 91)
    given = ({"C": C} for C in np.exp(grid))
    values = [bp.log_evidence(bp.MeanField(), model, hyperparameters=at, kind="naive").value for at in given]
    for centre in (-2.0, 2.0):
        assert found[centre, "evidence"] == pytest.approx(grid[np.argmax(values)], abs=0.15)


@pytest.mark.slow
def test_an_impossible_evidence_is_warned_of():
    X = np.random.default_rng(0).uniform(0, 1, (50, 1))
    with pm.Model() as model:
        f = bp.GP(cov_func=0.04 * pm.gp.cov.ExpQuad(1, ls=0.1)).prior("f", X=X)
        bp.SVMLabel("y", f=f, C=pm.LogNormal("C", 0, 1), observed=np.where(X[:, 0] < 0.5, 1, -1))
    with pytest.warns(UserWarning, match="a conditional evidence is at most -log 2"):
        bp.fit(NormalisedEvidence(), model, hyperparameters={"C": 6.3}, random_seed=1, progressbar=False)


@pytest.mark.slow
def test_through_the_front_door():
    """No flag is needed; the evidence of the result is the normalised one, and what is given stays."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-2, 2, (30, 1))
    y = np.where(np.sin(2 * X[:, 0]) > 0, 1, -1)
    model = small_model(X, y)
    method = classification.NormalisedEvidence(steps=30, particles=50)
    result = bp.fit(method, model, hyperparameters={"linear": 0.2}, random_seed=1, progressbar=False)
    attributes, posterior = result.attrs, result["posterior"].to_dataset()
    assert attributes["inference"] == "conditional evidence (mean field)" and (posterior["linear"] == 0.2).all()
    at = {name: posterior[name].values[0, 0] for name in ("C", "amplitude", "linear", "lengthscale")}
    found = bp.log_evidence(bp.MeanField(), model, hyperparameters=at, kind="conditional", random_seed=2)
    error = np.hypot(found.standard_error, attributes["log_evidence_error"])
    assert abs(attributes["log_evidence"] - found.value) < 4 * error and error < 0.2
    again = bp.fit(method, model, hyperparameters={"linear": 0.2}, random_seed=1, progressbar=False)
    assert again.attrs["log_evidence"] == attributes["log_evidence"]
    probability = bp.predict(result, X, model=model)["y_probability"].values
    assert np.mean((probability > 0.5) == (y > 0)) > 0.9
    naive = bp.fit(classification.NormalisedEvidence("naive", steps=30), model, random_seed=1, progressbar=False)
    assert naive.attrs["log_evidence_error"] == 0.0
    assert float(naive["posterior"]["C"][0, 0]) < float(posterior["C"][0, 0])  # the naive evidence wants a small C
