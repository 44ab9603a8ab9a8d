"""The registry of logical operators as data: for each the fields that are written, and how it is read and checked.

A field is written only where it is not derived. What the binder refuses is refused here: a plan as data may combine
operators as no statement does, but each must stand over inputs of the kind that its definition needs [semantics 4].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Arrivals,
    ArrivalTime,
    AtInstants,
    Constant,
    Distinct,
    Except,
    Frequency,
    FrequencyWindow,
    Frequent,
    IndividualResults,
    Internal,
    Intersect,
    Join,
    MultiJoin,
    NegativeTuples,
    NRRJoin,
    OuterJoin,
    OuterKind,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    Project,
    RelationScan,
    RelationToStream,
    Restored,
    RowWindow,
    Sample,
    Select,
    SemiJoin,
    SemiKind,
    Sequenced,
    Shed,
    SortKey,
    StreamKind,
    StreamScan,
    TopK,
    UnionAll,
    Window,
    WindowKind,
    WindowSample,
    is_nrr,
)
from penstock.algebra.nodes.base import has_lives
from penstock.algebra.nodes.panes import check_panes
from penstock.algebra.nodes.r2s import evaluation_period
from penstock.algebra.nodes.results import without_slide
from penstock.algebra.nodes.row_draws import RowDraws
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError, counted
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import STRING, cast_to, is_numeric
from penstock.expressions.evaluation.evaluate import literal_of
from penstock.expressions.nodes import Expression, Literal
from penstock.language.limits import MAX_COLUMNS, MAX_VALUES
from penstock.language.plan_form import Part, fault
from penstock.language.plans import checks
from penstock.language.plans.frequent import FREQUENT
from penstock.language.plans.join_condition import read_condition, write_condition
from penstock.language.plans.node_form import (
    MOST_COUNTED,
    MOST_ROWS,
    Below,
    Fields,
    NodeForm,
    given,
    names_of,
    slide_of,
)
from penstock.language.plans.periods import PERIODS
from penstock.language.plans.preferences import PREFERRING_JOIN, PREFERRING_LOOK_UP, PREFERRING_SELECTION
from penstock.language.plans.scalar_binding import NamedColumns, is_absent
from penstock.language.plans.scalar_text import column_names, written, written_time
from penstock.language.plans.shedding import SHED
from penstock.types import Field, Schema, exact, parse_result_type, type_name

# --- scans


def _write_scan(node: StreamScan | RelationScan) -> Fields:
    columns = column_names(node.source.columns)
    return {"source": node.source.name, "columns": [columns[i] for i in node.columns]}


def _read_stream(below: Below) -> Algebra:
    source = checks.source_of(below.fields["source"], True, below.scalars.context)
    return StreamScan(source, checks.scanned(below.fields["columns"], source))


def _read_relation(below: Below) -> Algebra:
    source = checks.source_of(below.fields["source"], False, below.scalars.context)
    return RelationScan(source, checks.scanned(below.fields["columns"], source))


def _write_constant(node: Constant) -> Fields:
    columns = [{"name": field.name, "type": type_name(field.type)} for field in node.fields]
    rows = [
        [written(Literal(field.type, value), ()) for field, value in zip(node.fields, row, strict=True)]
        for row in node.rows
    ]
    return {"columns": columns, "rows": rows}


def _read_constant(below: Below) -> Algebra:
    columns, lines = below.fields["columns"].items(), below.fields["rows"].items()
    if not 0 < len(columns) <= MAX_COLUMNS:
        raise below.refuse(f"a constant has 1 to {MAX_COLUMNS:,} columns, not {len(columns):,}")
    if len(lines) > MAX_VALUES:
        raise below.refuse(f"these are {len(lines):,} rows, {MAX_VALUES:,} are the limit", "P0105")
    fields: list[Field] = []
    for column in columns:
        parts = column.object(("name", "type"), ("name", "type"))
        fields.append(Field(parts["name"].name(), _type_of(parts["type"])))
    return Constant(tuple(_constant_row(line, fields, below) for line in lines), tuple(fields))


def _type_of(part: Part) -> pa.DataType:
    try:
        return parse_result_type(part.text())
    except PenstockError as error:
        raise fault(part.pointer, error.message, error.code, error.hint) from None


def _constant_row(line: Part, fields: Sequence[Field], below: Below) -> tuple[Any, ...]:
    values = line.items()
    if len(values) != len(fields):
        raise fault(line.pointer, f"a row has {counted(len(fields), 'value')}, this one {len(values)}", "P0305")
    return tuple(_constant_value(part, field.type, below) for part, field in zip(values, fields, strict=True))


def _constant_value(part: Part, type_: pa.DataType, below: Below) -> Any:
    value = below.scalars.value(part, NamedColumns.of(Schema(())))
    if volatile(value):
        raise fault(part.pointer, "a row of constants has a volatile function", "P0321")
    if not is_absent(value.type) and value.type != type_:
        raise fault(part.pointer, f"this is {type_name(value.type)}, its column {type_name(type_)}", "P0203")
    return literal_of(cast_to(value, type_)).value


# --- rows


def _read_select(below: Below) -> Algebra:
    return Select(below.input, below.scalars.condition(below.fields["predicate"], below.columns))


def _write_project(node: Project) -> Fields:
    names = column_names(node.input.schema)
    columns = [
        {"expression": written(e, names), "name": f.name, **given(qualifier=f.qualifier)}
        for e, f in zip(node.expressions, node.fields, strict=True)
    ]
    return {"columns": columns}


def _read_project(below: Below) -> Algebra:
    items = below.fields["columns"].items()
    if not 0 < len(items) <= MAX_COLUMNS:
        raise below.refuse(f"a projection has 1 to {MAX_COLUMNS:,} columns, not {len(items):,}")
    expressions: list[Expression] = []
    fields: list[Field] = []
    columns = below.columns
    for item in items:
        parts = item.object(("expression", "name", "qualifier"), ("expression", "name"))
        value = below.scalars.value(parts["expression"], columns)
        value = cast_to(value, STRING) if is_absent(value.type) else value
        qualifier = parts["qualifier"].name() if "qualifier" in parts else None
        expressions.append(value)
        fields.append(Field(parts["name"].name(), value.type, qualifier))
    return Project(below.input, tuple(expressions), tuple(fields))


def _read_sample(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    percent = below.fields["percent"]
    try:
        share = exact(percent.text())
    except ValueError:
        raise fault(percent.pointer, "this is no fraction, such as 5 or 1/3") from None
    if not 0 <= share <= 100:
        raise fault(percent.pointer, "a sample is between 0 and 100 percent", "P0102")
    seed, name = below.seed, below.fields["name"].name()
    records = "records" in below.fields and below.fields["records"].flag()
    return Sample(below.input, share, seed, name, below.partition("by"), records)


def _write_window_sample(node: WindowSample) -> Fields:
    names = column_names(node.input.schema)
    weight = None if node.weight is None else written(node.weight, names)
    per = names_of(node.input, node.per)
    rest = given(per=per, weight=weight, records=node.records or None)
    return {"rows": node.rows, "seed": node.seed, "name": node.name, **rest}


def _read_window_sample(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    weight = below.scalars.value(below.fields["weight"], below.columns) if "weight" in below.fields else None
    if weight is not None and not is_numeric(weight.type):
        raise fault(below.fields["weight"].pointer, "a weight is a number", "P0203")
    rows, seed = below.fields["rows"].whole(1, MOST_ROWS), below.seed
    records = "records" in below.fields and below.fields["records"].flag()
    return WindowSample(below.input, rows, seed, below.fields["name"].name(), below.partition("per"), weight, records)


# --- windows


def _write_window(node: Window) -> Fields:
    return {"kind": node.kind.name, **given(length=node.length, slide=node.slide, align=node.align or None)}


def _read_window(below: Below) -> Algebra:
    checks.window(below.input, below.line, below.pointer)
    kind, length = below.enum("kind", WindowKind), below.ticks("length")
    if (length is None) is (kind is WindowKind.RANGE):
        raise below.refuse("length belongs to the kind RANGE", "P0102")
    return Window(below.input, kind, length, *slide_of(below))


def _write_row_window(node: RowWindow) -> Fields:
    partition = names_of(node.input, node.partition)
    return given(
        rows=node.rows,
        step=node.step,
        partition=partition,
        length=node.length,
        slide=node.slide,
        align=node.align or None,
    )


def _read_row_window(below: Below) -> Algebra:
    checks.window(below.input, below.line, below.pointer)
    rows, step = below.whole("rows", 1, MOST_COUNTED), below.whole("step", 1, MOST_COUNTED)
    partition, length = below.partition(), below.ticks("length")
    slide, align = slide_of(below)
    if rows is None and (step is None or partition):
        raise below.refuse("a window without rows moves by a step, and has no partition", "P0102")
    if step is not None and slide is not None:
        raise below.refuse("a window moves by a step or by a slide", "P0102")
    return RowWindow(below.input, rows, step, partition, length, slide, align)


def _write_frequency_window(node: FrequencyWindow) -> Fields:
    return given(
        rows=node.rows,
        length=node.length,
        partition=names_of(node.input, node.partition),
        every=node.every,
        by=names_of(node.input, node.by),
        slide=node.slide,
        align=node.align or None,
    )


def _read_frequency_window(below: Below) -> Algebra:
    checks.on_the_line(below.input, below.line, below.pointer)
    every = below.whole("every", 1, MOST_COUNTED)
    slide, align = slide_of(below)
    if every is not None and slide is not None:
        raise below.refuse("a window is evaluated at every n-th element or at a slide", "P0102")
    if "by" in below.fields and every is None:
        raise fault(below.fields["by"].pointer, "by needs every", "P0102")
    return FrequencyWindow(
        below.input,
        below.whole("rows", 1, MOST_COUNTED),
        below.ticks("length"),
        below.partition(),
        every,
        below.partition("by"),
        slide,
        align,
    )


# --- groups, sets and order


def _write_aggregate(node: Aggregate) -> Fields:
    names = column_names(node.input.schema)
    calls = [
        {"call": written(call, names), "name": name, **given(time=written_time(call, names))}
        for call, name in zip(node.aggregates, node.names, strict=True)
    ]
    return {**given(group=[names[i] for i in node.group]), "aggregates": calls}


def _read_aggregate(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    columns, group = below.columns, below.partition("group")
    calls, names = [], []
    for item in below.fields["aggregates"].items():
        parts = item.object(("call", "name", "time"), ("call", "name"))
        times = columns.positions(parts["time"]) if "time" in parts else ()
        calls.append(below.scalars.aggregate(parts["call"], columns, times))
        names.append(parts["name"].name())
    if not calls and not group:
        raise below.refuse("groups by no column need an aggregate")
    if len(calls) + len(group) > MAX_COLUMNS:
        raise below.refuse(f"these are more than {MAX_COLUMNS:,} columns", "P0105")
    for call in calls:
        try:
            check_panes(below.input, call)
        except PenstockError as error:
            raise below.refuse(error.message, error.code) from error
    return Aggregate(below.input, group, tuple(calls), tuple(names))


def _read_distinct(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    checks.without_internal(below.inputs, "DISTINCT", below.pointer)
    return Distinct(below.input)


def _write_top(node: TopK) -> Fields:
    names = column_names(node.input.schema)
    order = [{"column": names[k.column], "descending": k.descending, "nulls_first": k.nulls_first} for k in node.order]
    return {
        "order": order,
        "limit": node.limit,
        **given(offset=node.offset or None),
        **given(partition=[names[i] for i in node.partition]),
    }


def _read_top(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer)
    order = []
    for item in below.fields["order"].items():
        parts = item.object(("column", "descending", "nulls_first"), ("column",))
        descending = "descending" in parts and parts["descending"].flag()
        nulls_first = parts["nulls_first"].flag() if "nulls_first" in parts else not descending
        order.append(SortKey(below.columns.position(parts["column"]), descending, nulls_first))
    limit, offset = below.fields["limit"].whole(0, MOST_ROWS), below.whole("offset", 0, MOST_ROWS, 0)
    return TopK(below.input, tuple(order), limit, offset or 0, below.partition())


def _read_union(below: Below) -> Algebra:
    checks.alike(below.inputs, below.pointer)
    return UnionAll(below.inputs)


def _read_except(below: Below) -> Algebra:
    checks.alike(below.inputs, below.pointer)
    checks.without_internal(below.inputs, "EXCEPT", below.pointer)
    left, right = below.inputs
    return Except(left, right, below.fields["every"].flag())


def _read_intersect(below: Below) -> Algebra:
    checks.alike(below.inputs, below.pointer)
    every = below.fields["every"].flag()
    if not every:
        checks.without_internal(below.inputs, "INTERSECT", below.pointer)
    left, right = below.inputs
    return Intersect(left, right, every)


# --- joins


def _read_join(below: Below) -> Algebra:
    left, right = below.inputs
    return Join(left, right, *read_condition(below))


def _read_nrr_join(below: Below) -> Algebra:
    condition = read_condition(below)
    left, right = below.inputs
    if not is_nrr(right):
        raise below.refuse("the right input is no NON RETROACTIVE relation that is updated", "P0340")
    if is_nrr(left) or not left.is_elementwise:
        message = "the left input has rows that are not single elements of streams"
        raise below.refuse(message, "P0340", "join the NON RETROACTIVE relation before rows are grouped")
    return NRRJoin(left, right, *condition)


def _read_semi_join(below: Below) -> Algebra:
    condition = read_condition(below)
    checks.without_internal(below.inputs, "IN or EXISTS", below.pointer)
    left, right = below.inputs
    return SemiJoin(left, right, *condition, below.enum("kind", SemiKind))


def _read_outer_join(below: Below) -> Algebra:
    condition, kind = read_condition(below), below.enum("kind", OuterKind)
    checks.without_internal(below.inputs, "an outer join", below.pointer)
    single = below.fields["single"].name() if "single" in below.fields else ""
    if single and kind is not OuterKind.LEFT:
        raise fault(below.fields["single"].pointer, "single belongs to the kind LEFT")
    left, right = below.inputs
    return OuterJoin(left, right, *condition, kind, single)


# --- streams of relations


def _read_relation_to_stream(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer, "P0307")
    return RelationToStream(below.input, below.enum("kind", StreamKind))


def _read_restored(below: Below) -> Algebra:
    reported = below.input
    if not isinstance(reported, RelationToStream) or reported.kind is StreamKind.DSTREAM or below.line is not None:
        raise below.refuse("only ISTREAM and RSTREAM restore results", "P0319")
    checks.without_periods(reported.input, "RESTORE", below.pointer)
    period = evaluation_period(reported)
    if period is None:
        hint = "results are lost only between slide boundaries: give all windows of the query the same slide"
        raise below.refuse("RESTORE needs one common slide", "P0319", hint)
    continual = without_slide(reported.input)
    return Restored(reported, continual, *period, has_lives(continual) and continual.pattern is not Pattern.STRICT)


def _read_individual_results(below: Below) -> Algebra:
    checks.individual(below.input, below.line, below.pointer)
    return IndividualResults(below.input)


def _read_internal(below: Below) -> Algebra:
    checks.may_be_internal(below.input, below.line, below.pointer)
    return Internal(below.input, has_lives(below.input))


# --- the sequence model


def _read_frequency(below: Below) -> Algebra:
    checks.stream(below.input, below.pointer)
    rows, slot = below.whole("rows", 1, MOST_COUNTED), below.ticks("slot")
    if (rows is None) is (slot is None):
        raise below.refuse("a frequency is in rows or in time (slot): one of the two is needed", "P0102")
    return Frequency(below.input, rows, slot, below.partition())


def _read_arrivals(below: Below) -> Algebra:
    if below.line is None:
        raise below.refuse("Arrivals stand in a query of the sequence model (Sequenced)")
    stream = below.line[below.fields["place"].whole(0, len(below.line) - 1)]
    return Arrivals(below.line.index(stream), stream.schema, stream.domain)


def _read_at_instants(below: Below) -> Algebra:
    checks.relation(below.input, below.pointer, "P0307")
    if below.line is None:
        raise below.refuse("AtInstants stand in a query of the sequence model (Sequenced)")
    groups = below.partition("groups")
    if groups:
        checks.substreams(below.input, groups, below.fields["groups"].pointer)
    return AtInstants(below.input, groups)


def _read_sequenced(below: Below) -> Algebra:
    body, *streams = below.inputs
    checks.sequence(body, streams, below.pointer)
    return Sequenced(body, tuple(streams))


_WINDOW = ("length", "slide", "align")

#: In the order of the documentation.
NODES: Mapping[type[Algebra], NodeForm] = {
    StreamScan: NodeForm(_write_scan, _read_stream, ("source", "columns"), ("source", "columns"), (0, 0)),
    RelationScan: NodeForm(_write_scan, _read_relation, ("source", "columns"), ("source", "columns"), (0, 0)),
    Constant: NodeForm(_write_constant, _read_constant, ("columns", "rows"), ("columns", "rows"), (0, 0)),
    Select: NodeForm(
        lambda node: {"predicate": written(node.predicate, column_names(node.input.schema))},
        _read_select,
        ("predicate",),
        ("predicate",),
    ),
    Project: NodeForm(_write_project, _read_project, ("columns",), ("columns",)),
    Sample: NodeForm(
        lambda node: {
            "percent": str(node.percent),
            "seed": node.seed,
            "name": node.name,
            **given(by=names_of(node.input, node.by), records=node.records or None),
        },
        _read_sample,
        ("percent", "seed", "name", "by", "records"),
        ("percent", "seed", "name"),
    ),
    WindowSample: NodeForm(
        _write_window_sample,
        _read_window_sample,
        ("rows", "seed", "name", "per", "weight", "records"),
        ("rows", "seed", "name"),
    ),
    Window: NodeForm(_write_window, _read_window, ("kind", *_WINDOW), ("kind",)),
    RowWindow: NodeForm(_write_row_window, _read_row_window, ("rows", "step", "partition", *_WINDOW)),
    FrequencyWindow: NodeForm(
        _write_frequency_window, _read_frequency_window, ("rows", "partition", "every", "by", *_WINDOW)
    ),
    Aggregate: NodeForm(_write_aggregate, _read_aggregate, ("group", "aggregates"), ("aggregates",)),
    Frequent: FREQUENT,
    Distinct: NodeForm(lambda node: {}, _read_distinct),
    **PERIODS,
    Shed: SHED,
    TopK: NodeForm(_write_top, _read_top, ("order", "limit", "offset", "partition"), ("order", "limit")),
    UnionAll: NodeForm(lambda node: {}, _read_union, inputs=(1, None)),
    Except: NodeForm(lambda node: {"every": node.every}, _read_except, ("every",), ("every",), (2, 2)),
    Intersect: NodeForm(lambda node: {"every": node.every}, _read_intersect, ("every",), ("every",), (2, 2)),
    Join: NodeForm(write_condition, _read_join, ("equal", "residual"), inputs=(2, 2)),
    NRRJoin: NodeForm(write_condition, _read_nrr_join, ("equal", "residual"), inputs=(2, 2)),
    SemiJoin: NodeForm(
        lambda node: {**write_condition(node), "kind": node.kind.name},
        _read_semi_join,
        ("equal", "residual", "kind"),
        ("kind",),
        (2, 2),
    ),
    OuterJoin: NodeForm(
        lambda node: {**write_condition(node), "kind": node.kind.name, **given(single=node.single)},
        _read_outer_join,
        ("equal", "residual", "kind", "single"),
        ("kind",),
        (2, 2),
    ),
    PreferringJoin: PREFERRING_JOIN,
    PreferringLookUp: PREFERRING_LOOK_UP,
    PreferringSelection: PREFERRING_SELECTION,
    RelationToStream: NodeForm(lambda node: {"kind": node.kind.name}, _read_relation_to_stream, ("kind",), ("kind",)),
    Restored: NodeForm(lambda node: {}, _read_restored, below=lambda node: (node.reported,)),
    IndividualResults: NodeForm(lambda node: {}, _read_individual_results),
    Internal: NodeForm(lambda node: {}, _read_internal),
    Frequency: NodeForm(
        lambda node: given(rows=node.rows, slot=node.slot, partition=names_of(node.input, node.partition)),
        _read_frequency,
        ("rows", "slot", "partition"),
    ),
    Arrivals: NodeForm(lambda node: {"place": node.place}, _read_arrivals, ("place",), ("place",), (0, 0)),
    AtInstants: NodeForm(lambda node: given(groups=names_of(node.input, node.groups)), _read_at_instants, ("groups",)),
    Sequenced: NodeForm(lambda node: {}, _read_sequenced, inputs=(2, None)),
}

#: Operators that rules and strategies alone put into a plan when it is prepared to run: no query has them.
REWRITTEN: tuple[type[Algebra], ...] = (ArrivalTime, MultiJoin, NegativeTuples, RowDraws)

BY_NAME: Mapping[str, type[Algebra]] = {kind.__name__: kind for kind in NODES}
