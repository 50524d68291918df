"""Encoded columns against pandas and scikit-learn, and by parts against the whole."""

import datetime
import itertools
import json
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import BayesianRidge
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding, Numbers, Words, merged, summarize, table_of

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


def day_in_leap_year(clock):
    """The day of the year of the same month and day in 2000; NaN where there is none."""
    return pd.to_datetime(pd.DataFrame({"year": 2000, "month": clock.month, "day": clock.day})).dt.day_of_year


def encoding_of(table):
    return Encoding.of(summarize(table))


def test_every_kind_of_column_is_encoded():
    encoding = encoding_of(TABLE)
    parts = [f"built {part}" for part in ("year", "day of year", "day of week", "hour")]
    assert encoding.names == (
        *("size", "size is missing", "town=Bonn", "town=Kiel", "town=Ulm", "town is another word"),
        *(*parts, "built is missing", "rooms", "garden"),
    )
    assert encoding.tied == (0, 1, 2, 2, 2, 2, 3, 4, 5, 6, 7, 8, 9)
    X, notes = encoding.transform(TABLE)
    found = dict(zip(encoding.names, X.T, strict=True))
    assert notes == () and np.isfinite(X).all()
    np.testing.assert_array_equal(found["size"], TABLE["size"].fillna(TABLE["size"].median()))
    np.testing.assert_array_equal(found["size is missing"], TABLE["size"].isna())
    expected = OneHotEncoder(sparse_output=False).fit_transform(TABLE[["town"]])
    np.testing.assert_array_equal(X[:, 2:5], expected)
    np.testing.assert_array_equal(found["town is another word"], 0.0)
    clock = TABLE["built"].dt
    hour, day = clock.hour + clock.minute / 60, day_in_leap_year(clock)
    values = (clock.year + (day - 1 + hour / 24) / 366, day, clock.day_of_week, hour)
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
    first = encoding.names.index("town=Bonn")
    assert X[:, first : first + 4].tolist() == [[0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert X[:, 0].tolist() == [1.0, plain["size"].median(), 2.0]
    assert notes == (
        "column 'size' has 1 gaps, and had none in training: they are filled with the median",
        "column 'town' has words without an indicator ('Köln') in 1 rows: they are encoded as another word",
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
    median = day_in_leap_year(table["built"].dt).median()
    assert set(encoding.transform(table)[0][table["built"].isna(), encoding.names.index("built day of year")]) == {
        median
    }
    assert encoding.notes[-1].endswith(
        "7 gaps: they are filled with a regression on the others, and an indicator is added"
    )
    few = table.assign(price=rule.where(np.arange(N) < 9))
    assert Encoding.of_table(few) == Encoding.of(summarize(few))


@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_the_regression_is_a_standardised_bayesian_ridge_regression_on_the_other_columns(unit):
    table = TABLE.assign(age=np.where(np.arange(N) % 5 == 1, np.nan, unit * TABLE["rooms"] + RNG.normal(size=N)))
    encoding, names = Encoding.of_table(table), list(Encoding.of_table(table).names)
    medians = Encoding.of(summarize(table)).transform(table)[0]
    found = encoding.transform(table)[0]
    for name in ("size", "age"):
        at = names.index(name)
        others = np.delete(medians, [at, at + 1], axis=1)
        gaps = table[name].isna().to_numpy()
        scaler = StandardScaler().fit(others[~gaps])
        known = StandardScaler().fit(table.loc[~gaps, [name]].to_numpy())
        y = known.transform(table.loc[~gaps, [name]].to_numpy())[:, 0]
        filled = BayesianRidge().fit(scaler.transform(others[~gaps]), y).predict(scaler.transform(others[gaps]))
        np.testing.assert_allclose(found[gaps, at], known.inverse_transform(filled[:, None])[:, 0], rtol=1e-9)


@pytest.mark.slow
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
    frequent = [f"w{i:04d}" for i in range(1000)]
    summaries = summarize(pd.DataFrame({"word": 2 * frequent + [f"v{i}" for i in range(30)]}))
    encoding = Encoding.of(summaries)
    assert encoding.names == (*(f"word={word}" for word in frequent), "word is another word")
    (note,) = encoding.notes
    assert "each of 1000 (w0000, w0001, w0002, w0003, w0004, …); 30 rarer words share one" in note
    for rows, count in ((100_000, 100), (3_000_000, 50)):  # indicators of many rows would need much memory
        many = Encoding.of({"word": replace(summaries["word"], known=rows)})
        assert many.names == (*(f"word={word}" for word in frequent[:count]), "word is another word")


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


def test_one_value_and_gaps_vary():
    table = pd.DataFrame({"flag": ["Y", None, "Y"], "day": pd.to_datetime(["2024-01-01", "2024-01-01", None])})
    encoding = Encoding.from_json(encoding_of(table).to_json())
    assert encoding.names == ("flag=Y", "flag is missing", "day year", "day is missing")
    assert encoding.transform(table)[0].tolist() == [[1, 0, 2024, 0], [0, 1, 2024, 0], [1, 0, 2024, 1]]


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
        ({"a": pd.period_range("2024-01", periods=2, freq="M")}, "column 'a' must have numbers, words or dates"),
        ({"a": [datetime.time(1), datetime.time(2)]}, r"has the type object \(time\): convert it, or leave it out"),
        ({"a": [0.0, np.inf]}, "column 'a' is not finite in row 1"),
    ],
)
def test_columns_that_cannot_serve(columns, message):
    with pytest.raises(DataError, match=message):
        encoding_of(pd.DataFrame(columns))


BERLIN = pd.Series(pd.date_range("2021-03-26 20:00", periods=N, freq="7h", tz="Europe/Berlin"))  # the clocks change
OBJECTS = pd.Series(
    [t.tz_convert(["Asia/Tokyo", "UTC"][i % 2]).to_pydatetime() for i, t in enumerate(BERLIN)], dtype=object
)


def times(column):
    return table_of(pd.DataFrame({"t": column}))


def test_other_zones_are_converted_to_that_of_the_training_rows():
    encoding = Encoding.from_json(Encoding.of_table(times(BERLIN)).to_json())
    assert encoding.notes == (
        "column 't' has dates: they are encoded as day of year, day of week, hour in the zone Europe/Berlin",
    )
    X, _ = encoding.transform(times(BERLIN))
    assert X[3:6, 2].tolist() == [17.0, 0.0, 8.0]  # one hour is missing in between
    for same in (BERLIN.dt.tz_convert("Asia/Tokyo"), OBJECTS, BERLIN.astype("timestamp[us, tz=UTC][pyarrow]")):
        np.testing.assert_array_equal(encoding.transform(times(same))[0], X)
    gaps = encoding.transform(times([None] * 3))[0]
    np.testing.assert_array_equal(gaps, np.tile(np.median(X, axis=0), (3, 1)))


@pytest.mark.parametrize(
    ("column", "zone"),
    [
        (OBJECTS, "UTC"),
        (pd.Series([pd.Timestamp(t.isoformat()) for t in BERLIN], dtype=object), "UTC"),  # +01:00 and +02:00
        (pd.Series([pd.Timestamp(t.isoformat()) for t in BERLIN[:5]], dtype=object), "UTC+01:00"),
        (BERLIN.dt.tz_convert("dateutil/Europe/Berlin"), "UTC"),  # which has no name that can be stored
        (BERLIN.dt.tz_localize(None), None),
    ],
)
def test_several_zones_become_one(column, zone):
    encoding = Encoding.of_table(times(column))
    assert encoding.columns[0].zone == zone
    expected = BERLIN[: len(column)].dt.tz_convert(zone) if zone else column
    clock = expected.dt.tz_localize(None).dt
    X = dict(zip(encoding.names, encoding.transform(times(column))[0].T, strict=True))
    np.testing.assert_array_equal(X["t hour"], clock.hour + clock.minute / 60)
    np.testing.assert_array_equal(X["t day of year"], day_in_leap_year(clock))


def test_times_with_and_without_a_zone_are_refused():
    naive = BERLIN.dt.tz_localize(None)
    mixed = pd.Series([t if i % 2 else t.tz_localize(None) for i, t in enumerate(BERLIN)], dtype=object)
    days = pd.Series([t if i % 2 else t.date() for i, t in enumerate(BERLIN)], dtype=object)
    remedy = "make them alike by dt.tz_localize or dt.tz_convert, in CSV by an offset behind each"
    for column in (mixed, days):
        with pytest.raises(
            DataError, match=f"column 't' has times without a zone and in the zone Europe/Berlin: {remedy}"
        ):
            Encoding.of_table(times(column))
    for first, then, message in (
        (BERLIN, naive, "without a zone, and in training in the zone Europe/Berlin"),
        (naive, OBJECTS, "in the zone UTC, and in training without a zone"),
        (BERLIN, mixed, "without a zone and in the zone Europe/Berlin"),
    ):
        with pytest.raises(DataError, match=f"column 't' has times {message}: {remedy}"):
            Encoding.of_table(times(first)).transform(times(then))
    for other, message in ((naive, "without a zone"), (BERLIN.dt.tz_convert("UTC"), "in the zone UTC")):
        with pytest.raises(DataError, match=f"column 't' has times in the zone Europe/Berlin and {message}: {remedy}"):
            merged(summarize(times(BERLIN)), summarize(times(other)))


@pytest.mark.parametrize("step", ["2s", "1s", "250ms", "1us"])
def test_seconds_and_their_fractions_count(step):
    column = pd.Series(pd.date_range("2021-01-01 12:00:58", periods=N, freq=step))
    encoding = encoding_of(times(column))
    hours = (column - pd.Timestamp("2021-01-01")) / pd.Timedelta("1h")
    assert encoding.names == ("t hour",)
    np.testing.assert_allclose(encoding.transform(times(column))[0][:, 0], hours, rtol=1e-14)
    assert np.unique(encoding.transform(times(column))[0]).size == N


def test_a_part_with_only_gaps_has_no_kind():
    """It is joined with numbers, words and dates, before and after; as floats, objects or dates of another zone."""
    for column in (TABLE["size"], TABLE["town"], TABLE["built"], BERLIN, pd.Series([Decimal(1), Decimal(2)] * 20)):
        expected = summarize(times(pd.concat([column, pd.Series([None] * 5, dtype=object)])))
        for gaps in ([None] * 5, [np.nan] * 5, [pd.NaT] * 5, pd.array([None] * 5, dtype="boolean")):
            parts = summarize(times(column)), summarize(times(gaps))
            for one, other in (parts, parts[::-1]):
                assert Encoding.of(merged(one, other)) == Encoding.of(expected)
    none = summarize(times([None] * 5))
    with pytest.raises(DataError, match="column 't' has no values: leave it out"):
        Encoding.of(merged(none, none))


def test_the_categories_1_and_1_point_0_are_one():
    codes = [1, 2, 3, 1, 2, 3]
    for fitted in (pd.Categorical(codes), pd.Categorical(np.array(codes, float)), ["1", "2", "3", "1", "2", "3"]):
        encoding = encoding_of(times(fitted))
        assert encoding.names == ("t=1", "t=2", "t=3", "t is another word")
        for new in (
            codes,
            np.array(codes, float),
            pd.array(codes, dtype="Int64"),
            ["1.0", "2.0", "3.0", "1", "2", "3"],
        ):
            X, notes = encoding.transform(times(new))
            assert X.argmax(axis=1).tolist() == [0, 1, 2, 0, 1, 2] and notes == ()
        X, notes = encoding.transform(times([1.0, np.nan]))
        assert X.tolist() == [[1, 0, 0, 0], [0, 0, 0, 0]] and len(notes) == 1


def test_words_that_end_in_nul_characters_are_words():
    encoding = encoding_of(times(2 * ["a", "a\0", "a", "b\0\0"]))
    X, notes = encoding.transform(times(["a", "a\0", "b\0\0", "b"]))
    assert X.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    assert len(notes) == 1 and "('b') in 1 rows" in notes[0]


def test_words_are_not_tied_to_a_part_of_another_column_that_has_their_name():
    dates, words = pd.date_range("2020-01-01", periods=6, freq="300D"), ["a", "b", "c"] * 2
    table = pd.DataFrame({"d": dates, "d year": words, "x": [1, np.nan, 3, 4, 5, 6], "x is missing": words[::-1]})
    assert encoding_of(table).tied == (0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 6, 6, 6)


def test_categories_of_one_value_are_one():
    """Decimals, dates and the same instants in another zone, whatever class says them."""
    day = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-02"])
    noon = (day + pd.Timedelta("12h")).tz_localize("UTC")
    for fitted, others in (
        (
            [Decimal("0.50"), Decimal("1.50")] * 2,
            ([0.5, 1.5] * 2, [Decimal("0.5"), Decimal("1.500")] * 2, ["0.5", "1.5"] * 2),
        ),
        (day, (day.date, day.strftime("%Y-%m-%d"), day.astype("datetime64[s]"))),
        (noon, (noon.tz_convert("Asia/Tokyo"), noon.to_pydatetime())),
        ([-0.0, 10.0**16] * 2, ([0, 10**16] * 2, [0.0, 1e16] * 2, ["0", "10000000000000000"] * 2)),
    ):
        encoding = encoding_of(times(pd.Categorical(fitted)))
        for new in others:
            X, notes = encoding.transform(times(pd.Categorical(new)))
            assert X.argmax(axis=1).tolist() == [0, 1, 0, 1] and X.sum() == 4 and notes == ()


NUMBERS = """−1.2 | 0.5 | 2;  –5 | 6;  (1.2) | 0.5 | 3;  1.2- | 0.5 | 3;  -1.2% | 5%;  5 ‰ | 6 ‰;  $5 | $12.5
($5) | $5;  £1,200 | £300;  5,50 € | 7,20 €;  US$ 5 | US$ 7;  USD 5 | USD 7;  1\u202f200 | 300 | 2\u202f000
1'200 | 300;  5 km | 10 km;  5\u00a0kg | 6\u00a0kg;  5 m2 | 7 m2;  21 °C | 22 °C;  21° | 22°;  <0.01 | 0.5 | 0.7
~5 | ~7;  5 % | 6 % | 7 % | 8 % | ?;  2020-01-31 | 2020-02-01;  2020-01-31 10:00 | 2020-02-01 11:30"""
PHRASES = """A4 | A3 | A5;  1st | 2nd | 3rd;  4th | 5th | 6th;  10-20 | 20-30;  18-24 | 25-34 | 65+;  <18 | 18-65 | >65
3G | 4G | 5G;  1A | 2A | 3A;  Q1 | Q2;  2021-Q1 | 2021-Q2;  #1 | #2;  Level 1 | Level 2;  2-door | 4-door;  1/2 | 1/4
1:2 | 1:3;  4* | 5*;  12:30 | 13:30;  5th Ave | 1 Main St | 7 Elm Rd;  1 or 2 | 3 or 4;  5 km | 10 km | unknown
24/7 | 9/5;  1+ | 1 | 2- | 2 | 2+;  1 | 2"""

PATTERNS = """{1:.1f}km;  {1:.1f};  {1:.1f}D+01;  {1:.1f}×10³;  0x{0:x};  {1:.1f} ± 0.2;  1{0:02d}/80;  {0} 1/2;  \
{0} ft {2} in;  {0}:30;  {2}:{0:02d} PM;  {0} days 02:00:00;  2020-W{0:02d};  2020-{2:02d};  20{0:02d}Q1;  \
{0}-Jan-20;  Jan 20{0:02d};  {0} h 2{0} min"""


def listed(text):
    """Columns of a text, which has one behind a semicolon or in a new line."""
    return [column.split(" | ") for column in re.split(r";  |\n", text)]


NUMBERS_AS_TEXT = [
    *listed(NUMBERS),
    [f"{i}kg" for i in range(50, 80)],
    [f"{i} {unit}" for i in range(20) for unit in ("kg", "g", "mg")],
    [f"{i / 3:.1f}{'kM'[i % 2]}" for i in range(20)],
    [f"{i / 3:.2f}{'NS'[i % 2]}" for i in range(20)],
    [f"{i}. kg" for i in range(20)],
    *([f"{1 + i % 28:02d}{form.format(1 + i % 12)}" for i in range(40)] for form in (".{:02d}.2020", "/{}/2020 08:30")),
    [f"{1000 * i:,}" for i in range(1, 20)],
    [f"2020/{1 + i % 12}/{i}" for i in range(1, 20)],
    *([pattern.format(i, i / 3, 1 + i % 12) for i in range(1, 20)] for pattern in PATTERNS.split(";  ")),
]
WORDS = [
    *listed(PHRASES),
    [f"{i}-{i + 4}" for i in range(0, 90, 5)],
    [f"{i}{c}" for i in range(5, 11) for c in "ab"],
    [f"{1000 + 7 * i} {c}{d}" for i, c in enumerate("ABCDEFG") for d in "XYZ"],
    [f"{i} or {i + 1}" for i in range(20)],
    [f"{i} {'Oak Rd' if i % 2 else 'Main St'}" for i in range(5)],
    ["1. Yes", "2. No"],
    *([form.format(i, 10 + i) for i in range(20)] for form in ("2020.{}.0", "10-{1}-56{1}", "5/{1}/20", "1000/{}/0")),
    *([pattern.format(i) for i in range(1, 30)] for pattern in ("1.2.{}", "Zone {}", "v1.{}", "10.0.0.{}", "{:05d}")),
]


@pytest.mark.parametrize("words", NUMBERS_AS_TEXT, ids=lambda words: words[0])
def test_numbers_as_people_write_them_are_refused_with_an_example(words):
    with pytest.raises(DataError, match="column 't' has numbers or dates as text, such as ") as caught:
        encoding_of(times(words * 2))
    assert any(repr(word) in str(caught.value) for word in words)
    assert encoding_of(times(pd.Categorical(words * 2))).kinds == {"t": Words}  # as the user says


@pytest.mark.parametrize("words", WORDS, ids=lambda words: words[0])
def test_words_with_digits_are_words(words):
    assert encoding_of(times(words * 2)).kinds == {"t": Words}


def test_columns_of_arrow_and_nullable_columns_are_those_of_numpy():
    pa = pytest.importorskip("pyarrow")
    numbers, truth, town = [1.5, None, 2.5, 4.0] * 3, [True, None, False, True] * 3, ["Ulm", None, "Bonn", "Ulm"] * 3
    day = pd.date_range("2021-01-01", periods=12, freq="31h")
    for first, others in (
        (
            numbers,
            (pd.array(numbers, "Float64"), pd.array(numbers, "double[pyarrow]"), [v and Decimal(v) for v in numbers]),
        ),
        (numbers, (pd.array([v and Decimal(v) for v in numbers], pd.ArrowDtype(pa.decimal128(9, 2))),)),
        (
            truth,
            (
                pd.array(truth, "boolean"),
                pd.array(truth, "bool[pyarrow]"),
                [v if v is None else float(v) for v in truth],
            ),
        ),
        (town, (pd.array(town, "string"), pd.array(town, pd.ArrowDtype(pa.string())), pd.Categorical(town))),
        (town, (pd.array(town, pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),)),
        (day, (pd.Series(day).astype("timestamp[ns][pyarrow]"), pd.Series(day.to_pydatetime(), dtype=object))),
    ):
        encoding = Encoding.of_table(times(first))
        X, _ = encoding.transform(times(first))
        for other in others:
            assert Encoding.of_table(times(other)) == encoding
            np.testing.assert_array_equal(encoding.transform(times(other))[0], X)


def test_columns_of_another_kind_and_damaged_encodings_are_refused():
    numbers, words = pd.DataFrame({"a": [1.0, 2.0]}), pd.DataFrame({"a": ["x", "x", "y"]})
    with pytest.raises(DataError, match="column 'a' must have numbers, it has words"):
        encoding_of(numbers).transform(words)
    with pytest.raises(DataError, match="column 'a' contains both numbers and words"):
        merged(summarize(numbers), summarize(words))
    record = {"name": "a", "kind": "number", "medians": [1.0]}
    assert Encoding.from_json(json.dumps([record])).names == ("a",)
    damaged = [{"name": "a"}, *(record | change for change in ({"size": 3}, {"kind": "numbers"}, {"kind": ["number"]}))]
    for text in ("", "[1]", *(json.dumps([each]) for each in damaged)):
        with pytest.raises(DataError, match="the encoding of the columns cannot be read"):
            Encoding.from_json(text)


@pytest.mark.parametrize(
    ("kept", "changed"), [('"Bonn"', "1"), ('"Europe/Berlin"', "3"), ('"Europe/Berlin"', '"Mars/X"')]
)
def test_words_and_zones_of_a_stored_encoding_are_text(kept, changed):
    table = TABLE[["town"]].assign(at=pd.date_range("2020", periods=N, freq="5D", tz="Europe/Berlin"))
    text = Encoding.of_table(table).to_json()
    assert kept in text and Encoding.from_json(text) == Encoding.of_table(table)
    with pytest.raises(DataError, match=r"the encoding of the columns cannot be read \(.* (must be text|is no zone)\)"):
        Encoding.from_json(text.replace(kept, changed))


def with_codes(*codes):
    """Values between 0 and 27, and these."""
    return np.append(np.arange(28.0), codes)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (with_codes(*[999.0] * 4), ["'x' has 999 in 4 rows"]),
        (with_codes(*[-9999.0] * 3, *[-999.0] * 5), ["'x' has -9999 in 3 rows", "'x' has -999 in 5 rows"]),
        (with_codes(-999.0, -999.0), []),  # twice
        (with_codes(*[-998.0] * 5), []),  # another number
        (with_codes(*[999.0] * 5, 200.0), []),  # near
        (np.append(np.linspace(0.0, 41310.0, 50), [99999.0] * 9), []),  # the largest income that is recorded
        (np.arange(1000.0).repeat(3), []),
        (np.array([0.0, 0.0, 999.0, 999.0, 999.0]), []),  # one other value, which has no range
        (np.full(5, 999.0), []),
    ],
)
def test_repeated_numbers_of_nines_far_from_all_others_are_noted(values, said):
    notes = Encoding((Numbers("x"),)).codes(values[:, None])
    assert len(notes) == len(said) and all(words in note for words, note in zip(said, notes, strict=True))


def test_a_year_goes_on_at_new_year():
    """A trend is no step: from one day to the next the year grows evenly; within a year it is left out."""
    days = pd.date_range("2022-11-01", "2024-03-01", freq="D")
    encoding = encoding_of(pd.DataFrame({"d": days}))
    year = encoding.transform(pd.DataFrame({"d": days}))[0][:, 0]
    assert encoding.names[0] == "d year" and year[0] == 2022 + 305 / 366
    np.testing.assert_allclose(np.diff(year), 1 / 366, atol=1 / 366 + 1e-9)  # 29 February is left out in other years
    assert (np.diff(year) > 0).all() and np.ptp(year) == pytest.approx((days[-1] - days[0]).days / 365.25, abs=0.01)
    within = days[(days.year == 2023)]
    assert encoding_of(pd.DataFrame({"d": within})).names == ("d day of year", "d day of week")
