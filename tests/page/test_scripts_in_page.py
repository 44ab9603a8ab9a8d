"""Scripts in the editor and the console: marks of errors, verdicts, long texts, many rows, cancelling."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP ()
  TIMESTAMP BY at RETAIN 1 DAY;
CREATE RELATION rooms (room STRING, floor BIGINT, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 1), ('attic', 2);
CREATE QUERY one AS SELECT ISTREAM(room, celsius) FROM readings [NOW] WHERE celsius > 20;
"""


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT)


@pytest.mark.parametrize(
    ("text", "marked"),
    [("SELECT '\U0001f642\U0001f468‍\U0001f469',\trom\tFROM rooms", "rom"),
     ("-- é\r\nSELECT\r\n\t\tfloor,\r\n\trom FROM rooms", "rom"),
     ("SELECT room FROM", "M"), ("SELECT room FROM   \n", "M"), ("SELECT 'שלום', rom FROM rooms", "rom")],
)  # fmt: skip
def test_an_error_is_marked_where_it_is(page: Any, live: Running, text: str, marked: str) -> None:
    """Behind letters of two units, tabs and ends of lines of two characters, and at the end of the text."""
    sign_in(page, live, room="editor")
    page.get_by_label("statement").fill(text)
    page.locator(".error").wait_for()
    assert page.locator(".editor mark").all_inner_texts() == [marked]
    assert page.locator(".error pre mark").all_inner_texts() == [marked]
    boxes = [page.locator(f"{one} mark").first.bounding_box() for one in (".editor", ".error pre")]
    assert all(box["width"] > 2 for box in boxes)


def test_the_verdict_says_with_whom_a_query_would_share(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    field = page.get_by_label("statement")
    field.fill("CREATE QUERY two AS SELECT ISTREAM(room) FROM readings [NOW] WHERE celsius > 20")
    page.get_by_role("heading", name="Shared").wait_for()
    page.get_by_text(re.compile("^Scan with one$")).or_(page.get_by_text(re.compile("with one"))).first.wait_for()
    page.get_by_text("assumed of readings").wait_for()
    field.fill("CREATE QUERY two AS SELECT room FROM rooms")
    page.get_by_text("with no other query").wait_for()
    # A script of thousands of queries is not compared with all that runs.
    many = ";".join(f"CREATE QUERY q{n} AS SELECT room FROM rooms WHERE floor > {n}" for n in range(30))
    with live.client(AccessRole.CONTROL) as client:
        checks = client.post("/v1/statements", json={"sql": many, "dry": True}).json()["statements"]
    assert [one["check"]["sharing"] is not None for one in checks] == [True] * 20 + [False] * 10


def test_ten_thousand_lines(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    field = page.get_by_label("statement")
    lines = "\n".join(f"-- line {n}: SELECT 'nothing' FROM nowhere" for n in range(10_000))
    put = """(area, text) => { area.value = text; area.dispatchEvent(new InputEvent('input')); }"""
    field.evaluate(put, lines + "\nSELECT rom FROM rooms")
    page.locator(".editor mark").wait_for()
    assert page.locator(".editor mark").all_inner_texts() == ["rom"]
    # A key makes as many parts of a long text as of an empty one: each would be laid out anew.
    key = """() => { const area = document.querySelector('.editor textarea'), begun = performance.now();
      area.setRangeText('x', 0, 0); area.dispatchEvent(new InputEvent('input')); area.offsetHeight;
      return [performance.now() - begun, document.querySelector('.editor pre').childNodes.length]; }"""
    seen = [page.evaluate(key) for _ in range(9)]
    print(f"a key in 10,000 lines: {sorted(took for took, _ in seen)[4]:.0f} ms")
    assert {parts for _, parts in seen} == {2}


def test_what_an_earlier_statement_replaced_comes_back(page: Any, live: Running) -> None:
    sign_in(page, live, room="console")
    field = page.get_by_label("statement", exact=True)
    field.fill("SELECT room FROM rooms")
    field.press("Control+Enter")
    page.get_by_role("region", name="answer").wait_for()
    field.fill("SELECT floor FROM rooms WHERE")
    page.get_by_label("what was executed before").select_option("SELECT room FROM rooms")
    assert field.input_value() == "SELECT room FROM rooms"
    field.press("Control+z")
    assert field.input_value() == "SELECT floor FROM rooms WHERE"


def test_a_hundred_thousand_rows(page: Any, live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE RELATION numbers (n BIGINT, PRIMARY KEY (n)) FROM MEMORY ()")
        client.insert("numbers", [{"n": n} for n in range(400)])
    sign_in(page, live, room="console")
    field = page.get_by_label("statement", exact=True)
    field.fill("SELECT a.n, b.n + 0.5 AS m FROM numbers AS a, numbers AS b WHERE b.n < 250")
    begun = time.monotonic()
    field.press("Control+Enter")
    page.get_by_text("100,000 rows in").wait_for()
    print(f"100,000 rows: {time.monotonic() - begun:.1f} s")
    answer = page.get_by_role("region", name="answer")
    assert answer.locator("tbody tr").count() == 1_000
    page.get_by_text("99,000 further rows are not shown").wait_for()
    answer.get_by_role("button", name="m", exact=True).click()
    assert answer.locator("tbody tr").first.locator("td").nth(1).inner_text() == "0.5"


def test_a_change_of_all_rows_asks_to_be_confirmed(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    field = page.get_by_label("statement")
    field.fill("UPDATE penstock.queries SET weight = 2")
    field.press("Control+Enter")
    page.get_by_text("CONFIRM 1 ROWS at the end confirms it").first.wait_for()
    field.fill("UPDATE penstock.queries SET weight = 2 CONFIRM 1 ROWS")
    field.press("Control+Enter")
    page.get_by_text("UPDATE COMPLETED").wait_for()
    # The form says what is wrong with a weight.
    page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
    page.get_by_role("link", name="one", exact=True).click()
    for weight, answer in (("heavy", "error"), ("-1", "error"), ("2.5", "has the weight 2.5")):
        page.get_by_role("button", name="Weight").click()
        page.get_by_role("dialog").get_by_label("weight, 1 by default").fill(weight)
        page.get_by_role("dialog").get_by_role("button", name="Set").click()
        if answer == "error":
            page.locator(".error").get_by_text(weight).first.wait_for()
        else:
            page.get_by_text(answer).wait_for()
