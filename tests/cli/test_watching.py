"""What is shown of a run, and how it ends: with a run that is invented, so without Spark."""

from __future__ import annotations

import io
import os
import signal
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.cli.progress import Watcher, progress_line
from penstock.cli.running import watch
from penstock.errors import PenstockError
from penstock.runtime.monitoring.progress import QueryCounts, RunProgress, SourceCounts

PROGRESS = RunProgress(
    rows_in=12_345,
    rows_out=678,
    heartbeat="2013-01-01T05:00:00Z",
    rows_per_second=4_321.4,
    batches=7,
    sources={"flights": SourceCounts(12_345)},
    queries={"delays": QueryCounts(678, "2013-01-01T05:00:00Z", "results/delays")},
)


class InventedRun:
    """Ends at the `looks`-th look, fails then with `error`, or gets `signal_number` at the second look."""

    dead_letters = "checkpoint/dead-letters"

    def __init__(
        self, progress: RunProgress, looks: int = 3, error: PenstockError | None = None, signal_number: int = 0
    ) -> None:
        self.told, self.looks, self.error, self.signal_number = progress, looks, error, signal_number
        self.looked = 0
        self.stopped = False

    def wait(self, timeout: float | None = None) -> bool:
        self.looked += 1
        if self.signal_number and self.looked == 2:
            os.kill(os.getpid(), self.signal_number)
        if self.looked == self.looks and self.error is not None:
            raise self.error
        return self.looked >= self.looks

    def stop(self) -> None:
        self.stopped = True

    def progress(self) -> RunProgress:
        return self.told


def shown(run: InventedRun, terminal: bool = False) -> tuple[int, str]:
    """Exit code and what stood on standard error."""
    out = io.StringIO()
    code = watch(run, Watcher(Console(file=out, width=100, force_terminal=terminal, color_system=None)))
    return code, out.getvalue()


def test_the_progress_line() -> None:
    assert progress_line(PROGRESS) == "12,345 rows in · 678 rows out · heartbeat 2013-01-01T05:00:00Z · 4,321 rows/s"
    assert "heartbeat none yet" in progress_line(RunProgress())
    behind = replace(PROGRESS, sources={"flights": SourceCounts(12_345, waiting=64_000_000)})
    assert progress_line(behind).endswith(" · 4,321 rows/s · 64.0 MB waiting")


def test_several_sources_show_a_heartbeat_each() -> None:
    sources = {
        "flights": SourceCounts(10, heartbeat="2013-01-01T05:00:00Z"),
        "planes": SourceCounts(3),
        "weather": SourceCounts(2, heartbeat="ended"),
    }
    told = replace(PROGRESS, sources=sources)
    assert "heartbeat 2013-01-01T05:00:00Z (flights 2013-01-01T05:00:00Z, weather ended) ·" in progress_line(told)
    lines = [line.split() for line in shown(InventedRun(told))[1].splitlines()]
    assert ["flights", "10", "0", "0", "2013-01-01T05:00:00Z"] in lines
    assert ["planes", "3", "0", "0"] in lines


def test_a_run_that_ends_gives_a_summary() -> None:
    code, text = shown(InventedRun(PROGRESS))
    assert code == 0
    lines = [line.split() for line in text.splitlines()]
    assert ["flights", "12,345", "0", "0"] in lines
    assert ["delays", "678", "2013-01-01T05:00:00Z", "results/delays"] in lines
    assert "WARNING" not in text


def test_sessions_that_had_not_ended_are_in_the_summary() -> None:
    queries = {"visits": QueryCounts(3, place="o/visits", open_periods=2), "delays": QueryCounts(678)}
    text = shown(InventedRun(replace(PROGRESS, queries=queries)))[1]
    assert "visits: 2 periods had not ended, of sessions or under CLOSED; --drain" in " ".join(text.split())
    assert "delays: " not in text


def test_on_a_terminal_the_line_stays_in_place() -> None:
    assert "12,345 rows in" in shown(InventedRun(PROGRESS, looks=5), terminal=True)[1]


def test_the_line_in_place_is_away_while_results_are_written() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with Watcher(console) as watcher:
        live = watcher._status._live  # type: ignore[union-attr]
        assert live.is_started
        with watcher.paused():
            assert not live.is_started
        assert live.is_started
    with watcher.paused():
        assert not live.is_started


def test_late_and_malformed_rows_are_told_loudly() -> None:
    counts = SourceCounts(100, late=7, malformed=2, needed_slack="5 MINUTE", reasons={"no number: [x]": 2})
    code, text = shown(InventedRun(RunProgress(sources={"flights": counts})))
    assert code == 0
    assert "WARNING: 7 rows of flights came late" in text
    assert "ORDER WITHIN 5 MINUTE would have kept them" in text
    assert "WARNING: 2 rows of flights are malformed: 2 x no number: [x]" in text
    assert "dead letters: checkpoint/dead-letters" in text


def test_a_run_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = shown(InventedRun(PROGRESS, error=PenstockError("P0601", "the disk is full", hint="free space")))
    assert code == 1
    assert "12,345 rows in" in text
    assert capsys.readouterr().err == "error P0601: the disk is full\n  hint: free space\n"


def test_rows_of_a_backfill_are_told_apart() -> None:
    queries = {"old": QueryCounts(7, place="o/old"), "new": QueryCounts(1_006, place="o/new", backfilled=1_005)}
    lines = [line.split() for line in shown(InventedRun(RunProgress(queries=queries)))[1].splitlines()]
    assert ["query", "rows", "backfilled", "final", "to", "result"] in lines
    assert ["old", "7", "0", "o/old"] in lines and ["new", "1,006", "1,005", "o/new"] in lines
    assert "backfilled" not in shown(InventedRun(PROGRESS))[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_with_a_summary(number: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    run = InventedRun(PROGRESS, looks=1_000, signal_number=number)
    try:
        code, text = shown(run)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert code == 128 + number
    assert run.stopped
    assert run.looked == 2
    assert "delays" in text


def test_before_the_first_rows_it_is_said_once_what_is_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.progress._LINE_EVERY_SECONDS", 0.0)
    out = io.StringIO()
    watcher = Watcher(Console(file=out, width=100, color_system=None))
    watcher.phase("starting Spark")
    watcher.phase("starting Spark")
    for batches in (0, 0, 0, 1):
        watcher.show(replace(PROGRESS, batches=batches))
    assert out.getvalue().splitlines() == ["starting Spark", "first batch", progress_line(PROGRESS)]


def test_a_progress_line_is_printed_once_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.progress._LINE_EVERY_SECONDS", 0.0)
    _, text = shown(InventedRun(PROGRESS, looks=4))
    assert text.splitlines().count(progress_line(PROGRESS)) == 1


@pytest.mark.parametrize(("late", "kept"), [(1, "would have kept it."), (2, "would have kept them.")])
def test_the_advice_for_late_rows_counts_them(late: int, kept: str) -> None:
    counts = SourceCounts(100, late=late, needed_slack="5 MINUTE")
    assert kept in shown(InventedRun(RunProgress(sources={"flights": counts})))[1]


def test_rows_that_a_sink_refuses_are_told_loudly() -> None:
    queries = {
        "new": QueryCounts(
            1_006, place="table t", backfilled=5, refused={"text too long in column a": 2, "[x]": 1_000}
        ),
        "old": QueryCounts(7, place="table u", refused={"NULL in its key, column k": 1}),
    }
    code, text = shown(InventedRun(RunProgress(queries=queries)))
    assert code == 0
    assert (
        "WARNING: 1,002 rows of new cannot be written to table t: 2 x text too long in column a; 1,000 x [x]\n" in text
    )
    assert "WARNING: 1 row of old cannot be written to table u: 1 x NULL in its key, column k\n" in text
    assert text.count("dead letters: checkpoint/dead-letters") == 1
    assert "dead letters" not in shown(InventedRun(PROGRESS))[1]
