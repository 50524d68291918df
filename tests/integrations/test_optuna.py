"""The sampler of Optuna: minima under wrong values and failures, all kinds of parameters, the same trials again."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

optuna = pytest.importorskip("optuna")

from bsvr_pp.integrations.optuna import BayesianSVRSampler, _log_expected_improvement, _read  # noqa: E402

optuna.logging.set_verbosity(optuna.logging.ERROR)


def study_of(objective, n_trials, *, seed=0, direction="minimize", catch=(), **options):
    """A study and its sampler."""
    sampler = BayesianSVRSampler(seed=seed, **options)
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.optimize(objective, n_trials=n_trials, catch=catch)
    return study, sampler


def bowl(trial):
    return sum((trial.suggest_float(name, -5, 5) - 1) ** 2 for name in "ab")


def params_of(study):
    return [trial.params for trial in study.get_trials(deepcopy=False)]


@pytest.mark.parametrize("direction", ["minimize", pytest.param("maximize", marks=pytest.mark.slow)])
def test_the_minimum_under_wrong_values_and_failures(direction):
    sign = 1.0 if direction == "minimize" else -1.0

    def objective(trial):
        value = bowl(trial)
        if trial.number % 7 == 3:
            raise RuntimeError
        if trial.number % 7 == 5:  # every second looks better than any true value
            value += 300.0 * (-1) ** (trial.number // 7)
        return sign * value

    study, sampler = study_of(objective, 27, direction=direction, catch=RuntimeError)
    failed = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.FAIL]
    assert len(failed) == 4
    best = sampler.best_trial(study)
    np.testing.assert_allclose(list(best.params.values()), 1.0, atol=0.1)
    assert abs(study.best_value) > 100  # where the best observed value is a wrong one


def test_parameters_of_all_kinds_stay_in_their_space():
    def objective(trial):
        kind = trial.suggest_categorical("kind", ["good", "bad", None])
        rate = trial.suggest_float("rate", 1e-4, 1e2, log=True)
        count = trial.suggest_int("count", 2, 12, step=5)
        size = trial.suggest_int("size", 1, 64, log=True)
        share = trial.suggest_float("share", 0.0, 1.0, step=0.25)
        trial.suggest_float("fixed", 1.0, 1.0)
        extra = trial.suggest_float("extra", 0.0, 1.0) if kind == "bad" else 0.0
        lost = (kind != "good") + extra + np.log10(rate) ** 2 + (12 - count) / 2 + np.log2(size / 8) ** 2
        return lost + abs(share - 0.5)

    study, sampler = study_of(objective, 20, seed=1)
    for params in params_of(study):
        assert params["count"] in (2, 7, 12) and params["share"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert 1 <= params["size"] <= 64 and isinstance(params["size"], int) and 1e-4 <= params["rate"] <= 1e2
    best = sampler.best_trial(study)
    assert best.value < min(trial.value for trial in study.trials[:10])
    rows = _read(study, sampler.infer_relative_search_space(study, best))
    assert rows.X.shape == (20, 7)  # three columns of kind, four others; no extra and no fixed
    np.testing.assert_allclose(rows.allowed(rows.X), rows.X, atol=1e-12)


def test_the_same_seed_gives_the_same_trials():
    first, again, other = (study_of(bowl, 13, seed=seed)[0] for seed in (3, 3, 4))
    assert params_of(first) == params_of(again) != params_of(other)


@pytest.mark.slow
def test_a_loaded_study_goes_on_as_if_it_had_not_stopped(tmp_path):
    whole = params_of(study_of(bowl, 16)[0])
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=storage, study_name="s")
    for trials in (4, 8, 4):  # stops while drawing at random, and between two searches
        loaded = optuna.load_study(sampler=BayesianSVRSampler(seed=0), storage=storage, study_name="s")
        loaded.optimize(bowl, n_trials=trials)
    assert params_of(loaded) == whole


def test_another_seed_after_reseeding():
    sampler = BayesianSVRSampler(seed=0)
    sampler.reseed_rng()
    study = optuna.create_study(sampler=sampler)
    study.optimize(bowl, n_trials=2)
    assert params_of(study) != params_of(study_of(bowl, 2)[0])


def test_trials_without_a_value_count_as_the_upper_quartile():
    study, sampler = study_of(bowl, 9)
    study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.PRUNED, **of(study.trials[0])))
    study.add_trial(optuna.trial.create_trial(value=np.inf, **of(study.trials[1])))
    running = study.ask()
    bowl(running)
    rows = _read(study, sampler.infer_relative_search_space(study, study.trials[0]))
    values = [trial.value for trial in study.trials[:9]]
    np.testing.assert_array_equal(rows.y, [*values, *[np.quantile(values, 0.75)] * 3])
    np.testing.assert_array_equal(rows.valued, [True] * 9 + [False] * 3)


def of(trial):
    return {"params": trial.params, "distributions": trial.distributions}


def test_workers_suggest_different_points():
    study, _ = study_of(bowl, 12)
    asked = []
    for _ in range(3):
        trial = study.ask()
        bowl(trial)
        asked.append(list(trial.params.values()))
    assert min(np.abs(np.subtract(asked[i], asked[j])).max() for i in range(3) for j in range(i)) > 0.01


def test_equal_values_are_no_obstacle():
    study, sampler = study_of(lambda trial: 0.0 * bowl(trial), 12)
    assert sampler.best_trial(study).value == 0.0
    study, sampler = study_of(lambda trial: float(bowl(trial) > 3), 12)
    assert sampler.best_trial(study) in study.trials


def test_log_expected_improvement_is_exact():
    z = np.array([60.0, 3.0, 0.0, -0.999, -5.0, -40.0, -300.0])
    with mpmath.workdps(60):
        exact = [float(mpmath.log(mpmath.npdf(x) + x * mpmath.ncdf(x))) for x in map(mpmath.mpf, z)]
    np.testing.assert_allclose(_log_expected_improvement(2.0 * z, np.full(7, 2.0)), np.log(2.0) + exact, rtol=1e-10)
    far = -np.array([9.99e3, 1.001e4, 1e6])  # asymptotically φ(z)/z²
    tail = -0.5 * far**2 - 0.5 * np.log(2 * np.pi) - 2.0 * np.log(-far)
    np.testing.assert_allclose(_log_expected_improvement(far, np.ones(3)), tail, rtol=1e-12)


def test_several_objectives_and_constraints_are_refused():
    study = optuna.create_study(sampler=BayesianSVRSampler(seed=0), directions=["minimize", "maximize"])
    with pytest.raises(ValueError, match="study must have one objective for BayesianSVRSampler, got 2"):
        bowl(study.ask())
    study, _ = study_of(bowl, 1)
    study.add_trial(optuna.trial.create_trial(value=1.0, system_attrs={"constraints": (1.0,)}, **of(study.trials[0])))
    with pytest.raises(ValueError, match="study must have no constraints for BayesianSVRSampler"):
        bowl(study.ask())
