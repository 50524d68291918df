"""CSV and Parquet files with words, dates and gaps give the same data, and say what is wrong with them."""

import builtins

import numpy as np
import pandas as pd
import pytest

from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding, summarize
from bsvr_pp.tables.files import writing_predictions
from bsvr_pp.tables.readers import read_classes, read_data, read_intervals, read_new, read_times

N = 30
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": np.where(np.arange(N) % 8 == 3, np.nan, RNG.normal(size=N)),
        "town": np.where(np.arange(N) % 5 == 4, None, RNG.choice(["Ulm", "Bonn"], N)),
        "sold": pd.date_range("2024-01-30", periods=N, freq="26h"),
        "rooms": RNG.integers(1, 9, N),
        "price": RNG.normal(size=N),
    }
)


def write(frame, path, **options):
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, **options)
    return path


@pytest.mark.parametrize(
    ("name", "options"), [("a.csv", {}), ("b.csv", {"sep": ";", "decimal": ",", "na_rep": "n/a"}), ("c.parquet", {})]
)
def test_every_file_gives_the_same_numbers(tmp_path, name, options):
    path = write(FRAME, tmp_path / name, **options)
    data, encoding = read_data(path, "price").encode()
    reference, _ = encoding.transform(FRAME)
    np.testing.assert_array_equal(data.X, reference)
    np.testing.assert_array_equal(data.y, FRAME["price"])
    assert data.inputs[:5] == ("size", "size is missing", "town=Bonn", "town=Ulm", "town is missing")
    assert any("column 'sold' has dates" in note for note in data.notes)
    found, _ = read_new(write(FRAME.drop(columns="price").head(4), tmp_path / f"new-{name}", **options), encoding)
    X, notes = encoding.transform(found)
    np.testing.assert_array_equal(X, reference[:4])
    assert notes == ()


def test_the_target_is_the_last_column_or_the_one_named(tmp_path):
    with pytest.raises(DataError, match="has no Parquet files"):
        read_data(tmp_path)
    path = write(pd.DataFrame(RNG.normal(size=(12, 3)), columns=list("aby")), tmp_path / "numbers.csv")
    assert (read_data(path).target, list(read_data(path).inputs)) == ("y", ["a", "b"])
    assert list(read_data(path, "a").inputs) == ["b", "y"]
    for other in (tmp_path / "none.csv", "https://example.org/data.csv"):
        with pytest.raises(DataError, match="there is no such file"):
            read_data(other)


@pytest.mark.slow
def test_test_rows_are_encoded_as_the_training_rows(tmp_path):
    """A word that only the test rows have is said."""
    towns = ["Ulm", "Bonn"] * (N // 2)
    for seed in range(20):
        test = np.random.default_rng(seed).permutation(N)[: N // 5]
        path = write(FRAME.assign(town=np.where(np.arange(N) == test[0], "Kiel", towns)), tmp_path / f"{seed}.csv")
        train, held_out = read_data(path, "price").split(0.2, seed)
        assert train.inputs == held_out.inputs and "town=Kiel" not in train.inputs
        of_town = [k for name, k in zip(train.inputs, train.tied, strict=True) if name.startswith("town")]
        assert len(of_town) > len(set(of_town)) == 1  # words of a column share a lengthscale
        assert train.X.shape == (24, len(train.inputs)) and held_out.X.shape == (6, len(train.inputs))
        assert any("test rows: column 'town' has words without an indicator ('Kiel')" in note for note in train.notes)


def write_predictions(table, path):
    """In two parts."""
    with writing_predictions(path, path) as add:
        add(table.iloc[:1])
        add(table.iloc[1:])


def test_predictions_are_written_in_the_form_of_the_file(tmp_path):
    table = pd.DataFrame({"-y": [1.0, 2.0], "class": ["+", "++"]})
    write_predictions(table, tmp_path / "a.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a.csv"), table)
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    write_predictions(table, tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), table)


def csv(column):
    return "a,y\n" + "".join(f"{cell},{i * i % 7}\n" for i, cell in enumerate(column))


@pytest.mark.parametrize("others", [[], ["1", "0"], [""]])
def test_true_and_false_are_one_and_zero(tmp_path, others):
    (tmp_path / "data.csv").write_text(csv(["TRUE", "false", *others] * 6))
    expected = [1.0, 0.0, *(float(each or "nan") for each in others)] * 6
    np.testing.assert_array_equal(read_data(tmp_path / "data.csv").inputs["a"], expected)


def test_codes_of_missing_targets_are_noted(tmp_path):
    (tmp_path / "data.csv").write_text(csv(range(20)) + "20,-999\n21,-999\n22,-999\n")
    dataset, _ = read_data(tmp_path / "data.csv").encode()
    said = "column 'y' has -999 in 3 rows, far from all others: leave these rows out, if they have no value"
    assert f"{tmp_path / 'data.csv'}: {said}" in dataset.notes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (csv([*range(11), "TRUE"]), "column 'a' is not numeric, row 13 has 'TRUE'"),
        (csv(["true", "false", "2"] * 4), "column 'a' is not numeric, row 2 has 'true'"),
        (csv([*range(11), "x1"]), "column 'a' is not numeric, row 13 has 'x1'"),
        (csv([f"0{i}.02.2024" for i in range(1, 10)] * 2), "column 'a', row 2 has '01.02.2024', and dates are needed"),
        (csv([f"0{i}/02/24" for i in range(1, 10)] * 2), "column 'a', row 2 has '01/02/24', and dates are needed"),
        (csv(["2024-01-31"] * 11 + ["2024-02-30"]), "column 'a', row 13 has '2024-02-30', and dates are needed"),
        (csv(["2024-01-31"] * 11 + ["later"]), "column 'a', row 13 has 'later', and dates are needed"),
        (csv([f"c{i}" for i in range(12)]), "column 'a' has another text in each row: leave it out if it identifies"),
        (csv(["x", "y"] * 6).replace(",4", ","), "column 'y' has a missing value in row 4"),
        (csv(["x", "y"] * 6).replace(",4", ",?"), "column 'y' is not numeric, row"),
        (csv(["2024-01-31 10:00Z", "2024-02-01 10:00"] * 6), "column 'a' has times without a zone and in the zone UTC"),
        (csv(["2024-01-31 10:00 CET"] * 12), "row 2 has '2024-01-31 10:00 CET', and dates are needed"),
        (csv(["5 %", "6.5 %"] * 6), "column 'a' has numbers or dates as text, such as '5 %'"),
        (csv(["−5", "6.5", "−7"] * 4), "column 'a' has numbers or dates as text, such as '−5'"),
        (csv(["-"] * 20 + list(range(12))), "column 'a' is not numeric, row 2 has '-'"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, message):
    path = tmp_path / "data.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_data(path).encode()
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.csv", "b.parquet"])
def test_intervals_times_and_classes_are_read(tmp_path, name):
    low, high = np.where(np.arange(N) % 3 == 0, np.nan, -1.0), np.where(np.arange(N) % 3 == 1, np.nan, FRAME["rooms"])
    table = FRAME.assign(low=low, high=high, seen=np.arange(N) % 2 == 0)
    path = write(table, tmp_path / name)
    found = read_intervals(path, "low", "high")
    np.testing.assert_array_equal(found.known[:, 0], np.where(np.isnan(low), -np.inf, low))
    np.testing.assert_array_equal(found.known[:, 1], np.where(np.isnan(high), np.inf, high))
    assert np.isfinite(found.y).all() and not {"low", "high"} & set(found.inputs)
    times = read_times(path, "rooms", "seen")
    np.testing.assert_array_equal(times.known[:, 1], np.where(table["seen"], table["rooms"], np.inf))
    np.testing.assert_array_equal(times.known[:, 0], table["rooms"])
    classes = read_classes(path, "rooms")
    assert classes.known.dtype == np.int64 and classes.known.tolist() == table["rooms"].tolist()
    assert "in this order: 1, 2, 3" in classes.notes[-1]


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda path: read_intervals(path, "low", "high"), "columns 'low' and 'high' are both empty in row 4"),
        (lambda path: read_intervals(path, "high", "other"), "columns 'high' and 'other' are not in order in row 2"),
        (lambda path: read_intervals(path, "low", "word"), "column 'word' is not numeric"),
        (lambda path: read_intervals(path, "low", "none"), "has no column 'none'"),
        (lambda path: read_times(path, "time", "high"), r"'high' must have 1 \(observed\) or 0 \(censored\), it has 3"),
        (lambda path: read_times(path, "low", "high"), "column 'low' has a missing value in row 4"),
        (lambda path: read_classes(path, "gap"), "column 'gap' has a missing value in row 2"),
        (
            lambda path: read_classes(path, "day"),
            "'day' must have numbers or words to be ordered classes, it has dates",
        ),
        (lambda path: read_classes(path, "share"), "column 'share' has numbers or dates as text, such as '5 %'"),
    ],
)
def test_what_is_wrong_with_ends_and_classes_is_said(tmp_path, read, message):
    rows = ["1,1,0,w,5,,2024-01-31", "1,3,2,v,5,a,2024-01-31", ",,0,w,5,b,2024-01-31", *["1,1,1,w,5,b,2024-01-31"] * 9]
    rows = [row + share for row, share in zip(rows, [",5 %", ",10 %"] * 6, strict=True)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["low,high,other,word,time,gap,day,share", *rows]))
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("write_time", "zone"),
    [
        (lambda t: t.isoformat(), "UTC"),  # +01:00 and +02:00
        (lambda t: t.tz_convert("UTC").strftime("%Y-%m-%d %H:%M:%SZ"), "UTC"),
        (lambda t: t.tz_convert("UTC").isoformat(timespec="microseconds"), "UTC"),
        (lambda t: t.tz_convert("Asia/Tokyo").isoformat()[:-3], "UTC+09:00"),  # +09
        (lambda t: t.tz_convert("Asia/Tokyo").strftime("%Y-%m-%d %H:%M:%S%z"), "UTC+09:00"),  # +0900
    ],
)
def test_offsets_of_times_in_a_file_count(tmp_path, write_time, zone):
    moments = pd.Series(pd.date_range("2021-03-26 20:00:01", periods=N, freq="7h", tz="Europe/Berlin"))
    table = pd.DataFrame({"t": moments.map(write_time), "y": FRAME["price"]})
    _, encoding = read_data(write(table, tmp_path / "a.csv"), "y").encode()
    assert encoding.columns[0].zone == zone
    X, _ = encoding.transform(pd.DataFrame({"t": moments}))
    np.testing.assert_array_equal(encoding.transform(read_new(tmp_path / "a.csv", encoding)[0])[0], X)
    other = write(
        pd.DataFrame({"t": moments.map(lambda t: t.tz_convert("America/Lima").isoformat())}), tmp_path / "b.csv"
    )
    np.testing.assert_array_equal(encoding.transform(read_new(other, encoding)[0])[0], X)
    naive = write(pd.DataFrame({"t": moments.dt.tz_localize(None)}), tmp_path / "c.csv")
    with pytest.raises(DataError, match=f"column 't' has times without a zone, and in training in the zone {zone[:3]}"):
        encoding.transform(read_new(naive, encoding)[0])


def test_test_rows_that_repeat_training_rows_are_noted(tmp_path):
    twice = write(pd.concat([FRAME, FRAME]), tmp_path / "twice.csv"), write(FRAME, tmp_path / "once.csv")
    notes = [" ".join(read_data(file, "price").split(0.25, 0)[0].notes) for file in twice]
    assert f"of {N // 2} repeat others, target included" in notes[0] and "repeat others" not in notes[1]


def test_a_known_word_is_no_gap_in_a_text_file(tmp_path):
    """Parquet has words such as NA, which new rows of a CSV file may have, too."""
    towns = FRAME.assign(town=FRAME["town"].replace("Ulm", "NA").fillna("Bonn"))
    _, encoding = read_data(write(towns, tmp_path / "a.parquet"), "price").encode()
    found = read_new(write(towns.head(6), tmp_path / "a.csv", na_rep="n/a"), encoding)[0]
    np.testing.assert_array_equal(encoding.transform(found)[0], encoding.transform(towns.head(6))[0])


def test_new_files_must_have_the_columns_of_the_model(tmp_path):
    _, encoding = read_data(write(FRAME, tmp_path / "train.csv"), "price").encode()
    for frame, message in (
        (FRAME.drop(columns="town"), "has no column 'town'"),
        (FRAME.head(0), "has no rows"),
        (FRAME.assign(rooms="many"), "column 'rooms' is not numeric, row 2 has 'many'"),
        (FRAME.assign(sold="later"), "column 'sold', row 2 has 'later', and dates are needed"),
    ):
        with pytest.raises(DataError, match=message):
            read_new(write(frame, tmp_path / "new.csv"), encoding)


def test_inputs_are_read_by_name(tmp_path):
    path, numbers = tmp_path / "new.csv", pd.DataFrame({"a": [0.0, 1.0], "b": [0.0, 1.0], "c": [0.0, 1.0]})
    path.write_text("b,note,a\n1,x,2\n3,y,4\n")
    encoding = Encoding.of(summarize(numbers[["a", "b"]]))
    assert encoding.transform(read_new(path, encoding)[0])[0].tolist() == [[2.0, 1.0], [4.0, 3.0]]
    note = numbers[["a"]].set_axis(["note"], axis=1)
    for table, message in ((numbers, "has no column 'c'; it has: b, note, a"), (note, "row 2 has 'x'")):
        with pytest.raises(DataError, match=message):
            read_new(path, Encoding.of(summarize(table)))
    path.write_text("a,b\n")
    with pytest.raises(DataError, match="has no rows"):
        read_new(path, encoding)


def test_parquet_files_that_cannot_serve(tmp_path):
    path = write(FRAME.assign(price=FRAME["price"].where(FRAME.index > 2)), tmp_path / "gaps.parquet")
    with pytest.raises(DataError, match=r"gaps.parquet: column 'price' has a missing value in row 1$"):
        read_data(path, "price")
    with pytest.raises(DataError, match=r"gaps.parquet: column 'town' must have numbers to be predicted, it has words"):
        read_data(write(FRAME.assign(town=FRAME["town"].fillna("Ulm")), path), "town")
    with pytest.raises(DataError, match=r"gaps.parquet: column 'price' is not finite in row 1"):
        read_data(write(FRAME.assign(price=np.where(np.arange(N), 0.0, np.inf)), path), "price")
    with pytest.raises(DataError, match="has no column 'cost'; it has: size, town"):
        read_data(path, "cost")
    _, encoding = read_data(write(FRAME, path), "price").encode()
    with pytest.raises(DataError, match="has no column 'rooms'"):
        read_new(write(FRAME.drop(columns="rooms"), path), encoding)
    with pytest.raises(DataError, match="column 'rooms' must have numbers, it has words"):
        encoding.transform(read_new(write(FRAME.assign(rooms="many"), path), encoding)[0])
    with pytest.raises(DataError, match="has no column with a name"):
        read_data(write(pd.DataFrame(index=range(3)), path))
    path.write_text("no Parquet")
    with pytest.raises(DataError, match=r"gaps.parquet: cannot be read as Parquet"):
        read_data(path)
    with pytest.raises(DataError, match="there is no such file"):
        read_data(tmp_path / "none.parquet")


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    load = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return load(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    for use in (lambda path: read_data(path), lambda path: write_predictions(FRAME, path)):
        with pytest.raises(DataError, match=r"Parquet files need pyarrow: pip install 'bsvr-pp\[large\]'"):
            use(tmp_path / "a.parquet")
