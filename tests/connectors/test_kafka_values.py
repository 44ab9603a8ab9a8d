"""Values of Kafka's records that are rare: keys in any case, times at the limits, fields that are one column."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from connector_kit import declare

from penstock.algebra.nodes.scans import Source
from penstock.connectors.kafka.decode import ArrowDecoder, JsonDecoder
from penstock.connectors.kafka.encode import _avro_values
from penstock.connectors.kafka.fetch import TopicRecords
from penstock.connectors.options import Options
from penstock.connectors.sources.kafka import KafkaSource, _moments
from penstock.errors import PenstockError
from penstock.types import TIMESTAMP

COLUMNS = tuple(declare("x", "name STRING, n INT").columns)
NO_OPTIONS = Options("KAFKA of s", ())


def test_keys_match_whatever_their_case_in_each_record_alone() -> None:
    values = [b'{"name":"a","N":1}', b'{"NAME":{"x":\n1},"n":2}', b'{"n":3,"N":4}', b'{"Name":"d"}']
    for order in (values, values[::-1]):
        found = JsonDecoder("s", COLUMNS, NO_OPTIONS).decode(pa.array(order, pa.large_binary()))
        assert sorted(found.columns[0].to_pylist()) == ["a", "d", '{"x":1}']
        assert list(found.reasons.values()) == ["the keys n and N are one column"]


def test_two_columns_of_arrow_that_are_one() -> None:
    table = pa.table({"name": ["a"], "n": pa.array([1], pa.int32()), "N": pa.array([2], pa.int32())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found = ArrowDecoder("s", COLUMNS, NO_OPTIONS).decode(pa.array([sink.getvalue().to_pybytes()], pa.binary()))
    assert found.reasons == {0: "column n occurs twice"}


@pytest.mark.parametrize("milliseconds", [2**63 - 1, 2**62])
def test_a_time_of_kafka_that_is_no_timestamp(milliseconds: int) -> None:
    given = pa.array([1_000, milliseconds, None], pa.int64())
    assert _moments(given, TIMESTAMP).failed.tolist() == [False, True, False]
    assert _moments(given, pa.int64()).failed.tolist() == [False, False, False]


def test_far_times_are_numbers_for_avro() -> None:
    far = pa.table({"at": pa.array([2**63 - 1, None]).cast(TIMESTAMP), "d": pa.array([2**31 - 1, 0], pa.date32())})
    assert _avro_values(far).to_pylist() == [{"at": 2**63 - 1, "d": 2**31 - 1}, {"at": None, "d": 0}]


VALUES = {
    "json": [b'{"n":1}', b'{"n":2, "name":"' + b"x" * 60 + b'"}', None, b'{"n":3}'],
    "raw": [b"1", b"2" * 61, None, b"3"],
}


def topic(columns: str, **options: str) -> Source:
    return declare("", columns, connector="KAFKA", bootstrap="x", topic="t", **options)


@pytest.mark.parametrize("format_", VALUES)
def test_a_value_that_is_too_long_is_rejected_alone(format_: str) -> None:
    columns = "n INT, name STRING" if format_ == "json" else "n INT"
    source = topic(columns, format=format_, max_record_bytes="60")
    values = pa.array(VALUES[format_], pa.large_binary())
    count = np.arange(len(values))
    found = KafkaSource(source)._decoded(TopicRecords(count, count, count, values, values))
    assert found.columns[0].to_pylist() == [1, 3] and found.origin.tolist() == [0, 3]
    assert found.reasons == {
        1: "longer than 60 bytes, the max_record_bytes of this source",
        2: "the value is null (a tombstone)",
    }


@pytest.mark.parametrize("format_", ["json", "raw"])
def test_timestamps_have_the_format_that_is_declared(format_: str) -> None:
    source = topic("at TIMESTAMP", format=format_, timestamp_format="yyyyMMdd HHmm")
    texts = ["20240301 0905", "2024-03-01 09:06"]
    values = pa.array(
        [(f'{{"at":"{text}"}}' if format_ == "json" else text).encode() for text in texts], pa.large_binary()
    )
    count = np.arange(2)
    found = KafkaSource(source)._decoded(TopicRecords(count, count, count, values, values))
    assert [f"{at:%Y-%m-%d %H:%M}" for at in found.columns[0].to_pylist()] == ["2024-03-01 09:05"]
    assert found.reasons == {1: "bad timestamp '2024-03-01 09:06' in column at"}
    with pytest.raises(PenstockError, match="timestamp_format is for json and raw, the format is arrow"):
        KafkaSource(topic("at TIMESTAMP", format="arrow", timestamp_format="yyyy"))


@pytest.mark.parametrize("limit", ["0", str(2**30 + 1), "many"])
def test_a_limit_that_cannot_be_is_refused(limit: str) -> None:
    with pytest.raises(PenstockError) as caught:
        KafkaSource(topic("n INT", format="raw", max_record_bytes=limit))
    assert caught.value.code == "P0208"
