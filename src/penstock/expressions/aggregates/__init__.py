"""The registry of aggregates, with one line each. `contract.py` defines the interface of an aggregate."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PenstockError, nearest
from penstock.expressions.aggregates import approx_percentile, approx_quantile
from penstock.expressions.aggregates.any_value import ANY_VALUE
from penstock.expressions.aggregates.approx_count_distinct import APPROX_COUNT_DISTINCT
from penstock.expressions.aggregates.approx_percentile import APPROX_PERCENTILE
from penstock.expressions.aggregates.approx_quantile import APPROX_QUANTILE
from penstock.expressions.aggregates.approx_top_k import APPROX_TOP_K
from penstock.expressions.aggregates.arguments import condition
from penstock.expressions.aggregates.array_agg import ARRAY_AGG
from penstock.expressions.aggregates.bits import BIT_AND, BIT_OR, BIT_XOR
from penstock.expressions.aggregates.bool_and_or import BOOL_AND, BOOL_OR
from penstock.expressions.aggregates.contract import (
    AggregateFunction,
    AggregateInput,
    DistinctRule,
    RowOrder,
    WrittenCall,
)
from penstock.expressions.aggregates.count import COUNT, count_rows
from penstock.expressions.aggregates.count_if import COUNT_IF
from penstock.expressions.aggregates.count_min_sketch import COUNT_MIN_SKETCH
from penstock.expressions.aggregates.covariance import CORR, COVAR_POP, COVAR_SAMP
from penstock.expressions.aggregates.estimate import ESTIMATES
from penstock.expressions.aggregates.extremes import MAX, MIN
from penstock.expressions.aggregates.first_last import FIRST, LAST
from penstock.expressions.aggregates.frequent import MODE, TOP_K
from penstock.expressions.aggregates.hll_sketch import HLL_SKETCH_AGG, HLL_UNION_AGG
from penstock.expressions.aggregates.percentile import PERCENTILE_CONT, PERCENTILE_DISC
from penstock.expressions.aggregates.quantile import MEDIAN, QUANTILE
from penstock.expressions.aggregates.string_agg import STRING_AGG
from penstock.expressions.aggregates.sum_and_average import AVG, SUM
from penstock.expressions.aggregates.value_by import MAX_BY, MIN_BY
from penstock.expressions.aggregates.variance import STDDEV_POP, STDDEV_SAMP, VAR_POP, VAR_SAMP
from penstock.expressions.nodes import AggregateCall, Expression

__all__ = [
    "AGGREGATES",
    "aggregate_function",
    "build_aggregate",
    "count_rows",
    "function_of",
    "is_aggregate",
    "known_aggregates",
    "same_with_duplicates",
    "value_of_nothing",
    "written_call",
]

#: In the order of the documentation.
AGGREGATES: tuple[AggregateFunction, ...] = (
    COUNT,
    COUNT_IF,
    SUM,
    AVG,
    MIN,
    MAX,
    ANY_VALUE,
    MIN_BY,
    MAX_BY,
    FIRST,
    LAST,
    STDDEV_SAMP,
    STDDEV_POP,
    VAR_SAMP,
    VAR_POP,
    COVAR_SAMP,
    COVAR_POP,
    CORR,
    MEDIAN,
    QUANTILE,
    PERCENTILE_CONT,
    PERCENTILE_DISC,
    MODE,
    TOP_K,
    ARRAY_AGG,
    STRING_AGG,
    BOOL_AND,
    BOOL_OR,
    BIT_AND,
    BIT_OR,
    BIT_XOR,
    APPROX_COUNT_DISTINCT,
    APPROX_QUANTILE,
    approx_quantile.BOUND,
    APPROX_PERCENTILE,
    approx_percentile.BOUND,
    APPROX_TOP_K,
    COUNT_MIN_SKETCH,
    HLL_SKETCH_AGG,
    HLL_UNION_AGG,
)
#: What ESTIMATE and its bounds become: found by name, so that a plan can be written as text, but not documented.
_WRITTEN: tuple[AggregateFunction, ...] = (*ESTIMATES,)
_BY_NAME = {name: row for row in (*AGGREGATES, *_WRITTEN) for name in (row.name, *row.aliases)}

#: Aggregates of [semantics 4.2] and of Spark that are refused by name until they exist.
_LATER = frozenset(
    """
    COLLECT_SET APPROX_COUNT
    ANY SOME SKEWNESS
    KURTOSIS REGR_COUNT REGR_SLOPE REGR_INTERCEPT REGR_R2 GROUPING GROUPING_ID HISTOGRAM_NUMERIC
    TRY_SUM TRY_AVG
    """.split()  # noqa: SIM905
)


def aggregate_function(name: str) -> AggregateFunction | None:
    """Return the aggregate with that name or alias, None for an unknown or unsupported name."""
    return _BY_NAME.get(name.upper())


def is_aggregate(name: str) -> bool:
    """Return whether `name` is an aggregate, supported or not."""
    return name.upper() in _BY_NAME or name.upper() in _LATER


def known_aggregates() -> list[str]:
    return sorted(_BY_NAME)


def build_aggregate(
    name: str,
    arguments: Sequence[Expression],
    distinct: bool = False,
    filter: Expression | None = None,  # noqa: A002
    order: Expression | None = None,
    by: RowOrder | None = None,
    within: bool = False,
) -> AggregateCall:
    """Return a call of the aggregate `name`; no arguments for COUNT(*). order: the timestamp of a row, where it has
    one, for functions that use it; by: its ORDER BY, which stands behind it in WITHIN GROUP where `within`. Raises
    PenstockError P0203, P0204, P0304, P0901."""
    row = aggregate_function(name)
    if row is None:
        if name.upper() in _LATER:
            raise PenstockError("P0901", f"the aggregate {name.upper()} is not supported yet")
        raise PenstockError("P0204", f"unknown aggregate {name}", hint=nearest(name, known_aggregates()))
    only = None if filter is None else condition("FILTER", filter)
    read = AggregateInput(tuple(arguments), distinct, only, order, by)
    if within:
        return row.build_within(read)
    if by is not None and not row.ordered:
        named = ", ".join(f.name for f in AGGREGATES if f.ordered)
        raise PenstockError(
            "P0304",
            f"{row.name} has one value in every order of its rows",
            hint=f"leave ORDER BY out: it orders {named}",
        )
    return row.build(read)


def function_of(call: AggregateCall) -> AggregateFunction:
    """Return the function of a call that is not user-defined."""
    return _BY_NAME[call.function]


def written_call(call: AggregateCall) -> WrittenCall:
    """Return how a call is written in a query."""
    row = _BY_NAME.get(call.function)
    return WrittenCall(call.arguments) if row is None else row.written(call)


def value_of_nothing(call: AggregateCall) -> int | None:
    """Return the value of a call over no rows; None, that is NULL, for one that is user-defined too."""
    row = _BY_NAME.get(call.function)
    return None if row is None else row.of_nothing


def same_with_duplicates(call: AggregateCall) -> bool:
    """Return whether a call has the same value however often each row occurs."""
    row = _BY_NAME.get(call.function)
    return call.distinct or (row is not None and row.distinct is DistinctRule.NO_EFFECT)
