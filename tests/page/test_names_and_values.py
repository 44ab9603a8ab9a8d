"""Names, values and addresses as nobody would choose them, in the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

NAMES = (
    "<script>alert(1)</script>", "a `b` 'c' \"d\" \\ %2F? #x&y=1", "a%", "lead/ trail/",
    "\U0001f642\U0001f469‍\U0001f469‍\U0001f467", "שלום ‮abc", "W" * 150, "constructor",
    ".", "..", "a/plan", "x/../results", "./y", "1" * 299 + "?",
)  # fmt: skip
#: Names that no path of an address can have.
PATHLESS = (".", "..", "a/plan", "x/../results", "./y")
SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, x DOUBLE, d DECIMAL(38, 10), n BIGINT) FROM HTTP ()
  TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, floor BIGINT, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 7);
CREATE QUERY all_rows AS SELECT ISTREAM(*) FROM readings [NOW];
"""
ROWS: list[dict[str, Any]] = [
    {"at": "0001-01-01 00:00:00", "room": "hall", "x": 19.5, "d": "9", "n": 2**63 - 1},
    {"at": "1969-12-31 23:59:59.999999", "room": "x" * 3_000, "x": float("nan"), "d": "-1.5", "n": -(2**63)},
    {"at": "2024-03-01 09:02:00", "room": None, "x": float("inf"), "d": None, "n": None},
    {"at": "2024-03-01 09:03:00", "room": "", "x": float("-inf"), "d": "0.0000000001", "n": 0},
    {"at": "2024-03-01 09:04:00", "room": "a\nb\tc", "x": 1e308, "d": "10", "n": 1},
    {"at": "2024-03-01 09:05:00", "room": "NULL", "x": -1e308, "d": "1234567890123456789012345678.0123456789", "n": 1},
    {"at": "9999-12-31 23:59:59", "room": "hall", "x": 1e-308, "d": "3", "n": 1},
]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT + "".join(f"CREATE QUERY {quoted(one)} AS SELECT room FROM rooms;\n" for one in NAMES))


def test_every_name_has_an_address_and_pages_left_behind_hold_no_connection(page: Any, live: Running) -> None:
    """A browser has six connections to a server: a result that went on after its page would stop the seventh page."""
    sign_in(page, live, room="queries")
    table = page.get_by_role("region", name="queries")
    table.get_by_role("link", name="a%", exact=True).wait_for()
    assert set(table.get_by_role("link").all_inner_texts()) == {*NAMES, "all_rows"}
    sees_all = "(e => e.scrollWidth <= e.clientWidth)(document.querySelector('.scroll'))"
    assert page.evaluate(sees_all), "a long name leaves the other columns in sight"
    links = {link.inner_text(): link.get_attribute("href") for link in table.get_by_role("link").all()}
    for _ in range(2):
        for name, link in links.items():
            page.goto(f"{live.url}/{link}")
            page.locator("h1 bdi").get_by_text(name, exact=True).wait_for(timeout=20_000)
    page.locator(".plan [data-node]").first.wait_for()
    page.go_back()
    page.locator("h1 bdi").get_by_text(list(links)[-2], exact=True).wait_for()
    page.go_forward()
    page.locator("h1 bdi").get_by_text(list(links)[-1], exact=True).wait_for()


def test_names_that_no_path_has(page: Any, live: Running) -> None:
    """Their plans, results and commands are theirs."""
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE QUERY a AS SELECT floor FROM rooms; CREATE QUERY y AS SELECT floor FROM rooms")
        for name in PATHLESS:
            assert client.query(name).name == name and "hall" not in client.plan(name)
            with client.subscribe(name, beginning=True, until_now=True) as batches:
                assert [row["room"] for batch in batches for row in batch.to_pylist()] == ["hall"]
    sign_in(page, live, room="queries")
    for name in PATHLESS:
        page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
        page.get_by_role("region", name="queries").get_by_role("link", name=name, exact=True).click()
        page.locator("h1 bdi").get_by_text(name, exact=True).wait_for()
        page.locator(".plan [data-node]").first.wait_for()
        page.get_by_role("region", name=f"results of {name}").get_by_text("hall", exact=True).wait_for()
        with page.expect_popup() as opened:
            page.get_by_role("link", name="as text").click()
        assert "rooms" in opened.value.locator("body").inner_text()
        opened.value.close()
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").wait_for()
        assert live.door.service.query(name).state == "PAUSED"
    page.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.get_by_role("heading", name="Queries").wait_for()
    names = {one.name for one in live.door.service.queries()}
    assert PATHLESS[-1] not in names and {"a", "y", *PATHLESS[:-1]} <= names


def test_addresses_that_lead_nowhere(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/no such query")
    page.get_by_role("heading", name="no such query").wait_for()
    page.locator(".error").get_by_text("no such query").wait_for()
    page.get_by_role("link", name="All queries").click()
    page.get_by_role("heading", name="Queries").wait_for()
    for address in ("#/query/%", "#/query/%E0%A4", "#/query/"):
        page.goto(f"{live.url}/{address}")
        page.locator(".error").wait_for()
    page.goto(f"{live.url}/#/nowhere")
    page.get_by_role("heading", name="Overview").wait_for()


def test_values_at_the_limits_of_their_types(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/all_rows")
    results = page.get_by_role("region", name="results of all_rows")
    results.wait_for()
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", ROWS)
        client.insert("readings", [{"at": "9999-12-31 23:59:59", "room": "end", "x": 0.0, "d": "0", "n": 0}])
    results.get_by_text("-9223372036854775808").wait_for()
    cells = [[cell.inner_text() for cell in row.locator("td").all()] for row in results.locator("tbody tr").all()]
    (late,) = [row for row in cells if row[2] == "NULL" and row[3] == "-1e+308"]
    assert late[4] == "1234567890123456789012345678.0123456789"
    assert {"NaN", "Infinity", "-Infinity", "1e+308"} <= {row[3] for row in cells}
    # A text NULL is no NULL, and a long text shows its beginning until it is asked for.
    assert results.locator("td.null").count() == 3
    results.get_by_role("button", name="all 3,000 characters").click()
    assert results.get_by_text("x" * 3_000).count() == 1
    for column, order in (
        ("d", ["NULL", "-1.5", "0.0000000001", "9", "10", "1234567890123456789012345678.0123456789"]),
        ("x", ["-Infinity", "-1e+308", "19.5", "1e+308", "Infinity", "NaN"]),
    ):
        results.get_by_role("button", name=column, exact=True).click()
        place = {"x": 3, "d": 4}[column]
        texts = [row.locator("td").nth(place).inner_text() for row in results.locator("tbody tr").all()]
        shown = [re.sub(r"\.?0+$", "", text) if "." in text else text for text in texts]
        assert [text for text in shown if text in order] == order
    page.locator(".chart canvas").first.wait_for()
    assert page.locator(".u-legend").inner_text().count("Value") == 0


def test_a_chart_of_one_instant_and_its_time_is_that_of_the_tables(page: Any, live: Running) -> None:
    """In UTC, whatever the browser's zone is; one instant gets no axis of years."""
    sign_in(page, live, room="query/all_rows")
    page.get_by_role("region", name="results of all_rows").wait_for()
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", [ROWS[0] | {"at": "2024-03-01 09:00:00"}, ROWS[0] | {"at": "2024-03-01 09:10:00"}])
    page.locator(".chart canvas").first.wait_for()
    page.locator(".u-over").scroll_into_view_if_needed()
    page.locator(".u-over").hover()
    page.locator(".u-legend").get_by_text("2024-03-01T09:00:00.000Z").wait_for()
    middle = "(one) => { const box = one.getBoundingClientRect(); return box.left + box.width / 2; }"
    assert abs(page.locator(".u-cursor-pt").first.evaluate(middle) - page.locator(".u-over").evaluate(middle)) < 20


def test_the_content_of_a_relation_counts_equal_rows(page: Any, live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE QUERY many AS SELECT 'same' AS word FROM readings [RANGE 1 DAY]")
        client.insert("readings", [ROWS[2] | {"at": f"2024-03-01 09:00:00.{n:06}"} for n in range(2_500)])
        sign_in(page, live, room="query/many")
        page.get_by_text("2,499 rows now").wait_for()
        assert page.get_by_role("region", name="results of many").locator("tbody tr").count() == 1_000
        page.get_by_text("1,499 further rows are not shown").wait_for()


def test_two_hundred_columns(page: Any, live: Running) -> None:
    columns = ", ".join(f"n + {i} AS `column {i}`" for i in range(200))
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute(f"CREATE QUERY wide AS SELECT ISTREAM({columns}) FROM readings [NOW]")
        client.insert(
            "readings", [{**ROWS[2], "at": f"2024-03-01 09:{n // 60:02}:{n % 60:02}", "n": n} for n in range(600)]
        )
    sign_in(page, live, room="query/wide")
    results = page.get_by_role("region", name="results of wide")
    results.get_by_role("cell", name="797", exact=True).first.wait_for()
    assert results.locator("tbody tr").count() == 500 and results.locator("thead th").count() == 201
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
