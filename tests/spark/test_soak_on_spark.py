"""The soak of `make soak`, as short as it can be: a worker, the driver and the broker are killed once each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.soak.__main__ import shown
from benchmarks.soak.course import KINDS, Course, Kill, Settings


def test_every_record_is_accounted_for_whatever_is_killed(broker: Any, tmp_path: Path) -> None:
    kills = (Kill(0, "worker"), Kill(0, "driver"), Kill(0, "broker", pause=1.0))
    settings = Settings(0, rate=300, seed=time.time_ns() % 10**6, kills=kills, trigger="200 ms")
    with Course(settings, tmp_path, broker) as course:
        report = course.go()
    print("\n".join(shown(report)), settings)
    assert report.wrong == []
    assert {survived.kill.kind for survived in report.survived} == set(KINDS)
    assert report.starts == 2
    assert all(report.shares.values()) and len(report.shares) == 3
    assert all(report.rows.values())
