"""Unbounded input: files that appear while the job runs, and a stop that can be resumed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock.connectors.sinks.files import read_result
from penstock.session import Session


def _add(folder: Path, name: str, text: str) -> None:
    hidden = folder / f".{name}"
    hidden.write_text(text)
    hidden.rename(folder / name)


def _until(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.1)


def test_files_that_appear_later(spark: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    script = f"""CREATE STREAM S (ts INT, a INT) FROM FILES (path '{source}', format 'csv', watch 'true')
        TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY q INTO FILES (path '{out}', format 'csv') AS
        SELECT a, COUNT(*) AS n FROM S [RANGE 5 SECONDS] GROUP BY a;"""

    def start() -> Any:
        session = Session(spark)
        session.execute(script)
        return session.start(checkpoint=str(tmp_path / "checkpoint"))

    _add(source, "a.csv", "ts,a\n1,7\n2,7\n")
    run = start()
    _until(lambda: run.progress().rows_out >= 1)
    assert read_result(str(out)).to_pydict() == {"ts": [1], "op": ["+"], "a": [7], "n": [1]}
    assert not run.wait(0.2)
    _add(source, "b.csv", "ts,a\n3,8\n")
    _until(lambda: run.progress().rows_out >= 3)
    run.stop()
    _add(source, "c.csv", "ts,a\n9,9\n")
    run = start()
    _until(lambda: run.progress().rows_in >= 4 and run.progress().rows_out >= 7)
    run.stop()
    result = read_result(str(out))
    assert result["ts"].to_pylist() == [1, 2, 2, 3, 6, 6, 7, 8]
    assert result["op"].to_pylist() == ["+", "-", "+", "+", "-", "+", "-", "-"]
