"""The KAFKA source over a real broker, without Spark: rounds, formats, what is kept out."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from kafka_kit import declared, rounds, send, topic

from penstock.connectors.sources import open_source
from penstock.errors import PenstockError


def stream(broker: Any, name: str, columns: str = "k STRING, n INT, at BIGINT", more: str = "") -> Any:
    options = f"bootstrap '{broker.bootstrap}', topic '{name}'{more}"
    return declared(f"CREATE STREAM s ({columns}) FROM KAFKA ({options}) TIMESTAMP BY at UNIT MILLISECOND")


def as_json(*rows: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    return [{"value": json.dumps(row), **more} for row in rows]


def everything(source: Any) -> list[dict[str, Any]]:
    return [row for rows, _ in rounds(source) for row in rows]


def test_metadata_columns_and_json(broker: Any) -> None:
    name = topic(broker)
    sent = [("a", b"x"), ("h", b"\xff")]
    send(broker, name, [{"key": "k1", "value": '{"n": 1}', "timestamp": 1000, "headers": sent}])
    send(broker, name, [{"value": '{"n":\n 2, "other": 5}', "timestamp": 2000}])
    columns = "n INT, k STRING, p INT, o BIGINT, at TIMESTAMP, h STRING"
    options = f"bootstrap '{broker.bootstrap}', topic '{name}', format 'json', key 'k', partition 'p', offset 'o'"
    text = f"CREATE STREAM s ({columns}) FROM KAFKA ({options}, timestamp 'at', headers 'h') TIMESTAMP BY at"
    ((rows, rejected),) = rounds(declared(text))
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert not rejected
    assert rows == [
        {"n": 1, "k": "k1", "p": 0, "o": 0, "at": epoch + dt.timedelta(seconds=1), "h": '{"a": "x", "h": "/w=="}'},
        {"n": 2, "k": None, "p": 0, "o": 1, "at": epoch + dt.timedelta(seconds=2), "h": None},
    ]


def test_partitions_in_order_make_a_stream_in_order_however_rounds_are_cut(broker: Any) -> None:
    """One partition holds ten times as much as the other: rounds must not let it run ahead or behind."""
    name = topic(broker, 2)
    send(broker, name, as_json(*({"k": "a", "n": i, "at": i} for i in range(1000)), partition=0))
    send(broker, name, as_json(*({"k": "b", "n": i, "at": i} for i in range(0, 1000, 10)), partition=1))
    for most in (70, 5000):
        source = stream(broker, name, more=f", format 'json', max_rows '{most}'")
        found = everything(source)
        stamps = [row["at"] for row in found]
        assert stamps == sorted(stamps), f"max_rows {most}"
        assert sorted((r["k"], r["n"]) for r in found) == sorted(
            [("a", i) for i in range(1000)] + [("b", i) for i in range(0, 1000, 10)]
        )


def test_a_round_read_again_gives_the_same(broker: Any) -> None:
    name = topic(broker, 3)
    for p in range(3):
        send(broker, name, as_json(*({"k": "a", "n": i, "at": i * 7 % 13} for i in range(50)), partition=p))
    connector: Any = open_source(stream(broker, name, more=", format 'json', max_rows '60'"))
    split = connector.plan(None, None).split
    send(broker, name, as_json({"k": "late", "n": 0, "at": 0}))
    first, again = (list(connector.read(split, (0, 1, 2))) for _ in range(2))
    assert [p.batch for p in first] == [p.batch for p in again]
    assert first[-1].positions == again[-1].positions


def test_malformed_records_and_tombstones_are_rejected_alone_with_their_place(broker: Any) -> None:
    name = topic(broker, 2)
    values = ['{"k": "a", "n": 1, "at": 1}', "{nope", None, "", '{"k": "b", "n": "x", "at": 2}', '{"n": 3, "at": 3}']
    send(broker, name, [{"value": v, "partition": 1} for v in values])
    ((rows, rejected),) = rounds(stream(broker, name, more=", format 'json'"))
    assert [(r["k"], r["n"]) for r in rows] == [("a", 1), (None, 3)]
    assert [(r.path, r.line) for r in rejected] == [(f"{name}/1", i) for i in (1, 2, 3, 4)]
    reasons = [r.reason for r in rejected]
    assert reasons[0].startswith("broken JSON") and "tombstone" in reasons[1] and "empty" in reasons[2]
    assert reasons[3] == "bad number '\"x\"' in column n"


def test_tombstones_as_null(broker: Any) -> None:
    name = topic(broker)
    send(broker, name, [{"key": "1", "value": b"x"}, {"key": "2"}, {"key": "z", "value": b"y"}, {"key": "3"}])
    text = "CREATE RELATION r (k INT, v STRING) FROM KAFKA (bootstrap '{}', topic '{}', format 'raw', key 'k'{})"
    ((rows, rejected),) = rounds(declared(text.format(broker.bootstrap, name, ", tombstones 'null'")))
    assert [tuple(r.values()) for r in rows] == [(1, "x"), (2, None), (3, None)]
    assert [(r.line, r.reason) for r in rejected] == [(2, "bad number 'z' in column k")]


SCHEMA = {"type": "record", "name": "r", "fields": [
    {"name": "n", "type": "int"},
    {"name": "k", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]}  # fmt: skip


@pytest.mark.parametrize("wire", ["none", "confluent"])
def test_avro(broker: Any, wire: str, tmp_path: Any) -> None:
    import fastavro

    def encoded(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(b"\0\0\0\0\x07" if wire == "confluent" else b"")
        fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
        return out.getvalue()

    name = topic(broker)
    at = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    send(broker, name, [{"value": encoded({"n": 1, "k": None, "at": at})}, {"value": b"\x05"}])
    send(broker, name, [{"value": encoded({"n": 2, "k": "a", "at": at})}])
    (tmp_path / "schema.avsc").write_text(json.dumps(SCHEMA))
    options = f"bootstrap '{broker.bootstrap}', topic '{name}', format 'avro', wire '{wire}'"
    where = f"schema_file '{tmp_path}/schema.avsc'"
    text = f"CREATE STREAM s (k STRING, n BIGINT, at TIMESTAMP) FROM KAFKA ({options}, {where}) TIMESTAMP BY at"
    ((rows, rejected),) = rounds(declared(text))
    assert rows == [{"k": None, "n": 1, "at": at}, {"k": "a", "n": 2, "at": at}]
    assert [r.line for r in rejected] == [1] and "Avro" in rejected[0].reason
    lacking = declared(text.replace("(k STRING", "(z STRING"))
    with pytest.raises(PenstockError) as refused:
        open_source(lacking).check()
    assert refused.value.code == "P0402"


def test_arrow_streams_of_many_rows(broker: Any) -> None:
    def packed(**columns: list[Any]) -> bytes:
        table = pa.table(columns)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    name = topic(broker, 2)
    send(broker, name, [{"value": packed(at=[1, 5], n=[1, 2], k=["a", "b"])}, {"value": b"not arrow"}])
    send(broker, name, [{"value": packed(at=[2, 3], n=[3, 4], k=["c", "d"]), "partition": 1}])
    send(broker, name, [{"value": packed(at=["x"], n=[3], k=["c"]), "partition": 1}])
    ((rows, rejected),) = rounds(stream(broker, name, "k STRING, n BIGINT, at BIGINT", ", format 'arrow'"))
    assert [r["n"] for r in rows] == [3, 4, 1, 2]
    assert [(r.path, r.line) for r in rejected] == [(f"{name}/1", 1), (f"{name}/0", 1)]
    assert rejected[0].reason == "column at is STRING and declared BIGINT"


def test_starting_and_ending(broker: Any) -> None:
    name = topic(broker, 2)
    for p in (0, 1):
        rows = [{"k": "a", "n": p * 10 + i, "at": i} for i in range(4)]
        records = [{"value": json.dumps(r), "partition": p, "timestamp": 1_000_000 + r["at"] * 1000} for r in rows]
        send(broker, name, records)

    def numbers(more: str) -> list[int]:
        return sorted(r["n"] for r in everything(stream(broker, name, more=", format 'json'" + more)))

    assert numbers(", starting 'latest'") == []
    assert numbers(", starting '{\"0\": 3}'") == [3, 10, 11, 12, 13]
    assert numbers(", starting '1970-01-01T00:16:42Z'") == [2, 3, 12, 13]
    assert numbers(", ending '{\"0\": 1}'") == [0, 10, 11, 12, 13]
    connector: Any = open_source(stream(broker, name, more=", format 'json', ending 'latest', max_rows '3'"))
    assert connector.bounded
    stretch = connector.plan(None, None)
    send(broker, name, as_json({"k": "b", "n": 99, "at": 9}))
    seen: list[int] = []
    while stretch.split is not None:
        *_, last = connector.read(stretch.split, (1,))
        seen += last.batch.column(0).to_pylist()
        stretch = connector.plan(stretch.state, last.positions)
    assert stretch.ended and sorted(seen) == [0, 1, 2, 3, 10, 11, 12, 13]
    assert stretch.lag == 1


def test_a_partition_that_is_added_is_read_from_its_beginning(broker: Any) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = topic(broker)
    connector: Any = open_source(stream(broker, name, more=", format 'json', starting 'latest'"))
    stretch = connector.plan(None, None)
    assert stretch.split is None and not stretch.ended
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_partitions([NewPartitions(name, 2)])[name].result(30)
    while len(connector._topic.partitions()) < 2:
        pass
    send(broker, name, as_json({"k": "a", "n": 7, "at": 1}, partition=1))
    stretch = connector.plan(stretch.state, None)
    (parsed,) = connector.read(stretch.split, (1,))
    assert parsed.batch.column(0).to_pylist() == [7]
    assert parsed.positions == {"1": 1}


def test_transactions_leave_gaps_and_what_was_aborted_is_not_read(broker: Any) -> None:
    from confluent_kafka import Producer

    name = topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"test-{name}", "log_level": "0"})
    producer.init_transactions(30)
    for n, kept in ((1, True), (2, False), (3, True), (4, False)):
        producer.begin_transaction()
        producer.produce(name, json.dumps({"k": "a", "n": n, "at": n}))
        producer.flush(30)
        producer.commit_transaction(30) if kept else producer.abort_transaction(30)
    for most in (1, 2, 100):
        found = everything(stream(broker, name, more=f", format 'json', max_rows '{most}'"))
        assert [r["n"] for r in found] == [1, 3]


def test_records_that_are_gone(broker: Any) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic(broker)
    send(broker, name, as_json(*({"k": "a", "n": i, "at": i} for i in range(6))))
    connector: Any = open_source(stream(broker, name, more=", format 'json', max_rows '2'"))
    stretch = connector.plan(None, None)
    (first,) = connector.read(stretch.split, (1,))
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    place = TopicPartition(name, 0, 4)
    client.delete_records([place])[TopicPartition(name, 0)].result(30)
    for attempt in (
        lambda: connector.plan(stretch.state, first.positions),
        lambda: list(connector.read(stretch.split, (1,))),
    ):
        with pytest.raises(PenstockError) as lost:
            attempt()
        assert lost.value.code == "P0413" and "on_data_loss" in (lost.value.hint or "")
    lenient: Any = open_source(stream(broker, name, more=", format 'json', max_rows '2', on_data_loss 'earliest'"))
    stretch = lenient.plan(stretch.state, first.positions)
    (parsed,) = lenient.read(stretch.split, (1,))
    assert parsed.batch.column(0).to_pylist() == [4, 5]


def test_no_broker_no_topic(broker: Any) -> None:
    source = stream(broker, "nowhere", more=", format 'json'")
    with pytest.raises(PenstockError) as missing:
        open_source(source).check()
    assert missing.value.code == "P0412"
