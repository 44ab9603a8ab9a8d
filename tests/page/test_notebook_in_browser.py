"""What a notebook is given, in a browser: nothing of it runs, and all of it is seen."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock
from penstock.notebook.latest_rows import LatestRows
from penstock.notebook.result_view import ResultView

HOSTILE = '<img src=x onerror="window.ran=1"><script>window.ran=1</script></td></table>\'"'


def test_a_result_and_a_plan_are_seen_and_run_nothing(page: Any) -> None:
    rows = LatestRows(True)
    rows.add(pa.table({"ts": [1, 2, 3], "op": ["+"] * 3, HOSTILE: [HOSTILE, HOSTILE, "hall"], "n": [1.5, 3.0, 2.0]}))
    session = penstock.Session()
    session.execute("""CREATE STREAM S (ts INT, `<script>window.ran=1</script>` STRING) FROM MEMORY ()
      TIMESTAMP BY ts UNIT SECOND;
      CREATE QUERY q AS SELECT `<script>window.ran=1</script>` AS `<b>x</b>` FROM S;""")
    plan = session.explain("q")._repr_svg_()  # type: ignore[attr-defined]
    page.set_content(f"<body>{ResultView(HOSTILE, 'so far', rows)._repr_html_()}{plan}</body>")
    page.wait_for_timeout(200)
    assert page.evaluate("window.ran") is None
    assert page.locator("img, script").count() == 0 and page.locator("td").count() == 9
    assert HOSTILE in page.locator("th").nth(1).inner_text() and HOSTILE in page.locator("td").nth(1).inner_text()
    assert page.locator("polyline").count() == 2
    assert page.locator("polyline").first.bounding_box()["height"] > 50, "the line rises"
    assert page.locator("svg [data-node]").count() >= 2 and page.locator("svg b").count() == 0
