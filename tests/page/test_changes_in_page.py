"""A query that changes while it runs, on its page: what takes over, and for which rows it waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM S (ts BIGINT, v BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT v FROM S [NOW];
INSERT INTO S VALUES (1, 1), (2, 2);
"""


def test_a_page_says_for_which_rows_a_change_waits(page: Any, serve: Callable[[str], Running]) -> None:
    live = serve(SCRIPT)
    sign_in(page, live, room="query/q")
    page.get_by_text("heartbeat", exact=True).wait_for()
    assert not page.get_by_text("change", exact=True).count()
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute("ALTER QUERY q AS SELECT v FROM S [ROWS 3] START WARM WAIT")
    page.reload()
    page.get_by_text("another query takes over from q with 3 more rows of S", exact=True).wait_for()
