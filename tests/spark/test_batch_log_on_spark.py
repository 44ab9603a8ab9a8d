"""The log of batches on Spark: alerts on the system, over a killed server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from test_server_on_spark import ROOMS, WARM, at_least, reading, served

from penstock.client import ServerClient

ALERT = "CREATE QUERY alert AS ISTREAM(SELECT number, rows_in, seconds FROM penstock.batch_log [NOW] WHERE seconds > 0)"
RECENT = "CREATE QUERY recent AS SELECT COUNT(*) AS n, MAX(seconds) AS s FROM penstock.batch_log [RANGE 1 HOUR]"


def alerts(client: ServerClient, count: int) -> list[dict[str, Any]]:
    """Return the rows of the alert from its beginning, when there are so many."""
    rows: list[dict[str, Any]] = []
    with client.subscribe("alert", beginning=True) as batches:
        for batch in batches:
            rows += batch.to_pylist()
            if len(rows) >= count:
                return rows
    raise AssertionError("the subscription ended")


def batches_of(client: ServerClient) -> int:
    return int(client.select("SELECT MAX(number) AS n FROM penstock.batches").to_arrow().to_pylist()[0]["n"])


@pytest.mark.spark
def test_alerts_on_the_system(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(ROOMS, encoding="utf-8")
    with served(tmp_path) as (_, client, process):
        client.execute(WARM)
        client.execute(ALERT)
        client.execute(RECENT)
        for number in range(3):
            client.insert("readings", [reading(f"09:0{number}", "hall", 20.0 + number)])
            found = alerts(client, number + 1)
        assert [row["rows_in"] for row in found] == [1, 1, 1]
        # The log is quiet, so its time goes on without another row; then nothing runs any more.
        assert at_least(client, "SELECT n, s FROM recent WHERE n = 3", 1)[0]["s"] == max(
            row["seconds"] for row in found
        )
        at_rest = batches_of(client)
        time.sleep(3)
        assert batches_of(client) == at_rest, "nothing came, so nothing runs"
        listed = client.select("SELECT number, rows_in FROM penstock.batch_log ORDER BY number").to_arrow().to_pylist()
        assert listed == [{"number": row["number"], "rows_in": 1} for row in found]
        process.kill()
        process.communicate(timeout=60)
    with served(tmp_path) as (_, client, _process):
        client.insert("readings", [reading("09:30", "hall", 30.0)])
        again = alerts(client, 4)
        assert again[:3] == found and len({row["number"] for row in again}) == len(again)
        client.execute("DROP QUERY alert; DROP QUERY recent;")
        assert not (tmp_path / "state" / "control" / "kept" / "0").exists()
