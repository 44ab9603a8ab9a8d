"""FILES: which files are read, in which order, what folder names say, and what is refused before the start."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from connector_kit import declare, read
from pyarrow import csv, feather
from pyarrow import parquet as pq

from penstock.algebra.nodes.scans import OnError
from penstock.connectors.deadletters import as_error
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script


def put(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"n\n{number}\n")
        os.utime(place, (1_000_000 - number, 1_000_000 - number))


def names(folder: Path, pattern: str = "", known: tuple[str, ...] = (), **options: str) -> list[str]:
    source = open_source(declare(folder / pattern, "n INT", **options))
    found = source.discover(frozenset(str(folder / name) for name in known))
    return [str(Path(path).relative_to(folder)) for path in found]


def test_files_come_in_path_order_or_by_time_of_change(tmp_path: Path) -> None:
    put(tmp_path, "b/1.csv", "a.csv", "b-c.csv", "b/10.csv", "b/2.csv")
    in_order = ["a.csv", "b/1.csv", "b/10.csv", "b/2.csv", "b-c.csv"]
    assert names(tmp_path) == in_order
    assert names(tmp_path, known=("a.csv", "b/2.csv")) == ["b/1.csv", "b/10.csv", "b-c.csv"]
    assert names(tmp_path, order="modified") == ["b/2.csv", "b/10.csv", "b-c.csv", "a.csv", "b/1.csv"]


LACKING = pa.table({"at": pa.array([1, 2], pa.int64()), "n": pa.array([10, 20], pa.int32())})


def write(table: pa.Table, place: Path) -> None:
    if place.suffix == ".csv":
        csv.write_csv(table, place)
    elif place.suffix == ".json":
        place.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    elif place.suffix == ".parquet":
        pq.write_table(table, place)
    else:
        feather.write_feather(table, place)


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "arrow"])
def test_files_that_lack_a_column_have_nulls_or_are_refused(tmp_path: Path, ending: str) -> None:
    """Old files lack a new column, new ones a column that is gone; the folder has both."""
    write(LACKING.append_column("s", pa.array(["x", "y"])), tmp_path / f"a.{ending}")
    write(LACKING, tmp_path / f"b.{ending}")
    whole = "at BIGINT, n INT, s STRING, d DOUBLE"
    table, rejected = read(declare(tmp_path / f"*.{ending}", whole, 0, missing_columns="null"))
    assert (table["s"].to_pylist(), table["n"].to_pylist()) == (["x", "y", None, None], [10, 20, 10, 20])
    assert (table["d"].to_pylist(), rejected) == ([None] * 4, [])
    table, _ = read(declare(tmp_path / f"*.{ending}", whole, 0, missing_columns="null"), (3,))
    assert table["d"].to_pylist() == [None] * 4
    table, rejected = read(declare(tmp_path / f"*.{ending}", "at BIGINT, n INT, s STRING", 0, missing_columns="refuse"))
    assert table["s"].to_pylist() == ["x", "y"]
    assert ["s" in one.reason for one in rejected] == [True]
    usual, rejected = read(declare(tmp_path / f"*.{ending}", "at BIGINT, n INT, s STRING", 0))
    assert (usual.num_rows, len(rejected)) == ((4, 0) if ending == "json" else (2, 1))


@pytest.mark.parametrize("ending", ["csv", "json", "parquet", "arrow"])
@pytest.mark.parametrize(("columns", "lacked"), [("a BIGINT, n INT", "a"), ("x INT, y INT", "x")])
def test_no_file_may_lack_its_timestamp_or_all_columns(tmp_path: Path, ending: str, columns: str, lacked: str) -> None:
    write(LACKING, tmp_path / f"a.{ending}")
    timestamp = 0 if lacked == "a" else None
    with pytest.raises(PenstockError, match=f"(column|has the key) {lacked}"):
        open_source(declare(tmp_path / f"a.{ending}", columns, timestamp, missing_columns="null")).check()


def test_a_computed_timestamp_may_be_of_a_column_that_is_there(tmp_path: Path) -> None:
    script = "CREATE STREAM S ({}) FROM FILES (path '{}', missing_columns 'null') TIMESTAMP BY COALESCE(later, at);"
    write(LACKING, tmp_path / "a.csv")
    source = bind_script(script.format("later BIGINT, at BIGINT", tmp_path / "a.csv")).catalog.sources["s"]
    open_source(source).check()
    source = bind_script(script.format("later BIGINT, at INT, n INT", tmp_path / "b.csv")).catalog.sources["s"]
    write(LACKING.drop_columns("at"), tmp_path / "b.csv")
    with pytest.raises(PenstockError, match="column later is missing"):
        open_source(source).check()


def test_hidden_and_unfinished_files_are_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "_SUCCESS", ".a.csv.crc", "b.csv.tmp", "c.crc", "_temporary/0/d.csv", ".x/e.csv", "x/_y.csv")
    assert names(tmp_path) == ["a.csv"]
    assert names(tmp_path, "**/*.csv") == ["a.csv"]


def test_a_glob_and_a_single_file(tmp_path: Path) -> None:
    put(tmp_path, "a1.csv", "a2.csv", "b1.csv", "d/a3.csv", "d.csv/part-0.csv")
    assert names(tmp_path, "a*.csv") == ["a1.csv", "a2.csv"]
    assert names(tmp_path, "**/a*.csv") == ["a1.csv", "a2.csv", "d/a3.csv"]
    assert names(tmp_path, "b1.csv") == ["b1.csv"]
    assert names(tmp_path, "d.*") == ["d.csv/part-0.csv"]


def test_watched_folders_are_unbounded_and_may_be_empty(tmp_path: Path) -> None:
    source = open_source(declare(tmp_path, "n INT", watch="true", format="csv"))
    source.check()
    assert not source.bounded and source.discover(frozenset()) == []
    put(tmp_path, "a.csv")
    assert source.discover(frozenset()) == [str(tmp_path / "a.csv")]


def test_folder_names_fill_declared_columns(tmp_path: Path) -> None:
    put(tmp_path, "year=2013/kind=a%20b/x.csv", "year=2014/kind=__HIVE_DEFAULT_PARTITION__/x.csv")
    source = declare(tmp_path, "Year INT, n INT, kind STRING")
    open_source(source).check()
    table, rejected = read(source)
    assert [list(row.values()) for row in table.to_pylist()] == [[2013, 0, "a b"], [2014, 1, None]]
    assert rejected == []
    assert read(source, (2, 0))[0].to_pylist()[0] == {"kind": "a b", "Year": 2013}


def test_without_a_header_folder_columns_take_no_position(tmp_path: Path) -> None:
    (tmp_path / "year=2013").mkdir()
    (tmp_path / "year=2013" / "x.csv").write_text("a,1\n")
    table, _ = read(declare(tmp_path, "name STRING, year INT, n INT", header="false"))
    assert table.to_pylist() == [{"name": "a", "year": 2013, "n": 1}]


def test_a_folder_name_that_does_not_convert_rejects_its_files(tmp_path: Path) -> None:
    put(tmp_path, "year=2013/x.csv", "year=soon/x.csv")
    table, rejected = read(declare(tmp_path, "n INT, year INT"))
    assert table.num_rows == 1
    assert [r.reason for r in rejected] == ["the folder year=soon holds a bad number 'soon' in column year"]


def test_a_later_file_with_other_columns_is_rejected_whole(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "c.csv")
    (tmp_path / "b.csv").write_text("m\n1\n2\n")
    source = declare(tmp_path, "n INT")
    open_source(source).check()
    table, rejected = read(source)
    assert table.num_rows == 2
    assert [(r.path, r.line, r.record, r.reason) for r in rejected] == [
        (str(tmp_path / "b.csv"), 1, "m", "column n is missing")
    ]


def refusal(path: Path | str, columns: str = "n INT", **options: str) -> PenstockError:
    with pytest.raises(PenstockError) as error:
        open_source(declare(path, columns, **options)).check()
    assert error.value.hint or error.value.code == "P0208"
    return error.value


@pytest.mark.parametrize("pattern", ["", "*.csv", "missing/x.csv"])
def test_no_file_is_refused_with_the_path(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "_SUCCESS").touch()
    error = refusal(tmp_path / pattern, format="csv")
    assert error.code == "P0404" and str(tmp_path / pattern) in error.message


def test_a_watched_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "missing", format="csv", watch="true").code == "P0404"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_path_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    (tmp_path / "a.csv").chmod(0)
    assert refusal(tmp_path).code == "P0401"


def test_a_path_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.csv", "b.csv")
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: allowed(path, mode) and not str(path).endswith("b.csv"))
    error = refusal(tmp_path)
    assert error.code == "P0401" and str(tmp_path / "b.csv") in error.message


def test_a_file_that_vanished_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="is gone") as error:
        open_source(declare(tmp_path, "n INT", format="csv")).splits(str(tmp_path / "gone.csv"))
    assert error.value.code == "P0401"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colour": "red"}, "no option colour"),
        ({"format": "xml"}, "'csv' or 'json' or 'parquet' or 'arrow'"),
        ({"header": "maybe"}, "'true' or 'false'"),
        ({"order": "size"}, "'path' or 'modified'"),
        ({"delimiter": "ab"}, "one ASCII character"),
        ({"format": "parquet", "header": "true"}, "option header is for csv"),
        ({}, "format of .* cannot be derived"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    put(tmp_path, "data")
    with pytest.raises(PenstockError, match=message) as error:
        open_source(declare(tmp_path / "data", "n INT", **options)).check()
    assert error.value.code == "P0208"


def test_a_path_is_needed() -> None:
    with pytest.raises(PenstockError, match="needs the option path") as error:
        open_source(declare("", "n INT"))
    assert error.value.code == "P0208"


def test_a_rejected_record_as_an_error_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\nx\n")
    _, rejected = read(declare(tmp_path, "n INT", on_error=OnError.FAIL))
    error = as_error(rejected[0], "s")
    assert error.code == "P0403"
    assert error.message == f"source s: {tmp_path / 'a.csv'}:3: bad number 'x' in column n; the record: x"


def test_an_empty_first_file_does_not_hide_the_next(tmp_path: Path) -> None:
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.csv").write_text("m\n1\n")
    assert refusal(tmp_path).code == "P0402"


def test_links_to_folders_above_end(tmp_path: Path) -> None:
    put(tmp_path, "a.csv", "d/b.csv")
    for link in ("l1", "l2", "d/up"):
        (tmp_path / link).symlink_to(tmp_path)
    assert names(tmp_path) == ["a.csv", "d/b.csv"]
    assert names(tmp_path, "**/*.csv") == ["a.csv", "d/b.csv"]


def test_a_folder_is_listed_once_under_its_own_name(tmp_path: Path) -> None:
    put(tmp_path, "z/a.csv", "y.csv")
    put(tmp_path.with_name(f"{tmp_path.name}-outside"), "far.csv")
    (tmp_path / "b").symlink_to(tmp_path / "z")
    (tmp_path / "c").symlink_to(tmp_path.with_name(f"{tmp_path.name}-outside"))
    (tmp_path / "d").symlink_to(tmp_path / "c")
    assert names(tmp_path) == ["c/far.csv", "y.csv", "z/a.csv"]


def test_a_known_file_costs_no_call_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watched folders are listed often, and most of their files are known."""
    put(tmp_path, *(f"{folder}/{number}.csv" for folder in "ab" for number in range(50)))
    looked_at: list[str] = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, **options: (looked_at.append(str(path)), stat(path, **options))[1])
    known = tuple(f"{folder}/{number}.csv" for folder in "ab" for number in range(50) if (folder, number) != ("b", 7))
    for pattern in ("", "*/*.csv", "**/*.csv"):
        looked_at.clear()
        assert names(tmp_path, pattern, known) == ["b/7.csv"]
        assert sum(path.endswith(".csv") for path in looked_at) <= 3


def test_names_of_every_kind_are_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a b.csv", "ä/ö.csv", "d.csv/e.csv", "x\ny.csv", "[1].csv")
    every = names(tmp_path)
    assert len(every) == 5 and names(tmp_path, known=tuple(every)) == []
    monkeypatch.chdir(tmp_path)
    relative = open_source(declare(Path(), "n INT", format="csv"))
    found = relative.discover(frozenset())
    assert len(found) == 5 and relative.discover(frozenset(found)) == []


def test_a_dangling_link_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path, "a.csv")
    (tmp_path / "b.csv").symlink_to(tmp_path / "later.csv")
    source = open_source(declare(tmp_path, "n INT", watch="true"))
    source.check()
    assert source.discover(frozenset()) == [str(tmp_path / "a.csv")]
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == 1 and str(tmp_path / "b.csv") in warnings[0]
    put(tmp_path, "later.csv")
    known = frozenset([str(tmp_path / "a.csv"), str(tmp_path / "later.csv")])
    assert source.discover(known) == [str(tmp_path / "b.csv")]


def test_files_that_came_after_the_first_start_are_told(tmp_path: Path) -> None:
    put(tmp_path, "a.csv")
    known = frozenset([str(tmp_path / "a.csv")])
    source = open_source(declare(tmp_path, "n INT"))
    assert source.ignored(known) is None
    put(tmp_path, "b.csv", "c.csv")
    told = source.ignored(known)
    assert told is not None and "2 files" in told and str(tmp_path) in told and "watch 'true'" in told
    assert open_source(declare(tmp_path, "n INT", watch="true")).ignored(known) is None


def test_a_limit_of_records_is_for_text(tmp_path: Path) -> None:
    put(tmp_path, "x.parquet")
    assert refusal(tmp_path, format="parquet", max_record_bytes="9").code == "P0208"
