"""`penstock run` as people use it: a process of its own, on Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import penstock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: Where the start itself is tested, and where JVMs are looked for below the process; else one that is ready.
PROGRAM = (sys.executable, "-m", "penstock")

SCRIPT = """
CREATE STREAM Orders (ts INT, item STRING, price INT)
  FROM FILES (path 'in/*.csv', format 'csv', header 'true'{options}) TIMESTAMP BY ts;
CREATE QUERY dear INTO FILES (path 'out/dear', format 'csv') AS SELECT item, price FROM Orders WHERE price > 10;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(
        "ts,item,price\n1,tea,5\n2,rum,50\n3,gin,4x\n5,ale,12\n4,wine,40\n6,mead,11\n"
    )
    return tmp_path


def command(
    folder: Path, *arguments: str, options: str = "", program: tuple[str, ...] = PROGRAM
) -> subprocess.Popen[str]:
    (folder / "orders.cql").write_text(SCRIPT.format(options=options))
    call = [*program, "run", "orders.cql", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    pipe = subprocess.PIPE
    return subprocess.Popen(call, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def result(folder: Path) -> list[str]:
    parts = sorted((folder / "out" / "dear").glob("part-*.csv"))
    return [line for part in parts for line in part.read_text().splitlines()[1:]]


def test_a_run_to_the_end_of_its_input(folder: Path) -> None:
    process = command(folder, "--metrics", "metrics.jsonl", "--log-format", "json", "--log-level", "info")
    out, told = process.communicate()
    assert process.returncode == 0, told
    assert out == ""
    events = [json.loads(line)["event"] for line in told.splitlines() if line.startswith("{")]
    assert events == ["start", "batch", "late", "dead_letters", "stop"]
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [m["sources"]["Orders"]["rows"] for m in metrics] == [6]
    assert result(folder) == ["2,rum,50", "5,ale,12", "6,mead,11"]
    assert "6 rows in · 3 rows out · heartbeat 6" in told
    assert "WARNING: 1 row of Orders came late" in told
    assert "ORDER WITHIN 1 SECOND" in told
    assert "WARNING: 1 row of Orders is malformed" in told
    assert "out/dear" in told
    assert "Traceback" not in told

    again = command(folder, program=penstock())
    _, told = again.communicate()
    assert again.returncode == 2
    assert "error P0501" in told
    assert result(folder) == ["2,rum,50", "5,ale,12", "6,mead,11"]


def test_one_run_over_ctrl_c_a_killed_jvm_and_two_ctrl_c(folder: Path) -> None:
    """The same command goes on behind each of them."""
    process = command(folder, "--checkpoint", "state", options=", watch 'true'")
    _wait_for(lambda: len(result(folder)) >= 2, process)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "stopping" in told
    assert "Orders" in told
    assert "Traceback" not in told
    before = result(folder)

    (folder / "in" / "2.csv").write_text("ts,item,price\n7,port,60\n8,tea,6\n9,rum,70\n10,rum,80\n")
    process = command(folder, "--checkpoint", "state", options=", watch 'true'")
    _wait_for(lambda: len(result(folder)) >= len(before) + 2, process)
    (java,) = _jvms_of(process.pid)
    os.kill(java, signal.SIGKILL)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 1, told
    assert "error P0601: the run failed: Spark's JVM was killed by SIGKILL" in told
    assert "Traceback" not in told and "py4j" not in told
    whole = ["2,rum,50", "5,ale,12", "6,mead,11", "7,port,60", "9,rum,70", "10,rum,80", "11,gin,90"]
    after = result(folder)
    assert after[: len(before)] == before
    assert after == whole[: len(after)]

    (folder / "in" / "3.csv").write_text("ts,item,price\n11,gin,90\n12,tea,6\n")
    process = command(folder, "--checkpoint", "state", options=", watch 'true'")
    _wait_for(lambda: len(result(folder)) >= 7, process)
    process.send_signal(signal.SIGINT)
    time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert result(folder) == whole


def _jvms_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for path in children for child in path.read_text().split()]
    return [child for child in found if Path(f"/proc/{child}/comm").read_text().strip() == "java"]


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "nothing came out"
        time.sleep(0.2)


def test_under_the_locale_c_names_of_files_are_utf_8(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cron and systemd set it: the working folder, the input, a key and the checkpoint lie beyond ASCII."""
    monkeypatch.setenv("LC_ALL", "C")
    folder = tmp_path / "müller"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "größe☃.csv").write_text("ts,item,price\n1,tè,50\n", encoding="utf-8")
    process = command(folder, "--checkpoint", "stätte☃")
    _, told = process.communicate()
    assert process.returncode == 0, told
    assert [file.read_text("utf-8") for file in (folder / "out" / "dear").glob("part-*.csv")] == [
        "ts,item,price\n1,tè,50\n"
    ]
