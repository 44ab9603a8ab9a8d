"""A run that sheds and dies anywhere sheds the same as one that lives: memory, and what was decided by measuring."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_run import CRASHES, InlineRun, lived, write_files

from penstock.physical.decisions import NO_DECISIONS, WHOLE, Decided, Decisions
from penstock.runtime.spark.checkpoint.epochs import OFFSET
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.input import input_planner

_QUERIES = {
    "cpu": "cpu '0.1'",
    "both": "cpu '0.1', memory '12 TUPLES', shed 'cals_q', error_sample '30%'",
    "shared": "shed 'random'",
    "runs": "cpu '0.1', memory '9 TUPLES'",
    "open": "memory '14 TUPLES', compact 'false'",
    "closed": "cpu '0.1', compact 'false'",
}


_ALONE = "S (x) VALID FOR 3 SECONDS [RANGE 40 SECONDS]"
_OTHERS = {
    "runs": "S (x) [RANGE 40 SECONDS SLIDE 4 SECONDS]",
    "open": "S [PARTITION BY x SESSION 9 SECONDS OPEN]",
    "closed": "S [PARTITION BY x SESSION 9 SECONDS AT MOST 20 SECONDS]",
}


def script(folder: Path) -> str:
    queries = "\n".join(
        f"CREATE QUERY {name} INTO FILES (path '{folder}/{name}', format 'csv') WITH ({said}) AS"
        f" SELECT x, VALID(s) FROM {_OTHERS.get(name, _ALONE)} AS s;"
        for name, said in _QUERIES.items()
    )
    return f"""SET state_limit = '1 MB';
    SET state_limit_action = 'shed';
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{folder.parent}/data', format 'parquet')
        TIMESTAMP BY ts UNIT SECOND;
    SET max_batch_rows = 20;
    {queries}"""


class Measuring:
    """Decides differently at every call, as a clock would: a round that was decided twice would show."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, before: Decisions) -> Decisions:
        self.calls += 1
        threshold = max(WHOLE // 3, WHOLE - self.calls * (WHOLE // 9))
        budget = 88 * (6 + self.calls * 5 % 7)
        decided = before.with_all(Decided.KEEP_BELOW, dict.fromkeys(("cpu", "both", "runs", "closed"), threshold))
        return decided.with_all(Decided.STATE_BUDGET, {"shared": budget})


def live(folder: Path, monkeypatch: pytest.MonkeyPatch, crash: str | None) -> tuple[dict[str, list[str]], int]:
    """Run over all input, with a death in every second round; return what was emitted, and the decisions made."""
    folder.mkdir(parents=True)
    measuring = Measuring()
    monkeypatch.setattr(input_planner, "_as_before", measuring)
    return lived(script(folder), folder, _QUERIES, crash), measuring.calls


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], int]:
    folder = tmp_path_factory.mktemp("calm")
    write_files(folder / "data", range(8))
    with pytest.MonkeyPatch.context() as patched:
        return live(folder / "living", patched, None)


@pytest.mark.spread(2)
@pytest.mark.parametrize("crash", [*CRASHES, "marked"])
def test_a_run_that_dies_sheds_what_one_that_lives_sheds(
    crash: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expected: tuple[dict[str, list[str]], int]
) -> None:
    answers, decisions = expected
    assert all(answers.values()) and decisions >= 8
    write_files(tmp_path / "data", range(8))
    assert live(tmp_path / "dying", monkeypatch, crash) == expected


def test_what_was_decided_stands_in_the_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "data", range(3))
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(input_planner, "_as_before", Measuring())
    run = InlineRun(script(tmp_path / "run"), tmp_path / "run" / "checkpoint")
    run.go(2)
    run.rounds.stop()
    mark = Folder(tmp_path / "run" / "checkpoint" / "penstock").read_mark(OFFSET)
    assert mark is not None
    found = Offset.from_json(mark)
    once = Measuring()(NO_DECISIONS)
    assert found.decided.every(Decided.KEEP_BELOW).keys() == once.every(Decided.KEEP_BELOW).keys()
    assert found.decided.least(Decided.KEEP_BELOW) == WHOLE - 3 * (WHOLE // 9)
