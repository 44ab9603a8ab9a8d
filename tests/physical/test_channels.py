"""One exchange for each step and key: rows are sent once, however many operators read them [cidr 3.2]."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.exchange import ExchangeRouter
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.plan.plan import Channel, Plan
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.runtime.spark.worker.answer_writer import answers_in
from penstock.runtime.spark.worker.packets import (
    AnswerOf,
    ChannelRows,
    FewOfMany,
    Packet,
    channel_packets,
    progress_packet,
)
from penstock.testing.compare import events_of, first_difference
from penstock.testing.oracle import run_oracle
from tests.shard_rounds import shard_round

SOURCES = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM V (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
#: Five consumers of one window by one key.
FIVE = [
    "SELECT S.k, S.a, T.b FROM S [RANGE 10 SECONDS], T [RANGE 10 SECONDS] WHERE S.k = T.k",
    "SELECT S.k, S.a, V.b FROM S [RANGE 10 SECONDS], V [RANGE 10 SECONDS] WHERE S.k = V.k",
    "SELECT k, a FROM S [RANGE 10 SECONDS] WHERE NOT EXISTS (SELECT * FROM T [RANGE 10 SECONDS] WHERE T.k = S.k)",
    "SELECT S.k, S.a FROM S [RANGE 10 SECONDS], T [RANGE 20 SECONDS] WHERE S.k = T.k AND S.a < T.b",
    "SELECT S.k, S.a, V.b FROM S [RANGE 10 SECONDS], V [RANGE 20 SECONDS] WHERE S.k = V.k AND S.a <> V.b",
]
#: The first aggregate and the join read the rows in stage 1, the last join in stage 2, by the same key.
TWO_STAGES = [
    "SELECT S.k, S.a, T.b FROM S [RANGE 10 SECONDS], T [RANGE 10 SECONDS] WHERE S.k = T.k",
    """SELECT S.k, S.a, c.n FROM S [RANGE 10 SECONDS],
       (SELECT a AS k, COUNT(*) AS n FROM (SELECT DISTINCT k, a FROM S [RANGE 10 SECONDS]) d GROUP BY a) c
       WHERE S.k = c.k""",
]

#: Windows of several lengths, which all read the same columns by one key; the last but one has rows of its own.
SEVERAL_LENGTHS = [
    "SELECT k, SUM(a) AS s FROM S [RANGE 7 SECONDS] GROUP BY k",
    "SELECT k, MAX(a) AS m, MIN(a) AS l FROM S [RANGE 10 SECONDS] GROUP BY k",
    "SELECT k, COUNT(DISTINCT a) AS n FROM S [RANGE UNBOUNDED] GROUP BY k",
    "SELECT k, MAX(a) AS m, MIN(a) AS l FROM S [NOW] GROUP BY k",
    "SELECT S.k, S.a, T.b FROM S [RANGE 3 SECONDS], T [RANGE 10 SECONDS] WHERE S.k = T.k",
    "SELECT k, AVG(a) AS s FROM S [RANGE 5 SECONDS] WHERE a > 1 GROUP BY k",
    "SELECT k, a FROM S [RANGE 6 SECONDS] WHERE NOT EXISTS (SELECT * FROM T [RANGE 4 SECONDS] WHERE T.k = S.k)",
]


def queries(texts: list[str]) -> list[Query]:
    return bind_script(SOURCES + "".join(f"CREATE QUERY q{i} AS {text};" for i, text in enumerate(texts))).queries


def inputs(seed: int, rows: int = 40) -> dict[str, pa.Table]:
    draw = random.Random(seed)
    tables = {}
    for name, value in (("S", "a"), ("T", "b"), ("V", "b")):
        ts = sorted(draw.randrange(60) for _ in range(rows))
        columns = {"ts": ts, "k": [draw.randrange(4) for _ in ts], value: [draw.randrange(4) for _ in ts]}
        tables[name] = pa.table({c: pa.array(values, pa.int32()) for c, values in columns.items()})
    return tables


def elements_of(plan: Plan, source: str, table: pa.Table, columns: tuple[int, ...]) -> Elements:
    declared = plan.sources[source]
    chosen = read_columns(declared, columns)
    (batch,) = table.select(chosen).combine_chunks().to_batches()
    return stamp(declared, batch, chosen, columns, SourceProgress()).elements


def sent_of(plan: Plan, source: str, table: pa.Table) -> dict[Channel, int]:
    """The rows of one batch of a source on their way to two shards, by channel."""
    ingest = IngestExecutor(plan, source, {})
    router = ExchangeRouter(2)
    router.post(ingest.run(elements_of(plan, source, table, ingest.columns)), 0)
    sent: dict[Channel, int] = {}
    for _, channel, batches in router:
        sent[channel] = sent.get(channel, 0) + sum(map(len, batches))
    return sent


def test_five_consumers_of_one_window_by_one_key_get_its_rows_once() -> None:
    plan, given = plan_queries(queries(FIVE)), inputs(0)
    assert len([c for c in plan.receivers if "S" in plan.step(c.step).sources]) == 1
    assert list(sent_of(plan, "S", given["S"]).values()) == [given["S"].num_rows]


def test_rows_for_two_stages_are_sent_once() -> None:
    plan, given = plan_queries(queries(TWO_STAGES)), inputs(0)
    both = [channel for channel, stages in plan.receivers.items() if len(stages) == 2]
    assert both, "the second join reads the window in a later stage"
    sent = sent_of(plan, "S", given["S"])
    assert [sent[channel] for channel in both] == [given["S"].num_rows] * len(both)


def test_windows_of_several_lengths_get_the_rows_of_their_stream_once() -> None:
    plan, given = plan_queries(queries(SEVERAL_LENGTHS)), inputs(0)
    chosen = sum(a > 1 for a in given["S"].column("a").to_pylist())
    by_key = {c: rows for c, rows in sent_of(plan, "S", given["S"]).items() if c.exchange.key == (1,)}
    assert sorted(by_key.values()) == [chosen, given["S"].num_rows]
    assert not any(step.spec.sets_ends_alone for step in plan.steps if step.stage == 0 and "S" in step.sources)


def test_a_window_of_one_length_stays_next_to_the_readers() -> None:
    plan = plan_queries(queries(SEVERAL_LENGTHS[:1] * 2))
    assert [step.stage for step in plan.steps if step.spec.sets_ends_alone] == [0]


@pytest.mark.spread(2)
@pytest.mark.parametrize("texts", [FIVE, TWO_STAGES, SEVERAL_LENGTHS])
@pytest.mark.parametrize("shards", [1, 3])
def test_what_reads_one_channel_answers_as_the_oracle(texts: list[str], shards: int) -> None:
    asked, given = queries(texts), inputs(shards)
    found = run_local(asked, given, shards=shards, seed=shards, reload=True)
    for query in asked:
        expected = run_oracle(query, given).events
        assert first_difference(expected, events_of(query, found.tables[query.name])) is None, query.text


def answers_of(query: str, packet: Packet) -> list[Elements]:
    if not isinstance(packet.kind, AnswerOf | FewOfMany):
        return []
    return [c.take() for name, chunks in answers_in(packet.kind, packet.blob) for c in chunks if name == query]


def test_a_stage_on_spark_keeps_its_rows_and_hands_them_on() -> None:
    plan, given = plan_queries(queries(TWO_STAGES)), inputs(1)
    packets: list[Packet] = []
    seen: dict[str, SourceProgress] = {}
    for task, (source, table) in enumerate(given.items()):
        if source not in plan.sources:
            continue
        ingest = IngestExecutor(plan, source, {})
        elements = elements_of(plan, source, table, ingest.columns)
        seen[source] = SourceProgress(int(elements.ts.min()), int(elements.ts.max()), True)
        router = ExchangeRouter(1)
        router.post(ingest.run(elements), task)
        for shard, channel, batches in router:
            packets += channel_packets(shard, channel, batches, task)
    both = next(channel for channel, stages in plan.receivers.items() if len(stages) == 2)
    packets.append(progress_packet(0, seen))
    for stage in range(1, plan.stages + 1):
        packets = list(shard_round("two stages", plan, stage).run(0, packets))
        travels = any(isinstance(p.kind, ChannelRows) and p.kind.channel == both for p in packets)
        assert travels == (stage < max(plan.receivers[both]))
    for query in queries(TWO_STAGES):
        answers = [e for p in packets for e in answers_of(query.name, p)]
        found = events_of(query, answer_table(query, answers))
        assert first_difference(run_oracle(query, given).events, found) is None, query.text
