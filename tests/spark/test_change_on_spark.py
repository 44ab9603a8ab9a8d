"""A changed script on Spark: a run that is stopped in the middle goes on as another one, with its state."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.session import Session

QUERIES = {
    "sums": "SELECT RSTREAM(k, COUNT(*) AS n) FROM S [RANGE 30 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "best": "SELECT x, k FROM S [RANGE 40 SECONDS] ORDER BY x DESC, k LIMIT 3",
    "pairs": "SELECT ISTREAM(a.x, b.x AS y) FROM S [NOW] AS a, S [RANGE 15 SECONDS] AS b WHERE a.k = b.k AND a.x < b.x",
}


def script(tmp: Path, out: str, *names: str) -> str:
    text = f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM S (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
    into = "CREATE QUERY {0} INTO FILES (path '{1}', format 'parquet') AS {2};"
    return text + "".join(into.format(name, tmp / out / name, QUERIES[name]) for name in names)


def write_data(folder: Path, files: int) -> None:
    folder.mkdir()
    for i in range(files):
        ts = list(range(i * 20, i * 20 + 20))
        columns = {"ts": pa.array(ts, pa.int64()), "k": pa.array([t % 3 for t in ts], pa.int32())}
        pq.write_table(pa.table({**columns, "x": pa.array([t * 13 % 17 for t in ts])}), folder / f"{i:03d}.parquet")


def start(spark: Any, text: str, **options: Any) -> Any:
    session = Session(spark)
    session.execute(text)
    return session.start(**options)


def rows(tmp: Path, out: str, name: str) -> list[str]:
    return sorted(map(repr, read_result(str(tmp / out / name)).to_pylist()))


def test_queries_come_go_and_read_their_past(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 8)
    checkpoint = str(tmp_path / "checkpoint")
    first = start(spark, script(tmp_path, "out", "pairs", "sums"), checkpoint=checkpoint)
    while first.progress().batches < 3 and not first.wait(0.05):
        pass
    first.stop()
    run = start(spark, script(tmp_path, "out", "sums", "best"), checkpoint=checkpoint, backfill=True)
    assert len(run.notices) == 2 and "reads its past" in run.notices[0] and "dropped" in run.notices[1]
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums", "best"))
    assert calm.wait(200)
    for name in ("sums", "best"):
        assert rows(tmp_path, "out", name) == rows(tmp_path, "calm", name)
    # Spark's own log, damaged: told, and no traceback.
    for log in (tmp_path / "checkpoint").glob("spark/offsets/[0-9]*"):
        log.write_text("v1\n{")
    (tmp_path / "checkpoint" / "penstock" / "finished.json").unlink()
    for commit in (tmp_path / "checkpoint").glob("spark/commits/*"):
        commit.unlink()
    with pytest.raises(PenstockError) as told:
        start(spark, script(tmp_path, "out", "sums", "best"), checkpoint=checkpoint).wait(200)
    assert told.value.code in ("P0601", "P0605") and "Traceback" not in told.value.render()


def test_one_new_query_starts_at_the_beginning(spark: Any, tmp_path: Path) -> None:
    write_data(tmp_path / "data", 8)
    checkpoint = str(tmp_path / "checkpoint")
    first = start(spark, script(tmp_path, "out", "sums"), checkpoint=checkpoint)
    while first.progress().batches < 3 and not first.wait(0.05):
        pass
    first.stop()
    changed = script(tmp_path, "out", "sums", "best", "pairs").replace(") AS SELECT x", ") START BEGINNING AS SELECT x")
    run = start(spark, changed, checkpoint=checkpoint)
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums", "best", "pairs"))
    assert calm.wait(200)
    for name in ("sums", "best"):
        assert rows(tmp_path, "out", name) == rows(tmp_path, "calm", name)
    assert len(rows(tmp_path, "out", "pairs")) < len(rows(tmp_path, "calm", "pairs"))


def test_a_query_that_has_ended_its_run_is_mended(spark: Any, tmp_path: Path) -> None:
    """Spark's log has a round that its plan cannot finish, which is run with the new plan instead."""
    write_data(tmp_path / "data", 6)
    checkpoint, into = tmp_path / "checkpoint", f"INTO FILES (path '{tmp_path / 'out' / 'q'}', format 'parquet')"
    failing = f"""CREATE FUNCTION checked RETURNS BIGINT AS 'penstock.testing.samples:checked';
        CREATE QUERY q {into} AS SELECT ISTREAM(k, checked(75 - ts) AS y) FROM S [NOW];"""
    with pytest.raises(PenstockError) as failed:
        start(spark, script(tmp_path, "out", "sums") + failing, checkpoint=str(checkpoint)).wait(200)
    assert failed.value.code == "P0621"
    begun, committed = (_numbers(checkpoint / "spark" / name) for name in ("offsets", "commits"))
    assert begun[-1] == committed[-1] + 1 == 3
    # The process died a moment earlier: Spark has not committed what was delivered last, and repeats it.
    (checkpoint / "spark" / "commits" / str(committed[-1])).unlink()
    more = f"""CREATE STREAM T (ts BIGINT, k INT, x BIGINT) FROM FILES (path '{tmp_path / "data"}', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;"""
    other = more + failing.replace("75 - ts", "0 * ts").replace("FROM S", "FROM T")
    run = start(spark, script(tmp_path, "out", "sums", "best") + other, checkpoint=str(checkpoint), overwrite=True)
    assert run.wait(200)
    calm = start(spark, "SET max_batch_bytes = '1MB';" + script(tmp_path, "calm", "sums"))
    assert calm.wait(200)
    assert rows(tmp_path, "out", "sums") == rows(tmp_path, "calm", "sums")
    # One of them reads its source from the beginning, the other one from the round that failed.
    assert len(rows(tmp_path, "out", "q")) == 120
    assert min(row["ts"] for row in read_result(str(tmp_path / "out" / "best")).to_pylist()) == 60
    assert not list(checkpoint.glob("spark-*"))


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_and_changed_at_any_moment(tmp_path: Path) -> None:
    write_data(tmp_path / "data", 40)
    draw = random.Random(seed := int(time.time()))
    print("seed", seed)
    first = True
    for turn in range(9):
        names = ["sums", *draw.sample(["best", "pairs"], draw.randint(0, 2))]
        draw.shuffle(names)
        (tmp_path / "script.cql").write_text(script(tmp_path, "out", *names))
        code = _run(tmp_path, draw.uniform(4, 25) if turn < 8 else None, backfill=draw.random() < 0.5 and not first)
        first = False
        if code == 0:
            break
    (tmp_path / "script.cql").write_text(script(tmp_path, "out", "sums"))
    assert _run(tmp_path, None) == 0
    (tmp_path / "script.cql").write_text(script(tmp_path, "calm", "sums").replace("= 1;", "= 1000000;", 1))
    assert _run(tmp_path, None, checkpoint="calm-checkpoint") == 0
    assert rows(tmp_path, "out", "sums") == rows(tmp_path, "calm", "sums")


def _run(tmp: Path, seconds: float | None, backfill: bool = False, checkpoint: str = "checkpoint") -> int:
    """Start the script in a process of its own; after `seconds` everything of it is killed."""
    command = [sys.executable, "-m", "penstock.cli.main", "run", str(tmp / "script.cql"), "--overwrite"]
    command += ["--checkpoint", str(tmp / checkpoint), *(["--backfill"] if backfill else [])]
    with (tmp / "log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -9
