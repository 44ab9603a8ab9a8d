"""Answers in pieces: however they are cut, what comes to a sink is the same, and few of them are in memory at once."""

from __future__ import annotations

import random
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.sinks import open_sink
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution import answers
from penstock.physical.execution.answers import answer_table, answer_tables, content_bytes
from penstock.physical.operators.aggregates import shared_pane_sums as window_sums
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.runtime.spark.worker import answer_writer as telling
from penstock.runtime.spark.worker.answer_writer import AnswerWriter, PendingAnswer, answers_in
from penstock.runtime.spark.worker.packets import AnswerOf, FewOfMany, Packet
from penstock.runtime.spark.worker.spill_files import LARGE, SpillFiles
from penstock.types import END

STREAM = "CREATE STREAM S (ts BIGINT, k BIGINT, s STRING) FROM MEMORY () TIMESTAMP BY ts UNIT MILLISECOND;"
(QUERY, CHANGES) = bind_script(
    STREAM + "CREATE QUERY q INTO MEMORY () AS SELECT RSTREAM(k, s) FROM S [RANGE 10 MILLISECONDS];"
    "CREATE QUERY c INTO MEMORY () AS SELECT k, s FROM S [RANGE 10 MILLISECONDS];"
).queries


def piece(draw: random.Random, low: int, high: int, rows: int, ordered: bool, signed: bool) -> Elements:
    ts = np.array([draw.randint(low, high) for _ in range(rows)], np.int64)
    ts = np.sort(ts) if ordered else ts
    numbers = [draw.randint(0, 10**6) for _ in range(rows)]
    columns = (pa.array(numbers, pa.int64()), pa.array([f"s{n}" * (n % 3) for n in numbers], pa.string()))
    sign = np.array([draw.choice([-2, -1, 1, 3]) for _ in range(rows)], np.int64) if signed else None
    return Elements(columns, ts, np.full(rows, END), sign)


@pytest.mark.parametrize("seed", range(12))
def test_however_an_answer_is_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    query, signed = (CHANGES, True) if seed % 3 == 0 else (QUERY, False)
    shards = [piece(draw, 0, 40 if seed % 2 else 3, 400, seed % 4 > 0, signed) for _ in range(3)]
    whole = answer_table(query, shards)
    monkeypatch.setattr(answers, "LONG_ROWS", 100)
    for longest in (1000, 60, 7):
        cut = []
        for shard in shards:
            start = 0
            while start < len(shard):
                stop = start + draw.randint(1, longest)
                cut.append(PendingAnswer.of(shard.slice(start, min(stop, len(shard)))))
                start = stop
        found = list(answer_tables(query, cut))
        assert pa.concat_tables(found).equals(whole)
        assert {table.num_rows for table in found[:-1]} <= {100} and 0 < found[-1].num_rows <= 100
        assert sum(map(content_bytes, found)) == content_bytes(whole)
    (none,) = answer_tables(query, [])
    assert none.equals(answer_table(query, []))


class Tracked:
    """Pieces of many that are taken up, and how many of their rows are in memory at once."""

    def __init__(self) -> None:
        self.rows = self.most = 0

    def piece(self, low: int, rows: int) -> PendingAnswer:
        def take() -> Elements:
            ts = np.full(rows, low, np.int64)
            self.rows += rows
            self.most = max(self.most, self.rows)
            weakref.finalize(ts, self.gone, rows)
            return Elements((pa.nulls(rows, pa.int64()), pa.nulls(rows, pa.string())), ts, np.full(rows, END))

        return PendingAnswer(low, rows, take)

    def gone(self, rows: int) -> None:
        self.rows -= rows


def test_few_pieces_are_in_memory_on_the_way_to_a_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONG_ROWS", 3000)
    tracked = Tracked()
    pieces = [tracked.piece(low, 1000) for _ in range(2) for low in range(200)]
    assert sum(table.num_rows for table in answer_tables(QUERY, pieces)) == 400_000
    assert 3000 <= tracked.most <= 3 * 3000


def rows_of(found: list[PendingAnswer]) -> list[Any]:
    taken = [one.take() for one in found]
    return [
        row
        for e in taken
        for row in zip(*(c.to_pylist() for c in e.columns), e.ts.tolist(), e.signs.tolist(), strict=True)
    ]


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_stage_tells_is_what_the_driver_takes_up(apart: bool, tmp_path: Path) -> None:
    draw = random.Random(3)
    size = LARGE // 16
    ends = np.full(size, END)
    specials = np.where(np.arange(size) % 2, np.nan, -0.0)
    sent = {
        "a": [piece(draw, 0, 3, 5, True, False), piece(draw, 0, 3, 4, False, True)],
        "b": [
            Elements((pa.nulls(size, pa.int64()), pa.array(np.full(size, 7))), np.arange(size) // 100, ends),
            Elements((pa.array(np.full(size, 1)), pa.array(np.arange(size))), np.full(size, 5), ends),
            piece(draw, 9, 9, 3, True, False),
        ],
        "c": [
            Elements((pa.array(specials), pa.array(np.full(size, -0.0))), np.arange(size), ends),
            Elements((pa.array(specials), pa.array(np.full(size, np.nan))), np.arange(size), ends),
        ],
    }  # fmt: skip
    with SpillFiles(str(tmp_path), 0) as parcels:
        made = AnswerWriter(parcels if apart else None)
        for query, pieces in sent.items():
            for elements in pieces:
                made.take(query, elements)
        packets = list(made.packets(0))
    assert all(len(p.blob) < LARGE for p in packets) == apart
    for query, pieces in sent.items():
        found = in_packets(packets)[query]
        assert sum(one.rows for one in found) == sum(map(len, pieces))
        assert all(one.low == one.take().ts.min() for one in found)
        assert str(rows_of(found)) == str(rows_of([PendingAnswer.of(e) for e in pieces]))


def in_packets(packets: Iterable[Packet]) -> dict[str, list[PendingAnswer]]:
    """The chunks of each query."""
    found: dict[str, list[PendingAnswer]] = {}
    for packet in packets:
        assert isinstance(packet.kind, AnswerOf | FewOfMany)
        for query, chunks in answers_in(packet.kind, packet.blob):
            found.setdefault(query, []).extend(chunks)
    return found


def test_few_rows_of_many_queries_travel_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In packets of queries with the same types of columns, and of limited size; what is larger goes alone."""
    monkeypatch.setattr(telling, "_TOGETHER", 6_000)
    draw = random.Random(8)
    made = AnswerWriter(None)
    sent: dict[str, list[Elements]] = {}
    for number in range(200):
        name = f"q{number} é:,\"'"
        sent[name] = [
            piece(draw, 0, 9, draw.choice([1, 1, 2, 7, 400]), number % 3 == 0, number % 5 == 0)
            for _ in range(draw.choice([1, 1, 3]))
        ]
        if number % 7 == 0:
            texts = pa.nulls(2, pa.string()), pa.array(["", "a\0b"])
            sent[name] = [Elements(texts, np.array([1, 1]), np.array([2, 9]))]
        if number % 11 == 0:
            sent[name] = [Elements((), np.array([number]), np.array([END]))]
        for elements in sent[name]:
            made.take(name, elements)
    packets = list(made.packets(3))
    assert {p.shard for p in packets} == {3}
    together = [p for p in packets if p.kind == FewOfMany()]
    assert len(packets) < 100 and len(together) > 3 and all(len(p.blob) < 40_000 for p in together)
    found = in_packets(packets)
    assert found.keys() == sent.keys()
    for name, pieces in sent.items():
        assert str(rows_of(found[name])) == str(rows_of([PendingAnswer.of(e) for e in pieces]))
        assert [column.type for column in found[name][0].take().columns] == [c.type for c in pieces[0].columns]


SUMS = STREAM + "".join(
    f"CREATE QUERY q{n} INTO MEMORY () AS SELECT RSTREAM(k, COUNT(*) AS n, {n} AS q) FROM S "
    f"[RANGE {n * 5} MILLISECONDS SLIDE {n} MILLISECONDS] GROUP BY k;"
    for n in range(1, 9)
)


def test_standing_sums_leave_a_stage_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a batch in which windows tell a hundred times what they hold: what waits and what a window makes at
    once stays small, whatever all of them tell."""
    monkeypatch.setattr(window_sums, "PIECE", 500)
    monkeypatch.setattr(telling, "LARGE", 20_000)
    keys, instants = 100, 400
    ts = np.repeat(np.arange(instants), keys)
    table = pa.table({"ts": ts, "k": np.tile(np.arange(keys), instants), "s": pa.nulls(len(ts), pa.string())})
    queries = list(bind_script(SUMS).queries)
    expected = run_local(queries, {"S": table}).tables
    job = LocalJob(plan_queries(queries), {})
    (executor,) = job.stages[0]
    most = 0
    with SpillFiles(str(tmp_path), 0) as parcels:
        made = AnswerWriter(parcels)

        def take(query: str, elements: Elements) -> None:
            nonlocal most
            assert len(elements) <= 500
            made.take(query, elements)
            most = max(most, sum(made._bytes.values()))

        run = executor.run
        monkeypatch.setattr(executor, "run", lambda inputs, progress, **_: run(inputs, progress, take))
        monkeypatch.setattr("penstock.runtime.local.runtime.LocalJob", lambda *args: job)
        assert all(t.num_rows == 0 for t in run_local(queries, {"S": table}).tables.values())
        found = {name: [one.take() for one in chunks] for name, chunks in in_packets(made.packets(0)).items()}
    written = sum(f.stat().st_size for f in tmp_path.rglob("*.arrow"))
    assert most < 8 * 20_000 and written > 20 * 20_000
    assert sum(t.num_rows for t in expected.values()) > 100_000
    for query in queries:
        assert answer_table(query, found[query.name]).equals(expected[query.name])


@pytest.mark.parametrize("format_", ["csv", "json", "parquet"])
def test_a_file_of_pieces_is_the_file_of_the_whole(format_: str, tmp_path: Path) -> None:
    draw = random.Random(1)
    whole = answer_table(QUERY, [piece(draw, 0, 9, 50, True, False)])
    files = []
    for name in ("whole", "pieces"):
        into = f"INTO FILES (path '{tmp_path / name}', format '{format_}')"
        text = f"CREATE QUERY q {into} AS SELECT RSTREAM(k, s) FROM S [RANGE 10 MILLISECONDS];"
        (query,) = bind_script(STREAM + text).queries
        sink = open_sink(query)
        sink.open(False, False)
        cuts = [(0, 50)] if name == "whole" else [(0, 20), (20, 20), (40, 10)]
        sink.write_pieces(0, iter([whole.slice(*cut) for cut in cuts]))
        (part,) = (tmp_path / name).glob("part-*")
        files.append(part)
    if format_ == "parquet":
        assert pq.read_table(files[0]).equals(pq.read_table(files[1]))
        assert pq.read_metadata(files[1]).num_row_groups == 3
    else:
        assert files[0].read_bytes() == files[1].read_bytes()
