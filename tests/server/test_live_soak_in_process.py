"""The soak of a server without Spark, as short as it can be: commands follow each other at once, and it is killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.live_soak.__main__ import shown
from benchmarks.live_soak.course import Course, Settings


@pytest.mark.parametrize("pause", [0, 0.3])
def test_every_answer_is_right_whatever_the_pace_of_commands(tmp_path: Path, pause: float) -> None:
    seed = time.time_ns() % 10**6
    settings = Settings(6, rate=60, seed=seed, kills_every=2, most=6, kills=1, pause=pause, in_process=True)
    with Course(settings, tmp_path) as course:
        report = course.go()
    print("\n".join(shown(report)), settings)
    assert report.wrong == []
    assert report.lives and report.changes and min(report.kills.values()) >= 1
