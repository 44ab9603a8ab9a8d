"""The tap of an edge on Spark: rows of its workers."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_server_on_spark import ROOMS, WARM, at_least, reading, served

from penstock.client import ServerClient
from tests.commands import penstock


def queues(client: ServerClient) -> list[dict[str, Any]]:
    sql = "SELECT q.id, o.stage, q.exchange FROM penstock.queues q JOIN penstock.operators o ON o.id = q.to_operator"
    return client.select(sql).to_arrow().to_pylist()


@pytest.mark.spark
def test_rows_of_workers_are_shown(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(ROOMS, encoding="utf-8")
    with served(tmp_path, program=penstock()) as (url, client, _process):
        # A selection has an edge in stage 0; the window stands behind the exchange.
        client.execute(WARM.replace("GROUP BY", "WHERE celsius > 10 GROUP BY"))
        client.insert("readings", [reading("08:00", "hall", 1.0)])
        at_least(client, "SELECT number FROM penstock.batches WHERE rows_in > 0", 1)
        found = queues(client)
        stages = {one["stage"]: one["id"] for one in found if one["stage"] == 0 or one["exchange"] is not None}
        assert {0, 1} <= stages.keys()
        token = (tmp_path / "penstock" / "first-token").read_text(encoding="utf-8").strip()
        file = tmp_path / "state" / "penstock" / "taps.json"
        for number, (stage, queue) in enumerate(sorted(stages.items())):
            rows: list[dict[str, Any]] = []

            def tap(queue: str = queue, rows: list[dict[str, Any]] = rows) -> None:
                params = {"rows": 3, "seconds": 60, "format": "ndjson"}
                answer = httpx.get(f"{url}/v1/entities/{queue}/tap", params=params, timeout=90,
                                   headers={"Authorization": f"Bearer {token}"})  # fmt: skip
                rows += [json.loads(line) for line in answer.text.splitlines()]

            tapping = threading.Thread(target=tap)
            tapping.start()
            while not file.exists():
                time.sleep(0.02)
            hour = 9 + number
            client.insert("readings", [reading(f"{hour:02}:{n:02}", "hall", 20.0 + n) for n in range(50)])
            tapping.join()
            assert len(rows) == 3 and {row["room"] for row in rows} == {"hall"}, (stage, rows)
            assert all(row["ts"].startswith(f"2024-03-01T{hour:02}:") and row["count"] == 1 for row in rows)
            end = time.monotonic() + 30
            while file.exists():
                assert time.monotonic() < end, "nobody looks at it any more"
                time.sleep(0.02)
