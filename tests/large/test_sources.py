"""Tables in parts: Parquet files, data frames and the commands."""

import subprocess
import sys
from contextlib import nullcontext
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import bsvr_pp as bp
from bsvr_pp.inference.prediction.distribution import LOGARITHM, UNSCALED
from bsvr_pp.large import parts
from bsvr_pp.large.parts import encode, source_of
from bsvr_pp.tables import DataError
from bsvr_pp.tables.columns import Encoding, summarize
from tests.helpers import run_command
from tests.large.conftest import flights

pytest.importorskip("pyarrow", reason="models in folders need pyarrow")

N = 200
OPTIONS = ["--blocks", "60", "--restarts", "1", "--keep-outliers"]


@pytest.fixture(scope="module")
def table():
    return flights(N)


@pytest.fixture(scope="module")
def parquet(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "flights.parquet"
    table.to_parquet(path, index=False)
    return path


def as_given(rows, columns):
    return UNSCALED


def encoded(source, folder):
    record = encode(source, folder, rows=60, scale_of=as_given)
    return record, np.load(folder / "inputs.npy"), np.load(folder / "targets.npy")[:, 0]


@pytest.mark.slow
def test_the_commands_fit_into_a_folder_and_predict_from_it(table, parquet, tmp_path):
    """They do what the estimator does with the table."""
    folder, new, out = tmp_path / "model", tmp_path / "new.parquet", tmp_path / "out.parquet"
    run = run_command("fit", parquet, "--target", "delay", "-o", f"{folder}/", *OPTIONS)
    assert f"note: {parquet}: column 'town' has words: an indicator for each of 2 (Bonn, Ulm)" in run.stderr
    assert "delay: 200 rows" in run.output and "lengthscale speed" in run.output and "blocks" in run.output
    later = table.drop(columns="delay").head(90).assign(town=["Kiel", *table["town"][1:90]], other=1)
    later.to_parquet(new)
    run = run_command("predict", f"{folder}/", new, "-o", out, "--coverage", "0.8")
    assert "column 'town' has words without an indicator ('Kiel') in 1 rows" in run.stderr
    assert "90 predictions of delay" in run.output
    found = pd.read_parquet(out)
    options = {"blocks": 60, "restarts": 1, "outliers": "keep"}
    svr = bp.BayesianSVR(**options, random_state=0)
    svr.fit(table.drop(columns="delay"), table["delay"])
    X = later[svr.feature_names_in_]
    with pytest.warns(UserWarning, match="'Kiel'"):
        mean, std = svr.predict(X, return_std=True)
        interval = svr.predict_interval(X, 0.8)
    np.testing.assert_allclose(found["delay"], mean, rtol=1e-6)
    np.testing.assert_allclose(found["sd"], std, rtol=1e-6)
    np.testing.assert_allclose(found[["lower 80 %", "upper 80 %"]], interval, rtol=1e-6)
    model = bp.FolderModel(folder)
    with pytest.warns(UserWarning, match="'Kiel'"):
        np.testing.assert_allclose(model.predict(later), mean, rtol=1e-6)
    run = run_command("solve", f"{folder}/")
    model = bp.FolderModel(folder)
    assert f"{len(model.blocks_)} blocks are solved; the log evidence is {model.log_evidence_:.6g}" in run.output
    model.blocks = bp.LocalBlocks(neighbours=None)
    run = run_command("predict", f"{folder}/", new, "-o", out, "--neighbours", "0")
    with pytest.warns(UserWarning, match="'Kiel'"):
        np.testing.assert_allclose(pd.read_parquet(out)["delay"], model.predict(later), rtol=1e-9)
    later.to_csv(tmp_path / "new.csv", index=False)
    run = run_command("predict", folder, tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["delay"], mean, rtol=1e-6)


def test_all_kinds_of_tables_give_the_same_numbers(table, parquet, tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    several = tmp_path / "several"
    several.mkdir()
    for i, at in enumerate(range(0, N, 90)):
        table.iloc[at : at + 90].to_parquet(several / f"{i}.parquet")
    table.to_csv(tmp_path / "a.csv", index=False)
    record, X, y = encoded(source_of(parquet, target="delay"), tmp_path)
    assert record["names"] == ["speed", "town=Bonn", "town=Ulm"] and record["rows"] == N
    np.testing.assert_allclose([X.mean(), *X.std(axis=0)], [0, 1, 0.5**0.5, 0.5**0.5], atol=1e-12)
    for i, data in enumerate((several, table, frames.from_pandas(table, npartitions=3), tmp_path / "a.csv")):
        folder = tmp_path / str(i)
        folder.mkdir()
        other, Z, t = encoded(source_of(data, target="delay"), folder)
        np.testing.assert_allclose(Z, X, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(t, y)
        assert other["columns"] == record["columns"]


def test_a_file_with_only_gaps_in_a_column_is_a_part_of_the_table(table, tmp_path):
    """Whatever the column is, and whether this file is the first."""
    when = pd.date_range("2024-01-01", periods=N, freq="31h", tz="Europe/Berlin")
    columns = {
        "flag": table["speed"] > 3,
        "day": when.date,
        "exact": [Decimal(i) for i in range(N)],
        "time": when,
        "word": table["town"],
        "count": np.arange(N),
    }
    halves = (
        table[:100].assign(**{name: None for name in columns}),
        table[100:].assign(**{name: values[100:] for name, values in columns.items()}),
    )
    records = []
    for i, halves_of in enumerate((halves, halves[::-1])):
        folder = tmp_path / str(i)
        folder.mkdir()
        for j, part in enumerate(halves_of):
            part.to_parquet(folder / f"{j}.parquet", index=False)
        records.append(encoded(source_of(folder, target="delay"), tmp_path)[0])
    assert records[0]["columns"] == records[1]["columns"] and records[0]["names"] == records[1]["names"]
    for name in columns:
        assert any(f"column {name!r} has 100 gaps" in note for note in records[0]["notes"])
    assert any(
        "column 'time' has dates" in note and "in the zone Europe/Berlin" in note for note in records[0]["notes"]
    )


def test_folders_and_indexes_state_columns_as_in_a_file(table, tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    ordered = table.sort_values("town", kind="stable", ignore_index=True)
    indexed = ordered.set_index("town")
    indexed.to_parquet(tmp_path / "indexed.parquet")
    ordered.to_csv(tmp_path / "semicolons.csv.gz", index=False, sep=";")
    _, X, y = encoded(source_of(ordered, target="delay"), tmp_path)
    lazy = frames.from_pandas(indexed, npartitions=2)
    for data in (tmp_path / "indexed.parquet", indexed, lazy, tmp_path / "semicolons.csv.gz"):
        said = pytest.warns(UserWarning, match="the index of data, 'town', is a column, as in a file: reset_index")
        with said if data is indexed or data is lazy else nullcontext():
            source = source_of(data, target="delay")
        record, Z, t = encoded(source, tmp_path)
        order = [record["names"].index(name) for name in ("speed", "town=Bonn", "town=Ulm")]
        np.testing.assert_allclose(Z[:, order], X, rtol=1e-12)
        np.testing.assert_array_equal(t, y)
        if data is not lazy:
            new = parts.new_rows_of(data, Encoding.from_json(record["columns"]))
            assert sum(len(part) for part, _ in new.parts()) == N
    assert any("separated by semicolons" in note for note in record["notes"])
    zones = (
        table.assign(t=pd.date_range("2024-01-01", periods=N, tz="UTC").tz_convert(zone))
        for zone in ("UTC", "Asia/Tokyo")
    )
    assert len({source_of(each, target="delay").identity for each in zones}) == 2


def test_files_with_other_columns_or_zones_are_refused(table, tmp_path):
    when = pd.date_range("2024-01-01", periods=N, tz="UTC")
    table[:100].assign(t=when[:100]).to_parquet(tmp_path / "1.parquet", index=False)
    for second, message in (
        (table[100:].assign(t=when[100:].tz_convert("Asia/Tokyo")), "'t' has times in the zone UTC and in the zone"),
        (table[100:].assign(t=when[100:].tz_localize(None)), "'t' has times in the zone UTC and without a zone"),
        (table[100:], "2.parquet: it or .*1.parquet alone has the column 't'"),
        (table[100:].assign(t=when[100:]).drop(columns="delay"), "alone has the column 'delay'"),
    ):
        second.to_parquet(tmp_path / "2.parquet", index=False)
        with pytest.raises(DataError, match=message):
            encoded(source_of(tmp_path, target="delay"), tmp_path)
    for same in (pd.concat([table, table[["speed"]]], axis=1), table.set_index(table["town"])):
        with pytest.raises(DataError, match=r"two columns have the name '(speed|town)': rename one"):
            source_of(same, target="delay")
    assert source_of(table[["speed", "delay"]].set_axis([400, 2021], axis=1), target=2021).target == "2021"


def test_weights_have_the_row_labels_of_a_table_of_dask_in_its_order():
    frames = pytest.importorskip("dask.dataframe")
    table, weight = pd.DataFrame({"x": [2.0, 1.0, 3.0], "y": [1.0, 0.0, 1.0]}, index=[2, 0, 1]), pd.Series([1.0, 2, 3])
    with pytest.raises(ValueError, match="sample_weight has the row labels of X in another order, 0 beside 2 at row 0"):
        source_of(frames.from_pandas(table, npartitions=2, sort=False), weight=weight)
    with pytest.raises(ValueError, match="sample_weight has the row labels of X in another order, 0 beside 2 at row 0"):
        source_of(table, weight=frames.from_pandas(weight, npartitions=2))


def test_the_identity_of_weights_is_that_of_their_values(table):
    weights = (pd.Series(np.linspace(0.5, 1.5, len(table))).astype(kind) for kind in ("float64", "object", "object"))
    assert len({source_of(table, weight=weight).identity for weight in weights}) == 1


def test_arrays_of_dask_give_the_numbers_of_arrays(tmp_path):
    arrays = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 2)), rng.normal(size=N)
    record, Z, t = encoded(source_of(arrays.from_array(X, chunks=(50, 1)), arrays.from_array(y, chunks=33)), tmp_path)
    np.testing.assert_allclose(Z, (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-12)
    np.testing.assert_allclose(t, (y - record["location"]) / record["unit"], atol=1e-12)
    assert record["location"] == np.median(y)


def test_the_identity_of_data_changes_with_them(table, parquet, tmp_path):
    frames = pytest.importorskip("dask.dataframe")
    other = table.assign(speed=table["speed"] + 1)
    for make in (lambda t: t, lambda t: frames.from_pandas(t, npartitions=2)):
        same = source_of(make(table)).identity == source_of(make(table.copy())).identity
        assert same and source_of(make(other)).identity != source_of(make(table)).identity
    before = source_of(parquet).identity
    assert source_of(parquet).identity == before
    other.to_parquet(tmp_path / parquet.name)
    assert source_of(tmp_path / parquet.name).identity != before


@pytest.mark.slow
def test_the_identity_of_data_is_the_same_in_another_process(parquet):
    """What Dask calls them may have another name there."""
    frames = pytest.importorskip("dask.dataframe")
    lazy = source_of(frames.read_parquet(parquet)).identity
    code = "import dask.dataframe as frames; from bsvr_pp.large.parts import encode, source_of; "
    code += f"print(source_of(frames.read_parquet({str(parquet)!r})).identity)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == lazy


def test_rows_of_many_parts_are_numbered_through(table, tmp_path):
    gaps = table.assign(delay=table["delay"].where(np.arange(N) != 150))
    gaps.to_parquet(tmp_path / "gaps.parquet")
    with pytest.raises(DataError, match=r"gaps.parquet: column 'delay' has a missing value in row 151$"):
        encode(source_of(tmp_path / "gaps.parquet"), tmp_path, rows=60, scale_of=as_given)
    X = np.zeros((N, 1))
    X[150] = np.nan
    with pytest.raises(ValueError, match=r"data must be finite, got \[nan\] in row 150"):
        encode(source_of(X, np.arange(N)), tmp_path, rows=60, scale_of=as_given)


def test_a_code_for_a_gap_is_noted(table, tmp_path):
    table.assign(speed=table["speed"].where(np.arange(N) % 40 > 0, -999.0)).to_parquet(tmp_path / "codes.parquet")
    record = encode(source_of(tmp_path / "codes.parquet"), tmp_path, rows=60, scale_of=as_given)
    assert any(f"codes.parquet: column 'speed' has -999 in {-(-N // 40)} rows, far" in note for note in record["notes"])
    y = np.where(np.arange(N) % 40 > 0, np.arange(N) / N, -999.0)
    record = encode(source_of(np.arange(N)[:, None], y), tmp_path / "again", rows=60, scale_of=as_given)
    assert any("'y' has -999" in note for note in record["notes"])


@pytest.mark.slow
def test_a_folder_has_the_scale_of_blocks_also_of_few_rows(tmp_path):
    """Roots are eight nats ahead: enough for a dense fit."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (1200, 1))
    root = 2.5 + np.sin(X[:, 0])
    y = root**2 + (0.4 + 0.8 * root) * rng.normal(size=1200)
    model = bp.fit_folder(bp.BayesianSVR(restarts=1, random_state=0), X, y, folder=tmp_path / "model")
    assert model.target_scale_.size == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t[["delay"]], "has no column except the target 'delay'"),
        (lambda t: t.head(0), "has no rows"),
        (lambda t: t.head(5), "has 5 rows, at least 10 are needed"),
        (lambda t: t.head(50), "has 50 rows, and a folder needs more than one block of 60"),
        (lambda t: t.assign(delay=1.0), r"column 'delay' is constant \(1\)"),
        (lambda t: t.assign(speed=2.0), r"column 'speed' is constant \(2\)"),
        (lambda t: t.assign(speed=1e300), "column 'speed' "),
        (lambda t: t.assign(town="Ulm"), r"column 'town' is constant \('Ulm'\)"),
        (lambda t: t.assign(town=[*["Ulm"] * 100, *range(100)]), "column 'town' "),
        (lambda t: t.assign(town=(np.arange(N) // 10 + 0.5).astype(str)), "column 'town' has numbers or dates as text"),
    ],
)
def test_tables_that_cannot_serve_leave_nothing_behind(table, tmp_path, change, message):
    svr = bp.BayesianSVR(blocks=60, random_state=0)
    with pytest.raises(DataError, match=f"^data: {message}"):
        bp.fit_folder(svr, change(table), target="delay", folder=tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_series_with_a_gap_names_its_value_and_row():
    y = pd.Series(np.arange(100.0), index=np.arange(100)[::-1]).replace(17.0, np.nan)
    with pytest.raises(ValueError, match="y must be finite, got nan in row 17"):
        source_of(np.ones((100, 1)), y)


def test_a_parquet_file_without_rows_is_named(table, tmp_path):
    table.head(0).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataError, match=rf"{tmp_path}: has no rows"):
        next(source_of(tmp_path).parts())


def test_logs_of_targets(table, tmp_path):
    def logs(rows, columns):
        return LOGARITHM

    record = encode(source_of(table.assign(delay=np.exp(table["delay"]))), tmp_path, rows=60, scale_of=logs)
    assert record["location"] == pytest.approx(table["delay"].median())
    with pytest.raises(ValueError, match="y must be positive with log_targets=True"):
        encode(source_of(table), tmp_path, rows=60, scale_of=logs)


def test_the_zone_of_a_csv_file_is_that_of_all_its_parts(tmp_path):
    """The offset changes with the clocks; missing dates may be written as NaT."""
    time = pd.Series(pd.date_range("2021-03-20", periods=N, freq="3h", tz="Europe/Berlin"))
    text = time.map(pd.Timestamp.isoformat).where(time.index % 9 > 0, "NaT")
    pd.DataFrame({"t": text, "y": np.arange(float(N))}).to_csv(tmp_path / "a.csv", index=False)
    source = source_of(tmp_path / "a.csv")
    assert len(list(source.parts())) == 3
    encoding, rows, _ = parts._summarise(source)
    assert rows == N and encoding == Encoding.of(
        summarize(pd.DataFrame({"t": time.where(time.index % 9 > 0).dt.tz_convert("UTC")}))
    )
