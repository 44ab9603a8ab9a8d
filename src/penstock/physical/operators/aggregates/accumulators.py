"""Accumulators ("lanes"): the additive numbers that aggregates are computed from, so that panes and expirations are
sums.

An `AggregateLayout` (`plan/state/aggregate_layout.py`) has the lanes that the aggregates of one GROUP BY need; what the
lanes of one accumulator are is written in its file in `expressions/aggregates/accumulators/`. Integer lane 0 is the
multiplicity of rows. What is not additive travels as value columns beside the lanes. The lanes of a DISTINCT argument,
which move when a value comes or goes, are made of its values where that is known.

Layout of an accumulator row: key columns | integer lanes | float lanes | values of MIN/MAX | cells
of registers | values of DISTINCT | values of bags | cells that are counted. Cells have rows of their own
(`cells/cell_rows.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.expressions.aggregates.accumulators.double_pairs import add_pair
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, add_row, two_sum
from penstock.expressions.aggregates.contract import ArgumentState, NullRule
from penstock.expressions.evaluation.evaluate import evaluate_all, mask
from penstock.expressions.sketches.hyperloglog import RANK_BITS
from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import in_time, pane_codes, sum_by_code
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import extreme_by_code, greatest_by_code
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.cells.cell_rows import encoded_rows
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, Argument

#: Rows sampled to decide whether pre-aggregation pays: those whose fingerprint has these bits 0.
_SAMPLED = 1 << 14
_SAMPLE = np.uint64(31)
#: Rows are pre-aggregated if at most this fraction of them remains.
_MOST_LEFT = 0.7


def to_lanes(plan: AggregateLayout, elements: Elements) -> list[Elements]:
    """Return the accumulator rows of `elements`, with the signs multiplied into the lanes: one each, and for each
    sketch one for each of its cells that an element falls into."""
    signs = elements.signs
    integers: list[Int64s] = [signs]
    floats: list[Float64s] = []
    values: dict[int, pa.Array] = {}
    sketched: dict[int, pa.Array] = {}
    for number, argument in enumerate(plan.arguments):
        column = _argument_column(argument, elements)
        if argument.encoder is not None:
            sketched[number] = column
            integers.append(np.zeros(len(signs), np.int64))
        elif argument.kind is ArgumentState.SUMS:
            more_integers, more_floats = value_lanes(argument, column, signs)
            integers += more_integers
            floats += more_floats
        else:
            values[number] = column
    columns = [elements.columns[i] for i in plan.group]
    columns += [pa.array(lane) for lane in integers] + [pa.array(lane) for lane in floats]
    for i in plan.valued:
        columns.append(pa.nulls(len(signs), plan.arguments[i].type) if i in sketched else values[i])
    rows = Elements(tuple(columns), elements.ts, elements.exp)
    return [rows, *(part for n, values in sketched.items() for part in encoded_rows(plan, rows, n, values, signs))]


def value_lanes(argument: Argument, column: pa.Array, signs: Int64s) -> tuple[list[Int64s], list[Float64s]]:
    """Return the lanes of an argument's values, each taken `signs` times."""
    counts = signs
    if column.null_count:
        counts = np.where(column.is_valid().to_numpy(zero_copy_only=False), signs, 0)
    integers, floats = [counts], list[Float64s]()
    for accumulator in argument.accumulators:
        more_integers, more_floats = accumulator.lanes(column, counts)
        integers += more_integers
        floats += more_floats
    return integers, floats


def all_lanes(
    plan: AggregateLayout, carried: Sequence[pa.Array], values: Sequence[pa.Array], short: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return (rows, lanes) of lane rows, integers and floats, those of DISTINCT arguments as if each value were new.
    carried: the lanes of the input; values: by `plan.valued`; short: whether the floats are those of the first lanes
    of sums alone where all others are 0."""
    width, pairs = plan.carried
    length = len(carried[0])
    integers = np.empty((length, plan.integers), np.int64)
    doubles: dict[int, Float64s] = {}
    for argument in plan.ranked:
        first = plan.arguments[argument].integers
        integers[:, first : first + plan.arguments[argument].integer_lanes] = 0
    for lane, column in zip(width, carried[: len(width)], strict=True):
        integers[:, lane] = int64s(column)
    for lane, column in zip(pairs, carried[len(width) :], strict=True):
        doubles[lane] = column.to_numpy(zero_copy_only=True)
    for argument, column in zip(plan.valued, values, strict=True):
        argument_lanes = plan.arguments[argument]
        if argument_lanes.kind is not ArgumentState.DISTINCT:
            continue
        integer_lanes, pair = value_lanes(argument_lanes, column, np.ones(length, np.int64))
        for lane, numbers in enumerate(integer_lanes, argument_lanes.integers):
            integers[:, lane] = numbers
        for lane, halves in enumerate(pair, argument_lanes.floats):
            doubles[lane] = halves
    firsts = [first for _, first, _ in plan.double_sums]
    if short and not any(lane.any() for k, lane in doubles.items() if k not in firsts):
        return integers, _beside([doubles[k] for k in firsts], length)
    return integers, _beside([doubles[k] for k in range(plan.floats)], length)


def _beside(columns: Sequence[Float64s], length: int) -> Float64s:
    """Return columns as one array by (row, column)."""
    if len(columns) == 1:
        return columns[0].reshape(length, 1)
    made = np.empty((length, len(columns)))
    for k, column in enumerate(columns):
        made[:, k] = column
    return made


def _argument_column(argument: Argument, elements: Elements) -> pa.Array:
    """Return the values of an argument, NULL where they do not count."""
    length = len(elements)
    parts = evaluate_all(argument.expressions, elements.columns, length)
    chosen = None if argument.filter is None else mask(argument.filter, elements.columns, length)
    if len(parts) == 1:
        return parts[0] if chosen is None else pc.if_else(pa.array(chosen), parts[0], pa.scalar(None, parts[0].type))
    kept = np.ones(length, np.bool_) if chosen is None else chosen
    for part in _never_null(argument.nulls, parts):
        kept = kept & part.is_valid().to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(parts, fields=list(argument.value_type), mask=pa.array(~kept))


def _never_null(rule: NullRule, parts: list[pa.Array]) -> list[pa.Array]:
    """Return the parts of a tuple that must not be NULL for it to count."""
    return {
        NullRule.KEEP: [],
        NullRule.SKIP_UNORDERED: parts[:1],
        NullRule.SKIP_BEHIND_KEYS: parts[-1:],
        NullRule.SKIP: parts,
    }[rule]


def sum_doubles(codes: Int64s, lanes: Sequence[Float64s], count: int) -> Sequence[Float64s]:
    """Return the sums of pairs or expansions of doubles per code in [0, count), by lane."""
    if len(lanes) == 2:
        pairs: Sequence[Float64s] = _sum_pairs(codes, *lanes, count)
        return pairs
    high, low, *rest = lanes
    if not any(lane.any() for lane in rest):
        first, second, exact = _sum_two(codes, high, low, bool(low.any()), count)
        if exact:
            return first, second, *[np.zeros(count)] * len(rest)
    sums = np.zeros((count, WIDTH))
    _sum_expansions(codes, np.array(lanes).T.copy(), sums)
    return list(sums.T.copy())


@compiled(reads="codes high low")
def _sum_pairs(codes: Int64s, high: Float64s, low: Float64s, count: int) -> tuple[Float64s, Float64s]:
    sums = np.zeros(count)
    low_parts = np.zeros(count)
    for i in range(codes.shape[0]):
        k = codes[i]
        sums[k], low_parts[k] = add_pair(sums[k], low_parts[k], high[i], low[i])
    return sums, low_parts


@compiled(reads="codes high low")
def _sum_two(
    codes: Int64s, high: Float64s, low: Float64s, has_low: bool, count: int
) -> tuple[Float64s, Float64s, bool]:
    """Return the sums per code of expansions whose lanes behind the second are 0, of which two lanes, and whether the
    others are 0. What the lanes are is as `add_row` would have them."""
    first = np.zeros(count)
    second = np.zeros(count)
    for i in range(codes.shape[0]):
        k = codes[i]
        first[k], error = two_sum(first[k], high[i])
        if error != 0.0:
            second[k], error = two_sum(second[k], error)
        other = 0.0
        if has_low:
            second[k], other = two_sum(second[k], low[i])
        if error != 0.0 or other != 0.0:
            return first, second, False
    return first, second, True


@compiled(reads="codes lanes", counted=False)
def _sum_expansions(codes: Int64s, lanes: Float64s, sums: Float64s) -> None:
    """Add rows to the sums of their codes; both are by (row, lane)."""
    for i in range(codes.shape[0]):
        add_row(sums, codes[i], 0, WIDTH, lanes, i, 1)


def pre_aggregate(plan: AggregateLayout, lanes: Elements) -> Elements:
    """Return one lane row for all rows with equal (key, values but those of MIN/MAX, ts, exp): a pane (Golab).
    Signs must all have been positive where the plan has extremes."""
    first, second = fingerprints(_pane_columns(plan, lanes), len(lanes))
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def pre_aggregate_where_it_pays(plan: AggregateLayout, lanes: Elements) -> Elements:
    """Return `pre_aggregate(plan, lanes)`, or `lanes` unchanged if a sample shows that hardly two rows share a pane:
    then grouping all rows costs more than it saves afterwards."""
    columns = _pane_columns(plan, lanes)
    if not columns and len(lanes) and in_time(lanes.ts):
        return added_up(plan, lanes, *_runs(lanes))
    first, second = fingerprints(columns, len(lanes))
    if len(lanes) >= _SAMPLED:
        # The sample contains either all rows of a pane or none.
        drawn = np.flatnonzero((first & _SAMPLE) == 0)
        _, heads = pane_codes(first[drawn], second[drawn], lanes.ts[drawn], lanes.exp[drawn])
        if len(heads) > _MOST_LEFT * len(drawn):
            return lanes
    return added_up(plan, lanes, *pane_codes(first, second, lanes.ts, lanes.exp))


def _runs(lanes: Elements) -> tuple[Int64s, Int64s]:
    """Return (run of each row, its first row) of rows in time order; a run has one validity."""
    changes = (lanes.ts[1:] != lanes.ts[:-1]) | (lanes.exp[1:] != lanes.exp[:-1])
    return np.concatenate([[0], np.cumsum(changes)]), np.concatenate([[0], np.flatnonzero(changes) + 1])


def _pane_columns(plan: AggregateLayout, lanes: Elements) -> list[pa.Array]:
    """Return what rows of one pane have in common: group, values and cells; of cells with a rank the register alone.
    Columns of only NULLs are left out."""
    at = plan.values_at + len(plan.extremes)
    after = at + len(plan.registers)
    registers = [pc.shift_right(c, RANK_BITS) for c in lanes.columns[at:after] if c.null_count < len(c)]
    values = [c for c in lanes.columns[after:] if c.null_count < len(c)]
    return [*lanes.columns[: len(plan.group)], *registers, *values]


def added_up(plan: AggregateLayout, lanes: Elements, codes: Int64s, firsts: Int64s) -> Elements:
    """Return one accumulator row per code: the sum of its rows, of which firsts[code] is the first."""
    count = len(firsts)
    if count == len(lanes):
        return lanes
    base = lanes.take(firsts)
    columns = list(base.columns)
    integers = len(plan.carried[0])
    start = len(plan.group)
    for i in range(start, start + integers):
        values = int64s(lanes.columns[i])
        columns[i] = pa.array(sum_by_code(codes, values, count) if values.any() else np.zeros(count, np.int64))
    at = start + integers
    for width in plan.carried_widths:
        doubles = [column.to_numpy(zero_copy_only=True) for column in lanes.columns[at : at + width]]
        columns[at : at + width] = map(pa.array, sum_doubles(codes, doubles, count))
        at += width
    for i, argument in enumerate(plan.extremes + plan.registers, plan.values_at):
        if lanes.columns[i].null_count == len(lanes):
            continue
        if argument in plan.registers and not lanes.columns[i].null_count:
            columns[i] = pa.array(greatest_by_code(codes, int64s(lanes.columns[i]), count))
            continue
        least = plan.arguments[argument].kind is ArgumentState.LEAST
        columns[i] = extreme_by_code(least, codes, count, lanes.columns[i])
    return base.with_columns(columns)


def without_cells(
    plan: AggregateLayout, rows: Elements, lasting: Sequence[bool], chosen: Int64s
) -> tuple[Elements, Int64s]:
    """Return the rows that remain of `chosen` when values that are not needed again are left out: one for each group,
    expiration and other values; and which row each of them has its group from."""
    columns = list(rows.columns)
    for at, kept in enumerate(lasting, plan.values_at):
        if not kept:
            columns[at] = pa.nulls(len(rows), columns[at].type)
    left = Elements(tuple(columns), np.zeros(len(rows), np.int64), rows.exp).take(chosen)
    values = [column for column, kept in zip(left.columns[plan.values_at :], lasting, strict=True) if kept]
    first, second = fingerprints([*left.columns[: len(plan.group)], *values], len(left))
    codes, heads = pane_codes(first, second, left.ts, left.exp)
    return added_up(plan, left, codes, heads), chosen[heads]


def early_added_up(plan: AggregateLayout, lanes: Elements) -> Elements:
    """Return `pre_aggregate` of rows ahead of the heartbeat, in their order; as they are where some are retracted."""
    return lanes if plan.extremes and not bool((lanes.signs == 1).all()) else pre_aggregate(plan, lanes)


def pending_added_up(plan: AggregateLayout, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows that expire, sorted by when they do, with those of one group, expiration and values added up.

    Args:
        batch: expiration, fingerprint of the group (2 columns), lanes, values that last
    """
    columns = list(batch.columns)
    integers = 3 + len(plan.carried[0])
    at = integers + len(plan.carried[1])
    first, second = fingerprints([c for c in (*columns[1:3], *columns[at:]) if c.null_count < len(c)], len(batch))
    codes, heads = pane_codes(first, second, np.zeros(len(batch), np.int64), int64s(columns[0]))
    if len(heads) == len(batch):
        return batch
    made = batch.take(pa.array(heads)).columns
    for i in range(3, integers):
        made[i] = pa.array(sum_by_code(codes, int64s(columns[i]), len(heads)))
    first_float = integers
    for width in plan.carried_widths:
        doubles = [column.to_numpy(zero_copy_only=True) for column in columns[first_float : first_float + width]]
        made[first_float : first_float + width] = map(pa.array, sum_doubles(codes, doubles, len(heads)))
        first_float += width
    return unnamed(made)
