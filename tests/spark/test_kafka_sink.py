"""The KAFKA sink over a real broker, without Spark: formats, keys, and what a crash between two steps leaves."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from kafka_kit import received, topic

from penstock.connectors.contract import Rejected
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.language.scripts import Catalog, bind_script
from penstock.settings import Settings

_AT = dt.datetime(2024, 3, 1, 10, tzinfo=dt.UTC)


def sink(broker: Any, name: str, more: str, select: str = "SELECT k, n FROM s", run: str = "r") -> Any:
    script = f"""CREATE STREAM s (k STRING, n INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;
    CREATE QUERY q INTO KAFKA (bootstrap '{broker.bootstrap}', topic '{name}', {more}) AS {select}"""
    (query,) = bind_script(script, Catalog(), Settings(), None).queries
    made = open_sink(query)
    made.run = run + name
    return made


def rows(*values: tuple[Any, Any]) -> pa.Table:
    stamps = pa.array([_AT] * len(values), pa.timestamp("us", "UTC"))
    ks, ns = pa.array([k for k, _ in values], pa.string()), pa.array([n for _, n in values], pa.int32())
    return pa.table({"ts": stamps, "k": ks, "n": ns})


def test_json_with_key_and_headers(broker: Any) -> None:
    name = topic(broker)
    out = sink(broker, name, "format 'json', key 'k', headers 'n, k'")
    out.open(False, False)
    out.write(0, rows(("a", 1), (None, None)))
    first, second = received(broker, name)
    assert json.loads(first.value()) == {"ts": "2024-03-01T10:00:00Z", "k": "a", "n": 1}
    assert (first.key(), second.key()) == (b"a", None)
    assert first.headers() == [("n", b"1"), ("k", b"a")]
    assert json.loads(second.value()) == {"ts": "2024-03-01T10:00:00Z", "k": None, "n": None}


def test_changes_of_a_relation_with_a_key_of_two_columns(broker: Any) -> None:
    name = topic(broker)
    grouped = "SELECT k, n, COUNT(*) AS c FROM s [RANGE 1 MINUTE] GROUP BY k, n"
    out = sink(broker, name, "format 'json', key 'k, n'", grouped)
    out.open(False, False)
    table = rows(("a", 1)).add_column(1, "op", [["+"]]).append_column("c", pa.array([2], pa.int64()))
    out.write(0, table)
    (message,) = received(broker, name)
    assert json.loads(message.key()) == {"k": "a", "n": 1}
    assert json.loads(message.value()) == {"ts": "2024-03-01T10:00:00Z", "op": "+", "k": "a", "n": 1, "c": 2}


def test_avro_arrow_and_raw(broker: Any) -> None:
    import fastavro

    name = topic(broker)
    for number, more in enumerate(("format 'avro', schema_id '7'", "format 'arrow'", "format 'raw', key 'k'")):
        out = sink(broker, name, more, run=str(number))
        out.open(False, False)
        out.write(0, rows(("a", 1), ("b", 2)))
    a, b, packed, *raw = received(broker, name)
    assert a.value()[:5] == b"\0\0\0\0\x07" and b.value()[:5] == b"\0\0\0\0\x07"
    union = [
        {"name": n, "type": ["null", t]}
        for n, t in (("ts", {"type": "long", "logicalType": "timestamp-micros"}), ("k", "string"), ("n", "int"))
    ]
    schema = fastavro.parse_schema({"type": "record", "name": "q", "fields": union})
    assert fastavro.schemaless_reader(io.BytesIO(a.value()[5:]), schema, None) == {"ts": _AT, "k": "a", "n": 1}
    assert pa.ipc.open_stream(packed.value()).read_all().equals(rows(("a", 1), ("b", 2)))
    assert [(m.key(), m.value()) for m in raw] == [(b"a", b"1"), (b"b", b"2")]


def test_what_is_committed_is_not_written_again_and_what_is_not_is_written_once(broker: Any) -> None:
    """A run dies with a transaction open, behind one that is committed; then it starts again."""
    name = topic(broker)
    more = "format 'raw', key 'k'"
    dying = sink(broker, name, more)
    dying.open(False, False)
    dying.write(0, rows(("a", 1)))
    dying.write(3, rows(("b", 2)))
    dying._producer.begin_transaction()
    dying._producer.produce(name, b"3", b"c")
    dying._producer.flush(30)  # records are at the broker, their transaction is not committed
    resumed = sink(broker, name, more)
    resumed.open(True, False)
    resumed.write(3, rows(("b", 2)))
    resumed.write(4, rows(("c", 3)))
    # The first one is no corpse after all: what it writes late is what has been written already.
    dying.write(4, rows(("c", 3)))
    resumed.write(5, rows(("d", 4)))
    assert [m.value() for m in received(broker, name)] == [b"1", b"2", b"3", b"4"]
    afresh = sink(broker, name, more, run="another")
    afresh.open(False, False)
    afresh.write(0, rows(("e", 5)))
    assert [m.value() for m in received(broker, name)] == [b"1", b"2", b"3", b"4", b"5"]


def test_refusals(broker: Any) -> None:
    name = topic(broker)
    for more, said in (
        ("format 'arrow', key 'k'", "no key"),
        ("format 'raw'", "format raw writes one column"),
        ("format 'json', key 'z'", "names no column of the result: z"),
        ("format 'json', schema_id '1'", "is for avro"),
        ("format 'json', kafka.group.id 'x'", "set by Penstock"),
        ("format 'json', kafka.colour 'x'", "refuses its settings"),
    ):
        with pytest.raises(PenstockError) as refused:
            sink(broker, name, more).open(False, False)
        assert refused.value.code == "P0208" and said in refused.value.message
    with pytest.raises(PenstockError) as missing:
        sink(broker, "nowhere", "format 'json'").open(False, False)
    assert missing.value.code == "P0412"
    out = sink(broker, name, "format 'json'")
    out.open(False, False)
    with pytest.raises(PenstockError) as huge:
        out.write(0, rows(("x" * 3_000_000, 1)))
    assert huge.value.code == "P0502" and "max.message.bytes" in (huge.value.hint or "")
    assert received(broker, name) == []


@pytest.mark.parametrize("format_", ["json", "raw"])
def test_a_row_larger_than_the_client_sends_is_refused_alone(broker: Any, format_: str) -> None:
    name = topic(broker)
    out, refused = refusing(broker, name, f"format '{format_}', kafka.message.max.bytes '2000'")
    table = rows(("a", 1), ("x" * 3000, 2), ("b", 3)).drop_columns(["n"])
    out.write(0, table)
    out.write(0, table)
    assert len(received(broker, name)) == 2
    assert [(batch, len(found)) for batch, found in refused] == [(0, 1)]
    (row,) = refused[0][1]
    assert re.fullmatch(r"record '30\d\d bytes' is larger than kafka.message.max.bytes", row.reason)
    assert "xxx" in row.record and len(row.record) == 1000 and name in row.path
    out.refuse = out.fail_of
    with pytest.raises(PenstockError, match="a row cannot be written to topic") as failed:
        out.write(1, table)
    assert failed.value.code == "P0502"
    out.close()
    assert len(received(broker, name)) == 2


def test_rows_larger_than_the_topic_takes_are_refused_alone(broker: Any) -> None:
    """Rows that fit are written once, also where many of them together exceed the limit."""
    name = topic(broker, **{"max.message.bytes": "2000"})
    out, refused = refusing(broker, name, "format 'raw'")
    table = rows(*((f"{i:04}" * (700 if i % 100 == 7 else 100), i) for i in range(200))).drop_columns(["n"])
    out.write(0, table)
    fitting = [text for text in table["k"].to_pylist() if len(text) == 400]
    assert [m.value().decode() for m in received(broker, name)] == fitting
    assert [batch for batch, _ in refused] == [0]
    assert [row.reason for row in refused[0][1]] == [
        "record '2800 bytes' is larger than the topic's max.message.bytes"
    ] * 2
    assert [f"{i:04}" in row.record for i, row in zip((7, 107), refused[0][1], strict=True)] == [True] * 2
    out.write(1, table.slice(0, 8))
    out.close()
    assert [m.value().decode() for m in received(broker, name)] == fitting + fitting[:7]
    assert [(batch, len(found)) for batch, found in refused] == [(0, 2), (1, 1)]


def test_a_row_larger_than_the_topic_takes_ends_a_run_that_keeps_none(broker: Any) -> None:
    name = topic(broker, **{"max.message.bytes": "2000"})
    for number, (format_, said) in enumerate((("raw", "a row cannot be written"), ("arrow", "cannot be written"))):
        out = sink(broker, name, f"format '{format_}'", "SELECT k FROM s", run=str(number))
        out.open(False, False)
        with pytest.raises(PenstockError, match=said) as failed:
            out.write(0, rows(("a", 1), ("x" * 3000, 2)).drop_columns(["n"]))
        assert failed.value.code == "P0502" and "max.message.bytes" in (failed.value.hint or "")
    assert received(broker, name) == []


def refusing(broker: Any, name: str, more: str) -> tuple[Any, list[tuple[int, list[Rejected]]]]:
    """An open sink of one column, and the rows that it refuses by batch."""
    out = sink(broker, name, more, "SELECT k FROM s")
    refused: list[tuple[int, list[Rejected]]] = []
    out.refuse = lambda batch, found: refused.append((batch, list(found)))
    out.open(False, False)
    return out, refused
