"""pgjdbc, PostgreSQL's driver for Java: what a program does with it (`jdbc/PgJdbc.java`), as `jdbc/session.txt` shows.

The driver comes from Maven Central, once per machine. PENSTOCK_REWRITE=1 writes the session anew, to be read in the
diff.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.listening import Certificate
from penstock.server.roles import AccessRole
from penstock.server.service import Service
from tests.server.pgwire.running import RunningPg, made_certificate, running_pg
from tests.servers import maven

FOLDER = Path(__file__).with_name("jdbc")
SESSION = FOLDER / "session.txt"
VERSION = "42.7.14"


@pytest.fixture(scope="module")
def driver() -> Path:
    try:
        locked = Path(maven.__file__).with_name("pgjdbc.sha256")
        return maven.jars("org.postgresql", "postgresql", VERSION, locked) / f"postgresql-{VERSION}.jar"
    except maven.NoJars as error:
        pytest.skip(str(error))


@pytest.fixture
def notes(pg: RunningPg) -> Iterator[None]:
    pg.rows("CREATE RELATION jdbc_notes (room STRING, note STRING) FROM MEMORY ()")
    yield
    pg.rows("DROP RELATION jdbc_notes")


def run(driver: Path, pg: RunningPg, *modes: str) -> str:
    url = f"jdbc:postgresql://127.0.0.1:{pg.port}/penstock"
    command = [maven.java(), "-XX:TieredStopAtLevel=1", "-cp", str(driver), str(FOLDER / "PgJdbc.java"), url,
               pg.texts[AccessRole.ADMIN], *modes]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env={**os.environ, "TZ": "UTC"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_in_java(driver: Path, pg: RunningPg, notes: None) -> None:
    shown = run(driver, pg)
    if os.environ.get("PENSTOCK_REWRITE"):
        SESSION.write_text(shown, encoding="utf-8")
    assert shown == SESSION.read_text(encoding="utf-8") and shown.count("\n-- ") > 40 and "failed" not in shown


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_program_in_java_through_tls(driver: Path, service: Service, pg: RunningPg, tmp_path: Path) -> None:
    chain, key = made_certificate(tmp_path)
    with running_pg(tmp_path, service, Certificate(chain, key)) as running:
        root = f"&sslrootcert={chain}"
        modes = ("disable", "prefer", "require", f"verify-ca{root}", f"verify-full{root}&channelBinding=require")
        shown = run(driver, running, *modes)
    assert shown == "-- disable\nerror 28000\n" + "".join(f"-- {mode.partition('&')[0]}\n1\n" for mode in modes[1:])
    assert run(driver, pg, "disable", "prefer", "require") == "-- disable\n1\n-- prefer\n1\n-- require\nerror 08004\n"
