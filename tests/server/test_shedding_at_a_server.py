"""What a server shows of queries that shed: SHOW QUERIES, `penstock.queries` and `penstock.approximations`."""

from __future__ import annotations

import time
from pathlib import Path

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
