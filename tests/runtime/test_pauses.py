"""Queries are paused and go on: with their state, whose answers are withheld, or without, into the same result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from inline_run import CRASHES, InlineRun, cold
from test_change import calm, result, script, undisturbed

from penstock.algebra.nodes.query import Start, StartMode
from penstock.errors import PenstockError
from penstock.runtime.spark.version import stored_version

__all__ = ["calm", "undisturbed"]

NAMES = ("sums", "best", "pairs", "values_seen", "last")
#: They are silent; `sums` and `last` are not.
SILENT = frozenset({"best", "pairs", "values_seen"})
#: The heartbeat when they are shown again, and the last instant of which something was emitted before they were silent.
SHOWN, SEEN = 138, 79


def started(tmp: Path, *names: str, **options: Any) -> InlineRun:
    return InlineRun(script(tmp, *names), tmp / "checkpoint", live=True, pause_failed=True, **options)


def check_shown(tmp: Path) -> None:
    """Check the results of queries that were silent between `SEEN` and `SHOWN`."""
    for name in NAMES:
        whole, told = result(tmp, name, "calm"), result(tmp, name)
        if name not in SILENT:
            assert told == whole, name
            continue
        assert [r for r in told if r[0] > SHOWN] == [r for r in whole if r[0] > SHOWN], name  # type: ignore[operator]
        before = [r for r in told if r[0] <= SEEN]  # type: ignore[operator]
        assert before and set(before) <= set(whole), name
        between = [r for r in told if SEEN < r[0] <= SHOWN]  # type: ignore[operator]
        if name == "pairs":
            assert not between
            continue
        # The net difference, and nothing twice.
        assert {r[0] for r in between} == {SHOWN}
        net: Counter[object] = Counter()
        for _, op, *row in between:
            net[tuple(row)] += 1 if op == "+" else -1
        assert sum(map(abs, net.values())) == len(between)
        assert content(told) == content(whole), name


def content(events: list[tuple[Any, ...]]) -> Counter[object]:
    """The content of a relation at the heartbeat at which it is shown again."""
    rows: Counter[object] = Counter()
    for ts, op, *row in events:
        if ts <= SHOWN:
            rows[tuple(row)] += 1 if op == "+" else -1
    return +rows


@pytest.mark.spread(6)
@pytest.mark.parametrize("crash", [None, *CRASHES])
@pytest.mark.parametrize("at", [1, 0, 3])
def test_silent_queries_are_shown_again(calm: Path, crash: str | None, at: int) -> None:
    """at: the number of batches after the silence begins at which the run dies; 3: the first that is shown."""
    run = started(calm, *NAMES).go(3)
    run.change(script(calm, *NAMES), silent=SILENT)
    if crash is not None and at < 3:
        run.run(at, crash)
        cold()
        run = started(calm, *NAMES, silent=SILENT)
        assert run.decision.kind.value == "same"
    while run.folder.delivered().batch < 5:
        run.go(1)
    run.change(script(calm, *NAMES), silent=frozenset())
    if crash is not None and at == 3:
        run.run(0, crash)
        cold()
        run = started(calm, *NAMES)
        assert run.decision.kind.value == "same"
    run.run()
    assert run.ended
    check_shown(calm)


def test_a_silence_without_a_round_leaves_no_trace(calm: Path) -> None:
    run = started(calm, *NAMES).go(3)
    run.change(script(calm, *NAMES), silent=SILENT)
    run.rounds._pending_changes += 1
    run.rounds.stop()
    cold()
    started(calm, *NAMES).run()
    for name in NAMES:
        assert result(calm, name) == result(calm, name, "calm"), name


def test_a_paused_query_resumes_into_its_result(calm: Path) -> None:
    run = started(calm, "sums", "pairs").go(3)
    run.change(script(calm, "sums"), paused=frozenset({"pairs"})).go(1)
    assert all("pairs" not in step.queries for step in run.job.plan.steps)
    version = stored_version(calm / "checkpoint")
    assert version is not None and version.failed == {}
    before = result(calm, "pairs")
    run.change(script(calm, "sums", "pairs"), paused=frozenset(), starts={"pairs": Start()}).run()
    told = result(calm, "pairs")
    assert [row for row in told if row[0] <= SEEN] == before  # type: ignore[operator]
    # Six files were read when it began again; its windows were empty then.
    after = [row for row in told if row[0] > SEEN]  # type: ignore[operator]
    assert after and min(row[0] for row in after) >= 120  # type: ignore[type-var]
    whole = result(calm, "pairs", "calm")
    assert [r for r in told if r[0] >= 135] == [r for r in whole if r[0] >= 135]  # type: ignore[operator]
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_what_cannot_be_resumed_is_refused(calm: Path) -> None:
    run = started(calm, "sums", "best").go(3)
    run.change(script(calm, "sums"), paused=frozenset({"best"}))
    with pytest.raises(PenstockError, match="query best cannot") as refused:
        run.change(script(calm, "sums", "best"), paused=frozenset(), starts={"best": Start()})
    assert refused.value.code == "P0703"
    # Begun again, it is as any new query.
    run.options["starts"] = {"best": Start()}
    run.change(script(calm, "sums", "best"), paused=frozenset(), reset=frozenset({"best"})).run()
    assert min(row[0] for row in result(calm, "best")) >= 80  # type: ignore[type-var]
    assert result(calm, "sums") == result(calm, "sums", "calm")


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, "change", *CRASHES])
def test_a_pause_of_a_stream_is_made_up_for(calm: Path, crash: str | None) -> None:
    """BEGINNING goes on behind the instants that were answered, with what followed during the pause."""
    run = started(calm, "sums", "pairs").go(2)
    run.change(script(calm, "sums"), paused=frozenset({"pairs"})).go(2)
    text, starts = script(calm, "sums", "pairs"), {"pairs": Start(StartMode.BEGINNING)}
    run.change(text, paused=frozenset(), starts=starts, crash=crash == "change")
    if crash is not None:
        if crash != "change":
            run.run(0, crash)
        cold()
        run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True)
        assert run.decision.kind.value == "same"
    run.run()
    for name in ("sums", "pairs"):
        assert sorted(result(calm, name)) == sorted(result(calm, name, "calm")), name


DOUBLE = (
    "SELECT ISTREAM(a.x, b.x + b.x AS y) FROM S [NOW] AS a, S [RANGE 15 SECONDS] AS b WHERE a.k = b.k AND a.x < b.x"
)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_a_changed_query_continues_the_result(calm: Path, crash: str | None) -> None:
    run = started(calm, "sums", "pairs").go(2)
    text = script(calm, "sums", "pairs", pairs=DOUBLE)
    # Without a start it is another query, whose result is in the way; the outstanding round is done nevertheless.
    with pytest.raises(PenstockError) as refused:
        run.change(text)
    assert refused.value.code == "P0501"
    run.change(text, starts={"pairs": Start()})
    if crash is not None:
        run.run(0, crash)
        cold()
        run = InlineRun(text, calm / "checkpoint", live=True, pause_failed=True)
        assert run.decision.kind.value == "same"
    run.run()
    told, whole = result(calm, "pairs"), result(calm, "pairs", "calm")
    assert [r for r in told if r[0] <= SEEN] == [r for r in whole if r[0] <= SEEN]  # type: ignore[operator]
    cold()
    for number in range(4):
        (calm / "data" / f"part-{number:04d}.parquet").unlink()
    InlineRun(script(calm, "pairs", out="rest", pairs=DOUBLE), calm / "rest-checkpoint").run()
    assert [r for r in told if r[0] > SEEN] == result(calm, "pairs", "rest")  # type: ignore[operator]
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_a_changed_relation_begins_its_result_again(calm: Path) -> None:
    fewer = "SELECT x, k FROM S [RANGE 40 SECONDS] ORDER BY x DESC, k LIMIT 2"
    run = started(calm, "sums", "best").go(3)
    text = script(calm, "sums", "best", best=fewer)
    with pytest.raises(PenstockError, match="its result is the content of a relation") as refused:
        run.change(text, starts={"best": Start()})
    assert refused.value.code == "P0703"
    run.change(text, starts={"best": Start()}, reset=frozenset({"best"})).run()
    assert min(row[0] for row in result(calm, "best")) >= 80  # type: ignore[type-var]
