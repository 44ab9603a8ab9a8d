"""One-time queries: R at one instant, over bounded inputs, in this process.

Operators that are plain SQL (`Algebra.is_plain_sql`) are computed once, over the content of what they read, as
the semantics define them. What is below them (windows, updated relations, queries that are streams) is run up to the
instant, and the rows that remain there are its content.

The last instant is the largest timestamp of all sources that the query reads: a source that has been read to its end
holds nothing back [semantics 1]. A later instant may be requested as well, since no element will arrive before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra import Aggregate, Algebra, RelationScan, Source, unbounded
from penstock.algebra.nodes.first_rows import SortKey
from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import OnError, declared_sources
from penstock.algebra.properties.heartbeats import Heartbeat, heartbeats_of
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import as_error, reason_kind
from penstock.deep_trees import deep
from penstock.errors import PenstockError, counted
from penstock.physical.elements import Int64s, forever
from penstock.physical.execution.ingest import after_record, read_columns, stamp, unit_warning
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.execution.wall_clock import wall_clock
from penstock.physical.kernels.row_order import coarse_keys, sort_order
from penstock.physical.operators.streams.changes import net
from penstock.physical.plan.strategies import Strategy
from penstock.runtime.local.inputs import MemoryRows, check_bounded, spooled
from penstock.runtime.local.runtime import LocalResult, run_local
from penstock.runtime.local.schedule import cut_at
from penstock.runtime.local.statics import read_relation
from penstock.temporary import removed_after
from penstock.tree import Node, transform_up
from penstock.types import CALENDAR, Field, Schema, TimeDomain

_NO_END = "its rows cannot be had all at once\nrun a continuous query over it"


#: How a reason begins -> what to do about the records.
_OF_REASONS = {
    "bad timestamp": (
        "a TIMESTAMP is written as 2024-03-01 09:00:00, in UTC or with its offset; for a number since 1970 declare the"
        " column BIGINT, with TIMESTAMP BY .. UNIT"
    ),
    "no usable timestamp": (
        "a row has a timestamp and its key, + or - in the column of OPERATION BY, and a period that begins before its"
        " end"
    ),
    "bad text": "texts are read as UTF-8: iconv -f LATIN1 -t UTF-8 converts a file",
    "broken JSON: Expecting value at column 1": "json has one object a line; a file of cells has the format 'csv'",
    "not a readable": "the option format is that of the file: csv and json of text, parquet and arrow of columns",
    "the compressed file is damaged": "a name that ends with .gz, .bz2, .zst, .xz or .lz4 is that of a compressed file",
    "bad number": "a number is written as 1234.5, with a point and nothing between thousands",
}


@dataclass(frozen=True)
class OneTimeAnswer:
    """The answer of a one-time query.

    Args:
        query: the query.
        table: its rows, in its order.
        tick: the instant; None without a timed source, or while none has an element.
        late: number of late elements, by source.
        rejected: number of records that are in no answer, by source and reason.
        warnings: what is to be known of the inputs beyond that.
        examples: by source and reason, a record that was rejected as it was read: where it is and what is wrong.
    """

    query: OneTimeQuery
    table: pa.Table
    tick: int | None
    late: Mapping[str, int] = field(default_factory=dict)
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    examples: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def left_out(self) -> Iterator[tuple[str, ...]]:
        """Yield for each source what is not in the answer: a line, and those that explain it."""
        for name, count in self.late.items():
            yield (
                f"{counted(count, 'row')} of {name} came late and came into no result.",
                "  hint: ORDER WITHIN 5 MINUTES behind TIMESTAMP BY waits for rows that are out of order",
            )
        for name, reasons in self.rejected.items():
            shown = "; ".join(f"{count:,} x {reason}" for reason, count in reasons.items())
            examples = self.examples.get(name, {})
            lines = [f"{counted(sum(reasons.values()), 'record')} of {name} rejected: {shown}"]
            lines += [f"  such as {examples[reason]}" for reason in reasons if reason in examples]
            for kind, hint in _OF_REASONS.items():
                if any(reason.startswith(kind) for reason in reasons):
                    lines.append(f"  hint: {hint}")
            yield tuple(lines)


def answer_once(
    query: OneTimeQuery, rows: MemoryRows, frames: Mapping[str, object], strategy: Strategy = Strategy.PATTERN
) -> OneTimeAnswer:
    """Read the sources of `query` to their ends, and return its answer.

    Args:
        rows: rows of MEMORY sources.
        frames: tables passed from Python, by source name.
        strategy: how operators keep state.

    Raises:
        PenstockError: P0622 for an input without an end, and any error of connectors and functions.
    """
    sources = sources_of(query)
    for source in sources.values():
        check_bounded(source, frames.get(source.name), _NO_END)
    rejected: dict[str, Counter[str]] = {}
    examples: dict[str, dict[str, str]] = {}
    inputs: dict[str, pa.Table] = {}
    with removed_after() as folder:
        for name, source in sources.items():
            inputs[name], refused, _ = read_relation(spooled(source, rows, frames, folder))
            if refused and source.on_error is OnError.FAIL:
                raise as_error(refused[0], name)
            rejected[name] = Counter(reason_kind(record.reason) for record in refused)
            examples[name] = {reason_kind(one.reason): _shown_example(one) for one in reversed(refused)}
    answer = answer_over(query, inputs, strategy)
    for name, reasons in answer.rejected.items():
        rejected.setdefault(name, Counter()).update(reasons)
    return replace(
        answer,
        rejected={name: dict(counts) for name, counts in rejected.items() if counts},
        warnings=unit_warnings(sources.values(), inputs),
        examples=examples,
    )


def _shown_example(record: Rejected) -> str:
    place = Path(record.path).name if record.line is None else f"{Path(record.path).name}:{record.line}"
    return f"{place}: {record.reason}"


def unit_warnings(sources: Iterable[Source], inputs: Mapping[str, pa.Table]) -> tuple[str, ...]:
    """Return a warning for each source whose timestamps are read in another UNIT than they seem to have. inputs: as for
    `answer_over`."""
    found = (
        unit_warning(source, pc.max(inputs[source.name].column(source.timestamp)).as_py())
        for source in sources
        if source.timestamp is not None and source.domain is not None and not source.domain.calendar
    )
    return tuple(warning for warning in found if warning is not None)


def sources_of(query: OneTimeQuery) -> dict[str, Source]:
    """Return the declared streams and relations that a query reads, by name."""
    return declared_sources(query.root)


@deep
def answer_over(
    query: OneTimeQuery, inputs: Mapping[str, pa.Table], strategy: Strategy = Strategy.PATTERN
) -> OneTimeAnswer:
    """Return the answer of `query` over `inputs` (source name -> table of all declared columns, in arrival order)."""
    now = wall_clock()
    last_instant = _last_instant(sources_of(query), inputs, now)
    tick = last_instant if query.as_of is None else query.as_of
    contents = Contents(query.domain, lambda name: bool(inputs[name].num_rows))
    plain = contents.replaced(query.root)
    tables = dict(inputs)
    for name, declared in contents.timed.items():
        keyed, _ = keyed_rows(declared, inputs[declared.name])
        zeros = pa.array(np.zeros(keyed.num_rows, np.int64)).cast(query.domain.type())
        tables[name] = keyed.append_column("tick", zeros)
    result = LocalResult({})
    if contents.queries:
        result = run_local(contents.queries, tables, until=tick, clock=partial(int, now - 1), strategy=strategy)
        for content_query in contents.queries:
            tables[content_query.name] = remaining(result.tables[content_query.name], tick or 0, content_query)
    if isinstance(plain, RelationScan) and plain.source.name in contents.names:
        table = tables[plain.source.name]
    else:
        plain_result = _run_plain(query, plain, tables, tick, strategy)
        table = pa.table(plain_result.tables[query.name].columns[2:], names=numbered(plain.schema))
        _count_rejected(result, plain_result)
    late = {name: count for name, count in result.late.items() if count}
    return OneTimeAnswer(query, in_order(query, table), tick, late, _rejections(result))


def _run_plain(
    query: OneTimeQuery, plain: Algebra, inputs: Mapping[str, pa.Table], tick: int | None, strategy: Strategy
) -> LocalResult:
    try:
        return run_local([Query(query.name, plain, SinkSpec("MEMORY"))], inputs, strategy=strategy)
    except PenstockError as error:
        raise at_instant(error, query, tick) from None


def at_instant(error: PenstockError, query: OneTimeQuery, tick: int | None) -> PenstockError:
    """Return the error of a query over static relations, which has the instant 0, as that of one at the instant
    `tick`."""
    if error.code != "P0612" or tick is None:
        return error
    message = error.message.replace(f" at {CALENDAR.show(0)} ", f" at {query.domain.show(tick)} ")
    return PenstockError(error.code, message, error.position, error.hint, error.cause)


def _last_instant(sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], now: int) -> int | None:
    """Return the largest timestamp of the timed sources, None while there is none."""
    highs: list[int | None] = []
    for name, source in sources.items():
        if source.is_static or not inputs[name].num_rows:
            continue
        seen = _progress_after(source, inputs[name], now)
        highs.append(None if seen.high is None else max(seen.high, seen.beat))
    return max((tick for tick in highs if tick is not None), default=None)


def _progress_after(source: Source, table: pa.Table, now: int) -> SourceProgress:
    """Return the progress of a source after all of its rows. now: the stamp of SYSTEM TIME."""
    columns, seen = read_columns(source, ()), SourceProgress()
    if not columns:
        return SourceProgress(now, now)
    for piece in cut_at(heartbeats_of(table.schema), table):
        if isinstance(piece.record, Heartbeat):
            after = after_record(source, piece.record, seen)
            seen = seen if isinstance(after, str) else after
        arrays = [piece.batch.column(c) for c in columns]
        batch = pa.RecordBatch.from_arrays(arrays, names=[str(c) for c in columns])
        seen = seen.merge(stamp(source, batch, columns, (), seen, now).progress)
    return seen


class Contents:
    """Replaces by static relations what a plain query reads. queries: those whose content at the instant they hold;
    has_rows: whether there is a row of a source."""

    def __init__(self, domain: TimeDomain, has_rows: Callable[[str], bool]) -> None:
        self._domain = domain
        self._has_rows = has_rows
        self._by_fingerprint: dict[str, RelationScan] = {}
        self.queries: list[Query] = []
        #: Static relations that are read as relations with all their rows at tick 0, by the name that they have there.
        self.timed: dict[str, Source] = {}

    @property
    def names(self) -> frozenset[str]:
        return frozenset(query.name for query in self.queries)

    def replaced(self, node: Algebra) -> Algebra:
        if node.is_stream:
            return self._content(unbounded(node))
        if isinstance(node, RelationScan) and node.source.is_static:
            return node
        if not node.is_plain_sql and not self._aggregates_nothing(node):
            return self._content(node)
        children = (self.replaced(child) if isinstance(child, Algebra) else child for child in node.children)
        return node.with_children(tuple(children))

    def _aggregates_nothing(self, node: Algebra) -> bool:
        """Return whether an aggregate of panes has none. Its row without groups exists although time never begins."""
        return isinstance(node, Aggregate) and not any(map(self._has_rows, declared_sources(node)))

    def _content(self, node: Algebra) -> RelationScan:
        scan = self._by_fingerprint.get(node.fingerprint)
        if scan is None:
            name = f"content {len(self.queries) + 1}"
            columns = zip(numbered(node.schema), node.schema, strict=True)
            source = Source(name, False, Schema(tuple(Field(n, f.type) for n, f in columns)), "MEMORY")
            scan = RelationScan(source, tuple(range(len(node.schema))))
            self._by_fingerprint[node.fingerprint] = scan
            # Time does not advance for a query over static relations alone, and what is below a stream may end.
            root = transform_up(node, self._at_zero) if node.domain is None else node
            self.queries.append(Query(name, root, SinkSpec("MEMORY")))
        return scan

    def _at_zero(self, node: Node) -> Node:
        if not isinstance(node, RelationScan):
            return node
        declared = node.source
        name = f"{declared.name} at 0"
        self.timed[name] = declared
        columns = Schema((*declared.columns, Field("tick", self._domain.type())))
        source = replace(
            declared, name=name, columns=columns, timestamp=len(declared.columns), domain=self._domain, primary_key=()
        )
        return replace(node, source=source)


def numbered(schema: Schema) -> list[str]:
    return [f"column {i + 1}" for i in range(len(schema))]


def remaining(changes: pa.Table, tick: int, query: Query) -> pa.Table:
    """Return the rows of a relation at `tick`, from its changes."""
    past = changes.filter(pc.less_equal(changes.column(0).cast(pa.int64()), tick)).combine_chunks()
    columns = [column.combine_chunks() for column in past.columns[2:]]
    is_removed = pc.equal(past.column(1), "-").combine_chunks()
    if pc.any(is_removed).as_py():
        signs = np.where(is_removed.to_numpy(zero_copy_only=False), -1, 1)
        remaining = net(replace(forever(columns, past.num_rows), sign=signs))
        remaining = remaining.take(np.repeat(np.arange(len(remaining)), remaining.signs))
        columns = list(remaining.columns)
    schema = pa.schema(list(zip(numbered(query.root.schema), query.root.schema.types, strict=True)))
    return pa.table([column.cast(f.type) for column, f in zip(columns, schema, strict=True)], schema=schema)


def in_order(query: OneTimeQuery, table: pa.Table) -> pa.Table:
    """Return the rows in the order of the query, without the columns that only serve it."""
    table = table.combine_chunks()
    if query.limit is not None:
        last = query.offset + query.limit
        table = table.take(pa.array(_not_after(table, query.order, last)))
        columns = [column.combine_chunks() for column in table.columns]
        chosen = sort_order(columns, query.order)[query.offset : last]
        table = table.take(pa.array(chosen))
    return pa.table(table.columns[: query.width], schema=query.output_schema)


def _not_after(table: pa.Table, order: Sequence[SortKey], count: int) -> Int64s:
    """Return the rows among which the first `count` in an order are: those that its first key does not put after."""
    if not order or not 0 < count < table.num_rows:
        return np.arange(table.num_rows if count else 0)
    keys = coarse_keys(table.column(order[0].column).combine_chunks(), order[0])
    return np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])


def _count_rejected(result: LocalResult, other: LocalResult) -> None:
    for name, reasons in other.rejected.items():
        result.rejected.setdefault(name, Counter()).update(reasons)
    for name, count in other.unusable.items():
        result.unusable[name] = result.unusable.get(name, 0) + count


def _rejections(result: LocalResult) -> dict[str, dict[str, int]]:
    """Return the rejected records by source and reason, those without a usable timestamp or key among them."""
    counts_by_source = {name: Counter(reasons) for name, reasons in result.rejected.items()}
    for name, count in result.unusable.items():
        counts_by_source.setdefault(name, Counter())["no usable timestamp, operation, key or period"] += count
    return {name: dict(+counts) for name, counts in counts_by_source.items() if +counts}
