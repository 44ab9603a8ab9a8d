"""What is known of sources: told by SET, observed of rows, carried up a plan, and shown by explain."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra import Scan, leaves
from penstock.algebra.nodes.scans import Source
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import SourceStatistics, Statistics, known_statistics, observe
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.session import Session
from penstock.settings import Settings
from penstock.types import Field, Schema

STREAMS = "".join(
    f"CREATE STREAM {name} (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;\n" for name in "ABC"
)
COMMON = "SELECT A.k FROM A [RANGE 10 SECOND], B [RANGE 10 SECOND], C [RANGE 10 SECOND] WHERE A.k = B.k AND B.k = C.k"
CHAIN = "SELECT A.k FROM A [RANGE 10 SECOND], B [RANGE 10 SECOND], C [RANGE 10 SECOND] WHERE A.k = B.k AND B.v = C.v"

BAND = "SELECT A.k FROM A [RANGE 10 SECOND], B [RANGE 10 SECOND], C [NOW] WHERE A.k <= B.k AND B.v < C.v"


def plan(query: str, statistics: str) -> list[dict[str, Any]]:
    """The nodes of the physical plan."""
    session = Session()
    session.execute(f"{STREAMS} SET statistics = '{statistics}';")
    return list(json.loads(session.query(query).explain("json"))["physical"]["nodes"])


def joins(query: str, statistics: str) -> list[dict[str, str]]:
    """The parameters of the joins of the physical plan, from the top."""
    return [node["parameters"] for node in plan(query, statistics) if "Join" in node["label"]]


def test_hints_are_read() -> None:
    hints = Settings().with_value("statistics", " S(rate 10, k 50),T ( rate 0.5 )")["statistics"]
    assert hints == (("S", 10.0, (("k", 50.0),)), ("T", 0.5, ()))
    known = Statistics({"s": SourceStatistics(2.0, {"k": 5.0, "v": 7.0})}).updated(hints)
    assert known.sources["s"] == SourceStatistics(10.0, {"k": 50.0, "v": 7.0})
    assert known.sources["t"].rate == 0.5


@pytest.mark.parametrize("text", ["S", "S(rate)", "S(rate 0)", "S(rate -1)", "S(k 5) T(k 5)", "S(k x)", "S()"])
def test_a_hint_that_says_nothing_is_an_error(text: str) -> None:
    with pytest.raises(PenstockError, match="S\\(rate 10") as caught:
        Settings().with_value("statistics", text)
    assert caught.value.code == "P0104"


def test_rows_in_memory_are_observed() -> None:
    bound = bind_script(STREAMS + f"CREATE QUERY q AS {COMMON};")
    sources = {leaf.source.name: leaf.source for leaf in leaves(bound.queries[0].root) if isinstance(leaf, Scan)}
    rows = [(tick, tick % 3, None) for tick in range(10, 30)] * 2
    known = known_statistics(sources, {"a": rows}, {}, (("B", 4.0, ()),))
    assert known.sources["a"] == SourceStatistics(2.0, {"ts": 20.0, "k": 3.0, "v": 0.0})
    assert known.sources["b"].rate == 4.0
    assert known.of(sources["C"]) == SourceStatistics()
    empty = {
        "A": pa.table({"ts": pa.array([], pa.int32()), "k": pa.array([], pa.int32()), "v": pa.array([], pa.int32())})
    }
    assert observe(sources, empty).sources == {}


def test_arrays_and_structs_are_not_counted() -> None:
    """Arrow does not count their distinct values; a one-time query over the answers of another reads such columns."""
    types = {"a": pa.list_(pa.int32()), "s": pa.struct([("x", pa.int32())]), "k": pa.int32()}
    columns = Schema([Field(name, type_) for name, type_ in types.items()])
    source = Source("R", False, columns, "RESULTS")
    rows = pa.table([pa.array([[1], None], types["a"]), pa.array([{"x": 1}, None], types["s"]), [1, 2]], list(types))
    assert observe({"R": source}, {"R": rows}).sources["r"].distinct == {"k": 2.0}


def test_estimates_go_up_a_plan() -> None:
    bound = bind_script(STREAMS + "CREATE QUERY q AS SELECT k + v FROM A [RANGE 1 MINUTE] WHERE v = 3;")
    known = Statistics({"a": SourceStatistics(10.0, {"k": 20.0, "v": 5.0})})
    found = estimate(optimize(bound.queries[0].root), known)
    assert (found.rate, found.length) == (pytest.approx(2.0), 60.0)
    assert found.distinct == (20.0,)


def test_explain_tells_order_and_cost() -> None:
    found = joins(COMMON, "A(rate 100, k 10), B(rate 1, k 10), C(rate 10, k 10)")[0]
    assert found["order"] == "B, C, A"
    assert found["probes"] == "A: B, C; B: C, A; C: B, A"
    assert found["cost"] == "3351 tuples/s"
    assert found["on"] == "A.k = B.k = C.k"
    assert joins(COMMON, "A(rate 1, k 10), B(rate 100, k 10), C(rate 10, k 10)")[0]["order"] == "A, C, B"


def test_without_a_common_column_explain_compares() -> None:
    upper, lower = joins(CHAIN, "A(rate 10, k 10), B(rate 10, k 10, v 10), C(rate 10, v 10)")
    assert upper["chosen"] == "tree in the order B, A, C; cost in one shard 3630, as a tree of joins 1658 tuples/s"
    assert (upper["on"], lower["on"]) == ("v = v", "k = k")


def test_without_any_equality_nothing_is_stored_twice() -> None:
    """A tree has its joins in one shard too, and keeps every pair of the first."""
    (found,) = joins(BAND, "A(rate 1), B(rate 1), C(rate 1)")
    assert found["order"] == "C, B, A"
    assert found["chosen"] == "cost in one shard 66.33, as a tree of joins 74.67 tuples/s"
    assert found["where"] == "A.k <= B.k AND B.v < C.v"


@pytest.mark.parametrize(
    ("source", "rate", "length"),
    [
        ("A [ROWS 50]", 10.0, 5.0),
        ("A [PARTITION BY k ROWS 5]", 10.0, 10.0),
        ("A [PARTITION BY k ROWS 5 RANGE 3 SECONDS]", 10.0, 3.0),
        ("A [NOW] SAMPLE(20)", 2.0, 1.0),
        ("A [RANGE 1 MINUTE SLIDE 10 SECONDS]", 10.0, 60.0),
    ],
)
def test_windows_and_samples_are_estimated(source: str, rate: float, length: float) -> None:
    bound = bind_script(STREAMS + f"CREATE QUERY q AS SELECT k FROM {source};")
    found = estimate(optimize(bound.queries[0].root), Statistics({"a": SourceStatistics(10.0, {"k": 20.0, "v": 5.0})}))
    assert (found.rate, found.length) == (pytest.approx(rate), pytest.approx(length))
