"""Joins of several lengths over one store, in the files of a run: crashes, restarts, and checkpoints without stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_run import CRASHES, InlineRun, cold, write_files

from penstock.physical.planning import planner
from tests.runtime.test_shared_steps import count, events

FILES = 9
HEAD = """SET max_batch_bytes = 1; SET shards = 2;
CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{data}', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;"""


def script(tmp: Path, *lengths: int, out: str = "out") -> str:
    """A join of the stream with itself for each of some lengths."""
    text = HEAD.format(data=tmp / "data")
    for length in lengths:
        text += f"""CREATE QUERY pairs{length} INTO FILES (path '{tmp / out / f"pairs-{length}"}', format 'parquet') AS
          SELECT a.x, b.x AS y FROM S [RANGE {length} SECONDS] AS a, S [RANGE 9 SECONDS] AS b
          WHERE a.k = b.k AND a.x <> b.x;"""
    return text


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    cold()
    write_files(tmp_path / "data", range(FILES))
    for length in (12, 30):
        InlineRun(script(tmp_path, length, out="alone"), tmp_path / f"alone-{length}").run()
        cold()
    return tmp_path


def check(tmp: Path) -> None:
    for length in (12, 30):
        expected = events(tmp, f"pairs {length}", "alone")
        assert expected and events(tmp, f"pairs {length}") == expected


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [None, *CRASHES])
def test_a_longer_window_that_has_read_its_past_becomes_the_store_of_all(tmp: Path, crash: str | None) -> None:
    run = InlineRun(script(tmp, 12), tmp / "checkpoint", live=True).go(3)
    assert (count(run, "WindowStore"), count(run, "Join")) == (1, 1)
    run.change(script(tmp, 12, 30), backfilled=True)
    assert (count(run, "WindowStore"), count(run, "Join")) == (1, 2)
    if crash is not None:
        run.run(1, crash)
        cold()
        run = InlineRun(script(tmp, 12, 30), tmp / "checkpoint", live=True)
        assert run.decision.kind.value == "same" and count(run, "WindowStore") == 1
    run.run()
    check(tmp)


def test_the_store_goes_on_when_the_longest_query_ends(tmp: Path) -> None:
    run = InlineRun(script(tmp, 12), tmp / "checkpoint", live=True).go(2)
    run.change(script(tmp, 12, 30), backfilled=True).go(2)
    run.change(script(tmp, 12)).go(1).rounds.stop()
    cold()
    run = InlineRun(script(tmp, 12), tmp / "checkpoint", live=True)
    assert run.decision.kind.value == "same" and count(run, "WindowStore") == 1
    run.run()
    assert events(tmp, "pairs 12") == events(tmp, "pairs 12", "alone")


def test_joins_that_began_without_a_store_keep_their_state(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(planner, "shared_stores", lambda roots, always: {})
        run = InlineRun(script(tmp, 12), tmp / "checkpoint", live=True).go(3)
        assert count(run, "WindowStore") == 0
        run.rounds.stop()
    cold()
    run = InlineRun(script(tmp, 12), tmp / "checkpoint", live=True)
    assert run.decision.kind.value == "same" and count(run, "WindowStore") == 0
    run.go(1).change(script(tmp, 12, 30), backfilled=True)
    assert (count(run, "WindowStore"), count(run, "Join")) == (1, 2)
    run.run()
    check(tmp)
