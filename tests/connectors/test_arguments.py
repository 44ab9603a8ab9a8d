"""What is handed over to a session: frames of pandas and others, and mistakes, which are errors with a code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.session import Session

TABLE = pa.table({"ts": [1, 2], "a": [1, 2]})
FRAME = pd.DataFrame({"ts": pd.to_datetime(["2024-01-01", "2024-01-02"]), "a": [1, 2], "w": ["x", None]})


@pytest.fixture
def session() -> Session:
    made = Session()
    made.stream("T", TABLE, "ts")
    made.execute("CREATE QUERY q AS SELECT a FROM T [RANGE 1 SECOND]")
    return made


def rows(session: Session, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = session.select(sql).to_arrow().to_pylist()
    return found


def test_a_frame_of_pandas_is_a_stream_or_a_relation(session: Session) -> None:
    session.stream("p", FRAME, "ts", order_within=dt.timedelta(seconds=1))
    assert rows(session, "SELECT a, w FROM p [RANGE 10 DAYS]") == [{"a": 1, "w": "x"}, {"a": 2, "w": None}]
    # The labels of rows that were chosen are no column, an index with a name is one.
    session.relation("chosen", FRAME[FRAME.a > 1][["a"]])
    assert rows(session, "SELECT * FROM chosen") == [{"a": 2}]
    session.relation("indexed", FRAME[["a", "w"]].set_index("a"), primary_key="a")
    assert rows(session, "SELECT w, a FROM indexed ORDER BY a") == [{"w": "x", "a": 1}, {"w": None, "a": 2}]
    session.relation("kinds", pd.DataFrame({"c": pd.Categorical(["x", "y"]), "n": pd.array([1, None], "Int64")}))
    assert rows(session, "SELECT * FROM kinds ORDER BY c") == [{"c": "x", "n": 1}, {"c": "y", "n": None}]


def test_batches_of_arrow_and_frames_of_polars(session: Session) -> None:
    session.relation("b", TABLE.to_batches()[0])
    assert rows(session, "SELECT SUM(a) AS a FROM b") == [{"a": 3}]
    polars = pytest.importorskip("polars")
    session.relation("l", polars.DataFrame({"a": [1, 2], "w": ["x", None]}))
    assert rows(session, "SELECT w FROM l WHERE a = 2") == [{"w": None}]
    with pytest.raises(PenstockError, match="P0203"):
        session.relation("m", polars.LazyFrame({"a": [1]}))


MISTAKES: list[tuple[str, str, Callable[[Session], Any]]] = [
    ("P0203", "Could not convert 'x'", lambda s: s.relation("p", pd.DataFrame({"a": [1, "x"]}))),
    ("P0203", "0 is int", lambda s: s.relation("p", pd.DataFrame([[1, 2]]))),
    ("P0203", "not list", lambda s: s.relation("p", [{"a": 1}])),
    ("P0203", "not pandas.core.series.Series", lambda s: s.relation("p", FRAME["a"])),
    ("P0203", "list", lambda s: s.relation("p", pd.DataFrame({"a": [[1], [2]]}))),
    ("P0203", "no columns", lambda s: s.relation("p", pa.table({}))),
    ("P0206", "one name", lambda s: s.relation("p", pa.table([[1], [2]], names=["a", "A"]))),
    ("P0203", "not int", lambda s: s.relation(5, TABLE)),
    ("P0203", "empty", lambda s: s.stream("", TABLE, "ts")),
    ("P0203", "not NoneType", lambda s: s.stream("p", TABLE, None)),
    ("P0202", "no column at", lambda s: s.stream("p", TABLE, "at")),
    ("P0209", "PARSEC", lambda s: s.stream("p", TABLE, "ts", unit="PARSEC")),
    ("P0203", "unit: expected a text", lambda s: s.stream("p", TABLE, "ts", unit=None)),
    ("P0203", "order_within", lambda s: s.stream("p", TABLE, "ts", order_within=5)),
    ("P0102", "often", lambda s: s.stream("p", TABLE, "ts", order_within="often")),
    ("P0102", "less than nothing", lambda s: s.stream("p", TABLE, "ts", order_within=dt.timedelta(seconds=-1))),
    ("P0203", "primary_key", lambda s: s.relation("p", TABLE, primary_key=5)),
    ("P0203", "not int", lambda s: s.relation("p", TABLE, timestamp="ts", operation=3)),
    ("P0203", "a script is a text", lambda s: s.execute(None)),
    ("P0203", "not bytes", lambda s: s.declare(b"SELECT a FROM T")),
    ("P0203", "a script is a text", lambda s: s.select(5)),
    ("P0203", "a script is a text", lambda s: s.query(5)),
    ("P0203", "not NoneType", lambda s: s.explain(None)),
    ("P0201", "known: q", lambda s: s.state("zz")),
    ("P0201", "unknown query zz", lambda s: s.start(queries=["zz"])),
    ("P0201", "unknown query zz", lambda s: s.start(queries="zz")),
    ("P0203", "not NoneType", lambda s: s.start(queries=[None])),
    ("P0203", "expected names", lambda s: s.start(queries=5)),
    ("P0201", "unknown query nope", lambda s: s.queries["nope"]),
    ("P0201", "unknown source nope", lambda s: s.sources["nope"]),
    ("P0203", "expected Settings", lambda _: Session(settings={"shards": "3"})),
]


@pytest.mark.parametrize(("code", "text", "mistake"), MISTAKES, ids=[f"{n}-{one[1]}" for n, one in enumerate(MISTAKES)])
def test_a_mistake_is_an_error_with_a_code(
    code: str, text: str, mistake: Callable[[Any], Any], session: Session
) -> None:
    with pytest.raises(PenstockError) as caught:
        mistake(session)
    assert caught.value.code == code and text in caught.value.render()
    assert "p" not in session.sources, "nothing is declared"
