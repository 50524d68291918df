"""Parquet files and folders of them, as pandas, Spark and Dask write them: all columns are read, or refused by name."""

import numpy as np
import pandas as pd
import pytest

from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding
from bsvr_pp.tables.readers import read_data, read_new

pa = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
N = 24
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "day": pd.date_range("2024-01-30", periods=N, freq="26h", tz="Europe/Berlin"),
        "size": np.where(np.arange(N) % 8 == 3, np.nan, RNG.normal(size=N)),
        "site": np.repeat(["N", "S ü/d"], N // 2),
        "level": np.repeat([0.5, 1.5, 2.5], N // 3),
        "y": RNG.normal(size=N),
    }
)
INDEX = "an index without a name of its own is left out: it labels the rows"


def encoded(path):
    """Inputs by name, targets, and what was said."""
    data, encoding = read_data(path, "y").encode()
    return dict(zip(encoding.names, data.X.T, strict=True)), data.y, data.notes


def forms(tmp_path):
    """One table as files."""
    frames = pytest.importorskip("dask.dataframe")
    TABLE.to_csv(tmp_path / "a.csv", index=False)
    TABLE.to_csv(tmp_path / "a.csv.gz", index=False)
    TABLE.to_parquet(tmp_path / "a.parquet")
    TABLE.set_index("day").to_parquet(tmp_path / "index.parquet")
    TABLE.set_index(["day", "site"]).to_parquet(tmp_path / "levels.parquet")
    TABLE.set_index("day").to_csv(tmp_path / "index.csv")
    frames.from_pandas(TABLE, npartitions=3).to_parquet(tmp_path / "dask.parquet")
    frames.from_pandas(TABLE.set_index("day"), npartitions=2).to_parquet(tmp_path / "dask")
    return sorted(tmp_path.iterdir())


@pytest.mark.slow
def test_all_files_of_one_table_give_the_same_numbers(tmp_path):
    """The zone of times in CSV is an offset, here the same."""
    expected = Encoding.of_table(TABLE.drop(columns="y"))
    X = dict(zip(expected.names, expected.transform(TABLE)[0].T, strict=True))
    paths = forms(tmp_path)
    assert len(paths) == 8
    for path in paths:
        found, y, notes = encoded(path)
        assert found.keys() == X.keys()
        for name, column in found.items():
            np.testing.assert_allclose(column, X[name], rtol=1e-9, err_msg=f"{path}: {name}")
        np.testing.assert_array_equal(y, TABLE["y"])
        assert any(INDEX in note for note in notes) == (path.name == "dask.parquet")
        assert read_data(path).target == "y"  # the last of the files
        new, _ = read_new(path, expected)
        np.testing.assert_allclose(expected.transform(new)[0], expected.transform(TABLE)[0], rtol=1e-12)


def test_a_folder_of_a_column_is_a_data_frame_of_pandas(tmp_path):
    TABLE.to_parquet(tmp_path / "folder", partition_cols=["site"])
    with pytest.raises(DataError, match="folder in a folder: give") as refusal:
        read_data(tmp_path / "folder", "y")
    given = eval(str(refusal.value).split("give ")[1].split(", a data")[0], {"pandas": pd})
    expected = Encoding.of_table(TABLE.drop(columns="y"))
    np.testing.assert_allclose(expected.transform(given)[0], expected.transform(TABLE)[0], rtol=1e-12)


def test_an_index_that_is_a_range_with_a_name_is_refused(tmp_path):
    """The file states where it begins and ends, and has no values; one without a name says nothing."""
    path = tmp_path / "a.parquet"
    for name in ("t", 0):
        TABLE.set_axis(pd.RangeIndex(5, 5 + 2 * N, 2, name=name)).to_parquet(path)
        with pytest.raises(
            DataError, match=rf"the index '?{name}'? has no values in it: write it after reset_index\(\)"
        ):
            read_data(path, "y")
    TABLE.to_parquet(path)
    assert "index" not in read_data(path, "y").inputs and read_data(path, "y").notes == ()
    TABLE.sample(frac=1.0, random_state=0).to_parquet(path)
    assert read_data(path, "y").notes == (f"{path}: {INDEX}",)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("2.parquet", lambda path: TABLE.drop(columns="size").to_parquet(path), "alone has the column 'size': write"),
        ("2.parquet", lambda path: TABLE.drop(columns="y").to_parquet(path), "alone has the column 'y'"),
        ("2.parquet", lambda path: TABLE.assign(more=1).to_parquet(path), "alone has the column 'more'"),
        ("2.parquet", lambda path: TABLE.set_index(TABLE["level"].rename("k")).to_parquet(path), "has the column 'k'"),
        ("g=1/2.parquet", lambda path: TABLE.to_parquet(path), r"g=1: is a folder in a folder: give pandas\.read_parq"),
        ("more.csv", lambda path: TABLE.to_csv(path), "more.csv: is no Parquet file, and all files of the folder must"),
        ("_delta_log/00.json", lambda path: path.write_text("{}"), "_delta_log: is a folder in a folder"),
        ("2.parquet", lambda path: path.write_text("no Parquet"), "2.parquet: cannot be read as Parquet"),
        ("2.parquet", lambda path: TABLE.assign(size="a").to_parquet(path), "column 'size' must have numbers, words"),
    ],
)
def test_what_is_left_over_in_a_folder_is_refused_by_name(tmp_path, name, write, message):
    TABLE.to_parquet(tmp_path / "1.parquet")
    for marker in ("_SUCCESS", "._SUCCESS.crc", ".part.parquet.crc", "_metadata"):
        (tmp_path / marker).touch()
    assert read_data(tmp_path, "y").inputs.shape == (N, 4)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    write(path)
    with pytest.raises(DataError, match=message):
        read_data(tmp_path, "y").encode()


def test_columns_of_one_name_are_refused(tmp_path):
    names = pa.table([TABLE["size"], TABLE["level"], TABLE["y"]], names=["a", "a", "y"])
    pa.parquet.write_table(names, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="parquet: two columns have the name 'a': rename one"):
        read_data(tmp_path / "a.parquet", "y")


def test_a_part_with_only_gaps_or_without_rows_does_not_matter(tmp_path):
    whole = TABLE.assign(flag=np.arange(N) % 2 == 0, when=TABLE["day"].dt.date)
    half = whole.copy()
    half[["size", "site", "day", "flag", "when"]] = None
    half = half.astype({"site": object})
    whole.head(0).to_parquet(tmp_path / "0.parquet")
    half.to_parquet(tmp_path / "1.parquet")
    whole.to_parquet(tmp_path / "2.parquet")
    found = read_data(tmp_path, "y")
    reference = Encoding.of_table(whole.drop(columns="y"))
    assert found.encode()[1].kinds == reference.kinds
    assert found.inputs.isna().sum()[["day", "flag", "when"]].tolist() == [N, N, N]


def test_files_of_a_folder_are_read_in_the_order_of_the_numbers_in_their_names(tmp_path):
    for i in range(N):
        TABLE[i : i + 1].to_parquet(tmp_path / f"part.{i}.parquet")
    np.testing.assert_array_equal(read_data(tmp_path, "y").y, TABLE["y"])


def test_an_index_may_be_named_by_a_number(tmp_path):
    index = pd.Index(RNG.permutation(N), name=0)
    TABLE.set_axis(index).to_parquet(tmp_path / "a.parquet")
    found, _, _ = encoded(tmp_path / "a.parquet")
    np.testing.assert_array_equal(found["0"], index)
