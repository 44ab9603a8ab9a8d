"""The text of a statement is parsed once, whatever door it comes through."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.language.scripts import parse
from penstock.language.text import SourceText
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
        parsed.clear()
        connection.execute("PREPARE p AS SELECT room FROM rooms WHERE level > $1")
        for level in range(3):
            connection.execute(f"EXECUTE p ({level})")
        assert parsed == Counter(["SELECT room FROM rooms WHERE level > $1"])
    service.close()
