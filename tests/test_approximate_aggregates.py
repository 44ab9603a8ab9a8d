"""Approximate aggregates over every kind of window, with updates, cut into rounds, over shards and after restarts:
equal to sketches that the oracle makes naively of R(τ)."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra import Aggregate
from penstock.algebra.nodes.base import operators
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.sketches import count_min, hyperloglog
from penstock.language.scripts import bind_script
from penstock.physical.synopses.tables import skyline
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

COLUMNS = "k INT, x DOUBLE, a STRING, i BIGINT, m DECIMAL(24,2), h BINARY"
DECLARED = (
    f"CREATE STREAM S (ts INT, {COLUMNS}) FROM MEMORY () TIMESTAMP BY ts;"
    f"CREATE RELATION U (ts INT, op STRING, {COLUMNS}) FROM MEMORY () TIMESTAMP BY ts OPERATION BY op;"
)
ITEMS = {
    "distinct": "APPROX_COUNT_DISTINCT(i, 0.3) AS a, APPROX_DISTINCT(a, 0.2) AS b,"
    " APPROX_COUNT_DISTINCT(x, m, 0.3) AS c, APPROX_COUNT_DISTINCT(DISTINCT i, 0.3) FILTER (WHERE k > 0) AS d,"
    " COUNT(DISTINCT i) AS e, SUM(i) AS s,"
    " UPPER_BOUND(APPROX_COUNT_DISTINCT(i, 0.3), 0.9) AS u, LOWER_BOUND(APPROX_COUNT_DISTINCT(a, 0.2)) AS l",
    "quantile": "APPROX_QUANTILE(x, 0.5) AS a, APPROX_QUANTILE(x, 0.9, 0.2) AS b, APPROX_QUANTILE(i, 1) AS c,"
    " APPROX_QUANTILE(m, 0) FILTER (WHERE k > 0) AS d, ERROR_BOUND(APPROX_QUANTILE(x, 0.3)) AS e, MAX(x) AS m,"
    " LOWER_BOUND(APPROX_QUANTILE(x, 0.5)) AS l, UPPER_BOUND(APPROX_QUANTILE(x, 0.5)) AS u",
    "sketches": "HLL_SKETCH_AGG(a, 4) AS a, HLL_UNION_AGG(h) AS b, COUNT_MIN_SKETCH(i, 0.4, 0.7) AS c,"
    " COUNT_MIN_SKETCH(a, 0.5, 0.9, 7) FILTER (WHERE k > 0) AS d, COUNT(*) AS n,"
    " UPPER_BOUND(HLL_SKETCH_ESTIMATE(HLL_SKETCH_AGG(a, 4))) AS u,"
    " UPPER_BOUND(HLL_SKETCH_ESTIMATE(HLL_UNION_AGG(h)), 0.9) AS v,"
    " LOWER_BOUND(HLL_SKETCH_ESTIMATE(HLL_UNION_AGG(h))) AS w",
}
PERCENTILES = (
    "APPROX_PERCENTILE(x, 0.5, 4) AS a, PERCENTILE_APPROX(a, 0.9, 3) AS b, APPROX_PERCENTILE(i, 0.1, 2) AS c,"
    " APPROX_PERCENTILE(m, 1) FILTER (WHERE k > 0) AS d, LOWER_BOUND(APPROX_PERCENTILE(x, 0.5, 4)) AS l,"
    " UPPER_BOUND(APPROX_PERCENTILE(x, 0.5, 4)) AS u, COUNT(*) AS n"
)
PANES = (
    "RSTREAM(SELECT k, {} FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT k, {} FROM S [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT {} FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS])",
    "ISTREAM(SELECT k, {} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "SELECT {} FROM S [UNBOUNDED SLIDE 10 SECONDS]",
)
WINDOWS = (
    *PANES,
    "SELECT k, {} FROM S [RANGE 9 SECONDS] GROUP BY k",
    "SELECT {} FROM S [ROWS 3]",
    "SELECT {} FROM S [NOW]",
    "SELECT {} FROM S [PARTITION BY k ROWS 2]",
    "SELECT k, {} FROM S GROUP BY k",
    "DSTREAM(SELECT {} FROM S [RANGE 2 SECONDS])",
    "SELECT {} FROM S [RANGE 6 TUPLES, FREQUENCY 2 TUPLES]",
    "SELECT k, {} FROM U GROUP BY k",
)
RUNS = (CaseRun(), CaseRun(batch_rows=7, reload=True), CaseRun(3, seed=5, batch_rows=40))

_NAN, _INF = math.nan, math.inf


def image(*values: int, lg: int = 4) -> bytes:
    """Return the library's own image of a sketch, of any mode."""
    sketch = hyperloglog.library().hll_sketch(lg)
    for value in values:
        sketch.update(value)
    return bytes(sketch.serialize_compact())


TYPES = {
    "k": pa.int32(),
    "x": pa.float64(),
    "a": pa.string(),
    "i": pa.int64(),
    "m": pa.decimal128(24, 2),
    "h": pa.binary(),
}
VALUES: dict[str, tuple[object, ...]] = {
    "k": (0, 1),
    "x": (0.1, -0.0, 0.0, _NAN, _INF, -_INF, 5e-324, -2.5, 1e308, 1e-300, None),
    "a": ("b", "a", "", "a\0", "aaaaaaaab", "a longer text than sixteen bytes", "é", None),
    "i": (0, 1, -1, 2**63 - 1, -(2**63), None, *range(20)),
    "m": (*(pa.scalar(v, pa.int64()).cast(pa.decimal128(24, 2)).as_py() for v in (0, -3, 2**40)), None),
    "h": (image(), image(1, 2, 3), image(*range(40)), image(*range(90, 130), lg=5), b"", b"no image", None),
}


def inputs(seed: int, size: int = 45) -> dict[str, pa.Table]:
    """Return rows of the stream, and of the relation: each is taken back, or not."""
    draw = random.Random(seed)
    rows = [{name: draw.choice(choices) for name, choices in VALUES.items()} for _ in range(size)]
    ts = sorted(draw.randint(0, 40) for _ in rows)
    changes = [(t, "+", row) for t, row in zip(ts, rows, strict=True)]
    changes += [(t + draw.randint(1, 9), "-", row) for t, _, row in changes if draw.random() < 0.7]
    changes.sort(key=lambda change: change[0])
    times, ops, changed = zip(*changes, strict=True)
    return {"S": table(ts, rows), "U": table(list(times), list(changed), list(ops))}


def table(ts: list[int], rows: list[dict[str, object]], ops: list[str] | None = None) -> pa.Table:
    columns = {"ts": pa.array(ts, pa.int32()), **({} if ops is None else {"op": pa.array(ops)})}
    return pa.table(
        {**columns, **{name: pa.array([row[name] for row in rows], type_) for name, type_ in TYPES.items()}}
    )


def check(texts: list[str], seed: int, runs: Sequence[CaseRun] = RUNS[1:]) -> None:
    queries = bind_script(DECLARED + "".join(f"CREATE QUERY q{n} AS {text};" for n, text in enumerate(texts))).queries
    given = inputs(seed)
    answers = {q.name: run_oracle(q, given) for q in queries}
    for run in runs:
        found = run.answer(queries, given, False, None)
        for query in queries:
            assert_same(query, found.tables[query.name], answers[query.name])


@pytest.mark.spread(2)
@pytest.mark.parametrize("run", RUNS[1:], ids=("reloaded", "shards"))
@pytest.mark.parametrize("items", ITEMS)
def test_every_window_gives_what_its_rows_give(items: str, run: CaseRun) -> None:
    check([window.format(ITEMS[items]) for window in WINDOWS], 0, [run])


def test_skylines_that_give_up_nodes_after_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skyline, "_MANY_NODES", 0)
    monkeypatch.setattr(skyline, "_SPARSE", 1)
    shrunk, original = [], skyline._moved_together
    monkeypatch.setattr(skyline, "_moved_together", lambda *given: shrunk.append(1) or original(*given))
    items = f"{ITEMS['distinct']}, MAX(x) AS g, MIN(i) AS h"
    for seed in (4, 5):
        check([window.format(items) for window in (WINDOWS[0], WINDOWS[3], WINDOWS[5], WINDOWS[6])], seed)
    assert len(shrunk) > 20


def test_percentiles_follow_from_panes() -> None:
    two = "S [RANGE 4 SECONDS SLIDE 2 SECONDS] p, S [RANGE 3 SECONDS SLIDE 3 SECONDS] r"
    join = f"RSTREAM(SELECT p.k, {{}} FROM {two} WHERE p.k = r.k GROUP BY p.k)"
    over_join = "APPROX_PERCENTILE(p.x, 0.5, 4) AS a, UPPER_BOUND(APPROX_PERCENTILE(r.i, 0.7, 3)) AS u"
    below = "SELECT i + 1 AS z FROM S [RANGE 8 SECONDS SLIDE 4 SECONDS] WHERE x > 0"
    view = f"SELECT APPROX_PERCENTILE(z, 0.4, 3) AS p FROM ({below}) v"
    check([*(window.format(PERCENTILES) for window in PANES), join.format(over_join), view], 1)


def test_sketches_above_and_below_others() -> None:
    check(
        [
            # of groups that change, so that rows are retracted
            "SELECT APPROX_COUNT_DISTINCT(c, 0.3) AS a, APPROX_QUANTILE(c, 0.5) AS q FROM"
            " (SELECT k, i, COUNT(*) AS c FROM S [RANGE 9 SECONDS] GROUP BY k, i) v",
            # of sketches by group
            "SELECT HLL_SKETCH_ESTIMATE(HLL_UNION_AGG(s)) AS e FROM"
            " (SELECT k, HLL_SKETCH_AGG(a, 5) AS s FROM S [RANGE 9 SECONDS] GROUP BY k) v",
            "SELECT n.k, n.i, COUNT_MIN_ESTIMATE(c.s, n.i) AS e, LOWER_BOUND(COUNT_MIN_ESTIMATE(c.s, n.i)) AS l"
            " FROM S [NOW] n, (SELECT COUNT_MIN_SKETCH(i, 0.1, 0.9) AS s FROM S [RANGE 9 SECONDS]) c",
            "SELECT k, COUNT(*) AS n FROM S [RANGE 9 SECONDS] GROUP BY k HAVING APPROX_COUNT_DISTINCT(i) > 3",
            "SELECT p.k, p.i FROM S [NOW] p LEFT JOIN"
            " (SELECT k, APPROX_COUNT_DISTINCT(a) AS c FROM S [RANGE 9 SECONDS] GROUP BY k) q"
            " ON p.k = q.k WHERE q.c > 1",
            "SELECT APPROX_COUNT_DISTINCT(p.i, 0.2) AS c, APPROX_QUANTILE(r.x, 0.7) AS q"
            " FROM S [RANGE 3 SECONDS] p, S [RANGE 5 SECONDS] r WHERE p.k = r.k",
        ],
        2,
    )


def test_exact_aggregates_are_replaced_where_that_is_asked_for() -> None:
    items = "COUNT(DISTINCT i) AS a, MEDIAN(x) AS b, QUANTILE(x, 0.9) FILTER (WHERE k > 0) AS c, COUNT(i) AS n"
    own = (
        "APPROX_COUNT_DISTINCT(i, 0.3) AS a, APPROX_QUANTILE(x, 0.5, 0.2) AS b,"
        " APPROX_QUANTILE(x, 0.9, 0.2) FILTER (WHERE k > 0) AS c, COUNT(i) AS n"
    )
    text = "CREATE QUERY q AS SELECT {} FROM S [RANGE 9 SECONDS];"
    setting = "SET approximate_aggregates = 'rsd 0.3, accuracy 0.2';"
    asked = bind_script(DECLARED + setting + text.format(items))
    plain = bind_script(DECLARED + text.format(own))
    given = inputs(3)
    answers = [RUNS[0].answer(bound.queries, given, False, None).tables["q"] for bound in (asked, plain)]
    assert answers[0].equals(answers[1])
    assert [w.message.split(" is approximate here: ")[0] for w in asked.warnings] == [
        "COUNT(DISTINCT)",
        "QUANTILE",
        "QUANTILE",
    ]
    assert "HyperLogLog of 16 registers, standard error 26 %, probable" in asked.warnings[0].message
    shown, own_shown = (
        next(node.describe()["errors"] for node in operators(bound.queries[0].root) if isinstance(node, Aggregate))
        for bound in (asked, plain)
    )
    assert "standard error 26 %, probable, in place of COUNT(DISTINCT)" in shown
    assert shown.count("in place of QUANTILE") == 2 and "in place of" not in own_shown
    distinct = bind_script(DECLARED + setting + text.format("QUANTILE(DISTINCT x, 0.5) AS a, SUM(DISTINCT i) AS b"))
    assert [w.message.split(":")[0] for w in distinct.warnings] == ["QUANTILE(DISTINCT) stays exact"]
    unchanged = bind_script(DECLARED + "SET approximate_aggregates = none;" + text.format(items))
    assert not unchanged.warnings
    for wrong in ("rsd", "rsd 0.5", "0.02", "rsd 0.1, rsd 0.2", "accuracy 1"):
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"SET approximate_aggregates = '{wrong}';")
        assert [error.code for error in caught.value.errors] == ["P0104"]


def test_small_counts_are_exact() -> None:
    queries = bind_script(f"{DECLARED} CREATE QUERY q AS SELECT APPROX_COUNT_DISTINCT(i) AS c FROM S;").queries
    rows = [{**dict.fromkeys(TYPES), "i": i} for i in range(5) for _ in range(3)]
    found = RUNS[0].answer(queries, {"S": table([1] * 15, rows)}, False, None).tables["q"].to_pylist()
    assert found[-1]["c"] == 5


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ("APPROX_COUNT_DISTINCT()", "P0204"),
        ("APPROX_COUNT_DISTINCT(*)", "P0304"),
        ("APPROX_COUNT_DISTINCT(i, 0.002)", "P0203"),
        ("APPROX_COUNT_DISTINCT(i, 0.31)", "P0203"),
        ("APPROX_QUANTILE(x)", "P0204"),
        ("APPROX_QUANTILE(h, 0.5)", "P0203"),
        ("APPROX_QUANTILE(x, 1.2)", "P0203"),
        ("APPROX_QUANTILE(x, k)", "P0203"),
        ("APPROX_QUANTILE(x, 0.5, 0.51)", "P0203"),
        ("APPROX_QUANTILE(x, 0.5, 0)", "P0203"),
        ("APPROX_QUANTILE(DISTINCT x, 0.5)", "P0304"),
        ("APPROX_QUANTILE_BOUND(x, 0.5, 0.01, 0)", "P0203"),
        ("APPROX_QUANTILE_BOUND(x, 0.5, 1)", "P0204"),
        ("APPROX_PERCENTILE_BOUND(x, 0.5, 10, 2)", "P0203"),
        ("APPROX_PERCENTILE_BOUND(x, 0.5, 10, -1)", "P0353"),
        ("APPROX_QUANTILE(x, ARRAY(0.5, 0.9))", "P0901"),
        ("APPROX_PERCENTILE(x, 0.5, 0)", "P0203"),
        ("APPROX_PERCENTILE(x, 0.5, 1000001)", "P0203"),
        ("APPROX_PERCENTILE(x, 0.5, k)", "P0203"),
        ("APPROX_PERCENTILE(DISTINCT x, 0.5)", "P0304"),
        ("APPROX_PERCENTILE(x, 0.5)", "P0353"),
        ("LOWER_BOUND(APPROX_PERCENTILE(x, 0.5))", "P0353"),
        ("COUNT_MIN_SKETCH(i, 0.1)", "P0204"),
        ("COUNT_MIN_SKETCH(i, 0, 0.9)", "P0203"),
        ("COUNT_MIN_SKETCH(i, 0.1, 1)", "P0203"),
        ("COUNT_MIN_SKETCH(i, 0.1, 0.9, 0.5)", "P0203"),
        ("COUNT_MIN_SKETCH(i, 0.0000001, 0.9)", "P0203"),
        ("APPROX_COUNT_DISTINCT(i, 2)", "P0203"),
        ("COUNT_MIN_SKETCH(x, 0.1, 0.9)", "P0203"),
        ("HLL_SKETCH_AGG(i, 3)", "P0203"),
        ("HLL_SKETCH_AGG(i, 22)", "P0203"),
        ("HLL_UNION_AGG(i)", "P0203"),
        ("HLL_SKETCH_ESTIMATE(X'0a01070c')", "P0203"),
        ("COUNT_MIN_ESTIMATE(X'0000000200', 1)", "P0203"),
        ("COUNT_MIN_ESTIMATE(h, x)", "P0203"),
        ("APPROX_COUNT(i)", "P0901"),
        ("FM(i)", "P0204"),
        ("CM(i)", "P0204"),
        ("LOWER_BOUND(COUNT(*))", "P0355"),
        ("UPPER_BOUND(i)", "P0355"),
        ("ERROR_BOUND(HLL_SKETCH_AGG(i))", "P0355"),
        ("ERROR_BOUND(COUNT_MIN_SKETCH(i, 0.1, 0.9))", "P0355"),
        ("LOWER_BOUND(QUANTILE(x, 0.5))", "P0355"),
        ("LOWER_BOUND()", "P0204"),
        ("LOWER_BOUND(APPROX_QUANTILE(x, 0.5), 1)", "P0203"),
        ("LOWER_BOUND(APPROX_QUANTILE(x, 0.5), k)", "P0203"),
        ("LOWER_BOUND(APPROX_QUANTILE(x, 0.5), 0.9, 0.9)", "P0204"),
    ],
)
def test_refused_with_a_hint(item: str, code: str) -> None:
    with pytest.raises((PenstockError, ScriptErrors)) as caught:
        bind_script(f"{DECLARED}\nSELECT {item} FROM S [RANGE 5 SECONDS];")
    (error,) = caught.value.errors if isinstance(caught.value, ScriptErrors) else [caught.value]
    assert error.code == code
    assert error.position is not None and error.position.line == 2
    assert error.hint


def test_items_without_alias_are_named_by_their_text() -> None:
    items = "LOWER_BOUND(APPROX_QUANTILE(s.x, 0.5)), ERROR_BOUND(APPROX_PERCENTILE(x, 0.5), 0.9), COUNT(*)"
    text = f"CREATE QUERY q AS SELECT {items} FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] s;"
    (query,) = bind_script(DECLARED + text).queries
    assert query.output_names[2:] == (
        "lower_bound(approx_quantile(x, 0.5))",
        "error_bound(approx_percentile(x, 0.5), 0.9)",
        "count(*)",
    )


def test_percentiles_need_panes_that_stay() -> None:
    below = "(SELECT k, COUNT(*) AS c FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k) v"
    with pytest.raises(ScriptErrors) as caught:
        bind_script(f"{DECLARED}\nSELECT APPROX_PERCENTILE(c, 0.5) FROM {below};")
    assert [error.code for error in caught.value.errors] == ["P0352"]


def test_bounds_of_images_of_any_number_of_registers() -> None:
    """est/(1 ± z·1.04/√m): of 16 registers the upper one is infinite at a confidence of 0.9999."""
    items = "HLL_SKETCH_ESTIMATE(h) AS e, HLL_SKETCH_ERROR(h) AS r, LOWER_BOUND(HLL_SKETCH_ESTIMATE(h)) AS l,"
    items += " UPPER_BOUND(HLL_SKETCH_ESTIMATE(h)) AS u, UPPER_BOUND(HLL_SKETCH_ESTIMATE(h), 0.9999) AS s"
    queries = bind_script(f"{DECLARED} CREATE QUERY q AS SELECT {items} FROM S [NOW];").queries
    rows = [{**dict.fromkeys(TYPES), "h": h} for h in (image(*range(40)), image(1, 2, lg=12), b"no image", None)]
    found = RUNS[0].answer(queries, {"S": table([1] * len(rows), rows)}, False, None).tables["q"].to_pylist()
    few, many = sorted((row for row in found if row["op"] == "+" and row["e"] is not None), key=lambda row: -row["r"])
    for row, registers in ((few, 16), (many, 4096)):
        error = 1.04 / math.sqrt(registers)
        assert row["r"] == pytest.approx(error)
        assert row["l"] == pytest.approx(row["e"] / (1 + 1.959964 * error), rel=1e-6)
        assert row["u"] == pytest.approx(row["e"] / (1 - 1.959964 * error), rel=1e-6)
    assert few["s"] == math.inf and many["s"] < 2.2
    assert sum(row["r"] is None and row["l"] is None and row["u"] is None for row in found) == 2


def test_a_value_that_is_no_image_is_null() -> None:
    items = "HLL_SKETCH_ESTIMATE(h) AS e, COUNT_MIN_ESTIMATE(h, i) AS c, COUNT_MIN_ERROR(h) AS r"
    queries = bind_script(f"{DECLARED} CREATE QUERY q AS SELECT {items} FROM S [NOW];").queries
    whole = hyperloglog.image(4, np.ones(16, "uint8"))
    sketch = count_min.image(count_min.shape_of(0.5, 0.9, 0), np.array([0]), np.array([3]), 3)
    rows = [
        {**dict.fromkeys(TYPES), "i": 1, "h": h}
        for h in (whole, whole[:-1], whole[:1] + b"\2" + whole[2:], sketch[:-1], b"\0\0\0\2" + sketch[4:], b"", None)
    ]
    found = RUNS[0].answer(queries, {"S": table([1] * len(rows), rows)}, False, None).tables["q"].to_pylist()
    assert [row for row in found if row["op"] == "+" and row["c"] is not None] == []
    assert [row["e"] for row in found if row["op"] == "+" and row["e"] is not None] != []
