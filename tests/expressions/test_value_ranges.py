"""What bounds of columns say of a condition: never that it holds nowhere where it holds for a row."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algebra import Select
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.evaluation.value_ranges import ValueRange, may_be, may_pass, only, plain
from penstock.expressions.nodes import Expression
from penstock.language.scripts import bind_script
from penstock.tree import walk
from penstock.types import TIMESTAMP

COLUMNS = {
    "k": pa.int32(), "v": pa.int64(), "w": pa.string(), "d": pa.date32(), "m": pa.decimal128(6, 2), "f": pa.float64(),
    "b": pa.bool_(), "t": TIMESTAMP,
}  # fmt: skip
POOL = {
    "k": [1, 2, 3, 7], "v": [-5, 2, 3, 2**40], "w": ["", "a", "ab", "abc", "ä", "b"],
    "d": [dt.date(2020, 1, 1), dt.date(2020, 5, 1)], "m": [Decimal("-1.00"), Decimal("2.50"), Decimal("3.00")],
    "f": [1.0, float("nan"), -0.0, float("inf")], "b": [True, False],
    "t": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2021, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)],
}  # fmt: skip
PARTS = [
    "k = 2", "k <> 3", "3 > k", "k >= 7", "k BETWEEN 2 AND 3", "k IN (1, 7)", "k NOT IN (1, NULL)", "k <=> NULL",
    "k <=> 3", "k > 2.5", "k = 3000000000", "v > 2", "v = 1099511627776", "v < k", "v * 2 > 4", "w = 'ab'", "w > 'a'",
    "w LIKE 'ab%'", "w LIKE '%b'", "w NOT LIKE 'a_'", "w IN ('b', 'q')", "w LIKE 'ä'", "UPPER(w) = 'AB'",
    "d >= DATE '2020-02-01'", "d > TIMESTAMP '2020-02-01'", "m > 2", "m = 2.5", "f > 5", "f = 0", "f <> 1",
    "b", "NOT b", "b = FALSE", "b IS NULL", "w IS NOT NULL", "f IS NULL", "(k + 1) IS NULL",
    "t > TIMESTAMP '2020-06-01'",
    "t = TIMESTAMP '2020-01-01'", "NULL", "TRUE", "k = NULL",
]  # fmt: skip


def condition(text: str) -> Expression:
    """As it stands over the declared columns, its constants folded."""
    columns = "k INT, v BIGINT, w STRING, d DATE, m DECIMAL(6, 2), f DOUBLE, b BOOLEAN, t TIMESTAMP"
    script = f"CREATE STREAM S ({columns}) FROM MEMORY () TIMESTAMP BY t; CREATE QUERY q AS SELECT k FROM S [NOW]"
    (query,) = bind_script(f"{script} WHERE {text};").queries
    return fold(next(node.predicate for node in walk(query.root) if isinstance(node, Select)))


CONDITIONS = [condition(part) for part in PARTS]


def known(values: pa.Array, kind: pa.DataType) -> ValueRange:
    """What a writer's statistics say, at their sharpest."""
    there = [plain(value, kind) for value in values.to_pylist() if value is not None]
    nulls = values.null_count > 0
    if not there or None in there:
        return ValueRange(nulls=nulls, some=bool(there))
    return ValueRange(min(there), max(there), nulls)


rows = st.fixed_dictionaries(
    {name: st.lists(st.one_of(st.none(), st.sampled_from(POOL[name])), min_size=2, max_size=2) for name in COLUMNS}
)
trees = st.recursive(
    st.sampled_from(PARTS),
    lambda inner: st.one_of(
        inner.map(lambda a: f"NOT ({a})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
    ),
    max_leaves=4,
)


@settings(max_examples=150, deadline=None)
@given(rows, trees)
def test_what_holds_for_a_row_is_never_ruled_out(given_rows: dict[str, list[object]], text: str) -> None:
    arrays = [pa.array(given_rows[name], kind) for name, kind in COLUMNS.items()]
    found = [known(array, kind) for array, kind in zip(arrays, COLUMNS.values(), strict=True)]
    predicate = condition(text)
    answer = evaluate(predicate, arrays, 2).to_pylist()
    for truth in (True, False):
        assert may_be(predicate, truth, lambda c: found[c]) or truth not in answer, (text, truth, answer)


@pytest.mark.parametrize("text", PARTS)
def test_single_values_decide_most_conditions(text: str) -> None:
    """Where both rows hold the same the bounds tell all there is, but for what the language computes."""
    predicate = CONDITIONS[PARTS.index(text)]
    draw = np.random.default_rng(1)
    computed = any(word in text for word in ("f ", "UPPER", "v < k", "* 2", "+ 1", "%b", "NOT", "_", "d > TIMESTAMP"))
    for _ in range(12):
        row = {name: draw.choice(np.array([*POOL[name], None], object)) for name in COLUMNS}
        arrays = [pa.array([row[name]], kind) for name, kind in COLUMNS.items()]
        found = [only(array[0].as_py(), kind) for array, kind in zip(arrays, COLUMNS.values(), strict=True)]
        holds = evaluate(predicate, arrays, 1).to_pylist()[0] is True
        assert holds == may_pass(predicate, lambda c, f=found: f[c]) or (computed and not holds), (text, row)
