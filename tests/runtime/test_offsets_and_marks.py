"""Offsets and marks survive their form as JSON, and that form is the one of released checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.connectors.contract import Split
from penstock.physical.execution.wall_clock import WallClock
from penstock.runtime.spark.checkpoint.folder import Delivery, Finish, Folder, Seen, round_name
from penstock.runtime.spark.checkpoint.offset import LogOffset, Offset

FIRST = Offset(0, {"S": 0}, {"S": None})
FULL = Offset(
    7,
    {"S": 3, "T": 1},
    {"S": 40, "T": None},
    ("S",),
    1000,
    12,
    {"T": LogOffset({"at": {"0": 5}}, Split("t", 0, 9))},
    {"S": 39},
    WallClock(100, {"S": 90}, {"S": 38}, {"S": 30}),
    beats={"S": 37, "T": 2},
    advanced={"T": "12.3"},
)
OUTSTANDING = Offset(8, {"S": 4}, {"S": 40}, (), 1000, 0, {"T": LogOffset()}, again=True, before=FULL, tasks=2)


@pytest.mark.parametrize("offset", [FIRST, FULL, OUTSTANDING], ids=["first", "full", "outstanding"])
def test_json_and_back(offset: Offset) -> None:
    text = json.dumps(offset.as_json())
    again = Offset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.as_json()) == text


def test_the_form_of_checkpoints() -> None:
    assert FIRST.as_json() == {"round": 0, "done": {"S": 0}, "high": {"S": None}, "ended": []}
    split = {
        "path": "t", "start": 0, "stop": 9, "bytes": 0, "rows": None, "low": None, "high": None, "detail": "",
        "heartbeat": None, "punctuation": "",
    }  # fmt: skip
    assert FULL.as_json() == {
        "round": 7,
        "done": {"S": 3, "T": 1},
        "high": {"S": 40, "T": None},
        "ended": ["S"],
        "limit": 1000,
        "read": 12,
        "logs": {"T": {"state": {"at": {"0": 5}}, "split": split}},
        "told": {"S": 39},
        "wall": {"now": 100, "heard": {"S": 90}, "beats": {"S": 38}, "promised": {"S": 30}},
        "beats": {"S": 37, "T": 2},
        "advanced": {"T": "12.3"},
    }
    added = {"again", "before", "tasks"}
    assert set(OUTSTANDING.as_json()) == {"round", "done", "high", "ended", "limit", "read", "logs"} | added


def test_a_source_that_is_not_kept_begins_anew() -> None:
    assert FULL.only({"S"}, ["S", "U"], ["S", "U"]) == Offset(
        7,
        {"S": 3, "U": 0},
        {"S": 40, "U": None},
        ("S",),
        1000,
        12,
        {},
        {"S": 39},
        WallClock(100, {"S": 90, "U": 100}, {"S": 38}, {"S": 30}),
        beats={"S": 37},
    )


def test_what_a_round_observed_is_progress() -> None:
    after = FULL.after({"S": Seen(50, beat=45), "T": Seen(None, beat=1)})
    assert (after.high, after.beats, after.again) == ({"S": 50, "T": None}, {"S": 45, "T": 2}, True)
    assert after.after({"S": Seen(60)}) is after
    assert [one.progress("S").beat for one in (FULL, after)] == [39, 45]


def test_the_marks_of_deliveries(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.begin_run()
    assert (folder.delivered(), folder.finished()) == (Delivery(0, -1), None)
    full = Delivery(3, 2, {"S": Seen(9, rows=4, malformed={"type": 1})}, 800)
    for mark in (Delivery(1, 0), full):
        folder.write_delivered(mark)
        assert folder.delivered() == mark
    assert set(folder.read_mark("delivered")) == {"round", "batch", "seen", "answers"}
    assert folder.seen_in(round_name(3)) == full.seen
    folder.write_finished(Finish(2, 0))
    assert folder.finished() == Finish(2, 0) and folder.read_mark("finished") == {"batch": 2, "epoch": 0}
