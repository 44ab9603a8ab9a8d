"""`penstock run` whose JVM is killed in the middle of a batch, or whose disks are full: an error with a code, exit code
1, results intact, and the same command comes to the results of a run without a fault."""

from __future__ import annotations

import os
import random
import shutil
import signal
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.connectors.sinks.files import read_result

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: One file a batch. `slow` lets a worker wait inside a batch; the names of the groups fill state and results.
SCRIPT = """
SET max_batch_bytes = 1; SET shards = 2;
CREATE FUNCTION slow (BIGINT) RETURNS BIGINT AS 'slow:slow';
CREATE STREAM S (ts BIGINT, name STRING) FROM FILES (path 'in/*.csv', format 'csv', header 'true') TIMESTAMP BY ts;
CREATE QUERY counts INTO FILES (path 'out/counts', format 'csv') AS
  SELECT name, COUNT(*) AS n, MAX(slow(ts)) AS latest FROM S [RANGE 1000 SECONDS] GROUP BY name;
"""
#: Waits at one row of the third file, until the test says that it may go on.
SLOW = """
import time
from pathlib import Path

def slow(values):
    if 250 in values.to_pylist() and not Path({go!r}).exists():
        Path({waiting!r}).touch()
        while not Path({go!r}).exists():
            time.sleep(0.05)
    return values
"""
FILES, ROWS, NAME_BYTES = 5, 100, 400


def prepared(folder: Path) -> Path:
    draw = random.Random(1)
    (folder / "in").mkdir()
    for number in range(FILES):
        lines = ["ts,name"]
        for ts in range(number * ROWS, number * ROWS + ROWS):
            lines.append(f"{ts},{''.join(draw.choices(string.ascii_letters, k=NAME_BYTES))}")
        (folder / "in" / f"{number}.csv").write_text("\n".join(lines) + "\n")
    (folder / "script.cql").write_text(SCRIPT)
    (folder / "slow.py").write_text(SLOW.format(go=str(folder / "go"), waiting=str(folder / "waiting")))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return prepared(tmp_path)


@pytest.fixture
def expected(folder: Path) -> list[dict[str, object]]:
    """The results without a fault: no name is there twice, and no window ends, so each row adds one to the content."""
    lines = [line for path in sorted((folder / "in").iterdir()) for line in path.read_text().splitlines()[1:]]
    return [
        {"ts": int(ts), "op": "+", "name": name, "n": 1, "latest": int(ts)}
        for ts, _, name in (line.partition(",") for line in lines)
    ]


def start(folder: Path) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "penstock", "run", "script.cql", "--checkpoint", "state"]
    return subprocess.Popen(
        call, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def rows(out: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = read_result(str(out / "counts")).to_pylist()
    return found


def test_a_jvm_that_is_killed_in_the_middle_of_a_batch(folder: Path, expected: list[dict[str, object]]) -> None:
    process = start(folder)
    deadline = time.monotonic() + 240
    while not (folder / "waiting").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the third batch has not begun"
        time.sleep(0.05)
    for java in jvms_of(process.pid):
        os.kill(java, signal.SIGKILL)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 1, messages
    assert "error P0601: the run failed: Spark's JVM was killed by SIGKILL" in messages
    assert "Traceback" not in messages and "py4j" not in messages, messages
    so_far = rows(folder / "out")
    assert so_far and so_far == expected[: len(so_far)] != expected
    (folder / "go").touch()
    process = start(folder)
    _, messages = process.communicate()
    assert process.returncode == 0, messages
    assert rows(folder / "out") == expected


def jvms_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for path in children for child in path.read_text().split()]
    java = [child for child in found if Path(f"/proc/{child}/comm").read_text().strip() == "java"]
    assert java
    return java


#: Runs twice with a small disk, which is larger the second time. It is mounted for these processes alone, and gone with
#: them, so what it holds is copied.
SMALL_DISK = """
mkdir -p {disk} && mount -t tmpfs -o size={small} none {disk} || exit 99
{run} 2> messages-1; echo $? > code-1; cp -a out saved-1
mount -o remount,size=200m {disk}
{run} 2> messages-2; echo $? > code-2; cp -a out saved-2
"""


@pytest.mark.spread(3)
@pytest.mark.parametrize(
    ("disk", "small"), [("out", "160k"), ("state", "400k"), ("scratch", "200k")], ids=["results", "checkpoint", "Spark"]
)
def test_a_disk_that_is_full(folder: Path, expected: list[dict[str, object]], disk: str, small: str) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "mount", "-t", "tmpfs", "none", "/mnt"]).returncode:
        pytest.skip("nothing can be mounted here")
    (folder / "go").touch()
    run = f"{sys.executable} -m penstock run script.cql --checkpoint state"
    text = SMALL_DISK.format(disk=disk, small=small, run=run)
    scratch = {"SPARK_LOCAL_DIRS": str(folder / "scratch")} if disk == "scratch" else {}
    subprocess.run([*alone, "sh", "-c", text], cwd=folder, env=environment() | scratch, check=True)
    messages = (folder / "messages-1").read_text()
    assert (folder / "code-1").read_text().strip() == "1", messages
    assert ("error P0502" if disk == "out" else "error P0601") in messages
    assert "free space" in messages
    assert "Traceback" not in messages, messages
    so_far = rows(folder / "saved-1")
    assert so_far and so_far == expected[: len(so_far)]
    assert (folder / "code-2").read_text().strip() == "0", (folder / "messages-2").read_text()
    assert rows(folder / "saved-2") == expected
