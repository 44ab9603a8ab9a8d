"""What a notebook shows: plans that draw themselves, results as they come; whatever names and values they have."""

from __future__ import annotations

import datetime as dt
import re
import sys
import time
import types
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.client import ServerClient, connect
from penstock.errors import PenstockError
from penstock.notebook.latest_rows import MOST_LINES, MOST_POINTS, LatestRows
from penstock.notebook.result_view import ResultView, cell_of, chart_of
from penstock.notebook.watching import watch
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started

HOSTILE = "<script>alert(1)</script>&\"'</td>\x1b[31m\u0000"


class Shown:
    """The outputs of a notebook."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def __call__(self, view: object) -> Shown:
        self.views.append(view)
        return self

    def update(self, view: object) -> None:
        self.views.append(view)

    @property
    def html(self) -> str:
        return str(self.views[-1]._repr_html_())


class Tags(HTMLParser):
    """The tags and texts of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def changes(*rows: tuple[str, str, float | None], name: str = "room") -> pa.Table:
    start = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)
    ticks = [start + dt.timedelta(minutes=i) for i in range(len(rows))]
    celsius = pa.array([value for _, _, value in rows], pa.float64())
    return pa.table(
        {
            "ts": pa.array(ticks, pa.timestamp("us", "UTC")),
            "op": [op for op, _, _ in rows],
            name: [room for _, room, _ in rows],
            "celsius": celsius,
        }
    )


@pytest.mark.parametrize(
    ("points", "expected"),
    [([(0.0, 1.0), (60.0, 3.0)], ["1.0", "2.0", "3.0", "1970-01-01 00:00:00", "1970-01-01 00:01:00"]),
     ([(0.0, 5.0), (1.0, 5.0)], ["5.0"]), ([(0.0, 1000.1), (1.0, 1000.3)], ["1,000.10", "1,000.20"]),
     ([(0.0, -1e299), (1e6, 1e299)], ["0", "1970-01-12"]), ([(-1e17, 1e-299), (1e17, 2e-299)], ["e-299"]),
     ([(5.0, 0.0)] * 2, ["0.0"])],
)  # fmt: skip
def test_a_chart_has_axes(points: list[tuple[float, float]], expected: list[str]) -> None:
    found = Tags(chart_of({"hall": points}, "celsius", True))
    assert "celsius against ts, UTC" in found.texts[-1]
    assert all(any(text in one for one in found.texts) for text in expected), found.texts
    assert len(set(found.texts)) == len(found.texts) or points[0] == points[1], "marks differ"
    for numbers in re.findall(r'points="([^"]*)"', chart_of({"hall": points}, "celsius", True)):
        for x, y in (one.split(",") for one in numbers.split()):
            assert 0 <= float(x) <= 640 and 0 <= float(y) <= 220


# -- plans


@pytest.fixture
def session() -> penstock.Session:
    made = penstock.Session()
    made.execute(f"""CREATE STREAM S (ts TIMESTAMP, `<b>room</b>` STRING, v INT) FROM MEMORY () TIMESTAMP BY ts;
    CREATE QUERY q INTO MEMORY () AS SELECT `<b>room</b>`, MAX(v) AS m FROM S [RANGE 1 HOUR]
      WHERE `<b>room</b>` <> '{HOSTILE.translate({39: None, 0: None})}' GROUP BY `<b>room</b>`;""")
    return made


def test_a_plan_is_a_text_that_draws_itself(session: penstock.Session) -> None:
    for plan in (session.explain("q"), session.queries["q"].explain()):
        assert isinstance(plan, str) and plan.startswith("-- q: logical plan")
        drawn = plan._repr_svg_()  # type: ignore[attr-defined]
        assert drawn == session.explain("q", "drawn")
        root = ElementTree.fromstring(drawn)
        assert root.tag.endswith("svg") and "<script" not in drawn and "<b>" not in drawn
        assert any("<b>room</b>" in (one.text or "") for one in root.iter())
    assert not hasattr(session.explain("q", "json"), "_repr_svg_")


# -- results


def test_the_content_of_a_relation_is_folded() -> None:
    rows = LatestRows(True)
    rows.add(changes(("+", "hall", 1.0), ("+", "attic", 2.0), ("-", "hall", 1.0), ("+", "hall", 3.0), ("p", "", None)))
    assert sorted(row[1:] for row in rows.shown) == [("attic", 2.0), ("hall", 3.0)]
    assert (rows.total, rows.count) == (2, 4)
    rows.add(changes(("+", "hall", 3.0), ("-", "attic", 2.0)))
    assert [row[1:] for row in rows.shown] == [("hall", 3.0)] * 2 and rows.total == 2
    assert set(rows.lines) == {"hall", "attic"}


def test_of_a_stream_the_newest_rows_are_kept() -> None:
    rows = LatestRows(False, rows=3)
    rows.add(changes(*(("+", f"room {n % 30}", float(n)) for n in range(20_000))))
    assert [row[2] for row in rows.shown] == [19_999.0, 19_998.0, 19_997.0] and rows.total == 20_000
    assert len(rows.lines) == MOST_LINES and all(len(line) == MOST_POINTS for line in rows.lines.values())


def test_columns_are_told_apart_by_their_places() -> None:
    """A query may have columns called `ts` and `op` itself."""
    table = pa.table([pa.array([1, 2]), pa.array(["+", "-"]), pa.array(["-", "-"]), pa.array([5, 5])],
                     names=["ts", "op", "op", "ts"])  # fmt: skip
    rows = LatestRows(True)
    rows.add(table)
    assert rows.columns == ("ts", "op", "ts") and list(rows.shown) == []
    without = LatestRows(False, has_operations=False)
    without.add(table.select([0, 2]))
    assert without.columns == ("ts", "op") and without.shown == [(2, "-"), (1, "-")]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 10**400, -1, True])
def test_what_is_no_number_is_not_drawn(value: Any) -> None:
    rows = LatestRows(False)
    rows._draw(1, value, "a")
    rows._draw(2, 3.0, "a")
    assert "nan" not in ResultView("q", "", rows)._repr_html_()


def test_names_and_values_are_texts() -> None:
    rows = LatestRows(True)
    rows.add(changes(("+", HOSTILE, 1.0), ("+", HOSTILE, 2.0), ("+", "x", None), name=HOSTILE))
    found = Tags(ResultView(HOSTILE, HOSTILE, rows)._repr_html_())
    assert "script" not in found.tags and "svg" in found.tags and "polyline" in found.tags
    whole = "".join(found.texts)
    assert "<script>alert(1)</script>" in whole and "\\x1b[31m\\x00" in whole and "\x1b" not in whole
    assert found.tags.count("td") == 9 and found.tags.count("th") == 3 and "NULL" in found.texts


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "<i>NULL</i>"), ("NULL", "NULL"), (b"\x00\xff", "00ff"), (True, "true"),
     (["<a>"], "[&#x27;&lt;a&gt;&#x27;]"), ("\ud800", "\\ud800"), ("x" * 5000, "x" * 1000 + "…"),
     (dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "2024-01-01T00:00:00Z")],
)  # fmt: skip
def test_values_are_shown(value: Any, expected: str) -> None:
    assert cell_of(value) == expected


class Parts:
    def __init__(self, *parts: Any) -> None:
        self.parts = list(parts)

    def next(self, seconds: float) -> pa.Table | None:
        if not self.parts:
            return None
        part = self.parts.pop(0)
        if isinstance(part, BaseException):
            raise part
        return part


def test_one_output_is_replaced_until_the_result_ends() -> None:
    shown = Shown()
    watch(
        "q", Parts(changes(("+", "a", 1.0)), pa.table({}), changes(("-", "a", 1.0))), LatestRows(True), None, 0, shown
    )
    assert [view.state for view in shown.views] == [
        "waiting for rows",
        "1 row so far",
        "2 rows so far",
        "2 rows, it has ended",
    ]


def test_an_interrupt_ends_what_is_shown_alone() -> None:
    shown = Shown()
    watch("q", Parts(changes(("+", "a", 1.0)), KeyboardInterrupt()), LatestRows(True), None, 0, shown)
    assert shown.views[-1].state == "1 row, interrupted; the query goes on"


class Quiet:
    def next(self, seconds: float) -> pa.Table | None:
        time.sleep(seconds)
        return pa.table({})


def test_a_result_is_shown_for_some_seconds() -> None:
    shown = Shown()
    watch("q", Quiet(), LatestRows(True), 0.05, 0.01, shown)
    assert [view.state for view in shown.views] == ["waiting for rows", "0 rows, shown for 0.05 s"]


def test_without_a_notebook_lines_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    watch("q\x1b", Parts(changes(("+", "a", 1.0))), LatestRows(True), None, 0)
    assert capsys.readouterr().out.splitlines()[-1] == "q\\x1b: 1 row, it has ended, 1 row"


def test_the_display_of_ipython_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, asked = Shown(), []

    def display(view: object, display_id: bool) -> Shown:
        asked.append(display_id)
        return shown(view)

    ipython, module = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: object()  # type: ignore[attr-defined]
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    watch("q", Parts(changes(("+", "a", 1.0))), LatestRows(True), None, 0)
    assert asked == [True] and len(shown.views) == 3 and "<td>a</td>" in shown.html


# -- of a server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = started(tmp_path_factory.mktemp("notebook"))
    yield found
    ended(found)


@pytest.fixture
def client(running: Running) -> Iterator[ServerClient]:
    with connect(running.url, running.texts[AccessRole.CONTROL]) as made:
        yield made


@pytest.mark.server
def test_the_results_of_a_server_are_shown(client: ServerClient) -> None:
    client.execute(WARM)
    client.insert("readings", ROWS)
    shown = Shown()
    client.watch("WARM", seconds=3, every=0.1, value="celsius", by="room", display=shown)
    assert "<td>attic</td><td>23.0</td>" in shown.html and shown.views[-1].title == "warm"
    plan = client.plan("warm")
    assert plan.startswith("-- warm") and plan._repr_svg_().startswith("<svg")  # type: ignore[attr-defined]


@pytest.mark.server
def test_the_rows_of_a_stream_that_are_kept_come_first(client: ServerClient) -> None:
    client.execute("CREATE QUERY each AS SELECT ISTREAM(room, celsius) FROM readings [NOW]")
    client.insert("readings", [{"at": f"2030-03-01 09:0{i}:00", "room": "hall", "celsius": i} for i in range(5)])
    deadline = time.monotonic() + 30
    while not sum(one.num_rows for one in client.subscribe("each", beginning=True, until_now=True)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shown = Shown()
    client.watch("each", seconds=2, every=0.1, display=shown)
    assert "hall" in shown.html, "they were there before"


@pytest.mark.server
def test_answers_of_a_server_are_tables(client: ServerClient) -> None:
    client.execute("CREATE RELATION `<b>` (`<i>` STRING, PRIMARY KEY (`<i>`)) FROM MEMORY ()")
    client.insert("<b>", [{"<i>": HOSTILE.replace("\u0000", "")}, {"<i>": "é"}])
    for answer in (
        client.select("SELECT * FROM `<b>`"),
        client.execute("SELECT * FROM `<b>`"),
        client.queries(),
        client.execute("SHOW QUERIES"),
        client.execute("SHOW QUERIES; SELECT 1 AS a FROM `<b>`"),
        client.statements(),
    ):
        found = Tags(answer._repr_html_())  # type: ignore[attr-defined]
        assert "table" in found.tags and not {"script", "b", "td>"} & set(found.tags)
    assert Tags(client.execute("DESCRIBE `<b>`")._repr_html_()).tags == ["pre"]
    many = client.select("SELECT a.`<i>` FROM `<b>` AS a, `<b>` AS b, `<b>` AS c, `<b>` AS d, `<b>` AS e, `<b>` AS f")
    assert "64 rows, 14 of them are not shown" in many._repr_html_()


@pytest.mark.server
def test_an_unknown_query_is_an_error(client: ServerClient) -> None:
    with pytest.raises(PenstockError, match="P0201"):
        client.watch("nothing", display=Shown())


@pytest.mark.server
def test_a_query_that_is_dropped_ends_or_is_an_error_but_never_hangs(client: ServerClient) -> None:
    client.execute("CREATE QUERY short AS SELECT ISTREAM(room) FROM readings [NOW]")
    shown = Shown()
    client.watch("short", seconds=0.3, every=0.05, display=shown)
    assert "shown for" in shown.views[-1].state


@pytest.mark.server
def test_the_examples_of_the_page(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """They are run one after the other, and print what stands below them."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "notebook.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```(?:\n\n```result\n(.*?)```)?", page, re.DOTALL)
    known = {"connect": lambda url, token: connect(running.url, token), "token": running.texts[AccessRole.CONTROL]}
    assert len(blocks) >= 3
    for code, expected in blocks:
        exec(code.replace("from penstock.client import connect\n", ""), known)
        printed = capsys.readouterr().out
        assert not expected or printed == expected, code


@pytest.mark.server
def test_a_server_that_keeps_no_contents_leaves_no_other_output(tmp_path: Path) -> None:
    running = started(tmp_path)
    try:
        with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
            client.execute(WARM)
            client.insert("readings", ROWS)
            for name in ("value", "by"):
                # It was a chart of another column.
                with pytest.raises(PenstockError, match="no column celsus") as caught:
                    client.watch("warm", display=Shown(), **{name: "celsus"})
                assert caught.value.code == "P0202" and caught.value.hint == "did you mean celsius?"
            for given, said in (
                ({"value": "room"}, "columns with numbers: celsius"),
                ({"seconds": -1}, "as in seconds="),
                ({"every": "1s"}, "as in every="),
                ({"rows": 0}, "from 1 on"),
            ):
                with pytest.raises(PenstockError) as caught:
                    client.watch("warm", display=Shown(), **given)  # type: ignore[arg-type]
                assert caught.value.code == "P0203" and said in str(caught.value.hint)
            outputs = []

            def display(view: object) -> Shown:
                outputs.append(Shown()(view))
                return outputs[-1]

            client.watch("warm", seconds=1, every=0.1, display=display)
            assert len(outputs) == 1 and "attic" in outputs[0].html
    finally:
        ended(running)
