"""Groups of a window as column, as groups of the window in time."""

from __future__ import annotations

from typing import NamedTuple

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, ArrivalTime, arrival_column
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.restamp import Restamp
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import unbounded
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.algebra.optimizer.rules.windows_of_time import changed_outside_rstream
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import (
    MAX_SIZE,
    AggregateCall,
    Column,
    Expression,
    Literal,
    columns_of,
    conjunction,
    conjuncts,
    is_low,
    remap,
    substitute,
    substitute_all,
)


def group_in_windows(root: Algebra) -> Algebra:
    """γ_wk(σπ(TUMBLE(S)) [RANGE UNBOUNDED]) = RSTREAM(γ_k(σπ(S [RANGE l SLIDE s]))) [RANGE UNBOUNDED], with the
    columns w of the window beside each row, and so for HOP.

    Law: the rows of a window are emitted at one instant, one tick before its end, and are the content of the window in
    time at that boundary. Groups of other windows differ in w. No element is held: the window in time has panes, which
    are shared. Without k the row of an empty window is left out, as no row of TUMBLE is in its group.
    Unsound for:
    - an RSTREAM above, which is evaluated at every arrival on its own windows;
    - CUMULATE: an element is in the windows of its own start alone, which no window in time says;
    - an aggregate of the columns of the window, or a group column of both, which S does not have;
    - volatile functions, which are drawn once for each window.
    """
    return changed_outside_rstream(root, _changed)


def _changed(node: Algebra) -> Algebra:
    if not isinstance(node, Aggregate) or not node.is_complete_at_once or not node.is_plain_sql:
        return node
    read = node.input.without_window()
    found = None if read is None else _read_windows(read)
    if found is None or found.windows.cumulative:
        return node
    windows, width = found.windows, len(found.windows.input.schema)
    groups = tuple(found.columns[g] for g in node.group)
    calls = substitute_all(node.aggregates, found.columns)
    parts = (*groups, *calls, *found.conditions)
    if any(map(is_volatile, parts)) or not is_low(parts) or any(part.size > MAX_SIZE for part in parts):
        return node
    of_window = [_reads(part, width) for part in parts]
    if None in of_window or any(of_window[len(groups) : len(groups) + len(calls)]):
        return node
    keys = tuple(part for part in groups if not _reads(part, width))
    content: Algebra = windows.window
    below = conjunction(tuple(part for part in found.conditions if not _reads(part, width)))
    if below is not None:
        content = Select(content, below)
    own = tuple(Column(f.type, i, f.name) for i, f in enumerate(windows.input.schema))
    fields = tuple(node.schema[place] for place, part in enumerate(groups) if not _reads(part, width))
    projected = Project(content, (*keys, *own), (*fields, *windows.input.schema.fields))
    moved = tuple(remap(call, lambda i: len(keys) + i) for call in calls)
    emitted = ArrivalTime(unbounded(RelationToStream(_grouped(projected, len(keys), moved, node), StreamKind.RSTREAM)))
    bounds = tuple(map(windows.shown, windows.bounds(arrival_column(len(emitted.schema) - 1))))
    values = (*own, *bounds)
    above = conjunction(tuple(substitute(part, values) for part in found.conditions if _reads(part, width)))
    rows: Algebra = emitted if above is None else Select(emitted, above)
    computed = iter(Column(f.type, i, f.name) for i, f in enumerate(emitted.schema))
    shown = [substitute(part, values) if _reads(part, width) else next(computed) for part in groups]
    return Project(rows, (*shown, *(next(computed) for _ in calls)), node.schema.fields)


class _ReadWindows(NamedTuple):
    """What selects and projects windows as columns: the columns and the conditions over those of `windows`."""

    windows: Restamp
    columns: tuple[Expression, ...]
    conditions: tuple[Expression, ...]


def _read_windows(stream: Algebra) -> _ReadWindows | None:
    if isinstance(stream, Restamp):
        return _ReadWindows(stream, tuple(Column(f.type, i, f.name) for i, f in enumerate(stream.schema)), ())
    found = _read_windows(stream.input) if isinstance(stream, Select | Project) else None
    if found is None:
        return None
    if isinstance(stream, Select):
        more = conjuncts(substitute(stream.predicate, found.columns))
        return found._replace(conditions=(*found.conditions, *more))
    assert isinstance(stream, Project)
    return found._replace(columns=substitute_all(stream.expressions, found.columns))


def _reads(part: Expression, width: int) -> bool | None:
    """Return whether an expression reads columns of the window, behind `width` others; None where it reads both."""
    read = {column >= width for column in columns_of(part)}
    return None if len(read) > 1 else True in read


def _grouped(content: Algebra, keys: int, calls: tuple[Expression, ...], node: Aggregate) -> Algebra:
    """Return the groups of the first `keys` columns; without any, the row of all, where there is a row."""
    aggregates = tuple(call for call in calls if isinstance(call, AggregateCall))
    if keys:
        return Aggregate(content, tuple(range(keys)), aggregates, node.names)
    rows = AggregateCall(BIGINT, "COUNT", ())
    whole = Aggregate(content, (), (*aggregates, rows), (*node.names, "rows"))
    return Select(whole, build_call("GT", [Column(BIGINT, len(aggregates), "rows"), Literal(BIGINT, 0)]))
