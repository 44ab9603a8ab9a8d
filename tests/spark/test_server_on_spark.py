"""`penstock serve` on Spark over a restart: control relations, the tap of an edge, one-time queries, static relations.

Each check has its own streams and queries of one server, so that two starts are enough for all.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_kit import Check, Server, at_least, changes, declared, go_on, reading, rows, served, start, warmest

from penstock.client import ServerClient
from penstock.errors import PenstockError
from tests.commands import penstock

#: The streams and relations of all checks, each with the check's own.
SCRIPT = (
    declared("readings", " RETAIN 2 HOURS")
    + declared("tapped")
    + declared("hydrated", " RETAIN 2 HOURS")
    + declared("named", " RETAIN 2 HOURS")
    + declared("kept", " RETAIN 2 HOURS")
    + f"""CREATE STREAM passed (at TIMESTAMP, room STRING) FROM HTTP () TIMESTAMP BY at;
CREATE STREAM measured (at TIMESTAMP, n INT, m INT) FROM HTTP () TIMESTAMP BY at CONSTRAINT near ORDERED BY (m);
CREATE RELATION levels (at TIMESTAMP, room STRING, level INT, PRIMARY KEY (room)) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY standing AS {warmest("kept")};
CREATE RELATION names (room STRING, name STRING, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO names VALUES ('hall', 'Halle'), ('attic', NULL);
"""
)


def control_relations() -> Check:
    """Figures come with the batches, UPDATE steers the run. It goes first: it counts what all have posted."""
    server: Server = yield
    client = server.client
    # Queries of one script share what they compute alike.
    client.execute(f"CREATE QUERY warm AS {warmest('readings')}; CREATE QUERY other AS {warmest('readings')}")
    client.insert("readings", [reading(f"09:{n:02}", f"room {n % 7}", float(n)) for n in range(50)])
    at_least(client, "SELECT name FROM penstock.queries WHERE rows > 0", 2)
    (warm,) = rows(client, "SELECT * FROM penstock.queries WHERE name = 'warm'")
    assert warm["state"] == "RUNNING" and warm["rows"] >= 7 and 0 < warm["latency_p50"] <= warm["latency_p99"]
    shared = rows(client, "SELECT operator FROM penstock.query_operators GROUP BY operator HAVING COUNT(*) = 2")
    assert shared and warm["shared_bytes"] > 0 and warm["state_bytes"] >= warm["own_bytes"]
    flow = rows(
        client,
        "SELECT o.id, SUM(s.rows_in) AS n FROM penstock.operators o, penstock.operator_shards s"
        " WHERE s.operator = o.id AND o.stage = 1 GROUP BY o.id",
    )
    assert max(one["n"] for one in flow if one["n"] is not None) >= 50
    edges = rows(client, "SELECT rows, bytes FROM penstock.plan_edges WHERE exchange_key IS NOT NULL")
    assert any(one["rows"] == 50 and one["bytes"] > 0 for one in edges)
    (stream,) = rows(client, "SELECT rows, retained_bytes FROM penstock.streams WHERE name = 'readings'")
    assert stream["rows"] == 50 and stream["retained_bytes"] > 0
    batches = rows(client, "SELECT seconds, read_seconds, rows_in FROM penstock.batches WHERE rows_in > 0")
    assert sum(one["rows_in"] for one in batches) == 50 and all(one["seconds"] > 0 for one in batches)
    client.execute("UPDATE penstock.queries SET weight = 3, latency_target = '2 seconds' WHERE name = 'warm'")
    client.execute("UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'other' CONFIRM 1 ROWS")
    client.insert("readings", [reading("09:55", "room 1", 99.0), reading("09:59", "room 2", 98.0)])
    at_least(client, f"SELECT name FROM penstock.queries WHERE name = 'warm' AND rows > {warm['rows']}", 1)
    metrics = client.metrics()
    assert all(f'penstock_query_rows_total{{query="{name}"}}' in metrics for name in ("warm", "standing"))
    times = "SELECT heartbeat, heartbeat_tick FROM penstock.streams WHERE name = 'readings'"
    known = rows(client, times)
    assert known[0]["heartbeat"] is not None
    server = yield
    # The log says how far the stream had come, before rows do.
    assert rows(server.client, times) == known
    found = rows(
        server.client,
        "SELECT name, state, weight, latency_target FROM penstock.queries"
        " WHERE name IN ('other', 'warm') ORDER BY name",
    )
    assert found == [
        {"name": "other", "state": "PAUSED", "weight": 1.0, "latency_target": None},
        {"name": "warm", "state": "RUNNING", "weight": 3.0, "latency_target": 2.0},
    ]


def tap_of_an_edge() -> Check:
    """Rows of workers are shown."""
    server: Server = yield
    client = server.client
    # A selection has an edge in stage 0; the window stands behind the exchange.
    client.execute(f"CREATE QUERY selected AS {warmest('tapped').replace('GROUP BY', 'WHERE celsius > 10 GROUP BY')}")
    client.insert("tapped", [reading("08:00", "hall", 1.0)])
    at_least(client, "SELECT name FROM penstock.streams WHERE name = 'tapped' AND rows > 0", 1)
    found = rows(
        client,
        "SELECT q.id, o.stage, q.exchange FROM penstock.queues q JOIN penstock.operators o"
        " ON o.id = q.to_operator JOIN penstock.query_operators u ON u.operator = o.id"
        " WHERE u.query = 'selected'",
    )
    stages = {one["stage"]: one["id"] for one in found if one["stage"] == 0 or one["exchange"] is not None}
    assert {0, 1} <= stages.keys()
    file = server.folder / "state" / "penstock" / "taps.json"
    for number, (stage, queue) in enumerate(sorted(stages.items())):
        shown: list[dict[str, Any]] = []

        def tap(queue: str = queue, shown: list[dict[str, Any]] = shown) -> None:
            params = {"rows": 3, "seconds": 60, "format": "ndjson"}
            answer = httpx.get(
                f"{server.url}/v1/entities/{queue}/tap",
                params=params,
                timeout=90,
                headers={"Authorization": f"Bearer {server.token}"},
            )
            shown += [json.loads(line) for line in answer.text.splitlines()]

        tapping = threading.Thread(target=tap)
        tapping.start()
        while not file.exists():
            time.sleep(0.02)
        hour = 9 + number
        client.insert("tapped", [reading(f"{hour:02}:{n:02}", "hall", 20.0 + n) for n in range(50)])
        tapping.join()
        assert len(shown) == 3 and {row["room"] for row in shown} == {"hall"}, (stage, shown)
        assert all(row["ts"].startswith(f"2024-03-01T{hour:02}:") and row["count"] == 1 for row in shown)
        end = time.monotonic() + 30
        while file.exists():
            assert time.monotonic() < end, "nobody looks at it any more"
            time.sleep(0.02)


COUNTED = "SELECT room, COUNT(*) AS n FROM {} [RANGE 1 HOUR] GROUP BY room"


def first_answer_of_a_query_with_a_past() -> Check:
    """It is whole from the moment on at which it can be read: the batch in which it begins is waited for."""
    client = (yield).client
    client.insert("hydrated", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
    counted = COUNTED.format("hydrated")
    at_least(client, counted, 1)
    for name in ("early", "later"):
        client.execute(f"CREATE QUERY {name} START WARM AS {counted}")
        end, found = time.monotonic() + 60, None
        while found is None:
            assert time.monotonic() < end
            try:
                found = client.select(f"SELECT * FROM {name}")
            except PenstockError as error:
                # It is HYDRATING.
                assert error.code == "P0721", error
        assert found.to_arrow().to_pylist() == [{"room": "hall", "n": 1}]
        assert found.instant == "2024-03-01T09:19:59.999999Z"


NAMED = "SELECT name, celsius FROM named [RANGE 1 HOUR] AS k, names AS n WHERE k.room = n.room"


def static_relations() -> Check:
    """They are read by standing queries, with a stream or alone, and by SELECT beside these; also after a restart."""
    everything = [{"room": "attic", "name": None}, {"room": "hall", "name": "Halle"}]
    named = [{"name": "Halle", "celsius": 19.5}, {"name": "Halle", "celsius": 21.0}]

    def check(client: ServerClient, count: int) -> None:
        assert rows(client, "SELECT * FROM names ORDER BY room") == everything
        for sql in (NAMED, "SELECT * FROM naming"):
            found = at_least(client, f"{sql} ORDER BY celsius", count)
            assert [row for row in found if row["name"] is not None] == named[: len(found) - 1], sql
        assert at_least(client, "SELECT * FROM alone ORDER BY room", 2) == everything

    client = (yield).client
    (told,) = client.execute("INSERT INTO names VALUES ('cellar', 'Keller'), ('hall', 'twice')")
    assert told.state == "FAILED"
    assert rows(client, "SELECT * FROM names ORDER BY room") == everything
    client.execute(f"CREATE QUERY alone AS SELECT * FROM names; CREATE QUERY naming AS {NAMED}")
    client.insert("named", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
    client.insert("named", [reading("09:30", "hall", 21.0)])
    check(client, 2)
    # What has begun keeps what it has read; SELECT and what begins later have the rest too.
    (told,) = client.execute("INSERT INTO names VALUES ('none', 'Nichts')")
    assert told.error is None and "alone, naming keep what was read" in told.notices[0]
    everything.append({"room": "none", "name": "Nichts"})
    client.execute(f"CREATE QUERY three AS SELECT * FROM names; CREATE QUERY naming_later AS {NAMED}")
    client = (yield).client
    client.execute(f"CREATE QUERY late START WARM AS {NAMED}")
    client.insert("named", [reading("09:40", "none", 0.0), reading("09:50", "none", 1.0)])
    for sql, count in (("SELECT * FROM three ORDER BY room", 3), ("SELECT * FROM alone ORDER BY room", 2)):
        assert at_least(client, sql, count) == everything[:count]
    for name, count in (("late", 4), ("naming_later", 1), ("naming", 3)):
        found = at_least(client, f"SELECT name, celsius FROM {name} ORDER BY celsius", count)
        assert len(found) == count and ({"name": "Nichts", "celsius": 0.0} in found) == (name != "naming"), name


JOINED = "SELECT kept.room, celsius, level FROM kept [RANGE 1 HOUR], levels WHERE kept.room = levels.room"


def one_time_queries() -> Check:
    """Streams that are retained, updates of relations and answers, before and after a restart; the run beside them
    answers as ever."""
    client = (yield).client
    assert rows(client, "SELECT COUNT(*) AS n FROM kept") == [{"n": 0}]
    client.insert(
        "levels",
        [
            {"at": "2024-03-01 08:00:00", "room": "hall", "level": 1},
            {"at": "2024-03-01 09:40:00", "room": "attic", "level": 2},
            {"at": "2024-03-01 12:00:00", "room": "cellar", "level": 0},
        ],
    )
    counted = f"{COUNTED.format('kept')} ORDER BY room"
    answers: list[int] = []
    for number in range(12):
        client.insert("kept", [reading(f"09:{5 * number:02}", "hall" if number % 2 else "attic", 10.0 + number)])
        answers += [row["n"] for row in rows(client, counted)]
    at_least(client, "SELECT at FROM kept", 11)
    before = client.select(counted)
    assert before.to_arrow().to_pylist() == [{"room": "attic", "n": 6}, {"room": "hall", "n": 5}]
    assert before.instant == "2024-03-01T09:54:59.999999Z" and max(answers, default=0) <= 6
    joined = rows(client, JOINED)
    assert sorted((row["room"], row["level"]) for row in joined) == [("attic", 2)] * 6 + [("hall", 1)] * 5
    both = rows(client, "SELECT standing.celsius, level FROM standing, levels WHERE standing.room = levels.room")
    assert sorted(row["celsius"] for row in both) == [19.0, 20.0]
    for sql, hint in [
        ("SELECT room FROM passed", "ALTER STREAM passed SET (retain"),
        ("SELECT room FROM kept [RANGE 1 HOUR] AS OF '2025-01-01'", "ask again later"),
    ]:
        with pytest.raises(PenstockError, match="P0721") as caught:
            client.select(sql)
        assert hint in str(caught.value.hint)
    client.execute("ALTER STREAM passed SET (retain '10 MINUTES')")
    client.insert("passed", [{"at": f"2024-03-01 09:0{n}:00", "room": "hall"} for n in range(3)])
    assert len(at_least(client, "SELECT at FROM passed", 2)) == 2
    client = (yield).client
    again = client.select(counted)
    assert again.to_arrow().equals(before.to_arrow()) and again.instant == before.instant
    assert sorted(map(repr, rows(client, JOINED))) == sorted(map(repr, joined))
    assert changes(client, "standing", 2)[0][:2] == [("+", "attic", 10.0), ("+", "hall", 11.0)]


def measured_promises() -> Check:
    """Tasks see samples of a stream, also of a column that no query reads; a restart measures from there on."""
    client = (yield).client
    client.execute("CREATE QUERY joined AS SELECT m.n FROM measured AS m, measured AS o WHERE m.n = o.n")
    client.execute("ALTER STREAM measured SET (observe_constraints 'on')")
    minutes = [{"at": f"2024-03-01 09:{n // 60:02}:{n % 60:02}", "n": n % 700, "m": n} for n in range(1_401)]
    client.insert("measured", minutes[:900])
    client.insert("measured", minutes[900:])
    of = "SELECT * FROM penstock.constraints WHERE stream = 'measured' AND unit = 'ROWS' AND k_max IS NOT NULL"
    found = at_least(client, f"{of} AND columns = 'n' AND kind = 'CLUSTERED BY' AND k_max = 699", 1)
    assert found[0]["sample_share"] == 1 / 64 and 4 <= found[0]["elements"] <= 80
    (near,) = at_least(client, f"{of} AND name = 'near'", 1)
    assert (near["k_declared"], near["k_max"], near["breaches"], near["share"]) == (0, 0, 0, 1.0)
    (suggested,) = client.execute("SHOW CONSTRAINTS OF measured SUGGESTED")
    assert suggested.text is not None and "CLUSTERED BY (n) WITHIN 699 ROWS ASSERTED -- saves about" in suggested.text
    client = (yield).client
    observed = "SELECT observe_constraints FROM penstock.streams WHERE name = 'measured'"
    assert rows(client, observed) == [{"observe_constraints": "on"}]
    more = [{"at": f"2024-03-01 10:{n // 60:02}:{n % 60:02}", "n": n, "m": 2_000 + n} for n in range(900)]
    client.insert("measured", more)
    (near,) = at_least(client, f"{of} AND name = 'near' AND elements > 4", 1)
    assert (near["k_max"], near["breaches"]) == (0, 0)
    client.execute("ALTER STREAM measured SET (observe_constraints 'off')")


def test_a_server_over_a_restart(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(SCRIPT, encoding="utf-8")
    checks = [
        control_relations(), tap_of_an_edge(), first_answer_of_a_query_with_a_past(), static_relations(),
        one_time_queries(), measured_promises(),
    ]  # fmt: skip
    failures: list[Exception] = []
    start(checks)
    with served(tmp_path, program=penstock()) as server:
        left = go_on(checks, server, failures)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    # With so little memory each SELECT is a job of Spark.
    with served(tmp_path, "--set", "snapshot_memory=512", program=penstock()) as server:
        assert go_on(left, server, failures) == []
    if failures:
        raise ExceptionGroup("checks of a server", failures)
