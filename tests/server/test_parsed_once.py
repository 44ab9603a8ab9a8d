"""The text of a statement is parsed once, whatever door it comes through."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.language.scripts import parse
from penstock.language.text import SourceText
from penstock.pgwire.catalog import engine
from penstock.server.roles import AccessRole
from tests.server.pgwire.running import in_process, running_pg
from tests.server.running import Running
from tests.server.test_live_service import SCRIPT, ended, started

CREATE = "CREATE QUERY q AS SELECT room FROM readings [RANGE 1 HOUR]"
ALTER = "ALTER QUERY q AS SELECT room FROM readings [RANGE 2 HOUR] START NOW"
SELECT = "SELECT room FROM rooms WHERE floor > 1"
VIEWS = "CREATE VIEW v AS SELECT room FROM rooms; SHOW VIEWS; DROP VIEW v"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often the parser has read each statement."""
    counts: Counter[str] = Counter()
    read = parse._parsed

    def counted(source: SourceText, tokens: list[Any]) -> Any:
        counts[source.text[tokens[0].start : tokens[-1].end + 1]] += 1
        return read(source, tokens)

    monkeypatch.setattr(parse, "_parsed", counted)
    return counts


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often the parser of PostgreSQL's grammar has read each text that names a catalog."""
    counts: Counter[str] = Counter()
    read = engine.sqlglot.parse

    def counted(text: str, *arguments: Any, **options: Any) -> Any:
        if "pg_" in text:
            counts[text] += 1
        return read(text, *arguments, **options)

    monkeypatch.setattr(engine.sqlglot, "parse", counted)
    return counts


@pytest.fixture
def live(tmp_path: Path, parsed: Counter[str]) -> Iterator[Running]:
    running = started(tmp_path)
    yield running
    ended(running)


def test_the_script_of_a_start(live: Running, parsed: Counter[str]) -> None:
    assert len(parsed) == 3 and set(parsed.values()) == {1}


def test_statements_by_http(live: Running, parsed: Counter[str]) -> None:
    with live.client(AccessRole.ADMIN) as client:
        for text, accept in [
            (CREATE, "application/json"),
            (ALTER, "application/json"),
            (SELECT, "application/json"),
            (SELECT, "text/csv"),
            ("SHOW QUERIES", "application/json"),
            (VIEWS, "application/json"),
            ("INSERT INTO rooms VALUES ('cellar', 3)", "application/json"),
        ]:
            parsed.clear()
            reply = client.post("/v1/statements", json={"sql": text}, headers={"Accept": accept})
            assert reply.status_code == 200, reply.text
            assert parsed == Counter(text.split("; ")), text


def test_what_http_puts_together(live: Running, parsed: Counter[str]) -> None:
    with live.client(AccessRole.ADMIN) as client:
        client.post("/v1/statements", json={"sql": CREATE})
        whole = f"{SCRIPT.rpartition('INSERT')[0]}{CREATE}"
        for method, path, body in [
            ("PATCH", "/v1/queries/q", {"state": "PAUSED"}),
            ("GET", "/v1/relations/queries?where=name='q'", None),
            ("PUT", "/v1/catalog", {"sql": whole}),
            ("DELETE", "/v1/queries/q", None),
        ]:
            parsed.clear()
            reply = client.request(method, path, json=body)
            assert reply.status_code == 200, reply.text
            assert set(parsed.values()) == {1}, parsed


def test_an_update_of_a_control_relation(live: Running, parsed: Counter[str]) -> None:
    """It leads to statements that are made, and no text of theirs is parsed."""
    text = "UPDATE penstock.queries SET weight = 2, state = 'PAUSED' WHERE name = 'q'"
    with live.client(AccessRole.ADMIN) as client:
        client.post("/v1/statements", json={"sql": CREATE})
        parsed.clear()
        reply = client.post("/v1/statements", json={"sql": text})
        assert reply.status_code == 200, reply.text
        assert parsed == Counter([text])


def test_a_subscription_to_a_query(live: Running, parsed: Counter[str]) -> None:
    parsed.clear()
    text = "SUBSCRIBE TO (SELECT room FROM readings [NOW])"
    headers = {"Accept": "application/x-ndjson"}
    with (
        live.client(AccessRole.ADMIN) as client,
        client.stream("POST", "/v1/statements", json={"sql": text}, headers=headers) as reply,
    ):
        assert reply.status_code == 200
        assert parsed == Counter([text])


def test_statements_by_the_protocol_of_postgresql(tmp_path: Path, parsed: Counter[str]) -> None:
    """Also where they are prepared and described before they are executed, and whatever values they have."""
    service = in_process(tmp_path / "system")
    with running_pg(tmp_path / "door", service) as running, running.connect() as connection:
        for text in (
            CREATE,
            ALTER,
            "SELECT room FROM rooms WHERE level > 1",
            "SHOW QUERIES",
            "INSERT INTO notes VALUES ('hall', 'cold')",
        ):
            for prepare in (False, True) if text.startswith("S") else (False,):
                parsed.clear()
                connection.execute(text, prepare=prepare)
                assert parsed <= Counter([text]), text
        for text in (
            "SELECT room FROM rooms WHERE level > $1 LIMIT $2",
            "INSERT INTO notes VALUES ('values', $1)",
            "EXPLAIN SELECT level + $1 FROM rooms",
        ):
            parsed.clear()
            for value in (1, 2, 3):
                connection.execute(re.sub(r"\$\d", "%s", text), [value] * text.count("$"), prepare=True)
            assert parsed == Counter([text]), text
        for text in ("INSERT INTO notes VALUES ('hall', 'warm')", "INSERT INTO notes VALUES ('hall', $1)"):
            parsed.clear()
            with connection.transaction():
                connection.execute(text.replace("$1", "%s"), ["mild"] * text.count("$1"))
            assert parsed == Counter([text])
        texts = [f"INSERT INTO notes VALUES ('of {number}', 'a')" for number in range(5)]
        parsed.clear()
        with connection.transaction():
            for number, text in enumerate(texts):
                connection.execute(text, prepare=bool(number % 2))
            with suppress(psycopg.Rollback), connection.transaction():
                connection.execute("CREATE VIEW later AS SELECT room FROM rooms")
                raise psycopg.Rollback
            connection.execute("INSERT INTO notes VALUES ('of 5', %s)", ["b"], prepare=True)
        assert parsed == Counter([*texts, "CREATE VIEW later AS SELECT room FROM rooms",
                                  "INSERT INTO notes VALUES ('of 5', $1)"])  # fmt: skip
        found = connection.execute("SELECT room, note FROM notes WHERE room LIKE 'of%' ORDER BY room").fetchall()
        assert found == [*((f"of {number}", "a") for number in range(5)), ("of 5", "b")]
        parsed.clear()
        connection.execute("PREPARE p AS SELECT room FROM rooms WHERE level > $1")
        for level in range(3):
            connection.execute(f"EXECUTE p ({level})")
        assert parsed == Counter(["SELECT room FROM rooms WHERE level > $1"])
    service.close()


def test_queries_over_the_catalogs_of_postgresql(tmp_path: Path, looked_up: Counter[str]) -> None:
    """Whatever values they have, and whether they are described, prepared or declared as cursors."""
    service = in_process(tmp_path / "system")
    with running_pg(tmp_path / "door", service) as running, running.connect() as connection:
        looked_up.clear()
        text = "SELECT relname FROM pg_class WHERE relname = {} OR oid = {} ORDER BY 1 LIMIT {}"
        for name in ("rooms", "notes", "nothing"):
            found = connection.execute(text.format(*["%s"] * 3), [name, -1, 5], prepare=True).fetchall()
            assert found == ([] if name == "nothing" else [(name,)])
        assert looked_up == {text.format("$1", "$2", "$3"): 1}
        looked_up.clear()
        with connection.transaction():
            connection.execute("DECLARE c CURSOR FOR SELECT typname FROM pg_type WHERE typname = %s", ["int4"])
            assert connection.execute("FETCH ALL FROM c").fetchall() == [("int4",)]
        assert looked_up == {"SELECT typname FROM pg_type WHERE typname = $1": 1}
    service.close()
