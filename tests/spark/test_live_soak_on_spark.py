"""The soak of a server, as short as it can be: commands of all kinds, the driver and a worker are killed."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.live_soak.__main__ import shown
from benchmarks.live_soak.course import Course, Settings


def test_every_answer_is_right_whatever_is_killed(tmp_path: Path) -> None:
    seed = time.time_ns() % 10**6
    # In one half of the runs commands follow each other at once.
    settings = Settings(12, rate=60, seed=seed, kills_every=4, most=6, kills=1, pause=0.7 * (seed % 2))
    with Course(settings, tmp_path) as course:
        report = course.go()
    print("\n".join(shown(report)), settings)
    assert report.wrong == []
    assert min(report.kills.values()) >= 1 and report.starts > 2
    assert report.lives and report.changes
