"""What `penstock run` writes where, in a process of its own: results to standard output, all else to standard error."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli.main import app
from penstock.runtime.spark.startup import early_session
from tests.commands import penstock

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ONE = """
CREATE STREAM Orders (ts INT, item STRING, price INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO Orders VALUES (1, 'tea', 5), (2, 'rum', 50), (3, 'ale', 12);
CREATE QUERY dear AS SELECT item, price FROM Orders WHERE price > 10;
SHOW STREAMS;
"""
TWO = ONE + "CREATE QUERY cheap AS SELECT item FROM Orders WHERE price < 10;\n"


def command(folder: Path, text: str, *arguments: str) -> list[str]:
    (folder / "orders.cql").write_text(text)
    return [*penstock(), "run", "orders.cql", *arguments]


def environ() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def run(folder: Path, text: str, *arguments: str) -> tuple[int, bytes, str]:
    call = command(folder, text, *arguments)
    found = subprocess.run(call, cwd=folder, env=environ(), capture_output=True, check=False, stdin=subprocess.DEVNULL)
    return found.returncode, found.stdout, found.stderr.decode()


def test_without_a_terminal_results_are_csv_and_nothing_else(tmp_path: Path) -> None:
    code, out, err = run(tmp_path, ONE)
    assert (code, out) == (0, b"ts,item,price\n2,rum,50\n3,ale,12\n"), err
    assert "CREATE STREAM Orders" in err and "3 rows in · 2 rows out" in err


def in_this_process(
    folder: Path, text: str, *arguments: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> tuple[int, bytes, str]:
    """Run the command on the session that is there: how its process begins and ends is seen in the other tests."""
    (folder / "orders.cql").write_text(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(early_session, "start_session_ahead", lambda *_: None)
        try:
            app(["run", str(folder / "orders.cql"), *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    out, err = capfdbinary.readouterr()
    return code, out, err.decode()


def test_json_lines_of_two_queries(spark: Any, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = in_this_process(tmp_path, TWO, "--format", "json", capfdbinary=capfdbinary)
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert sorted((f["query"], f["ts"], f["item"]) for f in found) == [
        ("cheap", 1, "tea"),
        ("dear", 2, "rum"),
        ("dear", 3, "ale"),
    ]


def test_an_arrow_stream_is_one_query_s(spark: Any, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    code, out, err = in_this_process(tmp_path, TWO, "--format", "arrow", capfdbinary=capfdbinary)
    assert (code, out) == (2, b"")
    assert "error P0502: an Arrow stream holds the results of one query, and 2 have no INTO: dear, cheap" in err
    code, out, err = in_this_process(tmp_path, ONE, "--format", "arrow", capfdbinary=capfdbinary)
    assert code == 0, err
    assert pa.ipc.open_stream(io.BytesIO(out)).read_all().to_pylist() == [
        {"ts": 2, "item": "rum", "price": 50},
        {"ts": 3, "item": "ale", "price": 12},
    ]


def test_a_reader_that_stops_ends_the_run_quietly(tmp_path: Path) -> None:
    rows = tmp_path / "in.csv"
    rows.write_text("ts,item,price\n" + "".join(f"{i},item{i},{i}\n" for i in range(100_000)))
    text = ONE.replace("MEMORY ()", "FILES (path 'in.csv', header 'true')").replace("INSERT", "-- INSERT")
    call = command(tmp_path, text)
    pipe = subprocess.PIPE
    process = subprocess.Popen(call, cwd=tmp_path, env=environ(), stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL)
    assert process.stdout is not None and process.stderr is not None
    assert [process.stdout.readline() for _ in range(2)] == [b"ts,item,price\n", b"11,item11,11\n"]
    process.stdout.close()
    told = process.stderr.read().decode()
    assert process.wait(300) == 141
    assert "Traceback" not in told and "error" not in told.lower(), told
    assert "final to" not in told and "failed" not in told, told


def test_a_function_that_fails_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("def unlucky(numbers):\n    raise ValueError('bad luck')\n")
    declared = "CREATE FUNCTION unlucky RETURNS INT AS 'fails:unlucky';\n"
    code, out, err = run(tmp_path, declared + ONE.replace("item, price", "unlucky(price) AS u"))
    assert (code, out) == (1, b"")
    assert err.count("ValueError: bad luck") == 2, "the message and the end of the user's own traceback"
    assert err.count("Traceback") == 1 and "the run failed: P0621" in err


def test_a_broker_that_is_down_is_one_error(tmp_path: Path) -> None:
    place = "KAFKA (bootstrap '127.0.0.1:9', topic 't', format 'json', patience '40')"
    code, out, err = run(tmp_path, ONE.replace("MEMORY ()", place).replace("INSERT", "-- INSERT"))
    assert (code, out) == (1, b"")
    assert "error P0411: source Orders: no answer from Kafka" in err
    assert "Traceback" not in err and "Exception" not in err
    assert err.rstrip().splitlines()[-1].startswith("  hint: ")
