"""Data frames in `fit` and `predict` of all estimators, and what is refused or warned of before a fit."""

import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import bsvr_pp as bp
from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding
from bsvr_pp.tables.readers import read_data

N = 40
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "colour": RNG.choice(["red", "green"], N),
        "day": pd.date_range("2024-01-01", periods=N, freq="31h"),
        "sold": RNG.random(N) < 0.5,
        "age": np.where(np.arange(N) % 7 == 3, np.nan, RNG.normal(size=N)),
        "kind": pd.Categorical(RNG.choice(list("ab"), N)),
    }
)
Y = TABLE["size"] + 2.0 * (TABLE["colour"] == "red") + 0.1 * RNG.normal(size=N)
GRADE = np.digitize(Y, [0.5, 2.0])
NAMES = Encoding.of_table(TABLE).names
ESTIMATORS = {
    "BayesianSVR": (bp.BayesianSVR(kernel="linear", restarts=1, random_state=0), Y),
    "BayesianSVC": (bp.BayesianSVC(kernel="linear", random_state=0), GRADE > 0),
    "BayesianOrdinalSVC": (bp.BayesianOrdinalSVC(kernel="rbf", restarts=1, random_state=0), GRADE),
    "LSSVR": (bp.LSSVR(gamma=10.0, lengthscale=3.0), Y),
    "BayesianLSSVR": (bp.BayesianLSSVR(gamma=10.0, lengthscale=3.0), Y),
    "ResidualIntervals": (bp.ResidualIntervals(Ridge(), random_state=0), Y),
}


@pytest.fixture(scope="module", autouse=True)
def untied():
    """Words have a lengthscale each, as columns of an array; `test_words` is on those of one column."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Encoding, "tied", None)
        yield


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if "Ordinal" in name else ()) for name in ESTIMATORS],
)
def fitted(request):
    """An estimator, fitted to a table and to its encoded columns."""
    estimator, y = ESTIMATORS[request.param]
    encoded, _ = Encoding.of_table(TABLE).transform(TABLE)
    return clone(estimator).fit(TABLE, y), clone(estimator).fit(encoded, y), encoded


@pytest.mark.slow_cases("BayesianSVC", "BayesianSVR")
def test_a_table_is_its_encoded_columns(fitted):
    of_table, of_array, encoded = fitted
    np.testing.assert_array_equal(of_table.predict(TABLE), of_array.predict(encoded))
    assert of_table.encoding_.names == NAMES and of_array.encoding_ is None
    assert list(of_table.feature_names_in_) == list(TABLE.columns) and of_table.n_features_in_ == 6
    if hasattr(of_table, "predict_interval"):
        np.testing.assert_array_equal(of_table.predict_interval(TABLE), of_array.predict_interval(encoded))
    if hasattr(of_array, "relevance_"):
        pd.testing.assert_series_equal(of_table.relevance_, pd.Series(of_array.relevance_, NAMES))
        assert isinstance(of_array.relevance_, np.ndarray)


@pytest.mark.slow_cases("BayesianSVR")
@pytest.mark.parametrize("name", ESTIMATORS)
def test_rows_with_the_same_labels_have_one_order(name):
    estimator, targets = ESTIMATORS[name]
    X, y, w = TABLE[["size"]], pd.Series(targets), pd.Series(1.0 + np.arange(N))
    back, calls = y[::-1], [("y", lambda: clone(estimator).fit(X, y[::-1]))]
    if "Ordinal" not in name:
        other = pd.Series(1.0, pd.MultiIndex.from_arrays([np.arange(N)[::-1]] * 2))  # other labels say nothing
        machine = clone(estimator).fit(X.set_axis(X.index.astype("Int64")), y, other)
        calls += [("sample_weight", lambda: clone(estimator).fit(X, y, w[::-1])), ("y", lambda: machine.score(X, back))]
    if name == "BayesianSVR":
        calls += [("y", lambda: bp.scorers.neg_crps(machine, X, back)), ("y", lambda: machine.add(X, back))]
        K = pd.DataFrame(X.to_numpy() @ X.to_numpy().T + np.eye(N))
        of_kernel = clone(estimator).set_params(kernel="precomputed").fit(K, y)
        of_xarray = [each.to_xarray() for each in (X["size"], back)]
        calls += [("y", lambda: clone(estimator).fit(X, of_xarray[1]))]
        calls += [("y", lambda: clone(estimator).fit(of_xarray[0].expand_dims("size", 1), of_xarray[1]))]
        calls += [("diagonal", lambda: of_kernel.predict(K, diagonal=pd.Series(np.diag(K))[::-1]))]
        calls += [("sample_weight", lambda: bp.fit_folder(estimator, X.assign(y=y), folder="x", sample_weight=w[::-1]))]
        pairs = X.set_axis(np.arange(N) // 2)  # two rows have each label
        clone(estimator).fit(pairs, y.set_axis(pairs.index))
        with pytest.raises(ValueError, match="y has the row labels of X in another order, 19 beside 0 at row 0"):
            clone(estimator).fit(pairs, back.set_axis(pairs.index[::-1]))
    for given_as, call in calls:
        with pytest.raises(ValueError, match=f"{given_as} has the row labels of X in another order, 39 beside 0 at"):
            call()


def test_tables_of_predictions_have_the_index_of_the_inputs(fitted):
    of_table, of_array, encoded = fitted
    rows = TABLE.iloc[[7, 3, 5]]
    for name in ("predict_table", "predict_uncertainty"):
        if hasattr(of_table, name):
            pd.testing.assert_index_equal(getattr(of_table, name)(rows).index, rows.index)
            assert getattr(of_array, name)(encoded[:3]).index.tolist() == [0, 1, 2]


def test_unseen_words_and_new_gaps_are_warned_of_once(fitted):
    machine, _, _ = fitted
    new = TABLE.head(3).assign(colour=["red", "mauve", None], size=[0.0, np.nan, 1.0])
    predict = getattr(machine, "predict_interval", machine.predict)
    with pytest.warns(UserWarning) as said:
        found = predict(new)
    assert [str(warning.message) for warning in said] == [
        "column 'size' has 1 gaps, and had none in training: they are filled with the median",
        "column 'colour' has words without an indicator ('mauve') in 1 rows: they are encoded as none",
        "column 'colour' has 1 gaps, and had none in training: they are encoded as no word",
    ]
    assert {warning.filename for warning in said} == {__file__} and len(found) == 3
    filled = new.assign(size=new["size"].fillna(TABLE["size"].median()), colour=["red", "none", "none"])
    with warnings.catch_warnings(action="ignore"):
        np.testing.assert_array_equal(predict(filled), found)
    with warnings.catch_warnings(action="error"):
        predict(TABLE.head(3))


@pytest.mark.slow_cases("BayesianSVR", "BayesianSVC")
def test_saved_estimators_keep_the_encoding(fitted, tmp_path):
    machine, of_array, encoded = fitted
    again = [pickle.loads(pickle.dumps(machine))]
    if hasattr(machine, "save"):
        machine.save(tmp_path / "model.nc")
        again.append(type(machine).load(tmp_path / "model.nc"))
        of_array.save(tmp_path / "array.nc")
        np.testing.assert_allclose(type(machine).load(tmp_path / "array.nc").predict(encoded), machine.predict(TABLE))
    for each in again:
        assert each.encoding_ == machine.encoding_
        np.testing.assert_allclose(each.predict(TABLE), machine.predict(TABLE), rtol=1e-10)
        if hasattr(machine, "relevance_"):
            pd.testing.assert_series_equal(each.relevance_, machine.relevance_)


def test_what_a_prediction_refuses(fitted):
    machine, of_array, encoded = fitted
    for bad, message in (
        (
            TABLE[list(TABLE.columns[::-1])],
            r"X.rename\(columns=str\)\[list\(estimator.feature_names_in_\)\] has this order",
        ),
        (TABLE.drop(columns="day"), "(?s)yet now missing.*day"),
        (TABLE.assign(day=1.0), "column 'day' must have dates, it has numbers"),
        (TABLE.assign(size=np.inf), "column 'size' is not finite in row 0: leave the row out, or the cell empty"),
        (TABLE.head(0), r"0 sample\(s\)"),
        (encoded, "X must be a table as in fit, with the columns size, colour, day, sold, age, kind, got an array"),
    ):
        with pytest.raises(ValueError, match=message):
            machine.predict(bad)
    for value in ("u", np.nan, np.inf):
        strange = encoded.astype(object)
        strange[3, 4] = value
        message = rf"column 4 of X must have finite numbers, got {value!r} in row 3: a DataFrame in fit may have words"
        with pytest.raises(ValueError, match=message):
            of_array.predict(strange)
    y = of_array.predict(encoded)
    with pytest.raises(ValueError, match=r"column 1 of X must have finite numbers, got '(red|green)' in row 0"):
        clone(of_array).fit(encoded[:, :6], y).predict(TABLE)


def test_what_a_fit_refuses():
    for bad, message in (
        (TABLE.to_numpy(), "column 1 of X must have finite numbers, got '(red|green)' in row 0: a DataFrame in fit"),
        (TABLE[["day"]].to_numpy(dtype=object), "column 0 of X must have finite numbers, got (Timestamp|1704)"),
        (TABLE.assign(size=np.where(np.arange(N) == 3, np.inf, 0)), "column 'size' is not finite in row 3: leave the"),
        (TABLE.assign(size=np.nan), "column 'size' has no values: leave it out"),
        (TABLE.assign(size=1e200 * TABLE["size"]), r"column 'size' must stay within ±1e\+150"),
        (pd.concat([TABLE, TABLE], axis=1), "two columns have the name 'size': rename one"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            bp.LSSVR().fit(bad, Y)


@pytest.mark.slow
def test_targets_that_are_no_numbers():
    X = TABLE[["size"]]
    np.testing.assert_array_equal(bp.LSSVR().fit(X, Y > 1).predict(X), bp.LSSVR().fit(X, 1.0 * (Y > 1)).predict(X))
    machine = bp.BayesianSVR(restarts=1, random_state=0)
    for bad, message in (
        (TABLE["day"], "y must be numbers, got datetime64.*: subtract a date, and divide by a unit of time"),
        (TABLE["colour"], "X and y must be arrays of numbers: could not convert string to float"),
        (np.column_stack([Y, np.ones(N)]), "column 'y1' of y must not be constant, got 1.0 throughout"),
    ):
        with pytest.raises(ValueError, match=message):
            machine.fit(X, bad)
    with pytest.raises(ValueError, match="y must have the targets of fit, one without a name, got y0, y1"):
        machine.fit(X, Y).score(X, np.column_stack([Y, Y]))


def test_labels_may_be_a_column():
    X, (machine, y) = TABLE[["size"]], ESTIMATORS["BayesianSVC"]
    labels = y.astype(int)
    expected = clone(machine).fit(X, labels)
    for column in (pd.DataFrame({"grade": labels}), labels[:, None].tolist()):
        with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
            found = clone(machine).fit(X, column)
        with warnings.catch_warnings(action="error"):
            assert found.score(X, column) == expected.score(X, labels)
        np.testing.assert_array_equal(found.predict(X), expected.predict(X), strict=True)


@pytest.mark.slow
def test_copies_that_hide_the_noise_are_warned_of():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (40, 2))
    y, rows = np.tanh(X[:, 0]) + 0.2 * rng.laplace(size=40), rng.integers(40, size=40)
    svr = bp.BayesianSVR(restarts=1, random_state=0, inference="mean_field")
    for data in ((X[rows], y[rows]), (X, y, np.bincount(rows, minlength=40))):
        with pytest.warns(UserWarning, match="the fit has no noise, and .. different rows count as 40"):
            clone(svr).fit(*data)
    with warnings.catch_warnings(action="error"):
        clone(svr).fit(X, y)


@pytest.mark.slow
def test_weights_and_repeated_rows():
    X, svr = TABLE[["size"]], bp.BayesianSVR(kernel="linear", restarts=1, random_state=0)
    for machine in (svr, bp.LSSVR(), bp.ResidualIntervals(Ridge())):
        weight = np.where(np.arange(N) == 3, 5e7, 1.0)
        with pytest.raises(ValueError, match=r"at most 1e\+07 times the smallest that is not 0, got 5e\+07"):
            clone(machine).fit(X, Y, sample_weight=weight)
        clone(machine).fit(X, Y, sample_weight=np.where(np.arange(N) == 3, 0.0, 1.0))
    twice = [*range(N)] * 2
    with pytest.warns(UserWarning, match=r"40 of 80 rows repeat others.*drop_duplicates\(\)") as said:
        clone(svr).fit(X.iloc[twice], Y.iloc[twice])
    assert said[0].filename == __file__
    with pytest.warns(UserWarning, match="the sum 80 for 40 different rows.*divide the weights by their"):
        clone(svr).fit(X, Y, sample_weight=np.full(N, 2.0))
    with warnings.catch_warnings(action="error"):
        clone(svr).fit(X, Y, sample_weight=np.full(N, 1.9))
        rows = np.random.default_rng(1).integers(N, size=N)  # of a bootstrap
        clone(svr).fit(X.iloc[rows], Y.iloc[rows])


@pytest.mark.parametrize("name", ["LSSVR", "BayesianSVC", "ResidualIntervals"])
def test_rows_of_weight_0_are_left_out_of_the_encoding(name):
    """Also words, gaps and codes for gaps that only they have, of which no warning speaks."""
    (machine, y), weight = ESTIMATORS[name], np.where(np.arange(N) < 9, 0, 1)
    odd = TABLE.assign(sold=1.0 * TABLE["sold"], size=TABLE["size"].where(weight > 0))
    odd.loc[:8, ["colour", "age", "sold"]] = [["only here", 9.0, -999.0]] * 9
    with warnings.catch_warnings(action="error"):
        found = clone(machine).fit(odd, y, sample_weight=weight)
        expected = clone(machine).fit(odd[9:], y[9:])
    assert found.encoding_ == expected.encoding_
    np.testing.assert_allclose(found.predict(odd[9:]), expected.predict(odd[9:]), rtol=1e-9)


def test_pipelines_and_searches():
    first = FunctionTransformer(lambda table: table.assign(size=2.0 * table["size"]))
    pipeline = make_pipeline(first, bp.LSSVR(gamma=10.0, lengthscale=3.0)).fit(TABLE, Y)
    expected = bp.LSSVR(gamma=10.0, lengthscale=3.0).fit(TABLE.assign(size=2.0 * TABLE["size"]), Y)
    np.testing.assert_array_equal(
        clone(pipeline).fit(TABLE, Y).predict(TABLE), expected.predict(TABLE.assign(size=2.0 * TABLE["size"]))
    )
    search = GridSearchCV(bp.LSSVR(lengthscale=3.0), {"gamma": [1.0, 10.0]}, cv=3, error_score="raise").fit(TABLE, Y)
    assert np.isfinite(search.best_score_) and search.best_estimator_.encoding_.names == NAMES


def test_tables_of_numbers_are_their_arrays():
    table = TABLE[["size"]].assign(other=np.arange(N))
    of_table, of_array = (bp.LSSVR().fit(X, Y) for X in (table, table.to_numpy()))
    np.testing.assert_array_equal(of_table.predict(table), of_array.predict(table.to_numpy()))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(of_table.predict(table.to_numpy()), of_array.predict(table.to_numpy()))
    with pytest.raises(ValueError, match=r"now missing:\n- 1"):
        bp.LSSVR().fit(table.set_axis([0, 1], axis=1), Y).predict(table.set_axis([0, 2], axis=1))


@pytest.mark.slow
def test_names_that_are_numbers(tmp_path):
    spectra = pd.DataFrame(RNG.normal(size=(N, 3)), columns=[400, 410, 420])
    svr = bp.BayesianSVR(kernel="rbf", restarts=1, random_state=0).fit(spectra, Y)
    svr.save(tmp_path / "model.nc")
    again = bp.BayesianSVR.load(tmp_path / "model.nc")
    assert list(again.feature_names_in_) == list(again.relevance_.index) == ["400", "410", "420"]
    for names in (int, str):
        np.testing.assert_allclose(again.predict(spectra.rename(columns=names)), svr.predict(spectra), rtol=1e-10)
    with pytest.raises(ValueError, match=r"(?s)yet now missing.*400"):
        again.predict(spectra.rename(columns=float))


def test_what_is_no_input_is_said():
    indexed = TABLE[["size"]].rename_axis("day")
    with pytest.warns(
        UserWarning, match=r"the index of X, 'day', is no input: X.reset_index\(\) makes it a column"
    ) as said:
        machine = bp.LSSVR().fit(indexed, Y)
    assert said[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        np.testing.assert_array_equal(
            machine.predict(indexed), bp.LSSVR().fit(TABLE[["size"]], Y).predict(TABLE[["size"]])
        )
    for unit, kind in (("M8[D]", "datetime64"), ("M8[ns]", "datetime64"), ("m8[s]", "timedelta64")):
        with pytest.raises(ValueError, match=f"X must be numbers, got {kind}.*: subtract a date, and divide by a unit"):
            bp.LSSVR().fit(np.arange(N).astype(unit)[:, None], Y)
    with pytest.raises(ValueError, match="X must be numbers, got datetime64"):
        bp.LSSVR().fit(TABLE[["size"]].to_numpy(), Y).predict(TABLE[["day"]])
    times = (1e3 * np.arange(N)).astype("m8[s]")
    fields = np.rec.fromarrays([np.ones(N, bool), times], names="event,time")
    for call in (
        lambda: bp.BayesianSVR().fit(TABLE[["size"]], fields),
        lambda: bp.LSSVR().fit(TABLE[["size"]], Y, sample_weight=times),
        lambda: machine.score(TABLE[["size"]], times),
        lambda: bp.scorers.neg_crps(machine, TABLE[["size"]], times),
    ):
        with pytest.raises(ValueError, match=r"must be .*numbers, got timedelta64"):
            call()


def test_a_code_for_a_gap_is_warned_of(tmp_path):
    coded = TABLE[["size", "sold"]].assign(age=np.where(np.arange(N) % 9, RNG.normal(50.0, 10.0, N), -999))
    said = (
        r"column 'age' has -999 in 5 rows, far from all others: leave these cells empty \(NaN\), if they have no value"
    )
    with pytest.warns(UserWarning, match=said):
        ESTIMATORS["LSSVR"][0].fit(coded, Y)
    with pytest.warns(UserWarning, match="column 'y' has -999 in 7 rows, far from all others: leave these rows out"):
        ESTIMATORS["BayesianSVR"][0].fit(TABLE[["size"]], np.where(np.arange(N) < 7, -999.0, Y))
    with warnings.catch_warnings(action="error"):
        ESTIMATORS["LSSVR"][0].fit(coded.replace(-999, np.nan), Y)
    coded.assign(y=Y).to_csv(tmp_path / "coded.csv", index=False)
    notes = read_data(tmp_path / "coded.csv").encode()[0].notes
    assert any(re.search(f"coded.csv: {said}", note) for note in notes)


@pytest.mark.slow
def test_several_classes_have_the_names():
    svc = bp.BayesianSVC(kernel="linear", random_state=0).fit(TABLE, GRADE)
    assert svc.relevance_.columns.tolist() == list(NAMES) and len(svc.relevance_) == 3


def test_polars():
    pl = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    table = pl.from_pandas(TABLE)
    svr = bp.LSSVR(gamma=10.0, lengthscale=3.0).fit(table, pl.Series(Y))
    expected = bp.LSSVR(gamma=10.0, lengthscale=3.0).fit(TABLE, Y).predict(TABLE)
    np.testing.assert_allclose(svr.predict(table), expected, rtol=1e-12)
    np.testing.assert_allclose(svr.predict(TABLE), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="has this order"):
        svr.predict(table.select(table.columns[::-1]))


ODD = [1j, b"x", np.inf, pd.Timedelta("1D"), ("a",), {}, "a", pd.Timestamp("2020-01-01")]
TROUBLE = [None] * 36 + ["names", "order", "odd", "gaps"]


@st.composite
def columns(draw, n, trouble):
    """A column of n training rows and n new rows, whose words may be new."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["number", "integer", "word", "category", "date", "bool", "constant"]))
    if kind == "number":
        values = pd.Series(rng.normal(scale=10.0 ** draw(st.integers(-6, 6)), size=2 * n))
    elif kind == "integer":
        values = pd.Series(rng.integers(0, draw(st.integers(1, 100)) + 1, 2 * n))
    elif kind in ("word", "category"):
        levels = draw(st.lists(st.text(max_size=4), min_size=3, max_size=8, unique=True))
        place = np.append(rng.integers(0, len(levels) - 1, n), rng.integers(0, len(levels), n))
        values = pd.Series(np.array(levels, dtype=object)[place], dtype="category" if kind == "category" else object)
    elif kind == "date":
        values = pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**4, 2 * n), "h"))
    elif kind == "bool":
        values = pd.Series(rng.random(2 * n) < 0.5)
    else:
        values = pd.Series([draw(st.sampled_from([1.0, -3, True]))] * (2 * n))
    if trouble == "odd":
        values = pd.Series([draw(st.sampled_from(ODD))] * (2 * n), dtype=object)
    gaps = 1.0 if trouble == "gaps" else draw(st.sampled_from([0.0, 0.0, 0.2]))
    values = values.where(pd.Series(rng.random(2 * n) >= gaps), None)
    return values.iloc[:n].reset_index(drop=True), values.iloc[n:].reset_index(drop=True)


def check_random_table(data, *machines):
    """Fit and predict, or a refusal that names a column and a remedy; whether it was the former."""
    n, trouble = 20, data.draw(st.sampled_from(TROUBLE))
    made = data.draw(st.lists(columns(n, trouble), min_size=1, max_size=5))
    names = data.draw(st.lists(st.sampled_from(["a", "b", "c d", "é", 1]), min_size=len(made), max_size=len(made)))
    if trouble != "names":
        names = [name if names.index(name) == i else f"{name} {i}" for i, name in enumerate(names)]
    train, new = (pd.concat([pair[i] for pair in made], axis=1).set_axis(names, axis=1) for i in (0, 1))
    if trouble == "order":
        new = new[data.draw(st.permutations(names))]
    y = np.random.default_rng(len(made)).normal(size=n)
    machine = clone(data.draw(st.sampled_from(machines)))
    with warnings.catch_warnings(action="ignore"):
        try:
            found = machine.fit(train, y).predict(new)
        except ValueError as error:
            said = str(error)
            named = isinstance(error, DataError) and any(repr(str(name)) in said for name in names)
            assert (named and re.search("leave it out|leave the row out|rename one", said)) or "has this order" in said
            assert trouble is not None
            return False
    assert found.shape == (n,) and np.isfinite(found).all()
    return True


@pytest.mark.slow
@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_tables_are_fitted_or_refused_by_name(data):
    check_random_table(data, bp.LSSVR(gamma=1.0, lengthscale=1.0))


@pytest.mark.slow
def test_most_random_tables_are_fitted():
    ended = []

    @settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def run(data):
        machines = bp.LSSVR(gamma=1.0, lengthscale=1.0), bp.BayesianSVR(kernel="linear", restarts=1)
        ended.append(check_random_table(data, *machines))

    run()
    assert len(ended) >= 200 and 0.85 <= np.mean(ended) < 1.0


@pytest.mark.parametrize("make", [bp.BayesianSVR, bp.LSSVR, bp.ResidualIntervals])
def test_a_missing_target_is_refused_however_it_is_written(make):
    X, y = np.linspace(-2, 2, 20)[:, None], np.linspace(0, 1, 19)
    for bad in (pd.NA, None, np.nan):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            make().fit(X, [bad, *y])
    for kind in ("Float64", "double[pyarrow]"):
        with pytest.raises(ValueError, match="Input y contains NaN"):
            make().fit(X, pd.Series([None, *y], dtype=kind))
