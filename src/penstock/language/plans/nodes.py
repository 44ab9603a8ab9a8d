"""The registry of logical operators as data.

A field is written only where it is not derived. Most operators have the form that follows from their fields
(`fields.py`); those of this file, of `frequent.py`, `periods.py` and `preferences.py` are written in another way: with
what belongs to one column in one object, or without what follows from the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Arrivals,
    ArrivalTime,
    Constant,
    Frequent,
    Internal,
    MultiJoin,
    NegativeTuples,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    Project,
    RelationScan,
    Restored,
    Source,
    StreamScan,
)
from penstock.algebra.nodes.base import has_lives
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.results import restored
from penstock.algebra.nodes.row_draws import RowDraws
from penstock.algebra.nodes.scans import AcceptedScan, PunctuationScan, RejectedScan, stream_scan
from penstock.errors import PenstockError, counted, nearest
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import STRING, cast_to
from penstock.expressions.evaluation.evaluate import literal_of
from penstock.expressions.nodes import Expression, Literal
from penstock.language.binder.from_.control_names import bind_control_name
from penstock.language.limits import MAX_COLUMNS, MAX_VALUES
from penstock.language.plan_form import Part, fault
from penstock.language.plans import checks
from penstock.language.plans.fields import Below, Fields, NodeForm, form_of, given
from penstock.language.plans.frequent import FREQUENT
from penstock.language.plans.periods import PERIODS
from penstock.language.plans.preferences import PREFERRING_JOIN, PREFERRING_LOOK_UP, PREFERRING_SELECTION
from penstock.language.plans.promises import PROMISES
from penstock.language.plans.scalar_binding import NamedColumns, is_absent
from penstock.language.plans.scalar_text import column_names, written, written_time
from penstock.language.queries import CONTROL_SCHEMA, Name
from penstock.types import Field, Schema, parse_result_type, type_name

# --- scans


def _write_scan(node: StreamScan | RelationScan) -> Fields:
    columns = column_names(node.source.columns)
    return {"source": node.source.name, "columns": [columns[i] for i in node.columns]}


def _read_stream(below: Below) -> Algebra:
    source = _source(below, is_stream=True)
    return stream_scan(source, _scanned(below, source))


def _read_relation(below: Below) -> Algebra:
    source = _source(below, is_stream=False)
    return RelationScan(source, _scanned(below, source))


def _source(below: Below, is_stream: bool) -> Source:
    """Return a declared stream or relation. Raises PenstockError P0201."""
    part, context = below.fields["source"], below.scalars.context
    name, kind = part.name(), "stream" if is_stream else "relation"
    if name.lower().startswith(f"{CONTROL_SCHEMA}."):
        source: Source | None = bind_control_name(Name(name.partition(".")[2], True, schema=CONTROL_SCHEMA), context)
    else:
        source = context.catalog.sources.get(name.lower())
    if source is None or source.name != name:
        if name.lower() in context.failed:
            context.fail_silently()
        known = [one.name for one in context.catalog.sources.values()]
        raise fault(part.pointer, f"unknown {kind} {name}", "P0201", nearest(name, known))
    if source.is_stream is not is_stream:
        raise fault(part.pointer, f"{name} is a {'stream' if source.is_stream else 'relation'}", "P0201")
    return source


def _scanned(below: Below, source: Source) -> tuple[int, ...]:
    """Return the positions of the columns that a scan reads."""
    part = below.fields["columns"]
    positions = NamedColumns.of(source.columns).positions(part)
    if not positions:
        raise fault(part.pointer, "a scan reads at least one column")
    if not (source.is_stream or source.is_static) and positions != tuple(range(len(source.columns))):
        message = f"{source.name} is updated: all its columns are read, in their order, since a row is deleted by them"
        raise fault(part.pointer, message, "P0341")
    return positions


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
        raise refused(f"a constant has 1 to {MAX_COLUMNS:,} columns, not {len(columns):,}")
    if len(lines) > MAX_VALUES:
        raise refused(f"these are {len(lines):,} rows, {MAX_VALUES:,} are the limit", "P0105")
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
        raise refused(f"a projection has 1 to {MAX_COLUMNS:,} columns, not {len(items):,}")
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


# --- groups


def _write_aggregate(node: Aggregate) -> Fields:
    names = column_names(node.input.schema)
    calls = [
        {"call": written(call, names), "name": name, **given(time=written_time(call, names))}
        for call, name in zip(node.aggregates, node.names, strict=True)
    ]
    return {**given(group=[names[i] for i in node.group]), "aggregates": calls}


def _read_aggregate(below: Below) -> Algebra:
    columns, group = below.columns, below.positions("group")
    calls, names = [], []
    for item in below.fields["aggregates"].items():
        parts = item.object(("call", "name", "time"), ("call", "name"))
        times = columns.positions(parts["time"]) if "time" in parts else ()
        calls.append(below.scalars.aggregate(parts["call"], columns, times))
        names.append(parts["name"].name())
    if len(calls) + len(group) > MAX_COLUMNS:
        raise refused(f"these are more than {MAX_COLUMNS:,} columns", "P0105")
    return Aggregate(below.input, group, tuple(calls), tuple(names))


# --- what follows from the input


def _read_restored(below: Below) -> Algebra:
    if below.line is not None:
        raise refused("results are not restored in a query of the sequence model", "P0319")
    checks.without_periods(below.input, "RESTORE")
    return restored(below.input)


def _read_arrivals(below: Below) -> Algebra:
    if below.line is None:
        raise refused("Arrivals stand in a query of the sequence model (Sequenced)")
    stream = below.line[below.fields["place"].whole(0, len(below.line) - 1)]
    return Arrivals(below.line.index(stream), stream.schema, stream.domain)


#: Operators that rules and strategies alone put into a plan when it is prepared to run: no query has them.
REWRITTEN: tuple[type[Algebra], ...] = (
    AcceptedScan,
    ArrivalTime,
    MultiJoin,
    NegativeTuples,
    PunctuationScan,
    RejectedScan,
    RowDraws,
)

_SPECIAL: Mapping[type[Algebra], NodeForm] = {
    StreamScan: NodeForm(_write_scan, _read_stream, ("source", "columns"), ("source", "columns"), (0, 0)),
    RelationScan: NodeForm(_write_scan, _read_relation, ("source", "columns"), ("source", "columns"), (0, 0)),
    Constant: NodeForm(_write_constant, _read_constant, ("columns", "rows"), ("columns", "rows"), (0, 0)),
    Project: NodeForm(_write_project, _read_project, ("columns",), ("columns",)),
    Aggregate: NodeForm(_write_aggregate, _read_aggregate, ("group", "aggregates"), ("aggregates",)),
    Frequent: FREQUENT,
    **PROMISES,
    PreferringJoin: PREFERRING_JOIN,
    PreferringLookUp: PREFERRING_LOOK_UP,
    PreferringSelection: PREFERRING_SELECTION,
    Restored: NodeForm(lambda node: {}, _read_restored, below=lambda node: (node.reported,)),
    Internal: NodeForm(lambda node: {}, lambda below: Internal(below.input, has_lives(below.input))),
    Arrivals: NodeForm(lambda node: {"place": node.place}, _read_arrivals, ("place",), ("place",), (0, 0)),
    **PERIODS,
}


def _operators(kinds: Iterable[type[Algebra]]) -> Iterator[type[Algebra]]:
    """Yield the operators of families."""
    for kind in kinds:
        family = kind.__subclasses__()
        yield from _operators(family) if family else (kind,)


NODES: Mapping[type[Algebra], NodeForm] = {
    kind: _SPECIAL.get(kind) or form_of(kind) for kind in _operators(Algebra.__subclasses__()) if kind not in REWRITTEN
}
BY_NAME: Mapping[str, type[Algebra]] = {kind.__name__: kind for kind in NODES}
