"""Control relations at a server whose queries run in this process: SELECT reads what it does, UPDATE sets it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import ServerClient, connect
from penstock.control.entities.attributes import Origin
from penstock.control.entities.page import control_relations_page
from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, ScriptErrors
from penstock.results.result_source import ResultRequest
from penstock.server.roles import AccessRole, Caller
from tests.server.running import Running
from tests.server.test_live_service import ROWS, SCRIPT, WARM, answers, ended, started


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with two queries that have answered. Tests here change attributes of their own queries alone."""
    found = started(tmp_path_factory.mktemp("control"))
    with connect(found.url, found.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE VIEW late AS SELECT room FROM readings [RANGE 1 HOUR] WHERE celsius < 0")
        client.execute(WARM)
        client.execute(WARM.replace("warm", "again"))
        client.insert("readings", ROWS)
        answers(found, "warm", 3)
    yield found
    ended(found)


@pytest.fixture
def client(running: Running) -> Iterator[ServerClient]:
    with connect(running.url, running.texts[AccessRole.ADMIN]) as made:
        yield made


def rows(client: ServerClient, sql: str) -> list[dict[str, Any]]:
    return client.select(sql).table.to_pylist()


def codes(error: pytest.ExceptionInfo[PenstockError | ScriptErrors]) -> list[str]:
    found = error.value
    return [one.code for one in found.errors] if isinstance(found, ScriptErrors) else [found.code]


# -- reading


@pytest.mark.parametrize("relation", CONTROL_RELATIONS, ids=lambda one: one.name)
def test_every_relation_has_the_columns_that_it_declares(relation: Any, client: ServerClient) -> None:
    table = client.select(f"SELECT * FROM {relation.qualified}").table
    assert table.column_names == [one.name for one in relation.attributes]
    assert [field.type for field in table.schema] == [one.type for one in relation.attributes]
    for attribute in relation.attributes:
        if attribute.origin is Origin.NOWHERE:
            assert table.column(attribute.name).null_count == table.num_rows and attribute.setting is None


def test_queries_show_what_they_have_done(client: ServerClient) -> None:
    (warm,) = rows(client, "SELECT * FROM penstock.queries WHERE name = 'warm'")
    assert (warm["state"], warm["kind"], warm["pattern"], warm["rows"]) == ("RUNNING", "relation", "STRICT", 3)
    # The rows lie in one log for both queries, each has its own groups.
    ((log,),) = (
        one.values()
        for one in rows(client, "SELECT SUM(state_bytes) AS b FROM penstock.operators WHERE kind = 'RowLog'")
    )
    assert warm["state_bytes"] == warm["own_bytes"] + log and warm["own_bytes"] > 0
    assert warm["shared_bytes"] == log // 2 > 0
    assert 0 < warm["cpu_share"] < 1 and 0 < warm["latency_p50"] <= warm["latency_p99"]
    assert warm["verdict"].startswith("bounded by RANGE 1 HOUR of readings")
    assert str(warm["heartbeat"]).startswith("2024-03-01 10:09:59.999999") and warm["started_at"] is not None


def test_streams_count_their_rows(client: ServerClient) -> None:
    (stream,) = rows(client, "SELECT name, rows, late, malformed, heartbeat, on_error FROM penstock.streams")
    assert (stream["name"], stream["rows"], stream["late"], stream["on_error"]) == ("readings", 3, 0, "dead letter")
    assert rows(client, "SELECT name, domain FROM penstock.relations") == [{"name": "rooms", "domain": None}]


def test_what_is_known_of_time_is_shown_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far streams and queries had come is restored before any row is read; sources of another time show ticks."""
    counted = "CREATE STREAM counted (at INT, k INT) FROM HTTP () TIMESTAMP BY at UNIT SECOND;"
    seen = "SELECT name, heartbeat, heartbeat_tick, lag IS NULL AS no_lag FROM penstock.{} ORDER BY name"
    shown = []
    for life in range(2):
        if life:
            monkeypatch.setattr(InProcessEngine, "round", lambda engine: None)
        found = started(tmp_path, SCRIPT + counted)
        with connect(found.url, found.texts[AccessRole.ADMIN]) as client:
            if not life:
                client.execute(WARM)
                client.execute("CREATE QUERY n AS SELECT k FROM counted [RANGE 5 SECONDS]")
                client.insert("readings", ROWS)
                client.insert("counted", [{"at": 7, "k": 1}])
                answers(found, "warm", 3)
                deadline = time.monotonic() + 60
                while rows(client, seen.format("streams"))[0]["heartbeat_tick"] is None:
                    assert time.monotonic() < deadline
            shown.append((rows(client, seen.format("streams")), rows(client, seen.format("queries"))))
        ended(found)
    (streams, queries), later = shown
    assert [one["heartbeat_tick"] for one in streams] == [6, 1709287799999999]
    assert streams[0]["heartbeat"] is None and streams[1]["heartbeat"] == queries[1]["heartbeat"] is not None
    assert [one["no_lag"] for one in streams] == [True, False]
    assert later == (streams, queries)


def test_rows_flow_through_operators_edges_and_shards(client: ServerClient) -> None:
    sql = "SELECT o.kind, o.rows_in, o.rows_out, o.queries FROM penstock.operators o JOIN penstock.query_operators q"
    found = rows(
        client, f"{sql} ON o.id = q.operator WHERE q.query = 'warm' AND o.kind IN ('Scan', 'RowLog', 'Aggregate')"
    )
    # The aggregate reads in place what the log has received.
    assert sorted((one["kind"], one["rows_in"], one["queries"]) for one in found) == [
        ("Aggregate", 0, 1),
        ("RowLog", 3, 2),
        ("Scan", 3, 2),
    ]
    assert {one["kind"]: one["rows_out"] > 0 for one in found} == {"Aggregate": True, "RowLog": False, "Scan": True}
    skew = rows(
        client,
        "SELECT operator, SUM(rows_in) AS n, COUNT(shard) AS shards FROM penstock.operator_shards"
        " GROUP BY operator HAVING SUM(rows_in) > 3",
    )
    assert all(one["n"] <= 5 for one in skew)
    edges = rows(
        client,
        "SELECT o.kind, e.rows, e.bytes, e.exchange_key FROM penstock.plan_edges e"
        " JOIN penstock.operators o ON o.id = e.to_operator WHERE o.kind IN ('RowLog', 'Aggregate')"
        " ORDER BY o.kind",
    )
    assert [(one["kind"], one["rows"]) for one in edges] == [("Aggregate", None), ("Aggregate", None), ("RowLog", 3)]
    # It is in the stage to which the rows are sent, once for both queries.
    assert {(one["exchange_key"], one["bytes"]) for one in edges} == {(None, None)}
    sent = rows(client, "SELECT rows FROM penstock.plan_edges WHERE exchange_key = 'columns 0'")
    assert [one["rows"] for one in sent] == [3]
    held = rows(
        client,
        "SELECT SUM(s.bytes) AS b FROM penstock.synopses s JOIN penstock.query_operators q"
        " ON q.operator = s.operator WHERE q.query = 'warm'",
    )
    assert held == rows(client, "SELECT state_bytes AS b FROM penstock.queries WHERE name = 'warm'")


def test_control_relations_join_with_data(client: ServerClient) -> None:
    sql = "SELECT r.room, q.name FROM rooms r, penstock.queries q WHERE q.name = 'warm' ORDER BY r.room"
    assert rows(client, sql) == [{"room": "attic", "name": "warm"}, {"room": "hall", "name": "warm"}]


def test_catalog_commands_and_settings(client: ServerClient) -> None:
    assert rows(client, "SELECT name, type FROM penstock.columns WHERE object = 'rooms' ORDER BY position") == [
        {"name": "room", "type": "STRING"},
        {"name": "floor", "type": "INT"},
    ]
    assert rows(client, "SELECT name, kind FROM penstock.views") == [{"name": "late", "kind": "relation"}]
    assert rows(client, "SELECT who, state FROM penstock.commands WHERE text LIKE 'CREATE QUERY warm%'") == [
        {"who": "admin", "state": "RUNNING"}
    ]
    assert rows(client, "SELECT COUNT(*) AS n FROM penstock.versions WHERE is_current")[0]["n"] == 1
    assert rows(client, "SELECT value, default_value FROM penstock.settings WHERE name = 'snapshot_memory'") == [
        {"value": "256 MB", "default_value": "256 MB"}
    ]
    assert {one["kind"] for one in rows(client, "SELECT kind FROM penstock.functions WHERE name = 'SUM'")} == {
        "aggregate"
    }


def test_statements_and_tokens(client: ServerClient, running: Running) -> None:
    assert {one["name"] for one in rows(client, "SELECT name, role FROM penstock.snapshots s, penstock.tokens t")} <= {
        "read",
        "control",
        "admin",
    }
    source = running.door.service.results("warm", ResultRequest(), Caller("somebody", AccessRole.READ))
    (found,) = rows(client, "SELECT who, text FROM penstock.subscriptions")
    source.close()
    assert found == {"who": "somebody", "text": "SUBSCRIBE TO `warm`"}


def test_attributes_are_the_columns_of_entities(client: ServerClient) -> None:
    sql = (
        "SELECT a.attribute, a.value, a.settable FROM penstock.attributes a JOIN penstock.queries q ON a.entity = q.id"
    )
    found = {one["attribute"]: one for one in rows(client, f"{sql} WHERE q.name = 'warm'")}
    assert found["rows"]["value"] == "3" and not found["rows"]["settable"] and found["on_failure"]["settable"]
    ids = [one["id"] for one in rows(client, "SELECT id FROM penstock.entities")]
    assert len(ids) == len(set(ids)) > 30


def test_what_cannot_be_set_is_not_said_to_be_settable(client: ServerClient) -> None:
    rows = client.select("SELECT name, settable FROM penstock.settings").to_arrow().to_pylist()
    fixed = {one["name"] for one in rows if not one["settable"]}
    assert fixed and all(name.startswith("metrics_") for name in fixed) and len(rows) > 2 * len(fixed)
    client.execute("CREATE RELATION still (a BIGINT) FROM MEMORY ()")
    sql = (
        "SELECT e.name, a.attribute FROM penstock.attributes AS a, penstock.entities AS e "
        "WHERE a.entity = e.id AND a.settable AND e.kind IN ('relation', 'stream', 'setting')"
    )
    for one in client.select(sql).to_arrow().to_pylist():
        assert one["name"] not in fixed
        if one["name"] == "still":
            assert one["attribute"] == "on_error", "a relation that never changes has neither time nor clients"
    client.execute("DROP RELATION still")


def test_counters_say_since_when(client: ServerClient) -> None:
    sql = "SELECT q.counted_since >= q.started_at AS later, q.rows FROM penstock.queries AS q"
    assert all(one["later"] for one in client.select(sql).to_arrow().to_pylist())
    for relation in ("operators", "streams"):
        found = client.select(f"SELECT counted_since FROM penstock.{relation}").to_arrow()["counted_since"].to_pylist()
        assert len(set(found)) == 1 and found[0] is not None


def test_lengths_in_a_plan_have_units(client: ServerClient) -> None:
    found = client.select("SELECT spec FROM penstock.operators").to_arrow()["spec"].to_pylist()
    assert any("MINUTE" in one or "HOUR" in one for one in found) and not any("000 ticks" in one for one in found)


def test_the_page_is_printed_from_the_registry() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "control-relations.md").read_text(encoding="utf-8")
    assert page == control_relations_page(), "python -m penstock.control.entities.page > docs/control-relations.md"


def test_the_examples_of_the_page_are_carried_out(client: ServerClient) -> None:
    examples = re.findall(r"```sql\n(.*?)```", control_relations_page(), re.DOTALL)
    statements = [one for example in examples for one in example.split(";\n") if one.strip()]
    assert len(statements) >= 10
    for one in statements:
        # The server of these tests has two queries, and no number is known beforehand.
        done = client.execute(one.replace("CONFIRM 3 ROWS", "WHERE name = 'nothing'"))
        assert done[0].state in ("DONE", "COMPLETED", "RUNNING"), one
    client.execute("DROP QUERY slow; DROP QUERY falling_behind")


def test_the_log_of_batches_is_selected(client: ServerClient) -> None:
    found = rows(client, "SELECT number, rows_in FROM penstock.batch_log ORDER BY number")
    listed = rows(client, "SELECT number, rows_in FROM penstock.batches WHERE rows_in > 0 ORDER BY number")
    assert found == listed and sum(one["rows_in"] for one in found) == 3
    (last,) = rows(client, "SELECT COUNT(*) AS n, MAX(rows_in) AS most FROM penstock.batch_log [ROWS 1]")
    assert last == {"n": 1, "most": found[-1]["rows_in"]}


def test_entities_over_http(running: Running) -> None:
    with running.client(AccessRole.ADMIN) as http:
        listed = http.get("/v1/entities", params={"kind": "operator", "query": "WARM"}).json()["entities"]
        assert listed and all("warm" in one["queries"] and one["kind"] == "operator" for one in listed)
        unknown = http.get("/v1/entities", params={"kind": "quety"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "P0201"), unknown.text
        assert "query" in unknown.json()["hint"]
        (query,) = http.get("/v1/entities", params={"kind": "query", "query": "warm"}).json()["entities"]
        found = {one["name"]: one for one in http.get(f"/v1/entities/{query['id']}").json()["attributes"]}
        assert (found["rows"]["value"], found["rows"]["unit"], found["rows"]["settable"]) == ("3", "rows", False)
        assert found["weight"]["settable"] and found["weight"]["default"] == "1"
        answer = http.patch(
            f"/v1/entities/{query['id']}", json={"attributes": {"comment": "it's \\ odd", "weight": "2"}}
        )
        assert answer.status_code == 200, answer.text
        attributes = http.get("/v1/queries/warm").json()["attributes"]
        assert (attributes["comment"], attributes["weight"]) == ("it's \\ odd", "2")
        for body, code, status in (
            ({"attributes": {"rows": "1"}}, "P0752", 400),
            ({"attributes": {"comment": "x", "weight": "-1"}}, "P0104", 400),
            ({"attributes": {"nothing": "1"}}, "P0753", 400),
            ({"attributes": {}}, "P0803", 400),
        ):
            answer = http.patch(f"/v1/entities/{query['id']}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert http.get("/v1/queries/warm").json()["attributes"] == attributes, "all of them or none"
        assert http.get("/v1/entities/query:999").json()["code"] == "P0201"
    with running.client(AccessRole.READ) as http:
        assert http.patch(f"/v1/entities/{query['id']}", json={"attributes": {"weight": "1"}}).status_code == 403


def test_relations_over_http(running: Running) -> None:
    with running.client(AccessRole.READ) as http:
        found = http.get("/v1/relations/Queries", params={"where": "name = 'warm' OR rows < 0"}).json()
        assert [one["name"] for one in found["statements"][0]["rows"]] == ["warm"]
        for where, code in (
            ("nothing = 1", "P0202"),
            ("1 = 1; DROP QUERY warm", "P0101"),
            ("name =", "P0101"),
            ("rows", "P0203"),
        ):
            answer = http.get("/v1/relations/queries", params={"where": where})
            assert answer.status_code == 400 and answer.json()["code"] == code, answer.text
        assert http.get("/v1/relations/nothing").json()["code"] == "P0201"
        own = http.get("/v1/relations/warm").json()
        assert own["code"] == "P0201" and "GET /v1/queries/q/results" in own["hint"]
        csv = http.get("/v1/relations/versions", headers={"Accept": "text/csv"})
        assert csv.text.splitlines()[0] == "number,command,commands,at,is_current"


# -- setting


def test_an_update_is_a_command_like_those_it_stands_for(client: ServerClient) -> None:
    client.execute("CREATE STREAM kept (at TIMESTAMP) FROM HTTP () TIMESTAMP BY at RETAIN 1 HOUR")
    client.execute("CREATE QUERY mine AS SELECT at FROM kept [RANGE 1 MINUTE]")
    done = client.execute("UPDATE penstock.queries SET on_failure = 'stop server', comment = name WHERE name = 'mine'")
    assert done[0].number is not None
    assert client.query("mine").attributes == {"on_failure": "stop server", "comment": "mine"}
    client.execute("UPDATE penstock.queries SET state = 'PAUSED', comment = 'it''s paused' WHERE name = 'mine'")
    assert (client.query("mine").state, client.query("mine").attributes["comment"]) == ("PAUSED", "it's paused")
    same = client.execute("UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'mine'")
    assert same[0].number is None and same[0].text == "no value changes"
    client.execute("UPDATE penstock.queries SET state = 'RUNNING' WHERE name = 'mine'")
    assert client.query("mine").state == "RUNNING"
    client.execute("DROP STREAM kept CASCADE")


def test_an_update_of_attributes_sets_those_of_any_entity(client: ServerClient) -> None:
    client.execute(WARM.replace("warm", "mine"))
    (found,) = rows(client, "SELECT id FROM penstock.queries WHERE name = 'mine'")
    where = f"WHERE entity = '{found['id']}' AND attribute ="
    client.execute(f"UPDATE penstock.attributes SET value = 'a note' {where} 'comment'")
    assert client.query("mine").attributes == {"comment": "a note"}
    with pytest.raises((PenstockError, ScriptErrors)) as error:
        client.execute(f"UPDATE penstock.attributes SET value = '1' {where} 'rows'")
    assert codes(error) == ["P0752"]
    client.execute("DROP QUERY mine")


def test_streams_and_settings_are_set(client: ServerClient) -> None:
    client.execute("CREATE STREAM other (at TIMESTAMP) FROM HTTP () TIMESTAMP BY at")
    client.execute("UPDATE penstock.streams SET retain = '10 MINUTES', rate_limit = 5 WHERE name = 'other'")
    sql = "SELECT retain, rate_limit FROM penstock.streams WHERE name = 'other'"
    assert rows(client, sql) == [{"retain": "10 MINUTE", "rate_limit": 5}]
    client.execute("UPDATE penstock.streams SET retain = NULL, rate_limit = 'none' WHERE name = 'other'")
    assert rows(client, sql) == [{"retain": None, "rate_limit": None}]
    client.execute("DROP STREAM other")
    client.execute("UPDATE penstock.settings SET value = '7' WHERE name = 'seed'")
    assert rows(client, "SELECT value FROM penstock.settings WHERE name = 'seed'") == [{"value": "7"}]


def test_an_update_of_all_rows_is_confirmed(client: ServerClient) -> None:
    for sql, number in (
        ("UPDATE penstock.queries SET state = 'PAUSED'", 2),
        ("UPDATE penstock.queries SET state = 'PAUSED' CONFIRM 3 ROWS", 2),
        ("UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'warm' CONFIRM 2 ROWS", 1),
    ):
        with pytest.raises((PenstockError, ScriptErrors)) as error:
            client.execute(sql)
        assert codes(error) == ["P0753"] and f"CONFIRM {number} ROWS" in str(error.value)
    client.execute("UPDATE penstock.queries SET comment = 'x' CONFIRM 2 ROWS")
    assert {query.attributes["comment"] for query in client.queries()} == {"x"}


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UPDATE penstock.queries SET rows = 0 WHERE name = 'warm'", "P0752"),
        ("UPDATE penstock.queries SET nothing = 0 WHERE name = 'warm'", "P0202"),
        ("UPDATE penstock.batches SET seconds = 0 WHERE number = 0", "P0752"),
        ("UPDATE penstock.nothing SET x = 0 WHERE y = 0", "P0201"),
        ("UPDATE penstock.queries SET state = 'FAILED' WHERE name = 'warm'", "P0752"),
        ("UPDATE penstock.queries SET on_failure = 'explode' WHERE name = 'warm'", "P0104"),
        ("UPDATE penstock.queries SET comment = NULL WHERE name = 'again' OR name = 'warm'", "P0752"),
        ("UPDATE penstock.settings SET value = 'blue' WHERE name = 'seed'", "P0104"),
        ("UPDATE penstock.queries SET weight = 1/0 WHERE name = 'warm'", "P0752"),
        ("UPDATE penstock.queries SET weight = 1e309 WHERE name = 'warm'", "P0104"),
        ("UPDATE penstock.queries SET weight = CAST('NaN' AS DOUBLE) WHERE name = 'warm'", "P0104"),
        ("UPDATE penstock.queries SET weight = TRUE WHERE name = 'warm'", "P0104"),
        ("UPDATE penstock.queries SET weight = 2, WEIGHT = 3 WHERE name = 'warm'", "P0206"),
        ("UPDATE penstock.queries SET weight = 2 WHERE name IN (SELECT name FROM penstock.queries)", "P0312"),
        ("UPDATE penstock.queries SET weight = SUM(weight) WHERE name = 'warm'", "P0304"),
        ("UPDATE penstock.queries SET weight = 2 WHERE weight", "P0203"),
        ("UPDATE penstock.queries SET weight = 2 WHERE name = 'warm' CONFIRM 99999999999999999999999 ROWS", "P0753"),
        (
            "UPDATE penstock.queries SET weight = 7 WHERE name = 'warm'; UPDATE penstock.queries SET weight = -7"
            " WHERE name = 'warm'",
            "P0104",
        ),
        ("UPDATE penstock.queries SET period = '1 MINUTE' WHERE name = 'warm'", "P0752"),
        ("UPDATE penstock.archives SET layout = 'x' WHERE TRUE", "P0752"),
        ("UPDATE penstock.streams SET rate_limit = 9223372036854775808 WHERE name = 'readings'", "P0104"),
        ("UPDATE penstock.streams SET rate_limit = '" + "9" * 5_000 + "' WHERE name = 'readings'", "P0104"),
        ("UPDATE penstock.streams SET retain = '99999999999 DAYS' WHERE name = 'readings'", "P0102"),
        ("UPDATE penstock.streams SET slack = NULL, on_error = NULL WHERE name = 'readings'", "P0752"),
        ("UPDATE penstock.settings SET value = '1 MB' WHERE name = 'snapshot_memory'", "P0805"),
        ("UPDATE rooms SET floor = 1 CONFIRM 1 ROWS", "P0103"),
        ("SELECT * FROM penstock.nothing", "P0201"),
        ("SELECT * FROM elsewhere.queries", "P0201"),
        ("SELECT * FROM penstock.queries [RANGE 1 HOUR]", "P0301"),
        ("CREATE QUERY q AS SELECT name FROM penstock.queries", "P0751"),
        ("CREATE VIEW v AS SELECT name FROM penstock.queries", "P0751"),
        ("SUBSCRIBE TO (SELECT name FROM penstock.queries)", "P0751"),
        ("EXPLAIN START SELECT name FROM penstock.queries", "P0751"),
        ("CREATE STREAM `penstock.x` (at TIMESTAMP) FROM HTTP () TIMESTAMP BY at", "P0206"),
        ("DELETE FROM penstock.queries", "P0101"),
    ],
)
def test_what_cannot_be_read_or_set(sql: str, code: str, client: ServerClient) -> None:
    shown = "SELECT name, state, weight, comment, on_failure FROM penstock.queries"
    before = rows(client, shown), rows(client, "SELECT name, slack, retain, rate_limit FROM penstock.streams")
    with pytest.raises((PenstockError, ScriptErrors)) as error:
        client.execute(sql)
    assert codes(error) == [code]
    if sql.startswith("UPDATE"):
        assert "line 1:" in str(error.value), "the place is missing"
    after = rows(client, shown), rows(client, "SELECT name, slack, retain, rate_limit FROM penstock.streams")
    assert after == before


def test_numbers_are_set_with_all_their_digits(client: ServerClient) -> None:
    client.execute("CREATE QUERY `o'x; --` AS SELECT room FROM readings")
    try:
        for value in (1.23456789012345, 0.1, 3.0, 1e308, 5e-324, 123456789.0, 0.0):
            client.execute(f"UPDATE penstock.queries SET weight = {value!r} WHERE name LIKE 'o%'")
            shown = rows(client, "SELECT weight FROM penstock.queries WHERE name LIKE 'o%'")
            assert shown == [{"weight": value}]
        client.execute("UPDATE penstock.queries SET weight = weight + 0.125, comment = 'a''; --' WHERE name LIKE 'o%'")
        assert rows(client, "SELECT weight, comment FROM penstock.queries WHERE name LIKE 'o%'") == [
            {"weight": 0.125, "comment": "a'; --"}
        ]
    finally:
        client.execute("DROP QUERY `o'x; --`")


def test_a_limit_is_one_that_can_be_shown(client: ServerClient) -> None:
    most = 2**63 - 1
    client.execute(f"UPDATE penstock.streams SET rate_limit = {most} WHERE name = 'readings'")
    try:
        assert rows(client, "SELECT rate_limit FROM penstock.streams") == [{"rate_limit": most}]
    finally:
        client.execute("UPDATE penstock.streams SET rate_limit = NULL WHERE name = 'readings'")


def test_who_may_set_what(running: Running) -> None:
    with connect(running.url, running.texts[AccessRole.READ]) as reader:
        assert reader.select("SELECT COUNT(*) AS n FROM penstock.queries").table.column("n").to_pylist() == [2]
        with pytest.raises(PenstockError, match="P0802"):
            reader.execute("UPDATE penstock.queries SET comment = 'x' WHERE name = 'warm'")
    with connect(running.url, running.texts[AccessRole.CONTROL]) as controller:
        controller.execute("UPDATE penstock.queries SET comment = 'y' WHERE name = 'warm'")
        with pytest.raises((PenstockError, ScriptErrors)) as error:
            controller.execute("UPDATE penstock.settings SET value = '1' WHERE name = 'seed'")
    assert codes(error) == ["P0802"]


def test_what_was_set_is_there_after_a_restart(tmp_path: Path) -> None:
    running = started(tmp_path)
    with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
        client.execute(WARM)
        for _ in range(2):
            client.execute("UPDATE penstock.queries SET comment = CONCAT(name, comment) WHERE name = 'warm'", key="k")
    ended(running)
    running = started(tmp_path)
    with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
        assert rows(client, "SELECT comment FROM penstock.queries") == [{"comment": "warm"}]
    ended(running)


def test_there_are_none_without_a_server() -> None:
    from penstock import Session

    with pytest.raises((PenstockError, ScriptErrors)) as error:
        Session().execute("SELECT * FROM penstock.queries")
    assert codes(error) == ["P0751"]


# -- choices of a plan


def test_choices_of_a_plan_over_http_and_in_what_is_explained_and_exported(running: Running) -> None:
    """Its query is a stream, and reads one which nothing is posted to: of the next instant the former plan may have
    emitted some, so the change goes on until the query is dropped."""
    with (
        connect(running.url, running.texts[AccessRole.ADMIN]) as client,
        running.client(AccessRole.ADMIN) as http,
    ):
        client.execute("CREATE STREAM pairs (at INT, k INT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND RETAIN 1 HOUR")
        client.execute(
            "CREATE QUERY met AS ISTREAM(SELECT a.k FROM pairs [RANGE 9 SECONDS] a, pairs [RANGE 9 SECONDS] b"
            " WHERE a.k = b.k)"
        )
        client.insert("pairs", [{"at": 1, "k": 1}, {"at": 3, "k": 1}])
        answers(running, "met", 1)
        sql = "SELECT * FROM penstock.synopses WHERE possible LIKE 'Hash%' AND span = 9"
        at = 3
        while not (found := [one for one in rows(client, sql) if one["rows"]]):
            # State is measured as often as it costs little.
            at += 1
            client.insert("pairs", [{"at": at, "k": 1}])
        (held,) = found
        assert held["kind"] == "HashJoinIndex" and 1 <= held["oldest"] < held["newest"] <= at
        assert held["possible"] == "HashJoinIndex, SortedRuns" and held["chunks"] > 0
        answer = http.patch(f"/v1/entities/{held['id']}", json={"attributes": {"kind": "heap"}})
        assert (answer.status_code, answer.json()["code"]) == (400, "P0752")
        assert answer.json()["hint"] == "HashJoinIndex (hash), SortedRuns (runs)"
        answer = http.patch(f"/v1/entities/{held['id']}", json={"attributes": {"kind": "runs"}})
        assert answer.status_code == 200, answer.text
        (explained,) = client.execute("EXPLAIN QUERY met")
        assert "kind.rows = SortedRuns, chosen by UPDATE or ALTER QUERY" in explained.text
        (exported,) = client.execute("EXPORT PLAN OF met")
        ((key, chosen),) = json.loads(exported.text)["attributes"].items()
        assert chosen == {"kind.rows": "SortedRuns"} and ".WindowStore " in key
        client.execute(
            "UPDATE penstock.attributes SET value = NULL"
            f" WHERE entity = '{held['id']}' AND attribute = 'kind' CONFIRM 1 ROW"
        )
        (explained,) = client.execute("EXPLAIN QUERY met")
        assert "chosen by" not in explained.text
        client.execute("DROP STREAM pairs CASCADE")
