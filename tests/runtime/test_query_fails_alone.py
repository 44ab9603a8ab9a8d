"""A query that fails ends alone: the others have the answers that they would have without it, wherever the run dies."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_run import CRASHES, InlineRun, cold
from test_change import QUERIES, calm, result, undisturbed
from test_change import script as plain

from penstock.algebra.nodes.query import Start, StartMode
from penstock.connectors.sinks.files import FilesSink, read_result
from penstock.errors import PenstockError
from penstock.physical.operators import make_operator
from penstock.physical.operators.aggregates.pane_store import WindowSums
from penstock.physical.operators.windows.row_window import RowWindow
from penstock.runtime.spark.version import stored_version
from penstock.testing import samples

__all__ = ["calm", "undisturbed"]

#: They fail at the first row with ts > 95, which is in the fifth file, at different places of the plan.
FAILING = {
    "ingest": "SELECT ISTREAM(k, checked(95 - ts) AS y) FROM S [NOW]",
    "selection": "SELECT ISTREAM(x) FROM S [RANGE 9 SECONDS] WHERE checked(95 - ts) >= 0",
    "aggregate": "SELECT RSTREAM(k, checked(95 - MAX(ts)) AS y) FROM S [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "join": "SELECT ISTREAM(a.x) FROM S [NOW] AS a, S [RANGE 15 SECONDS] AS b "
    "WHERE a.k = b.k AND checked(95 - b.ts) > a.x - 20",
}
#: The batch in which each of them fails.
FAILS_IN = {"ingest": 4, "selection": 4, "aggregate": 5, "join": 4}
FUNCTION = "CREATE FUNCTION checked RETURNS BIGINT AS 'penstock.testing.samples:checked';"
OTHERS = ("sums", "best", "pairs")
LATER = (*CRASHES, "marked", "left out")


def script(tmp: Path, *names: str, **changed: str) -> str:
    """The script with `q`, a query of its own text, and others."""
    return plain(tmp, *names, more=FUNCTION, **changed)


def last_instant(tmp: Path) -> int:
    """The largest ts in the result of `q`."""
    return int(read_result(str(tmp / "out" / "q"))["ts"].to_pylist()[-1])


def started(tmp: Path, failing: str, **options: Any) -> InlineRun:
    text = script(tmp, *OTHERS, "q", q=FAILING[failing])
    return InlineRun(text, tmp / "checkpoint", live=True, pause_failed=True, **options)


@pytest.mark.spread(2)
@pytest.mark.parametrize("failing", FAILING)
def test_the_others_go_on(calm: Path, failing: str) -> None:
    run = started(calm, failing).run()
    assert run.ended
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name
    assert {name: (f.code, f.batch) for name, f in run.failed.items()} == {"q": ("P0621", FAILS_IN[failing])}
    assert "query q: " in run.failed["q"].message and "is negative" in run.failed["q"].message
    assert all(step.queries <= set(OTHERS) for step in run.job.plan.steps)
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.number == 1 and version.failed == run.failed
    # Every answer before the round in which it failed stays, and nothing of that round is there.
    assert len(result(calm, "q")) > 0 and last_instant(calm) < 20 * FAILS_IN[failing]


@pytest.mark.spread(3)
@pytest.mark.parametrize("crash", LATER)
@pytest.mark.parametrize("failing", ["ingest", "aggregate"])
def test_a_crash_in_the_round_that_fails(calm: Path, failing: str, crash: str) -> None:
    started(calm, failing).run(FAILS_IN[failing], crash)
    cold()
    run = started(calm, failing).run()
    assert run.ended
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.failed.keys() == {"q"}
    assert last_instant(calm) < 20 * FAILS_IN[failing]


def test_a_failing_step_belongs_to_all_of_its_queries(calm: Path) -> None:
    text = script(calm, "sums", "q", "p", q=FAILING["aggregate"], p=FAILING["aggregate"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).run()
    assert run.failed.keys() == {"q", "p"} and "query p: " in run.failed["p"].message
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_an_error_of_any_kind_belongs_to_its_step(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script(calm, *QUERIES, "q", q=FAILING["aggregate"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).go(2)
    steps = run.job.plan.steps
    shared = {type(s.spec) for s in steps if s.queries != {"best"}}
    step = next(s for s in steps if s.queries == {"best"} and s.stage == 1 and type(s.spec) not in shared)
    kind = type(make_operator(step.spec, {}, 2, lambda *rest: pytest.fail("no nested plan")))
    whole = kind.process

    def process(self: Any, port: int, elements: Any) -> Any:
        if any(tick >= 60 for tick in elements.ts.tolist()):
            raise ZeroDivisionError("in an operator")
        return whole(self, port, elements)

    monkeypatch.setattr(kind, "process", process)
    run.run()
    assert run.failed["best"].code == "P0601"
    assert "query best: ZeroDivisionError: in an operator" in run.failed["best"].message
    assert "sums" not in run.failed
    assert result(calm, "sums") == result(calm, "sums", "calm")


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("where", ["__init__", "synopses", "attach"])
def test_an_error_outside_of_the_work_of_an_operator(
    calm: Path, monkeypatch: pytest.MonkeyPatch, where: str, late: bool
) -> None:
    """An operator that cannot be made, attached to what it reads, or written, in the first batch of its query or, where
    workers have lost their state, in a later one."""
    kind: Any = WindowSums if where == "attach" else RowWindow
    texts = {"q": "SELECT SUM(x) AS y FROM S [ROWS 7]"}
    if where == "attach":
        sums = "RSTREAM(SELECT k, SUM(x) AS y FROM S [RANGE {} SECONDS SLIDE 7 SECONDS] GROUP BY k)"
        texts = {"q": sums.format(21), "p": sums.format(14)}
    inner = getattr(kind, where)
    begun: list[int] = []

    def faulty(self: Any, *given: Any) -> Any:
        spec = given[0] if where == "__init__" else self._spec
        if begun and (spec.slide == 7 if where == "attach" else spec.rows == 7):
            raise ZeroDivisionError(f"at {where}")
        return inner(self, *given)

    monkeypatch.setattr(kind, where, faulty)
    run = InlineRun(script(calm, *OTHERS), calm / "checkpoint", live=True, pause_failed=True).go(1)
    begun += [] if late else [1]
    run.change(script(calm, *OTHERS, *texts, **texts)).go(1)
    if late:
        assert not run.failed
        begun.append(1)
        cold()
    run.run()
    assert {name: failure.code for name, failure in run.failed.items()} == dict.fromkeys(texts, "P0601")
    assert f"query q: ZeroDivisionError: at {where}" in run.failed["q"].message
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name


def test_a_function_that_takes_too_long(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(numbers: pa.Array) -> pa.Array:
        time.sleep(600)
        return numbers

    monkeypatch.setattr(samples, "checked", slow)
    text = "SET function_timeout = '100 ms';" + script(calm, *OTHERS, "q", q=FAILING["ingest"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).run()
    assert {name: failure.code for name, failure in run.failed.items()} == {"q": "P0621"}
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name


def test_without_isolation_the_run_stops(calm: Path) -> None:
    run = InlineRun(script(calm, "sums", "q", q=FAILING["aggregate"]), calm / "checkpoint", live=True)
    with pytest.raises(PenstockError, match="is negative"):
        run.run()
    run.rounds.stop()


def test_the_last_query_may_fail(calm: Path) -> None:
    text = script(calm, "q", q=FAILING["aggregate"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True, standing=True).run()
    assert run.failed and run.job.plan.steps == () and not run.pending()
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True, standing=True)
    assert run.job.plan.queries == {}
    run.change(script(calm, "sums")).run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_who_has_not_heard_of_the_failure_changes_the_run_without_it(calm: Path) -> None:
    run = started(calm, "ingest").go(5)
    assert run.failed
    run.change(script(calm, *OTHERS, "q", "last", q=FAILING["ingest"]))
    assert "q" not in run.job.plan.queries and "last" in run.job.plan.queries
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.failed.keys() == {"q"}
    # It is dropped as any other query.
    run.change(script(calm, *OTHERS)).run()
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.failed == {}
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_a_query_that_failed_is_resumed_into_its_result(calm: Path, crash: str | None) -> None:
    fixed = "SELECT ISTREAM(k, checked(1000 - ts) AS y) FROM S [NOW]"
    run = started(calm, "ingest").go(5)
    before = result(calm, "q")
    text = script(calm, *OTHERS, "q", q=fixed)
    run.change(text, starts={"q": Start()})
    if crash is not None:
        run.run(0, crash)
        cold()
        run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True)
    run.run()
    assert run.ended
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.failed == {}
    after = [row for row in result(calm, "q") if row not in before]
    # The round in which it failed and the one that was outstanding are not answered.
    assert [row[0] for row in after] == list(range(120, 160))
    assert {row[0] for row in before} == set(range(80))
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name


@pytest.mark.spread(2)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("tick", [70, 85, 98, 99])
def test_a_query_that_failed_answers_the_round_in_which_it_failed(calm: Path, tick: int, left: bool) -> None:
    """Its sink has the rounds before that one alone. left: it was left out for a while."""
    fixed = "SELECT ISTREAM(k, checked(1000 - ts) AS y) FROM S [NOW]"
    run = started(calm, "ingest").go(5)
    before = result(calm, "q")
    assert sorted(row[0] for row in before) == list(range(80))
    if left:
        run.change(script(calm, *OTHERS), paused=frozenset({"q"}))
    run.change(script(calm, *OTHERS, "q", q=fixed), starts={"q": Start(StartMode.AT, tick)}).run()
    assert run.ended
    assert sorted(row[0] for row in result(calm, "q")) == [*range(80), *range(max(80, tick + 1), 160)]


class BrokenSink(FilesSink):
    """A sink that takes nothing of the third batch."""

    broken = True

    def write_pieces(self, batch: int, pieces: Any) -> None:
        if self.query.name == "q" and batch == 3 and BrokenSink.broken:
            raise ConnectionError("the disk is away")
        super().write_pieces(batch, pieces)

    def write(self, batch: int, table: pa.Table) -> None:
        if self.query.name == "q" and batch == 3 and BrokenSink.broken:
            raise ConnectionError("the disk is away")
        super().write(batch, table)


@pytest.fixture
def broken_sink(monkeypatch: pytest.MonkeyPatch) -> type[BrokenSink]:
    monkeypatch.setattr("penstock.runtime.spark.output.recorded_sink.open_sink", BrokenSink)
    monkeypatch.setattr(BrokenSink, "broken", True)
    return BrokenSink


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *LATER])
def test_a_sink_that_fails_ends_its_query_alone(calm: Path, broken_sink: type[BrokenSink], crash: str | None) -> None:
    text = script(calm, *OTHERS, "q", q=QUERIES["pairs"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True)
    if crash is not None:
        run.run(3, crash)
        cold()
        run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True)
    while "q" in run.job.plan.queries:
        run.go(1)
    version = stored_version(calm / "checkpoint")
    assert version is not None
    assert (version.failed["q"].code, version.failed["q"].batch) == ("P0502", 3)
    kept = list((calm / "checkpoint" / "penstock" / "undelivered").rglob("*.arrow"))
    assert [path.name for path in kept] == ["000000003.arrow"]
    # While its sink does not take the answer, it cannot be resumed.
    with pytest.raises(PenstockError, match="the disk is away") as refused:
        run.change(text, starts={"q": Start()})
    assert refused.value.code == "P0502"
    assert [path.name for path in kept if path.exists()] == ["000000003.arrow"]


def test_what_a_sink_did_not_take_is_delivered_first(calm: Path, broken_sink: type[BrokenSink]) -> None:
    text = script(calm, *OTHERS, "q", q=QUERIES["pairs"])
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).go(4)
    assert "q" in run.failed
    broken_sink.broken = False
    run.change(text, starts={"q": Start()})
    assert not list((calm / "checkpoint" / "penstock").glob("undelivered/*"))
    run.run()
    whole, told = result(calm, "pairs", "calm"), result(calm, "q")
    # All of the batches up to the third, and nothing of the one that was outstanding.
    assert [row for row in told if row[0] < 80] == [row for row in whole if row[0] < 80]  # type: ignore[operator]
    assert not [row for row in told if 80 <= row[0] < 100]  # type: ignore[operator]
    for name in OTHERS:
        assert result(calm, name) == result(calm, name, "calm"), name


@pytest.mark.spread(2)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("tick", [50, 70, 79])
def test_what_a_sink_did_not_take_is_answered_once(
    calm: Path, broken_sink: type[BrokenSink], tick: int, left: bool
) -> None:
    """Also where the query reads the rows of that batch again."""
    text = script(calm, *OTHERS, "q", q="SELECT ISTREAM(k, checked(1000 - ts) AS y) FROM S [NOW]")
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).go(4)
    assert "q" in run.failed
    assert sorted(row[0] for row in result(calm, "q")) == list(range(60))
    broken_sink.broken = False
    if left:
        run.change(script(calm, *OTHERS), paused=frozenset({"q"}))
    run.change(text, starts={"q": Start(StartMode.AT, tick)}).run()
    assert sorted(row[0] for row in result(calm, "q")) == [*range(80), *range(max(80, tick + 1), 160)]


def test_a_change_that_fails_leaves_the_job_of_the_workers(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    job = (calm / "checkpoint" / "penstock" / "job.pickle").read_bytes()
    with pytest.raises(PenstockError, match="is negative"):
        run.change(script(calm, "sums", "q", q=FAILING["aggregate"].replace("95", "5")), backfilled=True)
    assert (calm / "checkpoint" / "penstock" / "job.pickle").read_bytes() == job
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_an_operator_that_needs_more_memory_than_there_is(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(self: Any, moment: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 1 failed")

    monkeypatch.setattr(RowWindow, "advance", short)
    text = script(calm, *OTHERS, "q", q="SELECT SUM(x) AS y FROM S [ROWS 7]")
    run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True).run()
    assert run.failed["q"].code == "P0601"
    assert "query q: an operator, RowWindow, needs more memory than its process has" in run.failed["q"].message
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_a_worker_takes_no_more_than_its_part_of_memory() -> None:
    code = """
from penstock.runtime.memory_limit import limit_worker
from penstock.runtime.result_limits import memory_of_machine
limit_worker()
try:
    bytearray(memory_of_machine())
except MemoryError:
    print("no more")
"""
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "no more\n"
    )
