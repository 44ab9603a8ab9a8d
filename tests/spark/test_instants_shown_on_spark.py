"""What a run says of its time on Spark: an instant is shown once it has been answered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, rows, until

from penstock.runtime.spark import job

STREAM = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
SUM = "CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];"


@pytest.mark.spark
def test_an_instant_is_shown_once_it_has_been_answered(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for an instant, and then reads the results, finds its answers there."""
    engine, control = opened(tmp_path / "checkpoint", spark)
    ahead: list[tuple[int, int]] = []
    original: Any = vars(job)["commit_logs"]

    def commit(sinks: Any, batch: int, beats: Any, answers: Any) -> None:
        run = engine.run
        reached = max(beats.values(), default=-1)
        if run is not None and reached > 0:
            ahead.append((run._totals.heartbeats[0].get(f"q{control.query('q')[1].place}", -1), reached))
        original(sinks, batch, beats, answers)

    monkeypatch.setattr(job, "commit_logs", commit)
    control.submit(STREAM + SUM)
    place = control.query("q")[1].place
    for tick in (1, 2, 3):
        control.insert("S", rows(tick))
        until(lambda tick=tick: control.version().heartbeats.get(place, -1) >= tick - 1, control)  # type: ignore[misc]
    control.close()
    engine.close()
    assert len(ahead) > 1 and all(shown < reached for shown, reached in ahead), ahead
