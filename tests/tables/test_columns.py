"""Encoded columns against pandas and scikit-learn, and by parts against the whole."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import BayesianRidge
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding, merged, summarize

N = 40
RNG = np.random.default_rng(0)
DATES = pd.date_range("2023-11-20 06:30", periods=N, freq="40h")
TABLE = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 7 == 0, np.nan, RNG.normal(size=N)),
        "town": RNG.choice(["Ulm", "Bonn", "Kiel"], N),
        "built": DATES.where(np.arange(N) % 9 > 0),
        "rooms": RNG.integers(1, 9, N),
        "garden": RNG.random(N) < 0.5,
    }
)


def encoding_of(table):
    return Encoding.of(summarize(table))


def test_every_kind_of_column_is_encoded():
    encoding = encoding_of(TABLE)
    parts = [f"built {part}" for part in ("year", "day of year", "day of week", "hour")]
    assert encoding.names == (
        *("size", "size is missing", "town=Bonn", "town=Kiel", "town=Ulm"),
        *(*parts, "built is missing", "rooms", "garden"),
    )
    assert encoding.tied == (0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9)
    X, notes = encoding.transform(TABLE)
    found = dict(zip(encoding.names, X.T, strict=True))
    assert notes == () and np.isfinite(X).all()
    np.testing.assert_array_equal(found["size"], TABLE["size"].fillna(TABLE["size"].median()))
    np.testing.assert_array_equal(found["size is missing"], TABLE["size"].isna())
    expected = OneHotEncoder(sparse_output=False).fit_transform(TABLE[["town"]])
    np.testing.assert_array_equal(X[:, 2:5], expected)
    clock = TABLE["built"].dt
    values = (clock.year, clock.day_of_year, clock.day_of_week, clock.hour + clock.minute / 60)
    for part, value in zip(parts, values, strict=True):
        np.testing.assert_array_equal(found[part], value.fillna(value.median()))
    np.testing.assert_array_equal(found["garden"], TABLE["garden"])
    assert encoding.notes == (
        "column 'size' has 6 gaps: they are filled with the median, and an indicator is added",
        "column 'town' has words: an indicator for each of 3 (Bonn, Kiel, Ulm)",
        "column 'built' has dates: they are encoded as year, day of year, day of week, hour",
        "column 'built' has 5 gaps: they are filled with the median, and an indicator is added",
    )


def test_new_tables_are_encoded_as_the_first_and_what_is_unknown_is_said():
    plain = TABLE.assign(size=TABLE["size"].fillna(0.25))
    encoding = Encoding.from_json(json.dumps(json.loads(encoding_of(plain).to_json())))
    new = plain.iloc[:3].assign(town=["Köln", "Ulm", None], size=[1.0, np.nan, 2.0], other=1)[::-1]
    X, notes = encoding.transform(new[::-1])
    assert X[:, [encoding.names.index(f"town={town}") for town in ("Bonn", "Kiel", "Ulm")]].tolist() == [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, 0.0],
    ]
    assert X[:, 0].tolist() == [1.0, plain["size"].median(), 2.0]
    assert notes == (
        "column 'size' has 1 gaps, and had none in training: they are filled with the median",
        "column 'town' has words without an indicator ('Köln') in 1 rows: they are encoded as none",
        "column 'town' has 1 gaps, and had none in training: they are encoded as no word",
    )


def test_numbers_alone_stay_as_they_are():
    table = pd.DataFrame(RNG.normal(size=(12, 3)), columns=["a", "b", "c"])
    encoding = encoding_of(table)
    assert (encoding.names, encoding.notes, encoding.tied) == (("a", "b", "c"), (), None)
    np.testing.assert_array_equal(encoding.transform(table[["c", "a", "b"]])[0], table)


def test_gaps_of_numbers_are_filled_by_regression():
    """What a column is by a linear rule is found, from numbers and words; dates have their median."""
    effect = {"Ulm": 3.0, "Bonn": -1.0, "Kiel": 0.5}
    rule = 5.0 + 2.0 * TABLE["rooms"] - TABLE["garden"] + TABLE["town"].map(effect)
    table = TABLE[["rooms", "garden", "town", "built"]].assign(price=rule.where(np.arange(N) % 6 > 0))
    encoding = Encoding.from_json(Encoding.of_table(table).to_json())
    new = TABLE[["rooms", "garden", "town"]].assign(built=DATES[4], price=np.nan)
    for rows in (table, new):
        X = dict(zip(encoding.names, encoding.transform(rows)[0].T, strict=True))
        np.testing.assert_allclose(X["price"], rule, atol=0.02)
        np.testing.assert_array_equal(X["price is missing"], rows["price"].isna())
    median = table["built"].dt.day_of_year.median()
    assert set(encoding.transform(table)[0][table["built"].isna(), encoding.names.index("built day of year")]) == {
        median
    }
    assert encoding.notes[-1].endswith(
        "7 gaps: they are filled with a regression on the others, and an indicator is added"
    )
    few = table.assign(price=rule.where(np.arange(N) < 9))
    assert Encoding.of_table(few) == Encoding.of(summarize(few))


def test_the_regression_is_a_bayesian_ridge_regression_on_the_other_columns():
    table = TABLE.assign(age=np.where(np.arange(N) % 5 == 1, np.nan, RNG.normal(size=N)))
    encoding, names = Encoding.of_table(table), list(Encoding.of_table(table).names)
    medians = Encoding.of(summarize(table)).transform(table)[0]
    found = encoding.transform(table)[0]
    for name in ("size", "age"):
        at = names.index(name)
        others = np.delete(medians, [at, at + 1], axis=1)
        gaps = table[name].isna().to_numpy()
        scaler = StandardScaler().fit(others[~gaps])
        ridge = BayesianRidge().fit(scaler.transform(others[~gaps]), table[name][~gaps])
        np.testing.assert_allclose(found[gaps, at], ridge.predict(scaler.transform(others[gaps])), rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, N), max_size=4))
def test_parts_of_a_table_give_the_encoding_of_the_whole(cuts):
    """The order of the parts does not matter either."""
    ends = sorted({0, N, *cuts})
    parts = [summarize(TABLE.iloc[a:b]) for a, b in itertools.pairwise(ends)]
    joined = parts[-1]
    for part in parts[:-1]:
        joined = merged(part, joined)
    assert Encoding.of(joined) == encoding_of(TABLE)


def test_the_median_of_many_rows_is_found_by_parts():
    values = np.random.default_rng(1).lognormal(size=100_000)
    parts = [summarize(pd.DataFrame({"a": part})) for part in np.split(values, [2000, 5000, 60_000])]
    joined = parts[0]
    for part in parts[1:]:
        joined = merged(joined, part)
    (column,) = Encoding.of(joined).columns
    assert abs(np.mean(values < column.medians[0]) - 0.5) < 1e-3
    assert joined["a"].values[0].size == 10_000
    assert joined["a"].values[0][[0, -1]].tolist() == [values.min(), values.max()]


def test_of_many_words_the_most_frequent_have_an_indicator():
    words = [f"w{i:03d}" for i in range(80) for _ in range(80 - i)]
    encoding = encoding_of(pd.DataFrame({"word": words}))
    assert encoding.names == tuple(f"word=w{i:03d}" for i in range(50))
    (note,) = encoding.notes
    assert "each of 50 (w000, w001, w002, w003, w004, …); 30 rarer words are encoded as none of them" in note


def test_categories_nullable_numbers_and_time_zones_of_parquet_files():
    table = pd.DataFrame(
        {
            "a": pd.array([1, None, 3, 4], dtype="Int64"),
            "b": pd.Categorical(["x", None, "y", "x"]),
            "c": pd.to_datetime(["2024-01-01 23:00", None, "2024-01-03 01:00", None]).tz_localize("Europe/Berlin"),
        }
    )
    encoding = encoding_of(table)
    assert encoding.transform(table)[0][0].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 23.0, 0.0]
    assert encoding.names[-4:] == ("c day of year", "c day of week", "c hour", "c is missing")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": [np.nan, np.nan]}, "column 'a' has no values"),
        ({"a": ["x", "x"]}, r"column 'a' is constant \('x'\)"),
        ({"a": pd.to_datetime(["2024-01-01", "2024-01-01"])}, r"column 'a' is constant \(one date\)"),
        ({"a": ["x", "y"]}, "column 'a' has another text in each row: leave it out if it identifies"),
        ({"a": ["x", "x", "y"], "a=x": [1.0, 2.0, 3.0]}, "two encoded columns would have the name 'a=x': rename one"),
        (
            {"a": pd.to_timedelta([1, 2], unit="h")},
            "column 'a' must have numbers, words or dates, it has the type time",
        ),
        ({"a": [0.0, np.inf]}, "column 'a' is not finite in row 1"),
    ],
)
def test_columns_that_cannot_serve(columns, message):
    with pytest.raises(DataError, match=message):
        encoding_of(pd.DataFrame(columns))


def test_columns_of_another_kind_and_damaged_encodings_are_refused():
    numbers, words = pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": ["x", "x", "y"]})
    with pytest.raises(DataError, match="column 'a' must have numbers, it has words"):
        encoding_of(numbers).transform(words)
    with pytest.raises(DataError, match="column 'a' contains both numbers and words"):
        merged(summarize(numbers), summarize(words))
    for text in ("", "[1]", '[{"name": "a"}]', '[{"name": "a", "kind": "number", "size": 3}]'):
        with pytest.raises(DataError, match="the encoding of the columns cannot be read"):
            Encoding.from_json(text)
