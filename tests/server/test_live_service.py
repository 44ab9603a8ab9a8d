"""The doors in front of a real control, whose queries run in this process."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.client import connect
from penstock.errors import PenstockError
from penstock.language.printer import string_text
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.live.live_service import LiveService
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile
from penstock.settings import Settings
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, floor INT, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 0), ('attic', 2);
"""
WARM = "CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room"
ROWS = [
    {"at": "2024-03-01 09:00:00", "room": "hall", "celsius": 19.5},
    {"at": "2024-03-01 09:20:00", "room": "attic", "celsius": 23.0},
    {"at": "2024-03-01 10:10:00", "room": "hall", "celsius": 20.0},
]


def started(folder: Path, script: str = SCRIPT) -> Running:
    place = folder / "tokens.json"
    options = ServeOptions(folder / "checkpoint", "", script=(script, "rooms.cql"), token_file=place)
    service = start_in_process(options, ServerPolicy(closed=(folder / "checkpoint",)))
    tokens = TokenFile(place)
    if not tokens.entries():
        (folder / "texts").write_text("\n".join(tokens.add(role.word, role) for role in AccessRole), encoding="utf-8")
    texts = dict(zip(AccessRole, (folder / "texts").read_text(encoding="utf-8").split("\n"), strict=True))
    address = Address("127.0.0.1", 0)
    door = HttpDoor(service, tokens, HostNames.of(address), DoorLimits.of(Settings()))
    return Running(HttpServer(door, address), door, tokens, texts)


def ended(running: Running) -> None:
    running.server.close()
    running.door.service.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Running]:
    running = started(tmp_path)
    yield running
    ended(running)


def statement(client: httpx.Client, sql: str, **more: Any) -> httpx.Response:
    return client.post("/v1/statements", json={"sql": sql, **more})


def answers(running: Running, query: str, count: int) -> list[dict[str, Any]]:
    """Return the first rows of a query, which may still come."""
    rows: list[dict[str, Any]] = []
    client = connect(running.url, running.texts[AccessRole.READ])
    with client, client.subscribe(query, beginning=True) as batches:
        for batch in batches:
            rows += batch.to_pylist()
            if len(rows) >= count:
                return rows
    raise AssertionError("the subscription ended")


def test_a_query_is_registered_answered_changed_and_dropped(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        (created,) = client.execute(WARM)
        assert (created.kind, created.state) == ("CREATE QUERY", "RUNNING") and created.number == 4
        assert client.insert("readings", ROWS) == 3
        rows = answers(live, "warm", 3)
        assert [(row["op"], row["room"], row["celsius"]) for row in rows[:3]] == [
            ("+", "hall", 19.5),
            ("+", "attic", 23.0),
            ("-", "hall", 19.5),
        ]
        assert client.execute("ALTER QUERY warm PAUSE")[0].number == 5
        assert client.query("warm").state == "PAUSED"
        client.execute("DROP QUERY warm")
        assert client.queries() == []
        assert [command.who for command in client.commands()][-3:] == ["control"] * 3


def test_without_spark_progress_says_up_to_where_answers_are_complete(live: Running) -> None:
    """Also of a query that is paused meanwhile, and once for those who come later."""
    client = connect(live.url, live.texts[AccessRole.ADMIN])
    seen = "SELECT ISTREAM(room) FROM readings [NOW]"
    hour = "SELECT COUNT(*) AS n FROM readings [RANGE 1 HOUR]"
    with client:
        client.execute(f"CREATE QUERY seen AS {seen}; CREATE QUERY counts AS {hour};")
        client.insert("readings", ROWS)
        for name, rows in {"seen": ["hall", "attic", None], "counts": [1, 1, 2, 2, 1, None]}.items():
            assert len(answers(live, name, len(rows) - 1)) == len(rows) - 1
        client.execute("ALTER QUERY counts PAUSE;")
        for name, rows in {"seen": ["hall", "attic", None], "counts": [1, 1, 2, 2, 1, None]}.items():
            subscription = client.subscribe(name, beginning=True, progress=True, until_now=True)
            with subscription as batches:
                found = [row for batch in batches for row in batch.to_pylist()]
            assert [list(row.values())[2] for row in found] == rows, name
            assert [row["op"] for row in found][-1] == "p" and str(found[-1]["ts"]).startswith(
                "2024-03-01 10:09:59.999999"
            )


def test_a_reply_names_the_instant_at_which_its_query_begins(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        (first,) = client.execute(WARM)
        assert first.instant is None, "it begins with its sources"
        client.insert("readings", ROWS)
        answers(live, "warm", 3)
        again, other = (client.execute(WARM.replace("warm", "later"), key="k")[0] for _ in range(2))
        assert again.instant == other.instant == "2024-03-01T10:09:59.999999Z"
        assert client.query("warm").instant == again.instant
        assert client.catalog().sources[0].heartbeat == again.instant


def test_the_instant_at_which_a_query_begins_that_reads_two_streams(live: Running) -> None:
    """A row of the stream that is ahead has been read, so that no answer of a query that begins now has it."""
    declared = " ".join(
        f"CREATE STREAM {name} (at INT, v INT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND RETAIN 1000 SECONDS;"
        for name in "ab"
    )
    pairs = "CREATE QUERY {} {} AS SELECT ISTREAM(a.v) FROM a [RANGE 50 SECONDS], b [RANGE 50 SECONDS] WHERE a.v = b.v"
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute(declared)
        client.execute(pairs.format("first", ""))
        position = client.insert("a", [{"at": 60, "v": 1}])
        client.insert("b", [{"at": 20, "v": 1}])
        deadline = time.monotonic() + 60
        while [one.heartbeat for one in client.catalog().sources if one.name in "ab"] != ["59", "19"]:
            assert time.monotonic() < deadline, position
            time.sleep(0.05)
        (now,), (warm,) = (client.execute(pairs.format(mode, f"START {mode}")) for mode in ("now", "warm"))
        assert (now.instant, warm.instant) == ("59", "19")
        client.insert("b", [{"at": 61, "v": 1}])
        client.insert("a", [{"at": 61, "v": 1}, {"at": 90, "v": 0}])
        client.insert("b", [{"at": 90, "v": 0}])
        # The row at 60 meets that of the other stream in the one that begins with its past.
        assert [len(answers(live, name, rows)) for name, rows in (("warm", 4), ("now", 1))] == [4, 1]


def test_a_change_of_a_query_with_a_key_happens_once(live: Running) -> None:
    """Also where the query is gone by it, or has another name."""
    with live.client(AccessRole.CONTROL) as client:
        statement(client, WARM)
        for method, body in (("PATCH", {"name": "other"}), ("DELETE", None)):
            name = "warm" if method == "PATCH" else "other"
            more = {} if body is None else {"json": body}
            replies = [
                client.request(method, f"/v1/queries/{name}", headers={"Idempotency-Key": method}, **more)
                for _ in range(2)
            ]
            assert [one.status_code for one in replies] == [200, 200], replies[1].text
            first, second = (one.json()["statements"][0]["number"] for one in replies)
            assert first == second
        unknown = client.delete("/v1/queries/other", headers={"Idempotency-Key": "new"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "P0201")
        assert "position" not in unknown.json(), "no text was sent"


def test_the_same_key_is_the_same_command(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        first = client.execute(WARM, key="k")[0].number
        assert client.execute(WARM, key="k")[0].number == first
        with pytest.raises(PenstockError, match="P0731"):
            client.execute("DROP QUERY warm", key="k")
        assert client.insert("readings", ROWS, key="r") == client.insert("readings", ROWS, key="r")
        with pytest.raises(PenstockError, match="P0731"):
            client.insert("readings", ROWS[:1], key="r")
    with live.client(AccessRole.CONTROL) as http:
        headers = {"Idempotency-Key": "k"}
        answer = http.post("/v1/statements", json={"sql": "DROP QUERY warm"}, headers=headers)
        assert answer.status_code == 422


def test_select_and_what_describes_the_system(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute(WARM)
        assert client.select("SELECT room FROM rooms ORDER BY floor").to_arrow().to_pylist() == [
            {"room": "hall"},
            {"room": "attic"},
        ]
        shown, described, explained = client.execute("SHOW QUERIES; DESCRIBE warm; EXPLAIN SELECT room FROM readings")
        assert WARM in (shown.text or "") and "celsius DOUBLE" in (described.text or "")
        assert "logical plan" in (explained.text or "")
    with live.client(AccessRole.READ) as http:
        assert "readings" in http.get("/v1/queries/warm/plan").text
        assert [one["name"] for one in http.get("/v1/catalog").json()["sources"]] == ["readings", "rooms"]
        assert http.get("/readyz").status_code == 200


def test_metrics_have_the_names_that_queries_were_given(live: Running) -> None:
    """The plan calls them by numbers; a name is that of the query also after it was changed."""
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute(WARM.replace("warm", '`q 7 "é`') + "; " + WARM.replace("warm", "q3"))
        client.insert("readings", ROWS)
        answers(live, "q3", 3)
        for name in ("q3", "q99"):
            found = client.metrics()
            series = dict(re.findall(r"^penstock_query_rows_total{query=(.*)} (.*)$", found, re.M))
            assert set(series) == {r'"q 7 \"é"', f'"{name}"'} and float(series[f'"{name}"']) > 0
            assert set(re.findall(r'query="(.*?)",stage', found)) <= {r"q 7 \"é", name, ""}
            if name == "q3":
                client.execute("ALTER QUERY q3 RENAME TO q99")


def test_without_spark_a_query_that_fails_is_told_and_dropped(live: Running) -> None:
    """It fails alone: the rows of others come, and the server is ready."""
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client, live.client(AccessRole.READ) as http:
        client.execute("CREATE QUERY rooms_seen AS ISTREAM(SELECT room FROM readings [NOW])")
        client.execute("CREATE QUERY bad AS SELECT (SELECT celsius FROM readings [RANGE 1 DAY]) AS only FROM rooms")
        client.insert("readings", ROWS)
        deadline = time.monotonic() + 20
        while (bad := client.query("bad")).state != "FAILED" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert bad.state == "FAILED" and bad.error is not None and "P0612" in str(bad.error), bad
        client.execute("DROP QUERY bad")
        assert [row["room"] for row in answers(live, "rooms_seen", 2)[:2]] == ["hall", "attic"]
        assert http.get("/readyz").status_code == 200


def test_show_queries_has_names_and_states(live: Running) -> None:
    """Of queries that were renamed, exchanged, replaced, paused, or have failed, what holds now."""
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE QUERY a AS SELECT room FROM readings [NOW]")
        client.execute("CREATE QUERY `b c` AS SELECT room FROM readings [RANGE 1 HOUR]")
        client.execute("ALTER QUERY a RENAME TO z; ALTER QUERY `b c` PAUSE; CREATE QUERY d AS SELECT room FROM rooms")
        client.execute("ALTER QUERY d AS SELECT room FROM rooms WHERE floor > 0")
        client.execute("ALTER QUERY z SWAP WITH d")
        (shown,) = client.execute("SHOW QUERIES")
        assert [name for name, _ in shown.columns or ()] == ["name", "state", "kind", "result", "remark", "statement"]
        assert [one["name"] for one in shown.rows or ()] == [one.name for one in client.queries()]
        assert (shown.text or "").splitlines() == [
            "CREATE QUERY `z` AS SELECT room FROM rooms WHERE floor > 0",
            "CREATE QUERY `b c` AS SELECT room FROM readings [RANGE 1 HOUR] -- PAUSED",
            "CREATE QUERY `d` AS SELECT room FROM readings [NOW]",
        ]


def test_errors_of_answers_have_a_place(live: Running) -> None:
    with live.client(AccessRole.ADMIN) as http:
        for sql in ("SELECT COUNT(*) AS n FROM readings", "EXPLAIN ANALYZE SELECT room FROM rooms"):
            error = statement(http, f"SHOW VIEWS;\n {sql};").json()
            place = error["position"]
            assert (place["line"], place["column"], place["length"]) == (2, 2, len(sql)), error
            assert error["hint"], error


def test_isolation_window_is_what_a_select_has_and_latest_is_refused(live: Running) -> None:
    select = "SELECT COUNT(*) AS n FROM rooms"
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        _, answer = client.execute(f"SET isolation = 'window'; {select}")
        assert answer.rows == [{"n": 2}], answer
    with live.client(AccessRole.ADMIN) as http:
        refused = statement(http, f"SET\n isolation = 'latest';\n{select}")
        assert refused.status_code == 422 and refused.json()["code"] == "P0901"
        assert refused.json()["position"]["line"] == 2 and "'window'" in refused.json()["hint"]
        for wrong in (
            statement(http, select, settings={"isolation": "latest"}),
            statement(http, select, settings={"isolation": "latest"}, dry=True),
            statement(http, "ALTER SYSTEM SET isolation = 'latest'"),
        ):
            assert (wrong.status_code, wrong.json()["code"]) == (422, "P0901"), wrong.text


def test_a_set_with_nothing_behind_it_says_what_it_holds_for(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        (alone,) = client.execute("SET shards = 8")
        assert "SET holds for the statements behind it" in alone.notices[0]
        assert "ALTER SYSTEM SET shards" in alone.notices[0] and "--set shards=" in alone.notices[0]
        assert not any(one.notices for one in client.execute("SET shards = 8; SELECT COUNT(*) AS n FROM rooms"))


def test_a_dry_run_keeps_positions_and_changes_nothing(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as http:
        (checked,) = statement(http, WARM, dry=True).json()["statements"]
        assert (checked["kind"], checked["state"]) == ("CREATE QUERY", "CHECKED")
        check = checked["check"]
        assert check["query"] == "warm" and "physical plan" in check["plan"] and check["rows_per_second"] > 0
        assert check["state"]["bounded"] == "bounded" and check["state"]["bytes"] > 0
        assert {one["start"]: one["possible"] for one in check["starts"]} == {
            "NOW": True,
            "WARM": True,
            "BEGINNING": True,
        }
        view = statement(http, "CREATE VIEW v AS SELECT room FROM readings", dry=True).json()["statements"]
        assert view == [{"kind": "CREATE VIEW", "state": "CHECKED"}]
        wrong = statement(http, "CREATE VIEW v AS\n SELECT roam FROM readings", dry=True)
        assert wrong.status_code == 400 and wrong.json()["position"]["line"] == 2
        assert wrong.json()["position"]["column"] == 9
        assert http.get("/v1/queries").json() == {"queries": []}


def test_a_dry_run_tells_which_starts_can_be_had(live: Running) -> None:
    """After rows of a stream that retains nothing have been read, a window is empty at first."""
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute(WARM)
        client.insert("readings", ROWS)
        next(iter(client.subscribe("warm", beginning=True)))
    with live.client(AccessRole.CONTROL) as http:
        for sql in (WARM.replace("QUERY warm", "QUERY other"), f"ALTER QUERY {WARM[13:]} START NOW RESET"):
            (checked,) = statement(http, sql, dry=True).json()["statements"]
            starts = {one["start"]: one for one in checked["check"]["starts"]}
            assert starts["NOW"]["possible"] and not starts["WARM"]["possible"] and starts["WARM"]["obstacles"]
        explained = statement(http, f"EXPLAIN START {WARM[len('CREATE QUERY warm AS ') :]}").json()["statements"][0]
        assert explained["text"].startswith("NOW: yes\nWARM: no; ")


def test_what_the_policy_refuses_is_in_no_log(live: Running) -> None:
    with live.client(AccessRole.ADMIN) as http:
        before = http.get("/v1/commands").json()
        for sql in (
            "CREATE STREAM s (a INT) FROM FILES (path '/etc/*.csv') TIMESTAMP BY a",
            "CREATE QUERY q INTO FILES (path '/var/x') AS SELECT room FROM readings",
            "CREATE FUNCTION f (INT) RETURNS INT AS 'os:getpid'",
            "SET spark.jars = 'x'",
        ):
            answer = statement(http, sql)
            assert answer.status_code == 403 and answer.json()["code"] == "P0805"
        assert statement(http, "SHOW QUERIES", settings={"spark.jars": "x"}).status_code == 403
        assert http.get("/v1/commands").json() == before


def test_a_restart_goes_on_with_what_was_registered(tmp_path: Path) -> None:
    first = started(tmp_path)
    with connect(first.url, first.texts[AccessRole.CONTROL]) as client:
        client.execute(WARM)
        client.insert("readings", ROWS[:2])
        assert len(answers(first, "warm", 1)) >= 1
    ended(first)
    again = started(tmp_path)
    try:
        with connect(again.url, again.texts[AccessRole.CONTROL]) as client:
            assert [query.name for query in client.queries()] == ["warm"]
            client.insert("readings", ROWS[2:])
            rows = answers(again, "warm", 3)
            assert [row["op"] for row in rows] == ["+", "+", "-"]
            assert client.select("SELECT COUNT(*) AS n FROM rooms").to_arrow().to_pylist() == [{"n": 2}]
    finally:
        ended(again)


def test_another_server_on_the_checkpoint_is_refused(live: Running, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="P0609"):
        started(tmp_path)


def test_errors_of_the_script_at_the_start_have_their_places(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        started(tmp_path, SCRIPT + "CREATE VIEW v AS\n  SELECT roam FROM readings;\n")
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (5, 10)


def test_events_of_commands_and_batches(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as http, http.stream("GET", "/v1/events") as events:
        lines = events.iter_lines()
        deadline = time.monotonic() + 20
        with live.client(AccessRole.CONTROL) as other:
            statement(other, WARM)
        kinds: set[str] = set()
        while not {"event: command", "event: batch"} <= kinds:
            assert time.monotonic() < deadline
            kinds.add(next(lines))


def test_the_catalog_is_brought_to_a_document(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as http:
        statement(http, WARM + "; CREATE QUERY `odd name``;` WITH (comment 'it''s') AS SELECT room FROM readings [NOW]")
        document = http.get("/v1/catalog").json()
        assert http.put("/v1/catalog", json=document).json() == {"statements": [], "warnings": []}
        script = document["sql"].replace("MAX(celsius)", "MIN(celsius)").replace("it''s", "that''s")
        shown = http.put("/v1/catalog", params={"dry": True}, json={"sql": script}).json()["statements"]
        assert [(one["kind"], one["state"]) for one in shown] == [
            ("CREATE QUERY", "CHECKED"),
            ("ALTER QUERY", "CHECKED"),
        ]
        assert shown[1]["sql"] == "ALTER QUERY `odd name``;` SET (`comment` 'that''s')"
        assert shown[0]["check"]["query"] == "warm"
        number = len(http.get("/v1/commands").json()["commands"])
        headers = {"Idempotency-Key": "catalog 1"}
        done = http.put("/v1/catalog", json={"sql": script}, headers=headers).json()["statements"]
        assert [one["sql"] for one in done] == [one["sql"] for one in shown]
        assert [one["state"] for one in done] == ["RUNNING", "COMPLETED"]
        commands = http.get("/v1/commands").json()["commands"][number:]
        assert [(one["sql"], one["who"]) for one in commands] == [(one["sql"], "control") for one in done]
        again = http.put("/v1/catalog", json={"sql": script}, headers=headers).json()["statements"]
        assert [one["number"] for one in again] == [one["number"] for one in done]
        other = http.put("/v1/catalog", json={"sql": ""}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "P0731")
        assert http.put("/v1/catalog", json={"sql": script}).json()["statements"] == []
        wrong = http.put("/v1/catalog", json={"sql": script + "CREATE VIEW v AS SELECT roam FROM readings"})
        assert wrong.status_code == 400 and wrong.headers["content-type"] == "application/problem+json"
        assert wrong.json()["code"] == "P0202" and wrong.json()["position"]["column"] == 25
    with live.client(AccessRole.READ) as http:
        assert http.put("/v1/catalog", json={"sql": ""}).status_code == 403
        assert http.put("/v1/catalog", params={"dry": True}, json={"sql": ""}).status_code == 403


def test_what_the_policy_refuses_is_refused_in_a_document(live: Running) -> None:
    with live.client(AccessRole.CONTROL) as http:
        base = http.get("/v1/catalog").json()["sql"]
        for text, code, status in (
            ("CREATE QUERY q INTO FILES (path '/var/x') AS SELECT room FROM readings", "P0805", 403),
            ("CREATE FUNCTION f (INT) RETURNS INT AS 'm:f'", "P0802", 403),
            ("SET max_connections = '5'", "P0805", 403),
        ):
            answer = http.put("/v1/catalog", json={"sql": base + text})
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert http.get("/v1/catalog").json()["sql"] == base


def test_a_document_outlives_the_server(tmp_path: Path) -> None:
    running = started(tmp_path)
    script = SCRIPT.replace("INSERT INTO rooms VALUES ('hall', 0), ('attic', 2);\n", "") + WARM
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        (created,) = client.apply(script)
        assert created.sql == WARM and client.apply(script, dry=True) == ()
    ended(running)
    running = started(tmp_path)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        assert client.apply(script) == ()
        assert [one.sql for one in client.apply(script[: -len(WARM)])] == ["DROP QUERY `warm`"]
        assert client.queries() == []
    ended(running)


def test_a_plan_is_exported_edited_and_registered(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute(WARM)
        with connect(live.url, live.texts[AccessRole.READ]) as reader:
            (exported,) = reader.execute("EXPORT PLAN OF warm")
        assert (exported.kind, exported.state) == ("EXPORT", "DONE")
        document = json.loads(exported.text)
        assert document["format"] == "penstock.plan/1" and document["physical"]
        document["logical"]["fields"]["columns"][1]["expression"] += " + 100"
        (created,) = client.execute(f"CREATE QUERY hotter FROM PLAN {string_text(json.dumps(document))}")
        assert created.state == "RUNNING"
        client.insert("readings", ROWS)
        added = [row["celsius"] - 100 for row in answers(live, "hotter", 3)[:3]]
        assert added == [row["celsius"] for row in answers(live, "warm", 3)[:3]]
        refused = live.client(AccessRole.CONTROL)
        response = statement(refused, "CREATE QUERY wrong FROM PLAN '{}'")
        assert response.status_code == 400 and response.json()["code"] == "P0106"


def test_a_post_counts_its_rows_that_are_late(live: Running) -> None:
    """Those behind rows of the same post at once, others once the source has been read further."""

    def posted(client: httpx.Client, *times: str) -> dict[str, Any]:
        lines = "".join(json.dumps({"at": f"2024-03-01 {time_}", "room": "hall"}) + "\n" for time_ in times)
        answer = client.post(
            "/v1/streams/readings/rows", content=lines.encode(), headers={"Content-Type": "application/x-ndjson"}
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    with live.client(AccessRole.ADMIN) as client:
        assert statement(client, WARM).status_code == 200
        first = posted(client, "09:00:00", "08:00:00", "10:00:00", "09:59:59", "10:00:00")
        assert (first["rows"], first["late"], first["complete_to"]) == (5, 2, None)
        answers(live, "warm", 1)
        while (found := posted(client, "08:00:00", "11:00:00"))["complete_to"] is None:
            assert found["late"] == 0
        assert found["late"] == 1 and found["complete_to"].startswith("2024-03-01T")


def test_an_insert_tells_of_its_rows_that_are_late(live: Running) -> None:
    """As a post counts them."""
    values = ", ".join(f"('2024-03-01 {time_}', 'hall', 1.0)" for time_ in ("09:00:00", "08:00:00", "10:00:00"))
    with live.client(AccessRole.ADMIN) as client:
        assert statement(client, WARM).status_code == 200
        answer = statement(client, f"INSERT INTO readings VALUES {values}").json()["statements"][0]
        assert [one["message"] for one in answer["notices"]] == ["1 of 3 rows of readings came late"]
        assert "ORDER WITHIN" in answer["notices"][0]["hint"]
        into = client.post("/v1/streams/warm/rows", content=b"{}", headers={"Content-Type": "application/x-ndjson"})
        assert into.json()["message"] == "warm is a query, which takes no rows"
        again = statement(client, "INSERT INTO readings VALUES ('2024-03-01 12:00:00', 'hall', 2.0)").json()
        assert not again["statements"][0].get("notices")


def test_a_post_and_an_insert_tell_of_a_unit_and_of_replaced_rows(live: Running) -> None:
    """They are taken as declared, and the notice says what is likely meant."""
    declared = (
        "CREATE STREAM pulses (k INT, t BIGINT) FROM HTTP () TIMESTAMP BY t;"
        "CREATE RELATION stock (k INT, n INT, t TIMESTAMP, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY t"
    )
    with live.client(AccessRole.ADMIN) as client:
        assert statement(client, declared).status_code == 200
        lines, form = b'{"k": 1, "t": 1709283600000}\n', {"Content-Type": "application/x-ndjson"}
        (notice,) = client.post("/v1/streams/pulses/rows", content=lines, headers=form).json()["notices"]
        assert notice["message"].endswith("UNIT MILLISECOND declares that")
        inserted = statement(client, "INSERT INTO pulses VALUES (1, 1709283601000)").json()["statements"][0]
        assert inserted["notices"][0]["message"].endswith("UNIT MILLISECOND declares that")
        rows = "(1, 1, '2024-03-01'), (1, 2, '2024-03-01')"
        stored = statement(client, f"INSERT INTO stock VALUES {rows}").json()["statements"][0]
        assert [one["message"] for one in stored["notices"]] == [
            "1 row of stock is replaced by a later one of the same instant"
        ]


def test_a_post_tells_of_keys_that_are_there(live: Running) -> None:
    """A relation without timestamps has one row of a key, the first one: what is posted after it would be lost without
    a word. An INSERT behind them knows their keys."""
    form = {"Content-Type": "application/x-ndjson"}

    def post(content: bytes, **headers: str) -> list[str]:
        answer = client.post("/v1/streams/floors/rows", content=content, headers=form | headers)
        return [one["message"] for one in answer.json().get("notices", [])]

    declared = "CREATE RELATION floors (k INT, n STRING, PRIMARY KEY (k, n)) FROM HTTP ()"
    left_out = "of floors {} left out: an earlier one has the primary key k, n = 1, é"
    with live.client(AccessRole.ADMIN) as client:
        assert statement(client, declared).status_code == 200
        assert post('{"k": 1, "n": "é"}\n{"k": 2, "n": "é"}\n'.encode()) == []
        assert post('{"k": 1, "n": "é"}\n{"k": 1, "n": "e"}\n'.encode()) == ["1 row " + left_out.format("is")]
        twice = '{"k": 1, "n": "é"}\n{"k": 4, "n": "é"}\n{"k": 4, "n": "é"}\n'.encode()
        assert post(twice, **{"Idempotency-Key": "one"}) == ["2 rows " + left_out.format("are")]
        assert post(twice, **{"Idempotency-Key": "one"}) == []
        inserted = statement(client, "INSERT INTO floors VALUES (5, 'é'), (4, 'é')").json()["statements"][0]
        assert inserted["error"]["code"] == "P0210"
        assert statement(client, "DROP RELATION floors; " + declared).status_code == 200
        assert post('{"k": 1, "n": "é"}\n'.encode()) == []


def test_a_dry_run_tells_what_would_be_refused(live: Running) -> None:
    """Of statements that are no commands too; what is accepted is CHECKED."""
    with live.client(AccessRole.ADMIN) as http:
        assert statement(http, WARM).status_code == 200
        refused = {
            "EXPLAIN ANALYZE SELECT room FROM rooms": "P0702",
            "CANCEL '999'": "P0201",
            "SUBSCRIBE TO warm; SHOW QUERIES": "P0732",
            "SUBSCRIBE TO warm WITH (SNAPSHOT) AS OF '1999-01-01 00:00:00'": "P0711",
            "CREATE QUERY out INTO FILES (path '/etc/x') AS SELECT room FROM rooms": "P0805",
            "SET spark.jars = 'x'": "P0805",
            "COMMIT": "P0732",
        }
        for text, code in refused.items():
            for dry in (True, False):
                answer = http.post(
                    "/v1/statements", json={"sql": text, "dry": dry}, headers={"Accept": "application/json, */*"}
                )
                assert answer.json()["code"] == code, (text, dry, answer.text)
        for text in ("SUBSCRIBE TO warm", "SUBSCRIBE TO (SELECT room FROM rooms)", "BEGIN; DROP QUERY warm; COMMIT"):
            answer = statement(http, text, dry=True)
            assert {one["state"] for one in answer.json()["statements"]} == {"CHECKED"}, answer.text
        assert [one["name"] for one in http.get("/v1/queries").json()["queries"]] == ["warm"]
        assert http.get("/v1/statements").json()["statements"] == []
    with live.client(AccessRole.READ) as http:
        for dry in (True, False):
            assert statement(http, "SUBSCRIBE TO (SELECT room FROM rooms)", dry=dry).status_code == 403


TWO_COLUMNS = """CREATE STREAM s (ts INT, x INT, y INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION r (x INT, y INT) FROM MEMORY ();
CREATE QUERY q AS SELECT x, y FROM s [RANGE 9 SECONDS];
"""


@pytest.mark.parametrize(
    ("selected", "change", "expected"),
    [
        ("q", "DROP QUERY q; CREATE QUERY q START NOW AS SELECT y, x FROM s [RANGE 9 SECONDS];", [{"x": 1}]),
        ("r", "DROP RELATION r; CREATE RELATION r (y INT, x INT) FROM MEMORY (); INSERT INTO r VALUES (2, 1);",
         [{"x": 1}]),
        ("q", "ALTER QUERY q AS SELECT x, y FROM s [RANGE 8 SECONDS];", [{"x": 1}]),
    ],
)  # fmt: skip
def test_what_is_declared_anew_while_a_query_waits_is_not_taken_for_what_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, selected: str, change: str, expected: list[object]
) -> None:
    running = started(tmp_path, TWO_COLUMNS)
    waiting, waited = LiveService._await, []

    def changed(service: LiveService, *arguments: Any) -> None:
        if not waited:
            waited.append(True)
            with connect(running.url, running.texts[AccessRole.CONTROL]) as other:
                done = other.execute(f"{change} INSERT INTO s VALUES (1, 1, 2), (9, 3, 4);")
            arguments = (done[-1].position, *arguments[1:])
        waiting(service, *arguments)

    monkeypatch.setattr(LiveService, "_await", changed)
    try:
        with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
            if "ALTER" not in change:
                with pytest.raises(PenstockError, match=f"{selected} has been declared again") as refused:
                    client.select(f"SELECT x FROM {selected}")
                assert refused.value.code == "P0721" and refused.value.hint == "send the query again"
            assert client.select(f"SELECT x FROM {selected}").to_arrow().to_pylist() == expected and waited
    finally:
        ended(running)
