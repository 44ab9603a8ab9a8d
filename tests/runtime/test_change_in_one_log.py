"""A script that changed between two starts goes on in the same log, wherever the run before or the start has died."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from inline_run import CRASHES, InlineRun, cold
from test_change import QUERIES, calm, result, script, undisturbed
from test_query_fails_alone import FAILING, FUNCTION

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.epochs import read_offset
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import LOSSES, PowerCut, PowerLost

__all__ = ["calm", "undisturbed"]


def check_whole(tmp: Path, *names: str) -> None:
    for name in names:
        assert result(tmp, name) == result(tmp, name, "calm"), name


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", CRASHES)
def test_a_round_of_a_plan_whose_script_is_gone(calm: Path, crash: str) -> None:
    """It is run with the plan that there is now. Its files were those of two tasks and are those of four."""
    more = f"""CREATE STREAM T (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{calm / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(3, crash)
    cold()
    run = InlineRun(script(calm, "sums", "best", more=more, best="SELECT ISTREAM(x) FROM T [NOW]"), calm / "checkpoint")
    assert run.epoch.number == 1 and run.epoch.base == run.batch == 3 + (crash == "marked")
    run.run()
    check_whole(calm, "sums")
    assert len(result(calm, "best")) == 8 * 20


def test_a_script_that_was_changed_twice_before_a_round_was_delivered(calm: Path) -> None:
    """The second change begins where the first one would have; a round that the first one planned is no more."""
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(3)
    cold()
    InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run(0, "between")
    cold()
    run = InlineRun(script(calm, "sums", "pairs", "last"), calm / "checkpoint")
    assert run.decision.fresh == ("last",) and run.epoch.number == 2
    assert read_offset(run.folder, 2) is None or read_offset(run.folder, 2) == run.rounds._offset
    run.run()
    check_whole(calm, "sums", "pairs")


def test_a_query_that_ends_its_run_is_mended(calm: Path) -> None:
    """The outstanding round cannot be finished with its plan: the query that fails in it is why the script changes."""
    broken = script(calm, "sums", "best", more=FUNCTION, best=FAILING["ingest"])
    with pytest.raises(PenstockError) as failed:
        InlineRun(broken, calm / "checkpoint", live=False).run()
    assert failed.value.code == "P0621"
    cold()
    mended = script(calm, "sums", "best", more=FUNCTION, best=FAILING["ingest"].replace("95 - ts", "995 - ts"))
    run = InlineRun(mended, calm / "checkpoint", overwrite=True, live=False)
    assert run.batch > 0
    assert run.run().ended
    check_whole(calm, "sums")
    assert min(int(str(row[0])) for row in result(calm, "best")) == 20 * run.epoch.base


def test_a_run_that_has_ended_goes_on_with_another_script(calm: Path) -> None:
    InlineRun(script(calm, "sums"), calm / "checkpoint").run()
    cold()
    run = InlineRun(script(calm, "sums", "best"), calm / "checkpoint").run()
    assert run.ended
    check_whole(calm, "sums")


@pytest.mark.parametrize("seed", range(2))
def test_changes_of_both_kinds(calm: Path, seed: int) -> None:
    """Starts with changed scripts and changes while the run goes on, with deaths in between."""
    draw = random.Random(seed)
    others = sorted(QUERIES.keys() - {"sums"})
    for crash in draw.sample([*CRASHES, "marked"], 4):
        names = [["sums", *draw.sample(others, draw.randint(0, 2))] for _ in range(2)]
        run = InlineRun(script(calm, *names[0]), calm / "checkpoint", overwrite=True)
        run.go(draw.randint(0, 1))
        run.change(script(calm, *names[1]), overwrite=True, crash=draw.random() < 0.3)
        if not run.rounds._stopped.is_set():
            run.run(draw.randint(0, 1), crash)
        cold()
    assert InlineRun(script(calm, "sums"), calm / "checkpoint").run().ended
    check_whole(calm, "sums")


def cut_a_change(calm: Path, crash: str | None, numbers: range) -> int:
    """Let power go at some calls of a start with a changed script and of its first round; return how often it did."""
    InlineRun(script(calm, "sums", "pairs"), calm / "checkpoint").run(3, crash)
    cold()
    for name in ("checkpoint", "out"):
        (calm / name).rename(calm / f"whole-{name}")
    cuts = 0
    for number in numbers:
        spare = calm / "spare"
        for folder in (calm / "checkpoint", calm / "out", spare):
            shutil.rmtree(folder, ignore_errors=True)
        for name in ("checkpoint", "out"):
            shutil.copytree(calm / f"whole-{name}", calm / name)
        spare.mkdir()
        cut = PowerCut(spare, number)
        with replaced_storage(LocalStorage(cut)):
            run = None
            try:
                run = InlineRun(script(calm, "sums", "best"), calm / "checkpoint")
                run.step()
            except PowerLost:
                cuts += 1
            finally:
                if run is not None:
                    run.rounds.stop()
        cut.lose(LOSSES[number % len(LOSSES)], random.Random(number), [calm / "checkpoint", calm / "out"])
        cold()
        # What comes then is that script, the one before, or another one.
        names = (["sums", "best"], ["sums", "pairs"], ["sums", "last"])[number % 3]
        assert InlineRun(script(calm, *names), calm / "checkpoint", overwrite=True).run().ended, number
        check_whole(calm, "sums")
        cold()
    return cuts


def test_power_that_goes_while_the_script_changes(calm: Path) -> None:
    assert cut_a_change(calm, "between", range(3, 400, 41)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("crash", [None, *CRASHES, "marked"])
def test_power_that_goes_at_every_call_while_the_script_changes(calm: Path, crash: str | None) -> None:
    assert cut_a_change(calm, crash, range(1, 500)) > 100
