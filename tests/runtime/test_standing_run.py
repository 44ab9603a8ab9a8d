"""A run that stands as a server's does: without queries, with sources that nobody reads, and with commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from inline_run import CRASHES, InlineRun, cold, declared, write_files
from test_change import FILES, SECOND, calm, check_joined, result, script, undisturbed

from penstock.algebra.nodes.query import Start, StartMode
from penstock.errors import PenstockError
from penstock.runtime.spark.version import stored_version

__all__ = ["calm", "undisturbed"]

NOW, BEGINNING = Start(), Start(StartMode.BEGINNING)


def standing(tmp: Path, *names: str, **options: Any) -> InlineRun:
    """A start with the stream S declared, whoever reads it."""
    text = script(tmp, *names)
    return InlineRun(text, tmp / "checkpoint", standing=True, declared=declared(text), **options)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_a_run_begins_without_queries(calm: Path, crash: str | None) -> None:
    run = standing(calm)
    if crash is not None:
        run.run(2, crash)
        cold()
        run = standing(calm)
        assert run.decision.kind.value == "same"
    while run.folder.delivered().batch < 2:
        run.go(1)
    # The outstanding round is done first.
    run.change(script(calm, "best", "sums", "pairs"), starts={"sums": BEGINNING})
    run.run()
    # Four rounds have read four files, though nobody was there to read them.
    check_joined(calm, 4)


def test_the_last_query_may_go(calm: Path) -> None:
    run = standing(calm, "sums").go(2)
    run.change(script(calm)).go(2)
    assert run.job.plan.steps == () and run.accounts.batches == 5
    run.change(script(calm, "sums", "pairs"), overwrite=True, starts={"sums": BEGINNING}).run()
    assert result(calm, "sums") == result(calm, "sums", "calm")
    assert not run.ended


def test_a_run_without_input_waits_for_a_command(calm: Path) -> None:
    run = InlineRun(script(calm), calm / "checkpoint", standing=True).go(1)
    assert not run.pending()
    run.change(script(calm, "sums"))
    assert run.pending()
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_a_run_that_does_not_stand_may_lose_its_last_query_too(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(2)
    run.change(script(calm)).go(1)
    assert not run.pending() and not run.ended
    run.change(script(calm, "sums"), overwrite=True).run()
    assert run.ended
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_where_a_query_begins_does_not_depend_on_the_others(calm: Path) -> None:
    alone = standing(calm).go(3)
    alone.change(script(calm, "best")).run()
    cold()
    text = script(calm, "sums", out="among")
    among = InlineRun(text, calm / "among-checkpoint", standing=True, declared=declared(text)).go(3)
    among.change(script(calm, "sums", "best", out="among")).run()
    assert result(calm, "best") == result(calm, "best", "among")
    assert len(result(calm, "best")) > 10


def test_an_unread_source_is_counted_and_not_decoded(calm: Path) -> None:
    run = standing(calm).run()
    counts = run.accounts.progress(run.job.plan, run.job.plan.sources, run.sinks, {}, {})
    assert counts.rows_in == FILES * 20
    totals = run.accounts.totals({}, {}, 0)
    assert totals.passed == {"S": FILES * 20}
    assert run.job.intake.unread == {"S"}


def test_a_source_of_which_no_row_may_be_skipped_moves_on_too(calm: Path) -> None:
    text = script(calm).replace("CREATE STREAM", "CREATE RELATION").replace("x BIGINT)", "x BIGINT, PRIMARY KEY (k))")
    run = InlineRun(text, calm / "checkpoint", standing=True, declared=declared(text)).run()
    assert run.heartbeats is not None and run.accounts.batches >= FILES


def test_each_query_has_a_start_of_its_own(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    run.change(script(calm, "sums", "best", "pairs", "last"), starts={"last": BEGINNING, "best": NOW}).run()
    assert [n for n in run.notices if "begin" in n or "past" in n]
    assert result(calm, "last") == result(calm, "last", "calm")
    check_joined(calm, 4)


@pytest.mark.parametrize("again", ["same", "crash"])
def test_a_start_after_a_crash_finds_the_starts_of_its_queries(calm: Path, again: str) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    later = script(calm, "sums", "last", "best")
    starts = {"last": BEGINNING}
    run.change(later, starts=starts, crash=again == "crash")
    cold()
    run.rounds.stop()
    run = InlineRun(later, calm / "checkpoint")
    assert run.decision.kind.value == "same" and run.decision.epoch.backfill == ["last"]
    run.run()
    assert result(calm, "last") == result(calm, "last", "calm")


def test_a_past_that_nothing_provides_is_refused(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    first = min((calm / "data").iterdir())
    first.rename(calm / "away")
    with pytest.raises(PenstockError, match=r"source S: .* is gone") as refused:
        run.change(script(calm, "sums", "best"), starts={"best": BEGINNING})
    assert refused.value.code == "P0401"
    (calm / "away").rename(first)
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_a_source_without_a_past_provides_any(calm: Path) -> None:
    """What begins with its source needs no past."""
    write_files(calm / "more", range(4))
    alone = SECOND.format(path=calm / "more", out=calm / "alone" / "of_t", more="")
    both = SECOND.format(path=calm / "more", out=calm / "out" / "of_t", more="")
    InlineRun("SET max_batch_bytes = 1; SET shards = 2;" + alone, calm / "alone-checkpoint").run()
    cold()
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    run.change(script(calm, "sums") + both, starts={"of_t": Start(StartMode.WARM)}).run()
    assert run.decision.epoch.backfill == []
    assert result(calm, "of_t") == result(calm, "of_t", "alone")


def test_a_version_tells_the_commands_that_it_contains(calm: Path) -> None:
    assert stored_version(calm / "checkpoint") is None
    run = standing(calm, command=2).go(2)
    run.change(script(calm, "sums"), command=5, outcomes={"4": "done", "5": {"state": "running"}})
    stored = stored_version(calm / "checkpoint")
    assert stored is not None
    assert (stored.number, stored.command, stored.batch) == (1, 5, 3)
    assert stored.outcomes == {"4": "done", "5": {"state": "running"}}
    # A command that changes no query is contained too, in the version that stands.
    run.change(script(calm, "sums"), command=6, outcomes={"6": "done"})
    stored = stored_version(calm / "checkpoint")
    assert stored is not None and (stored.number, stored.command, stored.outcomes) == (1, 6, {"6": "done"})
    # A start that knows of no commands leaves them as they are.
    run.rounds.stop()
    cold()
    run = InlineRun(script(calm, "sums"), calm / "checkpoint", standing=True, declared=declared(script(calm)))
    assert run.decision.epoch.command == 6
    run.change(script(calm, "sums", "best"))
    stored = stored_version(calm / "checkpoint")
    assert stored is not None and (stored.number, stored.command) == (2, 6)
    run.rounds.stop()


def test_a_crash_shows_whether_a_command_was_applied(calm: Path) -> None:
    run = standing(calm, "sums", command=1).go(2)
    run.change(script(calm, "sums", "best"), command=2, crash=True)
    applied = stored_version(calm / "checkpoint")
    assert applied is not None and applied.command == 2
    cold()
    run = standing(calm, "sums", "best", command=2)
    assert run.decision.kind.value == "same"
    first = min((calm / "data").iterdir())
    first.rename(calm / "away")
    with pytest.raises(PenstockError, match="P0401"):
        run.change(script(calm, "sums", "best", "pairs"), command=3, starts={"pairs": BEGINNING})
    (calm / "away").rename(first)
    refused = stored_version(calm / "checkpoint")
    assert refused is not None and refused.command == 2
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")
