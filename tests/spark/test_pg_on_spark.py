"""`penstock serve --pg`: PostgreSQL's protocol in front of a server on Spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.server.tokens import TokenFile

psycopg = pytest.importorskip("psycopg")

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION levels (room STRING, level INT, PRIMARY KEY (room)) FROM HTTP () SYSTEM TIME;
CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room;
"""


@pytest.mark.spark
def test_the_option_pg_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "penstock", "serve", str(tmp_path / "rooms.cql"), "--http", "127.0.0.1:0",
               "--pg", "127.0.0.1:0", "--checkpoint", str(tmp_path / "state")]  # fmt: skip
    notices = tmp_path / "stderr"
    with notices.open("w") as errors:
        process = subprocess.Popen(
            command, env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}, stdout=subprocess.PIPE, stderr=errors,
            text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline().strip(), notices.read_text()
        end = time.monotonic() + 30
        while "PostgreSQL's protocol: " not in (told := notices.read_text()):
            assert time.monotonic() < end, told
            time.sleep(0.05)
        host, _, port = told.partition("PostgreSQL's protocol: ")[2].split()[0].rpartition(":")
        token = (tmp_path / "penstock" / "first-token").read_text(encoding="utf-8").strip()
        given = f"host={host} port={port} dbname=penstock user=first connect_timeout=30"
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(f"{given} password=wrong")
        (user,) = (one.name for one in TokenFile(tmp_path / "penstock" / "tokens.json").entries())
        with psycopg.connect(given.replace("first", user) + f" password={token}", autocommit=True) as connection:
            connection.execute("INSERT INTO readings VALUES ('2024-03-01 09:00:00', 'hall', 19.5),"
                               " ('2024-03-01 09:20:00', 'attic', 23.0)")  # fmt: skip
            with connection.cursor() as cursor:
                first = next(iter(cursor.stream("SUBSCRIBE TO warm WITH (SNAPSHOT)")))
            assert first[1:] == ("+", "hall", 19.5)
            cursor = connection.execute("INSERT INTO levels VALUES ('hall', 0), ('attic', 2), ('cellar', -1)")
            assert cursor.statusmessage == "INSERT 0 3"
            assert connection.execute("UPDATE levels SET level = 5 WHERE level >= 0").statusmessage == "UPDATE 2"
            ((who, door),) = connection.execute("SELECT who, door FROM penstock.sessions").fetchall()
            assert (who, door) == (user, "postgresql")
            listed = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'").fetchall()
            assert ("batches",) in listed
    finally:
        process.terminate()
        process.communicate(timeout=120)
