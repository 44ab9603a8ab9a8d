"""Which streams of a run are retained, over changes of RETAIN."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.algebra.nodes.scans import Source
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.retention.retained_log import Pins, RetainedLog
from penstock.runtime.spark.retention.retention import Retention
from penstock.types import CALENDAR, Field, Schema

FILE = source_file("S", {})
STREAM = Source("S", True, Schema((Field("at", pa.int64()),)), "HTTP", (), 0, CALENDAR)


def intake(retain: int | None) -> Intake:
    return Intake((replace(STREAM, retain=retain),), frozenset(), 1)


@pytest.mark.parametrize("pinned", [False, True])
def test_what_came_while_a_stream_was_not_retained_is_not_there(tmp_path: Path, pinned: bool) -> None:
    """Also where a reader that needs all of it holds back the files meanwhile."""
    folder = Folder(tmp_path)
    retention, log = Retention(folder, 0), RetainedLog(folder, FILE)
    retention.begin(intake(60), {})
    assert log.after is None
    if pinned:
        with Pins(folder).pinned("reader", FILE, None):
            retention.begin(intake(None), {"S": 10})
            assert log.after is None, "the reader has what it needs"
    else:
        retention.begin(intake(None), {"S": 10})
    retention.begin(intake(60), {"S": 20})
    assert log.after == 20
    retention.begin(intake(60), {"S": 30})
    assert log.after == 20 and log.has(20) and not log.has(19)
