"""The dead letters of late rows, and the warning about input that is not read."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from inline_run import InlineRun

CALENDAR = ["2020-01-01 00:01:00,1", "2020-01-01 00:00:30,2", "2020-01-01 00:02:00,3"]


@pytest.mark.parametrize(
    ("type_", "rows", "record", "reason"),
    [
        ("TIMESTAMP", CALENDAR, {"ts": "2020-01-01T00:00:30Z", "a": 2}, "late by 30 SECOND"),
        ("INT", ["300,1", "180,2", "400,3"], {"ts": 180, "a": 2}, "late by 2 MINUTE"),
    ],
)
def test_the_letter_of_a_late_row(
    type_: str, rows: list[str], record: dict[str, object], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("\n".join(("ts,a", *rows)) + "\n")
    script = f"""CREATE STREAM S (ts {type_}, a INT) FROM FILES (path '{tmp_path}/in.csv') TIMESTAMP BY ts;
    CREATE QUERY q INTO FILES (path '{tmp_path}/out', format 'csv') AS SELECT a FROM S;"""
    run = InlineRun(script, tmp_path / "checkpoint").run()
    (file,) = Path(run.folder.dead_letters).rglob("*.jsonl")
    letter = json.loads(file.read_text())
    assert json.loads(letter.pop("record")) == record
    assert letter == {"path": f"{tmp_path}/in.csv", "reason": reason}


def test_input_that_is_not_read_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.csv").write_text(f"ts,a\n{number},1\n")
    script = f"""CREATE STREAM S (ts INT, a INT) FROM FILES (path '{tmp_path}/in/*.csv') TIMESTAMP BY ts;
    CREATE QUERY q INTO FILES (path '{tmp_path}/q', format 'csv') AS SELECT a FROM S;"""
    InlineRun(script, tmp_path / "checkpoint").run()
    (tmp_path / "in" / "9.csv").write_text("ts,a\n9,1\n")
    more = script + f"CREATE QUERY r INTO FILES (path '{tmp_path}/r', format 'csv') AS SELECT a + 1 AS b FROM S;"
    with caplog.at_level(logging.WARNING, logger="penstock"):
        InlineRun(more, tmp_path / "checkpoint", backfilled=True).run()
    told = [record.getMessage() for record in caplog.records if getattr(record, "event", "") == "ignored"]
    assert told == [
        f"source S: 1 file at {tmp_path}/in/*.csv was added after the first start and will not be read; "
        "with the option watch 'true' later files are read too"
    ]
