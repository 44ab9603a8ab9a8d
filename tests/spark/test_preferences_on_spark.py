"""Preferences on Spark: over several shards where the budget covers the work, in one shard where it does not, and a
run under AUTO of which a worker is killed."""

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

from benchmarks.soak.watch import workers
from penstock.connectors.sinks.files import read_result
from penstock.connectors.sinks.memory import collected
from penstock.language.scripts import bind_script
from penstock.physical.decisions import Decided, Decisions
from penstock.runtime.decisions.deciders import Deciders
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

SCRIPT = """
SET shards = {shards};
SET max_batch_bytes = 1;
CREATE STREAM A (ts BIGINT, k INT, amount INT) FROM FILES (path '{folder}/A', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts BIGINT, k INT, weight INT) FROM FILES (path '{folder}/B', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;
CREATE SUMMARY b_keys ON B (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3);
"""
JOIN = "SELECT A.k, amount, weight FROM A [RANGE 20 SECONDS] AS A, B [RANGE 9 SECONDS] AS B WHERE A.k = B.k"
#: The same by expressions, which compute columns beside those of the streams.
BY_EXPRESSIONS = JOIN.replace("A.k = B.k", "A.k + 1 = B.k + 1")
#: By the number of shards, the clauses whose answer the oracle of one shard gives.
CLAUSES = {
    4: ["amount BUDGET 100000 PER TUPLE", "WEIGHTED SUMMARY.Estimate.Count(B.k) BUDGET 100000 PER TUPLE",
        "amount BUDGET UNLIMITED"],
    1: ["amount, weight BUDGET 1 PER TUPLE", "ASC SUMMARY.Estimate.Count(B.k) FADE FACTOR 0.8 BUDGET 3 PER 2 SECONDS"],
}  # fmt: skip


def write(folder: Path) -> dict[str, pa.Table]:
    draw = random.Random(5)
    tables: dict[str, pa.Table] = {}
    for name, value in (("A", "amount"), ("B", "weight")):
        ts = sorted(draw.randrange(50) for _ in range(80))
        columns = {"k": [draw.choice([0, 0, 1, 2, None]) for _ in ts], value: [draw.randrange(40) for _ in ts]}
        columns_32 = {column: pa.array(values, pa.int32()) for column, values in columns.items()}
        tables[name] = pa.table({"ts": pa.array(ts, pa.int64()), **columns_32})
        (folder / name).mkdir()
        for number, start in enumerate(range(0, 80, 23)):
            pq.write_table(tables[name].slice(start, 23), folder / name / f"part-{number}.parquet")
    return tables


def test_what_the_oracle_of_one_shard_says(spark: Any, tmp_path: Path) -> None:
    tables = write(tmp_path)
    for shards, clauses in CLAUSES.items():
        text = SCRIPT.format(folder=tmp_path, shards=shards)
        for number, clause in enumerate(["", *clauses]):
            preference = f" WITH PREFERENCE {clause}" if clause else ""
            join = BY_EXPRESSIONS if clause.startswith("amount") and "UNLIMITED" not in clause else JOIN
            text += f"CREATE QUERY q{shards}{number} INTO MEMORY () AS {join}{preference};\n"
        session = Session(spark)
        session.execute(text)
        assert session.start().wait(300)
        queries = {query.name: query for query in bind_script(text).queries}
        answers = {name: collected(name) for name in queries}
        for name, query in queries.items():
            assert_same(query, answers[name], run_oracle(query, tables))
        plain = answers[f"q{shards}0"]
        assert plain.num_rows > 200
        if shards > 1:
            # UNLIMITED is the plain query, byte for byte.
            assert answers[f"q{shards}3"].equals(plain)
        else:
            assert all(answers[name].num_rows < plain.num_rows for name in queries if name != "q10")


ESTIMATES = {
    1: "SELECT ESTIMATE(COUNT(*)) AS n, ESTIMATE(SUM(weight)) AS s, UPPER_BOUND(ESTIMATE(SUM(weight))) AS u FROM A"
       " [RANGE 20 SECONDS] AS A, B [RANGE 9 SECONDS] AS B WHERE A.k = B.k WITH PREFERENCE WEIGHTED"
       " SUMMARY.Estimate.Count(B.k), amount + 1 BUDGET 2 PER TUPLE",
    4: "SELECT k, ESTIMATE(COUNT(*)) AS n, LOWER_BOUND(ESTIMATE(AVG(amount))) AS l FROM A [RANGE 20 SECONDS] GROUP BY k"
       " WITH PREFERENCE WEIGHTED amount BUDGET 1 PER SECOND",
}  # fmt: skip


def test_weighted_estimates_are_those_of_the_local_runtime(spark: Any, tmp_path: Path) -> None:
    """Which are those of the oracle: `test_weighted_estimates.py`."""
    tables = write(tmp_path)
    for shards, select in ESTIMATES.items():
        text = SCRIPT.format(folder=tmp_path, shards=shards) + f"CREATE QUERY e{shards} INTO MEMORY () AS {select};"
        session = Session(spark)
        session.execute(text)
        assert session.start().wait(300)
        (query,) = bind_script(text).queries
        local = run_local([query], tables, shards, False, None).tables[query.name]
        order = [(name, "ascending") for name in local.schema.names]
        assert collected(query.name).sort_by(order).equals(local.sort_by(order))
        assert any(value is not None and value % 1 for value in local["n"].to_pylist())


GRANTED = """
SET target_latency = '1 hour';
SET shards = 2;
SET max_batch_rows = 20;
CREATE STREAM A (ts BIGINT, k BIGINT, amount BIGINT) FROM FILES (path '{data}', format 'parquet')
  TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q INTO FILES (path '{out}', format 'csv') AS SELECT x.ts, x.amount, y.amount AS other
  FROM A [RANGE 40 SECONDS] AS x, A [RANGE 20 SECONDS] AS y WHERE x.k = y.k
  WITH PREFERENCE x.amount + y.amount BUDGET AUTO;
"""


class Granting:
    """Grants differently at every call, as a clock would, and less than is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, before: Decisions) -> Decisions:
        self.calls += 1
        return before.with_all(Decided.UNITS, {"q": 10 + self.calls * 13 % 37})


def test_a_worker_that_is_killed_repeats_the_grants_of_its_round(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path / "data", 6)
    found = []
    for kills in (0, 1):
        granting, killed = Granting(), 0
        monkeypatch.setattr(Deciders, "decide", lambda deciders, before: granting(before))  # noqa: B023
        session = Session(spark)
        session.execute(GRANTED.format(data=tmp_path / "data", out=tmp_path / f"out{kills}"))
        run = session.start(checkpoint=str(tmp_path / f"checkpoint{kills}"))
        while not run.wait(0.05):
            if killed < kills and run.progress().batches > 1:
                for pid in workers(os.getpid())[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        assert killed == kills
        rows = sorted(map(str, read_result(str(tmp_path / f"out{kills}")).to_pylist()))
        found.append((rows, granting.calls))
    assert len(found[0][0]) > 100 and found[0][1] >= 6
    assert found[0] == found[1]


#: A run whose grants are drawn anew by each process, or given: what a clock decides is never the same twice.
DRIVER = """
import os, sys
from penstock.cli.main import main
from penstock.physical.decisions import Decided
from penstock.runtime.decisions.deciders import Deciders

given, log, script, checkpoint = sys.argv[1:]
given = [int(units) for units in given.split(",") if units]

def decide(deciders, before):
    units = given.pop(0) if given else 10 + os.urandom(1)[0] % 37
    with open(log, "a") as file:
        file.write(f"{units}\\n")
        file.flush()
        os.fsync(file.fileno())
    return before.with_all(Decided.UNITS, {"q": units})

Deciders.decide = decide
sys.argv = ["penstock", "run", script, "--checkpoint", checkpoint]
sys.exit(main())
"""


def start_driver(folder: Path, name: str, given: list[int]) -> subprocess.Popen[bytes]:
    script = folder / f"{name}.cql"
    script.write_text(GRANTED.format(data=folder / "data", out=folder / name), encoding="utf-8")
    command = [sys.executable, "-c", DRIVER, ",".join(map(str, given)), folder / f"{name}.grants", script]
    with (folder / f"{name}.log").open("ab") as output:
        return subprocess.Popen(
            [*command, folder / f"{name}.checkpoint"],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def write_files(folder: Path, count: int) -> None:
    """Write `count` files of 20 elements each, of three keys."""
    draw = random.Random(3)
    folder.mkdir()
    for number in range(count):
        ts = range(20 * number, 20 * number + 20)
        columns = {"ts": list(ts), "k": [draw.randrange(3) for _ in ts], "amount": [draw.randrange(100) for _ in ts]}
        table = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
        pq.write_table(table, folder / f"{number}.parquet")


def grants_of(folder: Path, name: str) -> list[int]:
    path = folder / f"{name}.grants"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
def test_a_driver_that_is_killed_repeats_the_grants_of_its_rounds(tmp_path: Path) -> None:
    """SIGKILL of the driver, its JVM and workers. What was granted and not written down when it died, at most the last
    grant, is lost; each other one stands, so a run that lives, with these grants, emits the same."""
    write_files(tmp_path / "data", 8)
    dying = start_driver(tmp_path, "dying", [])
    deadline = time.monotonic() + 300
    while len(grants_of(tmp_path, "dying")) < 4 and dying.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert dying.poll() is None, (tmp_path / "dying.log").read_text()[-3000:]
    os.killpg(dying.pid, signal.SIGKILL)
    dying.wait()
    before = grants_of(tmp_path, "dying")
    assert start_driver(tmp_path, "dying", []).wait(300) == 0, (tmp_path / "dying.log").read_text()[-3000:]
    every = grants_of(tmp_path, "dying")
    found = sorted(map(str, read_result(str(tmp_path / "dying")).to_pylist()))
    assert len(found) > 100 and len(every) > len(before) >= 4
    repeated = []
    for number, given in enumerate((every, [*before[:-1], *every[len(before) :]])):
        name = f"living{number}"
        assert start_driver(tmp_path, name, given).wait(300) == 0, (tmp_path / f"{name}.log").read_text()[-3000:]
        repeated.append(sorted(map(str, read_result(str(tmp_path / name)).to_pylist())))
        if repeated[-1] == found:
            assert grants_of(tmp_path, name) == given
            break
    assert found in repeated
