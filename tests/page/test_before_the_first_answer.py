"""What a room shows before its first answer has come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY one AS SELECT room FROM readings [NOW];
"""


@pytest.mark.parametrize("room", ["queries", "streams", "plan"])
def test_a_list_says_that_it_is_read(page: Any, serve: Callable[[str], Running], room: str) -> None:
    live = serve(SCRIPT)
    sign_in(page, live)
    held: list[Any] = []
    waits = [True]
    page.route("**/v1/**", lambda route: held.append(route) if waits else route.continue_())
    page.evaluate(f"location.hash = '#/{room}'")
    reading = page.locator("main").get_by_text("reading", exact=True)
    reading.first.wait_for(timeout=8_000)
    waits.clear()
    for one in held:
        one.continue_()
    reading.first.wait_for(state="hidden", timeout=20_000)


def test_a_server_without_spark_shows_no_phase_of_its_name(page: Any, serve: Callable[[str], Running]) -> None:
    live = serve(SCRIPT)
    with live.client(AccessRole.ADMIN) as client:
        text = "INSERT INTO readings VALUES ('2024-03-01 09:00:00', 'hall', 1.0)"
        assert client.post("/v1/statements", json={"sql": text}).status_code == 200
    sign_in(page, live)
    page.locator("main").get_by_text("the rest", exact=True).wait_for()
    assert page.locator("main").get_by_text("spark", exact=True).count() == 0
