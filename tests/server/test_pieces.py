"""A body that is written in pieces is the one that is written at once, whatever its columns hold."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.server.http.formats import BodyFormat, fits_a_piece, pieces

UTC = dt.UTC
#: By type, values that are hard to write; NULLs come between.
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "whole": (pa.int64(), [2**63 - 1, -(2**63), 2**53, 2**53 + 1, 0]),
    "double": (pa.float64(), [float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, 1.5]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1e-10"), Decimal("-1e-10"), Decimal(10**27), Decimal("0")]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 3, 1, 9, 0, 0, 1, UTC)],
    ),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2024, 2, 29)]),
    "length": (pa.duration("us"), [dt.timedelta(days=-1, microseconds=1), dt.timedelta(0), dt.timedelta(days=400)]),
    "text": (pa.string(), ["", "a\nb", 'say "x", y', "\0", "🚰\u202e", "\r", "null", " "]),
    "bytes": (pa.binary(), [b"", b"\0\xff", b'"']),
    "truth": (pa.bool_(), [True, False]),
    "list": (pa.list_(pa.decimal128(10, 8)), [[], [None], [Decimal("1e-8"), None], [Decimal("2.5")] * 3]),
    "row": (
        pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))]),
        [{"a": "x,\n", "b": [1, None]}, {"a": None, "b": None}],
    ),
}
COUNT = 60


def column(name: str) -> pa.Array:
    type_, values = COLUMNS[name]
    cycle = [*values, None]
    return pa.array([cycle[n % len(cycle)] for n in range(COUNT)], type_)


@pytest.mark.parametrize("form", [BodyFormat.JSON, BodyFormat.NDJSON, BodyFormat.CSV, BodyFormat.ARROW])
@pytest.mark.parametrize(
    "names", [[name] for name in COLUMNS] + [list(COLUMNS)], ids=lambda names: "+".join(names)[:20]
)
def test_pieces_are_the_whole(form: BodyFormat, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({name: column(name) for name in names})
    whole = b"".join(pieces(table, form))
    assert fits_a_piece(table)
    monkeypatch.setattr("penstock.server.http.formats._PIECE_BYTES", table.nbytes // 7)
    parts = list(pieces(table.slice(7), form))
    assert len(parts) > 5 and not fits_a_piece(table)
    if form is BodyFormat.ARROW:
        found = pa.ipc.open_stream(b"".join(parts)).read_all().combine_chunks()
        assert found.schema == table.schema and repr(found.to_pylist()) == repr(table.slice(7).to_pylist())
    elif form is BodyFormat.JSON:
        assert json.loads(b"".join(parts)) == json.loads(whole)[7:]
    elif form is BodyFormat.NDJSON:
        assert b"".join(parts) == whole.split(b"\n", 7)[7]
    else:
        first = b"".join(pieces(table.slice(0, 7), form))
        assert first + b"".join(parts[1:]) == whole


def test_no_rows_are_a_body_too() -> None:
    table = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())})
    bodies = {form: b"".join(pieces(table, form)) for form in (BodyFormat.JSON, BodyFormat.NDJSON, BodyFormat.CSV)}
    assert bodies == {BodyFormat.JSON: b"[]", BodyFormat.NDJSON: b"", BodyFormat.CSV: b"a,b\n"}
    assert pa.ipc.open_stream(b"".join(pieces(table, BodyFormat.ARROW))).read_all() == table
