"""What the KAFKA connector decides without a broker: orders of arrival, shares of a round, settings and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.connectors.kafka.arrival import arrived
from penstock.connectors.kafka.client import resolved
from penstock.connectors.kafka.offsets import Topic, Unanswered, shares
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.scripts import Catalog, bind_script
from penstock.settings import Settings

#: Of each partition the times of its records.
_LOGS = st.dictionaries(st.integers(0, 3), st.lists(st.integers(0, 20), max_size=12), min_size=1)


def _rounds(logs: dict[int, list[int]], most: int) -> list[list[tuple[int, int, int]]]:
    """(time, partition, offset) of the records of each round until all are read."""
    at = {str(p): 0 for p in logs}
    ends = {str(p): len(times) for p, times in logs.items()}
    asked: dict[str, int] = {}
    found = []
    while True:
        held = frozenset(p for p, offset in asked.items() if at[p] == offset)
        ranges = shares(at, ends, most, held)
        if not ranges:
            return found
        asked = {p: bounds[0] for p, bounds in ranges.items()}
        places = [(int(p), o) for p in sorted(ranges, key=int) for o in range(*ranges[p][:2])]
        partition, offset = (np.array([place[i] for place in places], np.int64) for i in (0, 1))
        time = np.array([logs[p][o] for p, o in places], np.int64)
        came = arrived(partition, offset, time, np.ones(len(time), bool), ranges)
        before = sum(at.values())
        at |= came.positions
        assert sum(at.values()) == before + len(came.order) > before
        found.append([(int(time[i]), int(partition[i]), int(offset[i])) for i in came.order])


@given(_LOGS, st.integers(1, 9))
def test_partitions_in_order_arrive_in_order_however_rounds_are_cut(logs: dict[int, list[int]], most: int) -> None:
    in_order = {p: sorted(times) for p, times in logs.items()}
    found = [record for part in _rounds(in_order, most) for record in part]
    assert [time for time, _, _ in found] == sorted(time for times in logs.values() for time in times)


@given(_LOGS, st.integers(1, 9))
def test_every_record_arrives_once_and_in_its_partition_in_order(logs: dict[int, list[int]], most: int) -> None:
    found = [record for part in _rounds(logs, most) for record in part]
    for p, times in logs.items():
        assert [(t, o) for t, q, o in found if q == p] == [(t, o) for o, t in enumerate(times)]


def test_a_range_that_was_compacted_away_holds_the_others_back() -> None:
    """What comes behind it is not known yet."""
    nothing = np.zeros(0, np.int64)
    came = arrived(nothing, nothing, nothing, nothing.astype(bool), {"0": [5, 9, 1]})
    assert not len(came.order) and came.positions == {"0": 9}
    ones = np.ones(2, np.int64)
    came = arrived(ones, np.array([3, 4]), ones, ones.astype(bool), {"0": [5, 9, 1], "1": [3, 5, 0]})
    assert not len(came.order) and came.positions == {"0": 9, "1": 3}


SCRIPT = "CREATE STREAM s (k STRING, n INT, at BIGINT) FROM KAFKA (bootstrap 'h:1', topic 't', {}) TIMESTAMP BY at"


def declared(options: str) -> Any:
    (source,) = bind_script(SCRIPT.format(options), Catalog(), Settings(), None).catalog.sources.values()
    return source


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("format 'raw', key 'k'", "format raw fills one column"),
        ("format 'json', key 'z'", "option key names no column"),
        ("format 'json', offset 'n'", "offset goes into a column of BIGINT"),
        ("format 'json', starting 'soon'", "option starting cannot be 'soon'"),
        ("format 'json', ending '{\"a\": 1}'", "option ending cannot be"),
        ("format 'json', kafka.enable.auto.commit 'true'", "kafka.enable.auto.commit is set by Penstock"),
    ],
)
def test_refused_declarations(options: str, said: str) -> None:
    with pytest.raises(PenstockError) as refused:
        open_source(declared(options))
    assert refused.value.code == "P0208" and said in refused.value.message


def test_an_avro_schema_that_is_none() -> None:
    with pytest.raises(PenstockError) as refused:
        open_source(declared("format 'avro', schema '{}'")).check()
    assert refused.value.code == "P0208" and "not an Avro schema" in refused.value.message


def test_secrets_are_fetched_when_a_client_is_made_and_shown_nowhere(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "word").write_text("open sesame\n")
    monkeypatch.setenv("WORD", "hunter2")
    written = {"sasl.password_env": "WORD", "ssl.key.password_file": f"{tmp_path}/word", "client.rack": "r"}
    expected = {"sasl.password": "hunter2", "ssl.key.password": "open sesame", "client.rack": "r"}
    assert resolved(written, "source s") == expected
    monkeypatch.delenv("WORD")
    with pytest.raises(PenstockError) as missing:
        resolved(written, "source s")
    assert missing.value.code == "P0409" and "WORD" in missing.value.message
    with pytest.raises(ScriptErrors) as refused:
        declared("format 'json', kafka.sasl.password 'hunter2'")
    said = str(refused.value)
    assert "kafka.sasl.password is a secret" in said and "kafka.sasl.password_env" in said and "hunter2" not in said


def test_a_broker_that_does_not_answer() -> None:
    topic = Topic("source s", "t", {"bootstrap.servers": "127.0.0.1:9", "log_level": "0"})
    with pytest.raises(Unanswered) as silent:
        topic.partitions(0.2)
    said = topic.unanswered(silent.value)
    assert said.code == "P0411" and "127.0.0.1:9" in said.message and said.hint


def test_the_example_is_correct() -> None:
    text = (Path(__file__).resolve().parents[2] / "examples" / "kafka.cql").read_text(encoding="utf-8")
    bound = bind_script(text, Catalog(), Settings(), None)
    assert len(bound.queries) == 1
    for source in bound.catalog.sources.values():
        assert not open_source(source).bounded
    assert "topic takings" in open_sink(bound.queries[0]).place
