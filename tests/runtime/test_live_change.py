"""The queries of a run change while it goes on: what stays goes on exactly, wherever the run dies."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from inline_run import CRASHES, InlineRun, cold, write_files
from test_change import FILES, QUERIES, SECOND, calm, check_joined, result, script, undisturbed

from penstock.connectors.sinks.files import FilesSink
from penstock.errors import PenstockError
from penstock.physical.plan.identity import query_fingerprint
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.changes import planned_epoch
from penstock.runtime.spark.checkpoint.epochs import latest_epoch, read_epoch
from penstock.runtime.spark.output.totals import RunTotals
from penstock.runtime.spark.worker import stage

__all__ = ["calm", "undisturbed"]


@pytest.mark.parametrize("seed", range(3))
def test_queries_come_and_go_while_the_others_go_on(calm: Path, seed: int) -> None:
    draw = random.Random(seed)
    whole = draw.choice(sorted(QUERIES))
    others = sorted(QUERIES.keys() - {whole})

    def drawn() -> str:
        names = [*draw.sample(others, draw.randint(0, 3)), whole]
        draw.shuffle(names)
        return script(calm, *names)

    run = InlineRun(drawn(), calm / "checkpoint", overwrite=True)
    for _ in range(4):
        run.go(draw.randint(0, 1))
        if draw.random() < 0.4:
            cold()
        run.change(drawn(), overwrite=True)
    run.change(script(calm, whole)).run()
    assert run.ended
    assert result(calm, whole) == result(calm, whole, "calm")


@pytest.mark.parametrize("name", QUERIES)
def test_operators_stay_in_memory(calm: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No state is read from files where a worker holds it, whatever else begins and ends."""
    other = next(n for n in QUERIES if n != name)
    run = InlineRun(script(calm, other, name), calm / "checkpoint").go(3)
    monkeypatch.setattr(stage, "restore", lambda *rest: pytest.fail("the state was read"))
    third = next(n for n in QUERIES if n not in (name, other))
    run.change(script(calm, third, name)).run()
    assert result(calm, name) == result(calm, name, "calm")


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_a_new_query_sees_what_comes_from_here_on(calm: Path, crash: str | None) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    later = script(calm, "best", "sums", "pairs")
    run.change(later)
    assert len(run.notices) == 2 and "sees only what its sources give from here on" in run.notices[0]
    if crash is not None:
        # The first round with the new queries dies.
        run.run(0, crash)
        cold()
        run = InlineRun(later, calm / "checkpoint")
        assert run.decision.kind.value == "same"
    run.run()
    check_joined(calm, 4)


@pytest.mark.parametrize("again", ["before", "after"])
def test_a_change_that_is_on_disk_has_happened(calm: Path, again: str) -> None:
    """A start after a crash may have either script: a query that both have goes on."""
    scripts = {"before": script(calm, "sums", "best"), "after": script(calm, "sums", "pairs")}
    run = InlineRun(scripts["before"], calm / "checkpoint").go(3)
    run.change(scripts["after"], crash=True)
    cold()
    run = InlineRun(scripts[again], calm / "checkpoint", overwrite=True).run()
    assert run.ended
    assert result(calm, "sums") == result(calm, "sums", "calm")
    if again == "before":
        assert result(calm, "best") == result(calm, "best", "calm")


def test_a_query_that_reads_its_past_is_as_if_it_had_always_been(calm: Path) -> None:
    names = [name for name in QUERIES if name != "sums"]
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    run.change(script(calm, *names, "sums"), backfilled=True).run()
    for name in QUERIES:
        assert result(calm, name) == result(calm, name, "calm"), name


def test_a_change_that_fails_changes_nothing(calm: Path) -> None:
    (calm / "out" / "best").mkdir(parents=True)
    (calm / "out" / "best" / "part-00000.parquet").write_bytes(b"somebody's")
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    with pytest.raises(PenstockError) as failed:
        run.change(script(calm, "sums", "best"))
    assert failed.value.code == "P0501"
    assert (calm / "out" / "best" / "part-00000.parquet").read_bytes() == b"somebody's"
    latest = latest_epoch(run.folder)
    assert latest is not None and latest.number == 0
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_what_a_failed_change_has_answered_of_the_past_is_withdrawn(
    calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="nobody foresaw"):
        patch.setattr(RunTotals, "backfilled", raising(RuntimeError("nobody foresaw it")))
        run.change(script(calm, "sums", "best"), backfilled=True)
    assert not list((calm / "out" / "best").glob("part-*"))
    run.change(script(calm, "sums", "best"), backfilled=True).run()
    for name in ("sums", "best"):
        assert result(calm, name) == result(calm, name, "calm"), name


def test_a_result_that_cannot_be_withdrawn_hides_no_error(
    calm: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(3)
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="nobody foresaw"):
        patch.setattr(RunTotals, "backfilled", raising(RuntimeError("nobody foresaw it")))
        patch.setattr(FilesSink, "withdraw", raising(ValueError("nor this")))
        run.change(script(calm, "sums", "best"), backfilled=True)
    assert "what query best has answered of the past stays in" in caplog.text and "nor this" in caplog.text
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def raising(error: Exception) -> Callable[..., None]:
    def raise_it(*_: Any, **__: Any) -> None:
        raise error

    return raise_it


def test_what_does_not_matter_changes_nothing(calm: Path) -> None:
    run = InlineRun(script(calm, "sums", "best"), calm / "checkpoint").go(2)
    run.change(script(calm, "best", "sums", more="SET target_latency = '3 SECONDS';"))
    assert run.job.epoch == 0
    run.run()
    assert result(calm, "best") == result(calm, "best", "calm")


def test_versions_share_one_log_and_older_ones_are_forgotten(calm: Path) -> None:
    run = InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").go(2)
    run.change(script(calm, "sums"))
    root = calm / "checkpoint" / "penstock"
    assert sorted(p.name for p in (root / "epochs").iterdir()) == ["0000.json", "0001.json"]
    assert read_epoch(run.folder, 1).base == 3
    run.go(2)
    assert [p.name for p in (root / "epochs").iterdir()] == ["0001.json"]
    run.run()
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_sources_come_and_go(calm: Path) -> None:
    write_files(calm / "more", range(4))
    alone = SECOND.format(path=calm / "more", out=calm / "alone" / "of_t", more="")
    both = SECOND.format(path=calm / "more", out=calm / "out" / "of_t", more="")
    InlineRun("SET max_batch_bytes = 1; SET shards = 2;" + alone, calm / "alone-checkpoint").run()
    cold()
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").go(2)
    run.change(script(calm, "sums") + both).go(2)
    run.change(script(calm, "sums")).go(1)
    # What reads the source again begins with all of it.
    run.change(script(calm, "sums") + both, overwrite=True).run()
    assert result(calm, "of_t") == result(calm, "of_t", "alone")
    assert result(calm, "sums") == result(calm, "sums", "calm")


def test_a_run_that_has_ended_cannot_change(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint").run()
    with pytest.raises(PenstockError) as failed:
        run.change(script(calm, "sums", "best"))
    assert failed.value.code == "P0701"


def test_all_input_is_read_once(calm: Path) -> None:
    run = InlineRun(script(calm, "sums"), calm / "checkpoint")
    for names in (("best",), ("best", "pairs"), ("pairs",), ("pairs", "last")):
        run.change(script(calm, "sums", *names), overwrite=True)
    run.run()
    assert run.accounts.progress(run.job.plan, run.job.plan.sources, run.sinks, {}, {}).rows_in == FILES * 20


def test_a_change_plans_only_what_it_adds(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InlineRun(script(calm, "sums", "best"), calm / "checkpoint").go(1)
    run.change(script(calm, "sums", "best", "last"))
    planned: list[str] = []

    def fingerprint(plan: Plan, query: str) -> str:
        planned.append(query)
        return query_fingerprint(plan, query)

    monkeypatch.setattr(planned_epoch, "query_fingerprint", fingerprint)
    run.change(script(calm, "sums", "best", "pairs", "last"))
    assert planned == ["pairs"]
    # What is gone is forgotten, and planned again when it comes back.
    run.change(script(calm, "sums", "best"))
    run.change(script(calm, "sums", "best", "pairs"), overwrite=True).run()
    assert planned == ["pairs", "pairs"]
    for name in ("sums", "best"):
        assert result(calm, name) == result(calm, name, "calm")
