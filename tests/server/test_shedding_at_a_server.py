"""What a server shows of queries that shed or approximate: SHOW QUERIES, `penstock.queries` and
`penstock.approximations`."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.test_live_service import ROWS, WARM, ended, started

SHEDS = (
    "CREATE QUERY sheds WITH (memory '1 TUPLES', shed 'newest') AS"
    " SELECT room, VALID(s) FROM readings (room) VALID FOR 1 MINUTE [RANGE 2 HOURS] AS s"
)


def test_a_query_that_sheds_is_listed_with_what_it_has_shed(tmp_path: Path) -> None:
    running = started(tmp_path)
    try:
        with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
            client.execute(f"{WARM}; {SHEDS}")
            before = client.select("SELECT * FROM penstock.approximations").table.to_pylist()
            assert [(one["query"], one["technique"], one["rate"]) for one in before] == [("sheds", "shed newest", None)]
            client.insert("readings", ROWS)
            deadline, text = time.monotonic() + 60, ""
            while "shed 1" not in text and time.monotonic() < deadline:
                time.sleep(0.05)
                text = client.execute("SHOW QUERIES")[0].text or ""
            # The last row is beyond the heartbeat.
            assert f"{SHEDS} -- holds 1 of 1, shed 1 of 2, coverage at least 0.50" in text.splitlines()
            assert WARM in text.splitlines()
            (one,) = client.select("SELECT * FROM penstock.approximations").table.to_pylist()
            assert one["reason"] == "memory: at most 1 tuples are held" and one["entity"].startswith("query:")
            assert (one["rate"], one["fn"], one["error_low"], one["error_high"]) == (0.5, 0.5, None, None)
            listed = client.select("SELECT name, memory FROM penstock.queries ORDER BY name").table.to_pylist()
            assert listed == [{"name": "sheds", "memory": "1 TUPLES"}, {"name": "warm", "memory": None}]
    finally:
        ended(running)


def test_approximate_aggregates_and_frequent_items_are_listed_with_their_errors(tmp_path: Path) -> None:
    running = started(tmp_path)
    try:
        with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
            window = "FROM readings [RANGE 2 HOURS SLIDE 1 HOUR]"
            client.execute(
                f"CREATE QUERY counted AS SELECT APPROX_COUNT_DISTINCT(room) AS n {window};"
                f"CREATE QUERY often AS SELECT room, COUNT(*) AS n {window} GROUP BY room FREQUENT 1;"
                f"CREATE QUERY exact AS SELECT COUNT(DISTINCT room) AS n {window};"
                "CREATE QUERY sampled AS"
                " SELECT ERROR_BOUND(ESTIMATE(COUNT(*))) AS e FROM readings SAMPLE(50) [RANGE 2 HOURS];"
                "SET approximate_aggregates = 'rsd 0.1';"
                f"CREATE QUERY replaced AS SELECT COUNT(DISTINCT room) AS n {window};"
            )
            columns = "query, technique, error_high, in_place_of, reason"
            asked = f"SELECT {columns} FROM penstock.approximations ORDER BY query"
            counted, often, replaced, sampled = client.select(asked).table.to_pylist()
            assert counted.pop("error_high") == pytest.approx(1.959964 * 1.04 / 64)
            assert counted == {
                "query": "counted",
                "technique": "approx_count_distinct(room)",
                "in_place_of": None,
                "reason": "HyperLogLog of 4,096 registers, standard error 1.6 %, probable",
            }
            assert replaced.pop("error_high") == pytest.approx(1.959964 * 1.04 / math.sqrt(128))
            assert replaced == {
                "query": "replaced",
                "technique": "approx_count_distinct(room, 0.1)",
                "in_place_of": "COUNT(DISTINCT)",
                "reason": "HyperLogLog of 128 registers, standard error 9.2 %, probable",
            }
            assert (sampled["query"], sampled["technique"]) == ("sampled", "ESTIMATE")
            assert (often["query"], often["technique"]) == ("often", "FREQUENT 1")
            # In the pane up to 10 o'clock the second item has one of three rows.
            early = [{"at": f"2024-03-01 09:0{minute}:00", "room": "hall", "celsius": 1.0} for minute in (3, 4)]
            client.insert("readings", [*early, *ROWS[1:]])
            deadline = time.monotonic() + 60
            while not often["error_high"] and time.monotonic() < deadline:
                time.sleep(0.05)
                _, often, _, sampled = client.select(asked).table.to_pylist()
            assert often["error_high"] == 1 / 3
            assert sampled["error_high"] is not None and sampled["error_high"] >= 0
    finally:
        ended(running)
