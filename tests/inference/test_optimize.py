"""Optima are optima, of what was asked for."""

import numpy as np
import pymc as pm
import pytensor
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.protocol import Options, Search
from bsvr_pp.inference.search import optimize, starts
from bsvr_pp.inference.search.optimize import SearchObjective, maximize
from bsvr_pp.inference.search.quasi_newton import Ascent, ascend
from bsvr_pp.inference.search.starts import lengthscales
from bsvr_pp.model.reader import read_model
from tests.helpers import differences, process_model, soft


def run(model, method=None, fixed=None, objective="posterior", restarts=2):
    problem, options = read_model(model), Options(restarts, objective)
    return maximize(problem, method or bp.MeanField(), problem.checked(fixed), options, np.random.default_rng(0))


@pytest.mark.slow_cases("posterior")
@pytest.mark.parametrize("objective", ["posterior", pytest.param("evidence", marks=pytest.mark.slow)])
def test_optimum_beats_its_neighbours(sinc_model, objective, monkeypatch, exactly):
    _, data = sinc_model
    model = bp.default_model(data.X, data.y, kernel="rbf")
    found = run(model, objective=objective)[0]
    monkeypatch.setattr(bp.MeanField, "search", Search(tolerance=1e-5))
    best = run(model, objective=objective)[0]
    assert best.converged and found.converged
    assert best.objective - 0.1 < found.objective < best.objective + 1e-12

    places = {name: model[name].type() for name in best.point}
    densities = [pm.logp(model[name], place).sum() for name, place in places.items()]
    log_prior = pytensor.function([*places.values()], sum(densities), mode="FAST_COMPILE")

    def value(point):
        total = bp.log_evidence(bp.MeanField(), model, hyperparameters=point).value
        return total + float(log_prior(*(point[name] for name in places))) * (objective == "posterior")

    top = value(best.point)
    assert top == pytest.approx(best.objective, abs=1e-6)
    for name in best.point:
        for factor in (0.97, 1.03):
            assert value({**best.point, name: best.point[name] * factor}) < top


def test_fixed_hyperparameters_stay(sinc_model):
    model, _ = sinc_model
    for optimum in run(model, fixed={"C": 4.0}):
        assert optimum.point["C"] == 4.0
        assert optimum.point["inverse_lengthscale"] != 4.0
    everything = run(model, fixed={"C": 4.0, "epsilon": 0.1, "amplitude": 1.0, "inverse_lengthscale": 0.5})
    assert everything[0].message == "all hyperparameters are given"


def test_optima_come_best_first_and_survive_the_jumps_of_laplace(sinc_model):
    model, _ = sinc_model
    optima = run(model, bp.Laplace(), restarts=5)
    objectives = [o.objective for o in optima]
    assert objectives == sorted(objectives, reverse=True)
    assert optima[0].converged
    assert optima[0].message


def test_improper_priors_start_from_the_data():
    X = np.linspace(-3, 3, 15)[:, None]
    y = np.sin(X[:, 0]) + 0.1 * np.cos(40 * X[:, 0])
    free = {"ls": lambda: pm.HalfFlat("lengthscale"), "C": lambda: pm.HalfFlat("C")}
    model = process_model(soft, X, **free, epsilon=0.05, observed=y)
    optima = run(model, restarts=4)
    assert optima[0].converged
    assert 0.5 < optima[0].point["lengthscale"] < 5
    chosen = starts.choose_starts(read_model(model), 7, np.random.default_rng(0))
    assert len({(float(start["C"]), float(start["lengthscale"])) for start in chosen}) == 7


@pytest.mark.slow_cases("main_effects", "labels", "rational_quadratic")
@pytest.mark.parametrize("kind", ["rational_quadratic", "main_effects", "labels"])
def test_the_optimum_does_not_depend_on_the_units_of_inputs(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * X[:, 2] ** 2 + 0.1 * rng.normal(size=50)

    def found(units):
        if kind == "labels":
            model = bp.classification.default_label_model(units * X, np.where(y > 0.4, 1.0, -1.0), known=True)
        else:
            model = bp.default_model(units * X, y, kernel=kind)
        return bp.fit(bp.MeanField(), model, random_seed=0, progressbar=False).attrs["log_evidence"]

    assert found(np.array([1e-3, 1e5, 1.0])) == pytest.approx(found(1.0), abs=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(("curvature", "with_all"), [("exact", 3), ("local", 1)])
def test_beyond_many_rows_the_best_go_on_with_all(monkeypatch, curvature, with_all):
    """Of exact Laplace the better half: which of its optima is best is not known before."""
    monkeypatch.setattr(optimize, "_MANY", 150)
    monkeypatch.setattr(optimize, "_FEW", 60)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 1))
    model = bp.default_model(X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=160), beta=0.3)
    ends = {60: [], 160: []}

    def watched(evaluate, start, n_rows, **options):
        ends[n_rows].append(ascend(evaluate, start, n_rows, **options))
        return ends[n_rows][-1]

    monkeypatch.setattr(optimize, "ascend", watched)
    optima = run(model, bp.Laplace(curvature), restarts=5)
    tried, limit = ends[60][:5], max(end.value for end in ends[60][:5]) - 15.0
    close = [end.converged for end in tried if end.value >= limit]  # these go on once, before one is chosen
    assert len(ends[60]) == 5 + (close.count(False) if with_all == 1 and len(close) > 1 else 0)
    if with_all > 1:
        assert len(ends[160]) == len(optima) == with_all
    else:  # starts that few rows do not tell apart are tried on all, and the best goes on
        assert len(optima) <= len(close) and len(ends[160]) <= len(optima) + 1
        assert all("left, behind" in other.message or other.converged for other in optima[1:])
    assert optima[0].objective == max(end.value for end in ends[160])
    assert all(optima[0].objective >= other.objective for other in optima)
    one = run(model, bp.Laplace(curvature), restarts=1)[0]  # which is not chosen by few rows
    assert one.objective == pytest.approx(optima[0].objective, abs=5.0)


def line(kernel=None, prior=pm.HalfFlat, n=12):
    """A model of few rows, with a lengthscale, a bias and the noise to find."""
    rng = np.random.default_rng(1)
    X = np.stack([np.linspace(-3, 3, n), np.linspace(0, 20, n) ** 0.5], axis=1)
    y = 5.0 + 2.0 * np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)
    with pm.Model() as model:
        lengthscale, bias = prior("lengthscale"), prior("bias")
        cov = pm.gp.cov.ExpQuad(2, ls=lengthscale) if kernel is None else kernel(lengthscale)
        cov = cov + pm.gp.cov.Constant(bias)
        f = bp.GP(cov_func=cov).prior("f", X=X)
        bp.SoftInsensitive("y", mu=f, C=prior("C"), epsilon=prior("epsilon"), beta=0.5, observed=y)
    return model, X, y


class Climbs:
    """Stands for `ascend`: notes its arguments, and returns ends with given values."""

    def __init__(self, *values, converged=()):
        self.values, self.converged, self.calls = list(values), list(converged) or [False] * len(values), []

    def __call__(self, evaluate, start, n_rows, **options):
        self.calls.append((evaluate, np.array(start), n_rows, options))
        value, converged = self.values[len(self.calls) - 1], self.converged[len(self.calls) - 1]
        return Ascent(start + 0.01, value, converged, f"end {len(self.calls)}", 7, ((start, start),))


def test_later_starts_are_drawn_from_the_priors(monkeypatch):
    model, *_ = line(prior=lambda name: pm.Uniform(name, 2.0, 3.0))
    climbs = Climbs(*[0.0] * 12)
    monkeypatch.setattr(optimize, "ascend", climbs)
    run(model, bp.Laplace(), restarts=9)
    problem = read_model(model)
    initial = problem.to_unconstrained(optimize.initial_point(problem))
    starts = [start for _, start, *_ in climbs.calls[:9]]
    np.testing.assert_allclose(starts[0], np.ravel(initial))  # the guesses are outside the priors
    assert len({tuple(start) for start in starts}) == 9
    assert len(set(starts[1])) == 4
    other = Climbs(*[0.0] * 12)
    monkeypatch.setattr(optimize, "ascend", other)
    run(model, bp.Laplace(), restarts=9)
    for a, b in zip(starts, other.calls, strict=False):
        np.testing.assert_array_equal(a, b[1])


def test_the_best_of_a_continuous_evidence_goes_on_after_a_trial(monkeypatch):
    model, *_ = line()
    climbs = Climbs(-18.5, -3.0, -4.0, -2.5, -2.0, converged=(False, False, True, False, True))
    monkeypatch.setattr(optimize, "ascend", climbs)
    found = run(model, restarts=3)
    assert [options.get("limit", np.inf) for *_, options in climbs.calls] == [10, 10, 10, 10, np.inf]
    assert [options["tolerance"] for *_, options in climbs.calls] == [0.1] * 5
    assert "first_step" not in climbs.calls[0][3]
    for last, call in ((1, 3), (3, 4)):  # the first start is more than fifteen nats behind, the third has ended
        assert climbs.calls[call][3]["first_step"] == 0.1
        np.testing.assert_allclose(climbs.calls[call][1], climbs.calls[last][1] + 0.01)
        np.testing.assert_array_equal(climbs.calls[call][3]["curvature"][0][0], climbs.calls[last][1])
    assert [call[2] for call in climbs.calls] == [12] * 5
    assert [(o.objective, o.converged, o.message, o.n_evaluations) for o in found] == [
        (-2.0, True, "end 5", 21),
        (-4.0, True, "end 3", 7),
        (-18.5, False, "left, behind another start after 7 evaluations", 7),
    ]


@pytest.mark.slow
def test_a_given_start_is_the_only_one(monkeypatch):
    climbs = Climbs(-5.0, converged=(True,))
    monkeypatch.setattr(optimize, "ascend", climbs)
    problem = read_model(line()[0])
    start = {name: np.array(1.5) for name in problem.hyperparameters}
    optimize.maximize(problem, bp.MeanField(), {}, Options(5, start=start), np.random.default_rng(0))
    [(_, found, *_)] = climbs.calls
    np.testing.assert_allclose(found, problem.to_unconstrained(start))


def test_a_start_without_evidence_is_not_the_only_one(monkeypatch):
    """The optimum of some rows may have no value on others: then all starts are tried, not only the constant."""
    climbs = Climbs(*[-5.0] * 5, converged=(True,) * 5)
    monkeypatch.setattr(optimize, "ascend", climbs)
    problem = read_model(line()[0])
    start = {name: np.array(1e200) for name in problem.hyperparameters}
    with np.errstate(all="ignore"):
        optimize.maximize(problem, bp.MeanField(), {}, Options(5, start=start), np.random.default_rng(0))
    assert len(climbs.calls) == 5


def test_all_starts_of_a_discontinuous_evidence_end(monkeypatch):
    climbs = Climbs(-5.0, -1.0, -4.0, -2.0, -3.0)
    monkeypatch.setattr(optimize, "ascend", climbs)
    found = run(line()[0], bp.Laplace(), restarts=None)
    assert [o.objective for o in found] == [-1.0, -2.0, -3.0, -4.0, -5.0]
    assert all(options["limit"] == np.inf for *_, options in climbs.calls)
    assert [options["tolerance"] for *_, options in climbs.calls] == [0.0] * 5


def test_half_of_very_many_rows_are_searched_first(monkeypatch):
    """All rows are searched from the optimum of half of them, with the second derivatives of a quarter."""
    monkeypatch.setattr(optimize, "_HALVED", 6)
    climbs = Climbs(-9.0, -7.0, -8.0, -6.5, -6.0, -4.0, -3.0, converged=(False,) * 4 + (True,) * 3)
    monkeypatch.setattr(optimize, "ascend", climbs)
    model, *_ = line()
    monkeypatch.setattr(optimize, "_FEW", 3)
    monkeypatch.setattr(optimize, "_MANY", 5)
    [found] = run(model, bp.Laplace("local"))
    assert [call[2] for call in climbs.calls] == [3, 3, 3, 3, 3, 6, 12]
    for i in (5, 6):
        more, ends = climbs.calls[i], climbs.calls[i - 3 if i == 5 else i - 1 : i]
        assert min(np.abs(more[1] - end[1] - 0.01).max() for end in ends) < 1e-6
        assert more[3]["curvature"] == () and more[3]["first_step"] == 0.1 and "limit" not in more[3]
        assert more[3]["second"].shape == (4, 4)
    assert found.objective == -3.0
    assert found.n_evaluations in (28, 35)  # from the other or the better start, which has one more search


@pytest.mark.slow_cases("15", "None")
@pytest.mark.parametrize("blocks", [None, 15])
def test_the_optimum_does_not_depend_on_the_seed(monkeypatch, blocks):
    """A part of the rows, or of the blocks, chooses between starts, and is the same one for each seed."""
    monkeypatch.setattr(optimize, "_MANY", 50)
    monkeypatch.setattr(optimize, "_FEW", 20)
    X = np.random.default_rng(0).uniform(-3, 3, (60, 2))
    y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=60)
    partition = None if blocks is None else bp.local_blocks(X, blocks, random_seed=0)
    problem = read_model(bp.default_model(X, y, blocks=partition))
    options = bp.MeanField(), {}, Options()
    ends = [optimize.maximize(problem, *options, np.random.default_rng(seed))[0] for seed in (0, 1)]
    assert ends[0].record() == ends[1].record()


def test_some_rows_have_their_neighbours_beside_them():
    """Otherwise a quarter of them hardly shows what is noise and what is narrow."""
    model, X, _ = line(n=40)
    problem = read_model(model)
    chosen = optimize._some(problem, 10).inputs
    rows = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in chosen]
    assert len(set(rows)) == 10
    near = starts.neighbour_of_each(X)
    assert (near != np.arange(40)).all()
    beside = [near[row] in rows or row in near[rows] for row in rows]
    assert sum(beside) >= 9  # the last one may be alone


@pytest.mark.slow
def test_starts_and_chosen_rows_do_not_depend_on_the_order_of_rows():
    """Several rows have the same inputs, and so several nearest rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2)).round()
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
    orders = np.arange(60), rng.permutation(60)
    one, other = (read_model(bp.default_model(X[rows], y[rows])) for rows in orders)
    first, second = (starts.choose_starts(problem, 2, np.random.default_rng(0)) for problem in (one, other))
    for start, same in zip(first, second, strict=True):
        assert start["C"] == pytest.approx(same["C"]) and start["epsilon"] == pytest.approx(same["epsilon"])
    chosen = [np.sort(optimize._some(problem, 20).targets) for problem in (one, other)]
    np.testing.assert_array_equal(*chosen)


def test_one_start_has_little_noise_where_neighbours_have_the_same_target():
    rng = np.random.default_rng(0)
    X, noise = rng.uniform(-3, 3, (600, 1)), rng.normal(size=600)
    usual, smallest = starts._noise_scales(X, 0.3 * noise)
    assert usual == pytest.approx(0.3, rel=0.1) and smallest == pytest.approx(0.3, rel=0.4)
    usual, smallest = starts._noise_scales(X, np.round(noise))
    assert smallest < 0.02 < 0.5 < usual
    alone = starts._noise_scales(np.repeat(X, 2, axis=0), np.tile([0.0, 1.0], 600))  # no row is its own neighbour
    assert min(alone) > 0.5


@pytest.mark.slow
def test_values_that_a_part_does_not_move_have_no_second_derivative():
    """Each costs an evaluation of the part, and the search would not count it as it is below a bound."""
    model, *_ = line(prior=lambda name: pm.HalfNormal(name, 1.0))
    problem = read_model(model)
    objective = SearchObjective(problem, bp.MeanField(), {}, "posterior", warm_starts=False)
    point = {"lengthscale": 2.0, "bias": 0.5, "C": 3.0, "epsilon": 1e-6}
    found = optimize.Optimum(problem.checked(point), 0.0, False, "", 1)
    second = objective.second_derivatives(found, objective)
    x = objective.pack(found.point)
    steep = np.abs(objective(x)[1]) >= 0.1
    assert steep.sum() == 3
    exact = -differences(lambda x: objective(x)[1], x, 1e-4)
    np.testing.assert_allclose(second[np.ix_(steep, steep)], exact[np.ix_(steep, steep)], rtol=0.1, atol=2.0)
    assert (second[~steep] == 0).all() and (second[:, ~steep] == 0).all()


@pytest.mark.slow
def test_noise_is_resolved_down_to_the_jitter():
    """Repeated rows with one target have no largest C; the jitter is 1e-6, and C at most ten over its root."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.integers(3, 8, 20).astype(float)
    machine = bp.BayesianSVR(random_state=0, outliers="keep").fit(np.tile(X, (3, 1)), np.tile(y, 3))
    assert machine.C_ * machine.unit_ == pytest.approx(1e4)
    assert machine.converged_
    free = SearchObjective(read_model(line()[0]), bp.MeanField(), {"C": np.array(2.0)}, "posterior")
    assert (free.highest() == np.inf).all()


@pytest.mark.parametrize(
    ("kernel", "given", "expected"),
    [
        (None, 2.0, [2.0, 2.0]),
        (lambda ls: pm.gp.cov.ExpQuad(2, ls_inv=ls), 4.0, [0.25, 0.25]),
        (lambda ls: pm.gp.cov.ExpQuad(2, ls_inv=ls), 0.0, [np.inf, np.inf]),
        (lambda ls: pm.gp.cov.ExpQuad(2, ls=1.0 / ls), 4.0, [0.25, 0.25]),
        (lambda ls: ls * pm.gp.cov.ExpQuad(2, ls=1.0), 2.0, None),
        (lambda ls: 2.0 * pm.gp.cov.Matern52(2, ls=ls), 3.0, [3.0, 3.0]),
    ],
)
def test_lengthscales_are_read_from_the_kernel(kernel, given, expected):
    problem = read_model(line(kernel)[0])
    found = lengthscales(problem, {"lengthscale": np.array(given), "bias": 1.0, "C": 1.0, "epsilon": 1.0})
    if expected is None:
        assert found is None
    else:
        np.testing.assert_allclose(found, expected)


def test_no_optimum_is_below_the_constant():
    """From the usual starts the search ends thirty nats below f = constant, whose noise is another one."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 20)), np.where(rng.random(100) < 0.5, 5.0, -5.0) + 0.1 * rng.normal(size=100)
    model = bp.default_model(X, y, kernel="rbf", ard=False)
    point = {"inverse_lengthscale": 1e-6, "amplitude": 1e-6, "C": 40.0, "epsilon": 30.0}
    constant = bp.log_evidence(bp.MeanField(), model, hyperparameters=point).value
    assert bp.fit(bp.MeanField(), model, progressbar=False, draws=9).attrs["log_evidence"] > constant


def test_amplitudes_are_found_by_what_they_do():
    X = np.linspace(-1.0, 1.0, 12)[:, None]
    with pm.Model() as model:
        a, b, ls = pm.HalfNormal("a"), pm.Gamma("b", 2.0, 1.0), pm.LogNormal("ls", 0.0, 1.0)
        covariance = a**2 * pm.gp.cov.ExpQuad(1, ls=ls) + b * pm.gp.cov.Matern52(1, ls=ls) + pm.gp.cov.Constant(9.0)
        bp.Huber("y", mu=bp.GP(cov_func=covariance).prior("f", X=X), C=1.0, epsilon=0.1, observed=X[:, 0])
    point = {"a": np.array(2.0), "b": np.array(3.0), "ls": np.array(0.5)}
    flat = starts.flatten(read_model(model), point, list(point))
    assert flat["ls"] == pytest.approx(0.5)
    assert max(flat["a"], flat["b"]) < 0.05


def test_nearest_rows_of_many_inputs_are_those_of_a_tree(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 300))
    found = starts.neighbour_of_each(X)
    monkeypatch.setattr(starts, "_FLAT", 300)
    np.testing.assert_array_equal(found, starts.neighbour_of_each(X))


def test_a_search_leaves_the_saddle_of_values_of_which_only_squares_count():
    X = np.linspace(-2.0, 2.0, 20)[:, None]
    y = np.sin(2.0 * X[:, 0])
    model = process_model(pm.Normal, X, ls=0.7, factor=lambda: pm.Normal("a") ** 2, sigma=0.1, observed=y)
    best = run(model)[0]
    assert best.converged and abs(best.point["a"]) == pytest.approx(1.0, abs=0.5)


def test_priors_of_given_hyperparameters_do_not_count():
    X = np.linspace(-2.0, 2.0, 10)[:, None]
    sigma = {"sigma": lambda: pm.HalfNormal("s", pm.LogNormal("scale", 0.0, 1.0))}
    model = process_model(pm.Normal, X, **sigma, observed=np.sin(X[:, 0]))
    mode = np.exp(-1.0)  # of the prior of the scale, as after pm.do
    assert run(model, fixed={"s": 3.0})[0].point["scale"] == pytest.approx(mode, rel=0.2)
