"""Control relations of a server on Spark: figures come with the batches, UPDATE steers the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_server_on_spark import ROOMS, WARM, at_least, reading, served

from penstock.client import ServerClient
from tests.commands import penstock

TIMES = "SELECT heartbeat, heartbeat_tick FROM penstock.streams"
KEPT = ROOMS.replace(";", " RETAIN 2 HOURS;")


def rows(client: ServerClient, sql: str) -> list[dict[str, Any]]:
    return client.select(sql).to_arrow().to_pylist()


@pytest.mark.spark
def test_what_a_run_on_spark_shows_and_how_it_is_steered(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(KEPT, encoding="utf-8")
    with served(tmp_path, program=penstock()) as (_, client, process):
        # Queries of one script share what they compute alike.
        client.execute(f"{WARM}; {WARM.replace('warm', 'other')}")
        client.insert("readings", [reading(f"09:{n:02}", f"room {n % 7}", float(n)) for n in range(50)])
        at_least(client, "SELECT name FROM penstock.queries WHERE rows > 0", 2)
        (warm,) = rows(client, "SELECT * FROM penstock.queries WHERE name = 'warm'")
        assert warm["state"] == "RUNNING" and warm["rows"] >= 7 and 0 < warm["latency_p50"] <= warm["latency_p99"]
        shared = rows(client, "SELECT operator FROM penstock.query_operators GROUP BY operator HAVING COUNT(*) = 2")
        assert shared and warm["shared_bytes"] > 0 and warm["state_bytes"] >= warm["own_bytes"]
        flow = rows(client, "SELECT o.id, SUM(s.rows_in) AS n FROM penstock.operators o, penstock.operator_shards s"
                            " WHERE s.operator = o.id AND o.stage = 1 GROUP BY o.id")  # fmt: skip
        assert max(one["n"] for one in flow if one["n"] is not None) >= 50
        edges = rows(client, "SELECT rows, bytes FROM penstock.plan_edges WHERE exchange_key IS NOT NULL")
        assert any(one["rows"] == 50 and one["bytes"] > 0 for one in edges)
        (stream,) = rows(client, "SELECT rows, retained_bytes FROM penstock.streams")
        assert stream["rows"] == 50 and stream["retained_bytes"] > 0
        batches = rows(client, "SELECT seconds, read_seconds, rows_in FROM penstock.batches WHERE rows_in > 0")
        assert sum(one["rows_in"] for one in batches) == 50 and all(one["seconds"] > 0 for one in batches)
        client.execute("UPDATE penstock.queries SET weight = 3, latency_target = '2 seconds' WHERE name = 'warm'")
        client.execute("UPDATE penstock.queries SET state = 'PAUSED' WHERE name = 'other' CONFIRM 1 ROWS")
        client.insert("readings", [reading("09:55", "room 1", 99.0), reading("09:59", "room 2", 98.0)])
        at_least(client, f"SELECT name FROM penstock.queries WHERE name = 'warm' AND rows > {warm['rows']}", 1)
        known = rows(client, TIMES)
        assert known[0]["heartbeat"] is not None
        process.terminate()
        process.communicate(timeout=120)
    with served(tmp_path, program=penstock()) as (_, client, _process):
        found = rows(client, "SELECT name, state, weight, latency_target FROM penstock.queries ORDER BY name")
        assert found == [
            {"name": "other", "state": "PAUSED", "weight": 1.0, "latency_target": None},
            {"name": "warm", "state": "RUNNING", "weight": 3.0, "latency_target": 2.0},
        ]
        # The log says how far the stream had come, before rows do.
        assert rows(client, TIMES) == known
