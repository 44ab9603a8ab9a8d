"""The benches still run: each over inputs so small that its figures mean nothing, its own checks of the answers do."""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks import answers, data, latency, pictures, records, run, standing
from benchmarks.constraints import runs as constraint_runs
from benchmarks.constraints.runs import KINDS
from benchmarks.constraints.watching import check
from benchmarks.live_overhead import TWINS, Measured
from benchmarks.paired import Pairs, verdict
from benchmarks.queries import QUERIES, STREAM
from benchmarks.run import problem_of
from benchmarks.sides import Account, processor_seconds
from benchmarks.twins import RESULTS, Twin, script_of
from penstock.language.scripts import bind_script
from penstock.physical.execution.progress import timed_sources
from penstock.runtime.local.runtime import run_local

RUNS = {
    "golab": "--windows 100 --measured 200 --step 100 --queries 2a",
    "slope": "--windows 1,2 --rate 20 --measured 4 --operators join",
    "aggregates": "--rows 2000 --batch 500 --windows 1",
    "multijoin": "--rows 300 --repetitions 1",
    "csql": "--quick --rows 2000 --round 1000 --repetitions 1",
    "temporal": "--quick --seeds 1",
    "promising": "--quick --seconds 70 --seeds 1",
    "frequent": "--starts 1 --packets 2000 --rows 2000",
    "constraints": "--orders 200 --waiting 10 --ks 0,5 --sizes 100,200 --pairs 1 --auctions 60",
    "equalities": "--rows 100,200",
    "floors": "--parts memory,window --rows 4000,8000 --operators aggregate --windows 1 --rate 20 --measured 4",
}


@pytest.mark.parametrize("name", RUNS)
def test_a_bench_of_operators_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, *RUNS[name].split()])
    # Before each measurement, among all that other tests have left.
    monkeypatch.setattr(gc, "collect", lambda: 0)
    try:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    except SystemExit as end:
        assert not end.code
    assert capsys.readouterr().out.strip()


def test_a_clock_that_does_not_move_gives_no_price(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock of a process may have ticks longer than a small batch."""
    options = RUNS["aggregates"].split()
    monkeypatch.setattr(sys, "argv", ["aggregates", *options, "2", "--only", "SUM", "COUNT"])
    monkeypatch.setattr(time, "process_time", lambda: 1.0)
    runpy.run_module("benchmarks.aggregates", run_name="__main__")
    assert capsys.readouterr().out.count("nan") == 2 * (2 * 2 + 1)


def test_figures_stand_beside_those_of_any_earlier_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kept = [json.loads(path.read_text()) for path in sorted(records.FOLDER.glob("*.json"))]
    before = [f for record in kept if record.get("bench", "queries") == "queries" for f in record["figures"]]
    assert len({frozenset(figure) for figure in before}) > 1, "all kept figures are of one form"
    now = run.Figure("q1", "penstock", 5_000_000, 9.0, 5.0, 1.0, 2**30, "answer")
    shown = run.table([now], before)
    (then,) = shown.columns[-1].cells
    (last,) = [f for f in before if (f["query"], f["side"], f["rows"]) == ("q1", "penstock", 5_000_000)][-1:]
    assert then == f"{last['rows'] / last['net_seconds']:,.0f}"
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    records.save("queries", "4g", [asdict(now)])
    assert records.last("queries") == [asdict(now)]


def test_pictures_of_equal_figures_are_equal(tmp_path: Path) -> None:
    times = {(every, length): 1.0 / every for every in (100, 1000) for length in (1, 10)}
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        pictures.ratios({"one": times, "other": times}, folder / "ratio.svg")
        pictures.mixed(times, times, folder / "mixed.svg")
    for name in ("ratio.svg", "mixed.svg"):
        drawn = (tmp_path / "a" / name).read_text()
        assert drawn == (tmp_path / "b" / name).read_text()
        assert "frequency" in drawn and "<dc:date>" not in drawn


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 rows, slower than the bench's, so that windows end, and between few hosts, so that they meet."""
    folder = tmp_path_factory.mktemp("data")
    for number, table in enumerate(data._tables(2_000)):
        ts = data.START_MS + (table["ts"].to_numpy() - data.START_MS) * 400
        slow = table.set_column(0, "ts", [ts]).set_column(2, "dst", [table["dst"].to_numpy() % np.int32(50)])
        pq.write_table(slow, folder / f"part-{number:02d}.parquet")
    return folder


@pytest.mark.parametrize("name", QUERIES)
def test_both_answers_of_a_query_of_the_bench_agree(name: str, rows: Path, tmp_path: Path) -> None:
    query = QUERIES[name]
    table = pq.read_table(rows)
    last = max(table["ts"].to_pylist())
    bound = bind_script(query.script(rows, tmp_path)).queries
    pq.write_table(run_local(bound, {"C": table}).tables[name], tmp_path / "answer.parquet")
    found = answers.result_checksum(tmp_path, query, last)
    assert found.rows > 0
    assert found == answers.reference_checksum(rows, query, last)


def test_an_answer_without_rows_is_not_taken_for_a_right_one() -> None:
    nothing, one = answers.Checksum(0, (0,), 0), answers.Checksum(1, (5,), 7)
    assert "too few rows" in problem_of(nothing, nothing) and "wrong answer" in problem_of(nothing, one)
    assert problem_of(one, one) == ""


def test_standing_sums_agree_with_their_reference(rows: Path, tmp_path: Path) -> None:
    queries = standing.standing(12)
    table = pq.read_table(rows)
    last = max(table["ts"].to_pylist())
    text = STREAM.format(data=rows) + "".join(query.cql(tmp_path) for query in queries)
    told = run_local(bind_script(text).queries, {"C": table}).tables
    for name, answer in told.items():
        pq.write_table(answer, tmp_path / f"{name}.parquet")
    found = answers.result_checksum(tmp_path, standing.PROBE, last)
    assert found.rows > 0
    assert found == standing.reference(rows, queries, last)


@pytest.mark.parametrize("case", latency.CASES, ids=lambda case: case.name)
def test_the_bench_of_latency_checks_its_answers(case: latency.Case, tmp_path: Path) -> None:
    for name in case.streams:
        (tmp_path / name).mkdir()
    rows = {name: [latency.drawn(n, 100, seed) for n in range(60)] for seed, name in enumerate(case.streams)}
    (query,) = bind_script(latency.script(case, tmp_path)).queries
    inputs = {}
    for name, parts in rows.items():
        every = np.concatenate(parts)
        ts = pa.array(every[:, 0]).cast(pa.timestamp("us", "UTC"))
        columns = [
            ts,
            *(pa.array(every[:, i], type_) for i, type_ in ((1, pa.int64()), (2, pa.int32()), (3, pa.int32()))),
        ]
        inputs[name] = pa.table(dict(zip(("ts", "id", "k", "v"), columns, strict=True)))
    result = run_local([query], inputs).tables[query.name]
    # The watched streams have not ended: sums at the newest instant wait, and a pair with what only `b` has come to.
    newest = pa.scalar(inputs["a"]["ts"][-1].as_py(), result["ts"].type)
    within = pc.less if case.name == "sums as changes" else pc.less_equal
    result = result.filter(within(result["ts"], newest))
    assert case.check(rows, result)
    assert not case.check(rows, result.slice(0, result.num_rows - 1))


def test_a_latency_ends_with_the_first_file_of_results_that_rows_are_seen_in(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    for number, ts in enumerate(("2020-09-13T12:26:40.1Z", "2020-09-13T12:26:40.6Z")):
        (tmp_path / "q" / f"part-{number:08d}.csv").write_text(f"ts,id\n2020-09-13T12:26:40Z,0\n{ts},1\n")
    named = [part.stat().st_ctime for part in sorted((tmp_path / "q").glob("part-*"))]
    found = latency.latencies(tmp_path, [named[0] - 1, named[1] - 3, named[1] - 2, named[1]])
    assert found[:3] == pytest.approx([1, 3, 2], abs=1e-3)
    assert found[3] == float("inf")


def test_pairs_show_a_small_overhead_where_the_machine_drifts() -> None:
    """Speed doubles and halves between pairs, far more than the 3 % that the second side takes more."""
    draw = np.random.default_rng(5)
    speed = np.exp(draw.normal(0, 0.5, 40))
    without, with_it = speed * draw.normal(1, 0.01, 40), 1.03 * speed * draw.normal(1, 0.01, 40)
    pairs = Pairs(without.tolist(), with_it.tolist())
    over = pairs.overhead
    assert over.low < 0.03 < over.high and over.high - over.low < 0.02
    assert verdict(over, 0.05) == "met" and verdict(over, 0.01) == "missed" and verdict(over, 0.03) == "open"
    assert over.low <= over.middle <= over.high
    # Medians of each side alone do not see it.
    assert max(without) / min(without) > 2


def test_a_few_disturbed_pairs_change_little() -> None:
    draw = np.random.default_rng(7)
    ratios = draw.normal(1.02, 0.05, 40)
    ratios[:4] *= 5
    over = Pairs([1.0] * 40, ratios.tolist()).overhead
    assert over.low < 0.02 < over.high and abs(over.middle - 0.02) < 0.02 and over.high - over.low < 0.06


def test_pairs_of_equal_sides_have_no_overhead() -> None:
    pairs = Pairs([2.0, 3.0, 4.0], [2.0, 3.0, 4.0])
    assert (pairs.overhead.low, pairs.overhead.middle, pairs.overhead.high) == (0.0, 0.0, 0.0)
    assert pairs.medians == (3.0, 3.0) and verdict(pairs.overhead, 0.0) == "met"
    assert Pairs([2.0], [2.5]).added.shown(0.001, 0) == "+500 [+500, +500]"


def test_what_a_server_costs_is_shown_in_one_line() -> None:
    measured = Measured("q1", 0.03)
    for seconds in (2.0, 2.2, 2.1):
        measured.add(Account(1, seconds, 10, 2 * seconds, 1.0), Account(2, 2 * seconds, 10, 4 * seconds, 1.0))
    figures = measured.figures()
    # The server took the same for each of two batches.
    assert figures["seconds"] == [2.1, 2.1] and figures["cpu_overhead"] == [0.0, 0.0, 0.0]
    assert figures["workers"] == [1.0, 0.5] and figures["workers_added"] == [-0.5, -0.5, -0.5]
    # Of the 4.2 s of processor time of a batch of the run.
    assert figures["workers_overhead"] == [-0.119, -0.119, -0.119]
    assert figures["seconds_verdict"] == "met" and figures["pairs"] == 3
    assert measured.row().startswith("q1") and "goal 3%" in measured.row()


@pytest.mark.parametrize("name", TWINS)
def test_twins_differ_in_what_they_compare(name: str, tmp_path: Path) -> None:
    query, both, _ = TWINS[name]
    scripts = [script_of(number, query, twin, tmp_path) for number, twin in enumerate(both)]
    bound = bind_script("".join(scripts), live=True)
    for number, (one, twin) in enumerate(zip(bound.queries, both, strict=True)):
        (source,) = timed_sources(one.root).values()
        assert (source.name, one.name) == (f"C{number}", f"{query.name}_{number}")
        assert (source.retain is not None) == bool(twin.retain)
        assert one.sink.connector == ("RESULTS" if twin.sink == RESULTS else "FILES")
    # But for the number and what is compared the statements are the same.
    plain = [script_of(0, query, Twin(), tmp_path) if twin == Twin() else None for twin in both]
    assert plain[0] == scripts[0] and (plain[1] is None) == (name != "same")
    second = scripts[1].replace(both[1].retain, "").replace(both[1].sink.format(path=tmp_path / "out"), Twin().sink)
    assert second.format(path=tmp_path / "out").replace("C1", "C0").replace("_1 ", "_0 ") == scripts[0]


def test_the_processor_time_of_a_process_has_no_ticks_of_10_ms() -> None:
    found = []
    for _ in range(20):
        until = time.process_time() + 0.003
        while time.process_time() < until:
            pass
        found.append(processor_seconds(os.getpid())[0])
    assert all(0.003 <= after - before < 0.5 for before, after in pairwise(found))


def test_an_answer_under_promises_that_is_not_complete_fails_the_bench() -> None:
    rows = KINDS["clustered"].rows(200, 20, k=1, late=0.2)
    found = constraint_runs.run(KINDS["clustered"], rows, k=1)
    assert 0 < found.complete < 1
    everywhere = np.ones(len(rows.fulfilments), np.bool_)
    with pytest.raises(AssertionError, match="by definition"):
        check(found.measured, rows.of_answer(everywhere), rows.fulfilments.t)
