"""CSV files as people have them are read as they are meant, or refused by name."""

import bz2
import gzip
import io
import lzma
import zipfile

import numpy as np
import pandas as pd
import pytest

from bsvr_pp.tables import DataError, files
from bsvr_pp.tables.columns import Encoding, Words, summarize
from bsvr_pp.tables.files import read_table
from bsvr_pp.tables.readers import read_data, read_new

N = 12
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=["a", "b", "y"])
SWAPPED = Encoding.of(summarize(FRAME[["b", "a"]]))  # the encoding of a model with the inputs b and a
LABELS = "the first column, which has no name, is left out: it labels the rows"
SEMICOLONS, COMMAS = "the columns are separated by semicolons", "decimal commas are read as decimal points"
LEFT_OUT = "3 rows without any value at the end are left out"
POINT = "write numbers with a decimal point and without thousands separators"


def encoded(path, target=None):
    return read_data(path, target).encode()[0]


def zipped(text):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.csv", text)
    return out.getvalue()


ENDINGS = {gzip.compress: "gz", bz2.compress: "bz2", lzma.compress: "xz", zipped: "zip"}
PLAIN = FRAME.to_csv(index=False)
READ = {
    "plain": (PLAIN, []),
    "pandas' index": (FRAME.to_csv(), [LABELS]),
    "pandas' index twice": (FRAME.reset_index().rename(columns={"index": "Unnamed: 0"}).to_csv(), [LABELS, LABELS]),
    "dates as labels": (FRAME.set_index(pd.date_range("2020", periods=N)).to_csv(), [LABELS]),
    "semicolons": (FRAME.to_csv(index=False, sep=";"), [SEMICOLONS]),
    "semicolons and decimal commas": (FRAME.to_csv(index=False, sep=";", decimal=","), [SEMICOLONS, COMMAS]),
    "all of it": ("\ufeff" + FRAME.to_csv(sep=";", decimal=","), [SEMICOLONS, LABELS, COMMAS]),
    "exponents after decimal commas": (
        FRAME.map("{:.17e}".format).to_csv(index=False, sep=";").replace(".", ","),
        [SEMICOLONS, COMMAS],
    ),
    "quoted decimal commas": (FRAME.to_csv(index=False, decimal=",", quoting=1), [COMMAS]),
    "tabs": (FRAME.to_csv(index=False, sep="\t"), ["the columns are separated by tabs"]),
    "bars": (FRAME.to_csv(index=False, sep="|"), ["the columns are separated by vertical bars"]),
    "quoted": (FRAME.to_csv(index=False, quoting=1), []),
    "spaces after commas": (PLAIN.replace(",", " , "), []),
    "byte order mark": ("\ufeff" + PLAIN, []),
    "Windows": (FRAME.to_csv(index=False, lineterminator="\r\n"), []),
    "empty lines": ("\n\n" + PLAIN.replace("\n", "\n\n"), []),
    "lines of spaces": (PLAIN.replace("\n", "\n  \n"), []),
    "empty cells of a spreadsheet": (",,\n" + PLAIN.replace("\n", ",,\n") + ",,,,\n" * 3, [LEFT_OUT]),
    "trailing commas": (PLAIN.replace("\n", ",\n").replace("y,", "y"), []),
    "first line of Excel": ("sep=,\n" + PLAIN, []),
    "first line of Excel, semicolons": ("\ufeffsep=;\r\n" + FRAME.to_csv(index=False, sep=";"), [SEMICOLONS]),
    "first line of Excel, quoted": ('"sep=;";;\n' + FRAME.to_csv(index=False, sep=";"), [SEMICOLONS]),
    "spaces around names": (PLAIN.replace("a,b,y", "\ufeff a , b , y "), []),
}


@pytest.mark.parametrize("name", READ)
def test_every_form_of_a_file_gives_the_same_numbers(tmp_path, name):
    content, notes = READ[name]
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    data = encoded(path)
    assert (data.inputs, data.target) == (("a", "b"), "y")
    np.testing.assert_array_equal(np.column_stack([data.X, data.y]), FRAME.to_numpy())
    assert list(data.notes) == [f"{path}: {note}" for note in notes]
    new, said = read_new(path, SWAPPED)
    np.testing.assert_array_equal(new, FRAME[["b", "a"]].to_numpy())
    assert list(said) == list(data.notes)


@pytest.mark.parametrize("gap", [",,", '""', ",NA,"])
def test_rows_of_gaps_between_others_stay_in_their_place(tmp_path, gap):
    path, (header, *rows) = tmp_path / "data.csv", PLAIN.splitlines()
    path.write_text("\n".join([header, *rows[:3], gap, *rows[3:], ""]))
    found = read_new(path, SWAPPED)[0]
    np.testing.assert_array_equal(found.isna().all(axis=1), np.arange(N + 1) == 3)
    np.testing.assert_array_equal(found.dropna(), FRAME[["b", "a"]])
    with pytest.raises(DataError, match=r"column '[aby]' has a missing value in row 5"):
        encoded(path)


GAPS = "None nan NaN -nan -NaN NA Na N/A n/a #NA #N/A <NA> null NULL Null NaT -1.#IND 1.#IND 1.#QNAN -1.#QNAN"


@pytest.mark.parametrize(("columns", "count"), [(["a"], 2), (["a", "b"], 1)])
def test_gaps_are_those_of_pandas_and_na_and_null_in_any_case(tmp_path, columns, count):
    """None is a gap, and none is a word. In one column alone a gap at the end is a row, without a comma."""
    path, cells = tmp_path / "data.csv", ["none", *GAPS.split(), "NONE", "#N/A N/A", "", "gas"]
    pd.DataFrame({"a": [*cells, ""], "b": ""})[columns].to_csv(path, index=False)
    found, expected = read_table(path).frame({"a": Words})[0]["a"], pd.read_csv(path, na_values=["Na", "Null", "NaT"])
    assert found.fillna("").tolist() == expected["a"].fillna("").tolist()[: len(cells) + count - 1]


@pytest.mark.parametrize("pack", ENDINGS, ids=ENDINGS.get)
def test_archives_are_unpacked(tmp_path, pack):
    path = tmp_path / f"data.csv.{ENDINGS[pack]}"
    path.write_bytes(pack(PLAIN.encode()))
    np.testing.assert_array_equal(encoded(path).y, FRAME["y"])


def lines(header, line):
    return header + "\n" + "".join(line(i) + "\n" for i in range(N))


REFUSED = {
    "thousands": (
        lines("a,y", lambda i: f'"{i + 1},{i:03d}",{i * i % 7}'),
        f"column 'a', row 2 has '1,000', which is 1.000 or 1000: {POINT}",
    ),
    "thousands beside semicolons": (lines("a;y", lambda i: f"{i + 1},{i:03d};{i * i % 7}"), "which is 1.000 or 1000"),
    "thousands and decimals": (lines("a,y", lambda i: f'"1,{i:03d}.5",{i}'), f"row 2 has '1,000.5': {POINT}"),
    "points as thousands": (lines("a;y", lambda i: f"1.{i:03d},5;{i}"), f"row 2 has '1.000,5': {POINT}"),
    "points in some rows": (lines("a;y", lambda i: f"{f'1.{i:03d}' if i % 2 else 900};{i}"), "1.001 or 1001"),
    "points in all rows": (lines("a;y", lambda i: f"1.{i:03d};{i}"), "1.000 or 1000: .*and commas between columns"),
    "point and comma": (lines("a;y", lambda i: f"0.5;{i},25"), f"row 2 has '0,25': {POINT}"),
    "decimal commas between commas": (
        lines("a,y", lambda i: f"{i},5,{i * i % 7},5"),
        "row 2 has 4 cells, more than the header, which has 2",
    ),
    "a nameless column": (lines("a,,y", lambda i: f"{i},{i * i},{i}"), "column 2 has no name"),
    "nameless measurements": (lines(",a,y", lambda i: f"{i / 8},{i},{i * i}"), "column 1 has no name"),
    "nameless groups": (lines(",a,y", lambda i: f"{i % 3},{i},{i * i}"), "column 1 has no name"),
    "no header": (lines("0,0,0.5", lambda i: f"{i},{i * i},{i}"), "the first row holds numbers, and the names of"),
    "words without a header": (lines("Ulm,0,0.5", lambda i: f"Bonn,{i * i},{i}"), "the first row holds numbers, and"),
    "a word and 0": (lines("Ulm,0", lambda i: f"Bonn,{i}"), "the first row holds numbers, and the names of"),
    "commas at the end": (lines("1,2,3,", lambda i: f"{i},{i * i},{i},"), "the first row holds numbers, and"),
    "names of customers": (
        lines("a,name", lambda i: f"{i},c{i}"),
        f"column 'name' is not numeric, row 2 has 'c0': {POINT}",
    ),
    "categories": (lines("a,kind", lambda i: f"{i},{'abc'[i % 3]}"), "column 'kind' is not numeric, row 2 has 'a'"),
    "columns by spaces": (lines("a y", lambda i: f"{i} {i * i}"), "row 2 has '0 0'"),
    "twice": (lines("a;a;y", lambda i: f"{i};{i};{i}"), "two columns have the name 'a': rename one"),
    "underscores": (lines("a,y", lambda i: f"{i},1_{i}"), "row 2 has '1_0'"),
    "per cent": (lines("a,y", lambda i: f"{i},{i} %"), f"row 2 has '0 %': {POINT}, units and other signs"),
    "dashes for gaps": (
        lines("a,y", lambda i: f"{i if i % 3 else '-'},{i}"),
        "row 2 has '-': .*a gap is an empty cell",
    ),
    "rows of Excel's first line count": (lines("sep=;\na;y", lambda i: f"{'x' if i == 2 else i};{i}"), "row 5 has 'x'"),
    "a missing target": (
        lines("a,y", lambda i: f"{i},{i if i != 3 else ''}"),
        "column 'y' has a missing value in row 5",
    ),
    "an infinite number": (lines("a,y", lambda i: f"{i if i != 3 else 'inf'},{i}"), "'a' is not finite in row 5"),
    "a constant input": (lines("a,b,y", lambda i: f"{i},1,{i}"), "column 'b' is constant"),
    "a constant target": (lines("a,y", lambda i: f"{i},5"), "column 'y' is constant"),
    "few rows": ("a,y\n" + "1,2\n3,4\n" * 2, "has 4 rows, at least 10 are needed"),
    "a target alone": (lines("y", str), "has no column except the target 'y'"),
    "nothing": ("", "is empty"),
    "a row that is longer than others": (PLAIN + "1,2,3,4,5\n", "has 5 cells, more than the header, which has 3"),
    "another alphabet": (PLAIN.encode() + b"\xff\xfe,1,2\n", "cannot be read .*: give UTF-8 text"),
    "an open quotation mark": (PLAIN + '"3,4,5\n', "is not a CSV file"),
    "only row labels": (lines("Unnamed: 0", str), "has no column with a name"),
    "a workbook": (zipped("x" * 99), "cannot be read .*save a spreadsheet as CSV"),
    "an old workbook": (b"\xd0\xcf\x11\xe0" + bytes(100), "cannot be read .*save a spreadsheet as CSV"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_of_numbers_or_has_two_meanings_is_refused(tmp_path, name):
    content, message = REFUSED[name]
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message) as caught:
        encoded(path)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(str(path))


def test_archives_hold_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.writestr(name, PLAIN)
    with pytest.raises(DataError, match=r"cannot be read .*Multiple files.*one archived file"):
        encoded(tmp_path / "two.zip")


@pytest.mark.slow_cases("bz2")
@pytest.mark.parametrize("pack", ENDINGS, ids=ENDINGS.get)
def test_archives_are_not_unpacked_without_limit(tmp_path, pack, monkeypatch):
    monkeypatch.setattr(files, "_UNPACKED", 2**20)
    path = tmp_path / f"data.csv.{ENDINGS[pack]}"
    path.write_bytes(pack(b"a,y\n" + b"0,1\n" * 2**20))
    with pytest.raises(DataError, match=r"unpacks to more than . MB: unpack it first, if it is a table"):
        encoded(path)


@pytest.mark.parametrize("pack", ENDINGS, ids=ENDINGS.get)
def test_archives_that_are_damaged_are_refused_and_an_error_of_the_package_is_not(tmp_path, pack, monkeypatch):
    path = tmp_path / f"data.csv.{ENDINGS[pack]}"
    whole = pack(PLAIN.encode())
    for content in (b"no archive at all", whole[: len(whole) // 2], whole[:12] + bytes(20) + whole[32:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"data\.csv.*: cannot be read"):
            encoded(path)

    def bug(*_, **__):
        raise AttributeError("a bug")

    path.write_bytes(whole)
    monkeypatch.setattr(files, "get_handle", bug)
    with pytest.raises(AttributeError, match="a bug"):
        encoded(path)


def test_an_identifier_gets_a_hint(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(lines("id,rooms,y", lambda i: f"{1000 + 7 * i},{i % 4},{i * i}"))
    (note,) = encoded(path).notes
    assert note == f"{path}: column 'id' has another whole number in each row: leave it out if it identifies the rows"
    assert encoded(path, "id").notes == (note.replace("'id'", "'y'"),)


def test_text_beside_the_inputs_does_not_matter(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text('note;a;b\n"1,5 or 2.5";0,5;1\n1.234;0,25;2\n')
    np.testing.assert_array_equal(read_new(path, SWAPPED)[0], [[1.0, 0.5], [2.0, 0.25]])


def test_names_may_be_numbers_where_one_of_them_is_asked_for(tmp_path):
    """Of a target, or of the inputs of a model; otherwise they may be the first row of data."""
    path, spectra = tmp_path / "a.csv", FRAME.set_axis(["400", "410.5", "2021"], axis=1)
    spectra.to_csv(path, index=False)
    data = encoded(path, "2021")
    assert (data.inputs, data.target) == (("400", "410.5"), "2021")
    np.testing.assert_array_equal(data.y, FRAME["y"])
    encoding = Encoding.of(summarize(spectra[["410.5", "400"]]))
    np.testing.assert_array_equal(read_new(path, encoding)[0], FRAME[["b", "a"]].to_numpy())
    with pytest.raises(
        DataError, match="the first row holds numbers, and the names of the columns, or of a target, are needed"
    ):
        encoded(path)
    with pytest.raises(DataError, match=r"has no column '420'; it has: 400, 410\.5, 2021"):
        read_new(path, Encoding.of(summarize(spectra.set_axis(["400", "410.5", "420"], axis=1))))
    pd.DataFrame(FRAME.to_numpy()).to_csv(path)  # the names 0, 1 and 2
    assert encoded(path).target == "2"
    spectra.set_axis(["400", "410.5", "y"], axis=1).to_csv(path, index=False)
    assert read_table(path).notes == (f"{path}: the first row, which holds names of columns, has numbers: 400, 410.5",)
