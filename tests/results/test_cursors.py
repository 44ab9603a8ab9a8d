"""Cursors: what is one, what fits, and what is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_kit import ITEMS, Log, all_of, changes, rows_in, stream

from penstock.errors import PenstockError
from penstock.results.reader import Cursor, ResultReader

S = stream("s", ITEMS, max_bytes="2 KB")


@given(st.text())
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    try:
        assert str(Cursor.parse(text)) == text or text.count(".") == 2
    except PenstockError as error:
        assert error.code == "P0712" and "is no cursor" in error.message


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.1", "a.1.", "a..1", ".1.1", "a.1.1.1", "a.-1.1", "a.1.x", "A.1.1", "../x.1.1", "a.1.1\n",
             "a.1.9" * 50, "a.\u0661.1", "a.1.99999999999999999999"]
)  # fmt: skip
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises(PenstockError, match="is no cursor"):
        Cursor.parse(text)


@pytest.fixture
def reader(tmp_path: Path) -> ResultReader:
    log = Log(tmp_path, S)
    for batch in range(3):
        log.write(batch, {"s": changes(S, (batch, "a", 1), (batch, "b", 2))}, batch)
    return ResultReader(tmp_path, "s-1")


@pytest.mark.parametrize(
    ("cursor", "rows"),
    [("s-1.0.0", 6), ("s-1.0.1", 5), ("s-1.0.2", 4), ("s-1.1.0", 4), ("s-1.2.1", 1), ("s-1.2.2", 0), ("s-1.3.0", 0)],
)
def test_reading_goes_on_behind_a_cursor(reader: ResultReader, cursor: str, rows: int) -> None:
    assert len(rows_in(all_of(reader.read(cursor)))) == rows


@pytest.mark.parametrize(
    ("cursor", "message"),
    [("s-2.0.0", "another result"), ("s-1.2.3", "beyond"), ("s-1.4.0", "beyond"), ("s-1.900.0", "beyond"),
     ("s-1", "is no cursor")],
)  # fmt: skip
def test_a_cursor_that_does_not_fit(reader: ResultReader, cursor: str, message: str) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        reader.read(cursor)
    assert caught.value.code == "P0712" and caught.value.hint


def test_an_unknown_result(tmp_path: Path, reader: ResultReader) -> None:
    with pytest.raises(PenstockError) as caught:
        ResultReader(tmp_path, "t-1")
    assert caught.value.code == "P0201"


def test_rows_that_are_gone_are_a_gap_with_the_first_cursor_left(tmp_path: Path) -> None:
    log = Log(tmp_path, S, stream("other", ITEMS))
    reader = ResultReader(tmp_path, "s-1")
    slow = reader.read(reader.first)
    log.write(0, {"s": changes(S, (0, "a" * 1000, 1), (0, "b", 1))}, 0)
    delivery = slow.poll()
    assert delivery is not None and str(delivery.cursor) == "s-1.0.2"
    half = str(Cursor("s-1", 0, 1))
    for batch in range(1, 6):
        log.write(batch, {"s": changes(S, (batch, "a" * 1000, 1))}, batch)
    with pytest.raises(PenstockError) as caught:
        slow.poll()
    first = str(reader.first)
    assert caught.value.code == "P0712" and first in caught.value.message
    assert rows_in(all_of(reader.read(first)))[-1][0] == 5
    with pytest.raises(PenstockError, match=first):
        reader.read(half)


def test_a_reader_that_has_read_all_before_the_gap_misses_nothing(tmp_path: Path) -> None:
    """A quiet query has no gap, whatever goes of others and of its own rows that have been read."""
    loud = stream("loud", ITEMS, max_bytes="2 KB")
    log = Log(tmp_path, S, loud)
    log.write(0, {"s": changes(S, (0, "a", 1))}, 0)
    reader = ResultReader(tmp_path, "s-1")
    cursor = str(reader.end)
    for batch in range(1, 8):
        log.write(batch, {"loud": changes(loud, (batch, "a" * 1000, 1))}, batch)
    assert all_of(reader.read(cursor)) == []
    log.write(8, {"s": changes(S, (8, "b", 1))}, 8)
    assert rows_in(all_of(reader.read(cursor))) == [(8, "+", "b", 1)]
