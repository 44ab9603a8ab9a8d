"""A run under AUTO that dies anywhere emits what one that lives emits: no grant is decided twice."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inline_run import CRASHES, lived

from penstock.physical.decisions import Decided, Decisions
from penstock.runtime.spark.input import input_planner

SCRIPT = """SET target_latency = '2 s';
SET shards = 2;
SET max_batch_rows = 20;
CREATE STREAM A (ts BIGINT, k BIGINT, amount BIGINT) FROM FILES (path '{data}', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q INTO FILES (path '{folder}/q', format 'csv') AS SELECT {items}
  FROM {source}
  WITH PREFERENCE {preference} BUDGET AUTO;
"""
TWO = "A [RANGE 40 SECONDS] AS x, A [RANGE 20 SECONDS] AS y WHERE x.k = y.k"
THREE = "A [RANGE 40 SECONDS] AS x, A [RANGE 20 SECONDS] AS y, A [RANGE 9 SECONDS] AS z WHERE x.k = y.k AND y.k = z.k"
ROWS = "x.ts, x.amount, y.amount AS other"
ESTIMATES = "ESTIMATE(COUNT(*)) AS n, ESTIMATE(SUM(y.amount)) AS s, UPPER_BOUND(ESTIMATE(SUM(y.amount))) AS u"


class Granting:
    """Grants differently at every call, as a clock would."""

    def __init__(self, least: int = 10) -> None:
        self.calls, self.least = 0, least

    def __call__(self, before: Decisions) -> Decisions:
        self.calls += 1
        return before.with_all(Decided.UNITS, {"q": self.least + self.calls * 13 % 37})


def write(folder: Path) -> None:
    draw = random.Random(3)
    folder.mkdir()
    for number in range(7):
        ts = range(20 * number, 20 * number + 20)
        columns = {"ts": list(ts), "k": [draw.randrange(3) for _ in ts], "amount": [draw.randrange(100) for _ in ts]}
        pq.write_table(pa.table({n: pa.array(v, pa.int64()) for n, v in columns.items()}), folder / f"{number}.parquet")


def live(
    folder: Path,
    preference: str,
    monkeypatch: pytest.MonkeyPatch,
    crash: str | None,
    least: int = 10,
    items: str = ROWS,
    source: str = TWO,
) -> tuple[list[str], int]:
    """Run over all input, with a death in every second round; return what was emitted, and the decisions made."""
    folder.mkdir()
    script = SCRIPT.format(
        data=folder.parent / "data", folder=folder, preference=preference, items=items, source=source
    )
    granting = Granting(least)
    monkeypatch.setattr(input_planner, "_as_before", granting)
    return lived(script, folder, ["q"], crash)["q"], granting.calls


@pytest.mark.spread(2)
@pytest.mark.parametrize("preference", ["x.amount + y.amount", "WEIGHTED x.amount"])
def test_a_run_that_dies_tells_what_one_that_lives_tells(
    preference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data")
    expected, decisions = live(tmp_path / "living", preference, monkeypatch, None)
    assert len(expected) > 200 and decisions >= 7
    assert live(tmp_path / "more", preference, monkeypatch, None, 60)[0] != expected
    for crash in (*CRASHES, "marked"):
        assert live(tmp_path / crash, preference, monkeypatch, crash) == (expected, decisions)


def test_a_run_of_three_inputs_that_dies_tells_what_one_that_lives_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data")
    expected, decisions = live(tmp_path / "living", "x.amount + z.amount", monkeypatch, None, source=THREE)
    assert len(expected) > 100
    for crash in CRASHES:
        assert live(tmp_path / crash, "x.amount + z.amount", monkeypatch, crash, source=THREE) == (expected, decisions)


def test_joins_that_share_one_unit_both_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "data")
    monkeypatch.setattr(Granting, "__call__", lambda self, before: before.with_all(Decided.UNITS, {"q": 1}))
    script = SCRIPT.replace("shards = 2", "shards = 1").format(
        data=tmp_path / "data", folder=tmp_path / "run", preference="x.amount", items=ROWS, source=THREE
    )
    monkeypatch.setattr(input_planner, "_as_before", Granting())
    (tmp_path / "run").mkdir()
    lasting = script
    for length in (9, 20, 40):
        lasting = lasting.replace(f" [RANGE {length} SECONDS]", "")
    told = lived(lasting, tmp_path / "run", ["q"], None)["q"]
    # In the last round all work is done: what is told before shows that both joins had a unit.
    assert any(int(line.split(",")[0]) < 100 for line in told)


def test_a_run_that_dies_estimates_what_one_that_lives_estimates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is emitted under one grant has a chance that changes under later ones."""
    write(tmp_path / "data")
    expected, decisions = live(tmp_path / "living", "WEIGHTED x.amount + 1", monkeypatch, None, items=ESTIMATES)
    assert len(expected) > 100 and decisions >= 7
    for crash in (*CRASHES, "marked"):
        found = live(tmp_path / crash, "WEIGHTED x.amount + 1", monkeypatch, crash, items=ESTIMATES)
        assert found == (expected, decisions)
