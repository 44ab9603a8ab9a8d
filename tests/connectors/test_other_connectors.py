"""MEMORY as a source and as a sink, CONSOLE, and dead letters."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest
from connector_kit import declare, query_over, read, with_ts

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.memory import collected, forget
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError

COLUMNS = "at TIMESTAMP, n INT, money DECIMAL(5,2)"


def memory(folder: Path, columns: str = COLUMNS) -> Source:
    return declare("", columns, connector="MEMORY", spool=str(folder / "rows.arrow"))


def test_inserted_rows_take_the_declared_types(tmp_path: Path) -> None:
    source = memory(tmp_path)
    spool(source, [("2013-01-01 10:00:00", 1, "1.5"), (None, 2, 2)], source.option("spool"))
    table, rejected = read(source)
    assert [str(v) for v in table.column("money").to_pylist()] == ["1.50", "2.00"]
    assert table.column("at").cast(pa.int64()).to_pylist() == [1_357_034_400_000_000, None]
    assert rejected == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("soon", 1, 1), "s.at is TIMESTAMP, 'soon' does not fit"),
        ((None, 2**40, 1), "s.n is INT, 1099511627776 does not"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(tmp_path: Path, row: tuple[object, ...], message: str) -> None:
    with pytest.raises(PenstockError, match=message) as error:
        spool(memory(tmp_path), [(None, 1, 1), row], str(tmp_path / "rows.arrow"))
    assert error.value.code == "P0203"
    assert not (tmp_path / "rows.arrow").exists()


def test_a_row_of_another_length_is_refused(tmp_path: Path) -> None:
    for rows in ([(None, 1)], pa.table({"at": [None]})):
        with pytest.raises(PenstockError, match="has 3 columns") as error:
            spool(memory(tmp_path), rows, str(tmp_path / "rows.arrow"))
        assert error.value.code == "P0305"


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_an_instant_beyond_those_of_python_is_refused(tmp_path: Path, unit: str) -> None:
    far = pa.array([0, 2**60], pa.int64()).cast(pa.timestamp(unit))
    with pytest.raises(PenstockError, match=r"s\.at is TIMESTAMP, .* does not fit") as error:
        spool(memory(tmp_path, "at TIMESTAMP"), pa.table({"at": far}), str(tmp_path / "rows.arrow"))
    assert error.value.code == "P0203"


def test_a_table_of_other_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"s\.n is INT") as error:
        spool(memory(tmp_path, "n INT"), pa.table({"n": [1.5]}), str(tmp_path / "rows.arrow"))
    assert error.value.code == "P0203"


def test_without_a_spool_there_are_no_rows() -> None:
    source = open_source(declare("", COLUMNS, connector="MEMORY"))
    source.check()
    assert source.bounded and source.discover(frozenset()) == []


def test_spooled_rows_that_are_gone_are_an_error(tmp_path: Path) -> None:
    source = open_source(memory(tmp_path))
    with pytest.raises(PenstockError) as error:
        source.check()
    assert error.value.code == "P0404"
    with pytest.raises(PenstockError) as error:
        source.splits(str(tmp_path / "rows.arrow"))
    assert error.value.code == "P0401"


def test_a_memory_result_is_replaced_by_a_new_run_and_kept_by_a_resumed_one() -> None:
    rows = pa.table({"n": [1, 2]})
    sink = open_sink(query_over(rows, name="kept"))
    sink.open(resume=False, overwrite=False)
    sink.write(0, with_ts(rows))
    sink.open(resume=True, overwrite=False)
    assert collected("kept").num_rows == 2
    sink.open(resume=False, overwrite=False)
    assert collected("kept").num_rows == 0
    forget("kept")
    with pytest.raises(PenstockError, match="no query kept") as error:
        collected("kept")
    assert error.value.code == "P0201"


def test_the_console_shows_the_first_rows_and_how_many_more(capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"word": ["[bold]a", None, "c", "d"]})
    sink = open_sink(query_over(rows, "CONSOLE", name="flights", rows="2"))
    sink.open(resume=False, overwrite=False)
    sink.write(0, with_ts(rows))
    shown = capsys.readouterr().out
    assert "flights" in shown and "[bold]a" in shown and "NULL" in shown and "2 more rows" in shown
    assert "1970-01-01T00:00:01Z" in shown and "1970-01-01T00:00:02Z" not in shown


def test_a_number_of_rows_that_is_none_is_refused() -> None:
    with pytest.raises(PenstockError, match="a whole number") as error:
        open_sink(query_over(pa.table({"n": [1]}), "CONSOLE", rows="many"))
    assert error.value.code == "P0208"


def letters(*reasons: str) -> list[DeadLetter]:
    return [DeadLetter.of(Rejected("a.csv", 2, "ü,x\n", reason)) for reason in reasons]


def test_dead_letters_come_back_and_count_by_reason(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path / "dead"))
    assert dead.sources() == [] and list(dead.read("s/t")) == []
    dead.write("s/t", 0, 1, letters("bad number 'x' in column n", "ragged"))
    dead.write("s/t", 0, 0, [DeadLetter("a.csv", None, "r", "late", 17)])
    dead.write("s/t", 1, 0, letters("bad number 'it''s' in column n"))
    assert [letter.reason for letter in dead.read("s/t")][:2] == ["late", "bad number 'x' in column n"]
    assert next(dead.read("s/t")).ts == 17
    assert dead.counts("s/t") == {"bad number in column n": 2, "late": 1, "ragged": 1}
    assert dead.sources() == ["s/t"]


def test_a_task_that_runs_again_replaces_its_letters(tmp_path: Path) -> None:
    dead = DeadLetters(str(tmp_path))
    for reasons in (("one", "two"), ("one",), ()):
        assert dead.write("s", 3, 0, letters(*reasons)) == len(reasons)
        assert [letter.reason for letter in dead.read("s")] == list(reasons)


def test_dead_letters_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PenstockError, match="No space left") as error:
        DeadLetters(str(tmp_path)).write("s", 0, 0, letters("one"))
    assert error.value.code == "P0502"
    assert list((tmp_path / "s").iterdir()) == []
