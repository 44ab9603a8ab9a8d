"""Leaves of a plan: streams and relations as they were declared [semantics 3]."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algebra.nodes.base import NO_KEYS, Algebra, ColumnPruning, Emitted, Keys, Pruned, operators
from penstock.algebra.properties.boundedness import Boundedness, Grade, window_hint
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import LastRows, Need, Needs, everything
from penstock.algebra.properties.promises import (
    Base,
    PassedPromise,
    Promise,
    PromiseMode,
    Promises,
    Punctuated,
    moved_promises,
)
from penstock.algebra.properties.statistics import HORIZON, Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.calls.text import to_sql
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.evaluation.rising import rising_column
from penstock.expressions.nodes import Expression, columns_of, remap
from penstock.tree import Node, derived, transform_up
from penstock.types import CALENDAR, Field, Schema, TimeDomain


class OnError(enum.Enum):
    """What happens to a record that does not parse or has no timestamp."""

    DEAD_LETTER = "DEAD LETTER"
    FAIL = "FAIL"
    SKIP = "SKIP"


@dataclass(frozen=True)
class DeclaredPeriod:
    """VALID FROM begin TO end, or THROUGH end: the positions of both columns."""

    begin: int
    end: int
    through: bool = False


@dataclass(frozen=True)
class Source:
    """A declared stream or relation.

    columns: all declared columns, in order; connector: `FILES`, `MEMORY`, `DATAFRAME`; options: its (key, value)
    pairs, keys in lower case; timestamp: position of the timestamp column, None for a static relation and where the
    timestamps are computed: `computed_timestamp` is the expression over the declared columns then, and else None;
    domain: what its ticks are, None for a static relation; slack: ORDER WITHIN in ticks;
    operation: position of the OPERATION BY column (`+` or `-`), relations only; primary_key: positions of the columns
    that no two rows of the relation share; non_retroactive: an updated relation that is a NON RETROACTIVE one;
    system_time: elements or updates are stamped on ingest (timestamp is None then); idle: its IDLE TIMEOUT in
    microseconds of wall clock; upserts: a relation with an operation and a primary key whose `+` replaces the row of
    its key, and whose `-` of a key that is not there has no effect; ahead: its ADVANCE AT MOST in ticks, None for any;
    retain: its RETAIN in ticks, None for none; retain_columns: positions of the columns that are retained, empty for
    all; valid: its VALID clause as text, empty for none. None of these three changes what the source is, so they do
    not count for its identity. period: its VALID FROM, None without one: a row that has no such period is malformed;
    heartbeat: position of the HEARTBEAT BY column, None without one: a record in which it is TRUE is a heartbeat;
    idle_advances: its IDLE TIMEOUT has ADVANCE: time goes on by the wall clock while the stream is silent; punctuated:
    position of the PUNCTUATED BY column, None without one: a record in which it is not NULL is a punctuation;
    observe: its promises are measured, and those that its queries could use; observed: the columns for which that is
    done, in a plan. Neither counts for its identity;
    promises: of a stream, in order of declaration. They do not count for its identity either: the operators of a query
    that uses one hold it.
    """

    name: str
    is_stream: bool
    columns: Schema
    connector: str
    options: tuple[tuple[str, str], ...] = ()
    timestamp: int | None = None
    domain: TimeDomain | None = None
    slack: int = 0
    on_error: OnError = OnError.DEAD_LETTER
    operation: int | None = None
    primary_key: tuple[int, ...] = ()
    non_retroactive: bool = False
    system_time: bool = False
    idle: int | None = None
    upserts: bool = False
    ahead: int | None = None
    retain: int | None = field(default=None, compare=False, repr=False)
    retain_columns: tuple[int, ...] = field(default=(), compare=False, repr=False)
    valid: str = field(default="", compare=False, repr=False)
    period: DeclaredPeriod | None = None
    heartbeat: int | None = None
    idle_advances: bool = False
    punctuated: int | None = None
    computed_timestamp: Expression | None = None
    promises: tuple[Promise, ...] = field(default=(), compare=False, repr=False)
    observe: bool = field(default=False, compare=False, repr=False)
    observed: tuple[tuple[int, ...], ...] = field(default=(), compare=False, repr=False)

    @property
    def is_observed(self) -> bool:
        """Return whether it is measured how closely the stream keeps to promises."""
        return self.is_stream and (self.observe or any(one.mode is PromiseMode.OBSERVED for one in self.promises))

    @property
    def declared(self) -> tuple[object, ...]:
        """Return the source with what does not count for its identity."""
        promises = tuple(promise.declared for promise in self.promises)
        return self, self.retain, self.retain_columns, self.valid, promises, self.observe

    @property
    def is_static(self) -> bool:
        return not self.is_stream and not self.has_timestamps and not self.system_time

    @property
    def has_timestamps(self) -> bool:
        """Return whether its records have timestamps, of a column or computed."""
        return self.timestamp is not None or self.computed_timestamp is not None

    @property
    def time_columns(self) -> tuple[int, ...]:
        """Return the positions of the columns that the timestamp of a record is, or is computed from."""
        if self.timestamp is not None:
            return (self.timestamp,)
        return () if self.computed_timestamp is None else tuple(sorted(columns_of(self.computed_timestamp)))

    @property
    def rising_column(self) -> int | None:
        """Return the position of the column with which the timestamp rises, so that the bounds of its values give those
        of the timestamps; None where there is none."""
        return self.timestamp if self.computed_timestamp is None else rising_column(self.computed_timestamp)

    @property
    def shown_timestamp(self) -> str:
        """Return what TIMESTAMP BY names, as text; empty without it."""
        if self.timestamp is not None:
            return self.columns[self.timestamp].name
        return "" if self.computed_timestamp is None else to_sql(self.computed_timestamp, self.columns.names)

    def timestamps(self, column: Callable[[int], pa.Array], length: int) -> pa.Array | None:
        """Return the timestamps of records; None where they have none.

        Args:
            column: returns the values of the declared column at a position.
            length: the number of records.
        """
        if self.timestamp is not None:
            return column(self.timestamp)
        if self.computed_timestamp is None:
            return None
        read = self.time_columns
        return evaluate(remap(self.computed_timestamp, read.index), [column(c) for c in read], length)

    @property
    def is_checked(self) -> bool:
        """Return whether rows of the stream are dead letters that break a promise."""
        return any(promise.mode is PromiseMode.CHECKED for promise in self.promises)

    @property
    def loses_rows(self) -> bool:
        """Return whether its updates remove rows: a `-` does, and a row that replaces another."""
        return self.operation is not None or bool(self.primary_key and not self.is_static)

    def option(self, key: str, default: str = "") -> str:
        return dict(self.options).get(key, default)


@dataclass(frozen=True, eq=False)
class Scan(Algebra):
    """Base of both scans. `columns`: the positions of the declared columns that are read, in output order."""

    source: Source
    columns: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        chosen = (self.source.columns[i] for i in self.columns)
        return Schema(tuple(Field(f.name, f.type, self.source.name) for f in chosen))

    @property
    def domain(self) -> TimeDomain | None:
        return self.source.domain

    @property
    def source_names(self) -> tuple[str, ...]:
        return (self.source.name,)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # A `-` deletes a row that equals it in all columns, not in those that are read.
        if not (self.source.is_stream or self.source.is_static):
            return pruning.whole(self)
        kept = sorted(needed) or [self._cheapest_column]
        columns = tuple(self.columns[i] for i in kept)
        return Pruned(replace(self, columns=columns), {old: new for new, old in enumerate(kept)})

    @property
    def _cheapest_column(self) -> int:
        """Return the column to read when none is needed: the timestamp, which is read anyway, or a narrow one."""
        if self.source.timestamp in self.columns:
            return self.columns.index(self.source.timestamp)
        return min(range(len(self.columns)), key=lambda i: _width(self.schema[i].type))

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        source = statistics.of(self.source)
        names = [self.source.columns[i].name.lower() for i in self.columns]
        taken = source.rate if self.pattern is Pattern.STRICT else 0.0
        return Estimate(source.rate, HORIZON, tuple(source.distinct.get(n, math.inf) for n in names), taken)

    def describe(self) -> Mapping[str, str]:
        return {"source": self.source.name, "columns": ", ".join(self.schema.names)}


def _width(type_: pa.DataType) -> int:
    """Return the bits of a value; of a type without a fixed width more than any has."""
    try:
        return int(type_.bit_width)
    except ValueError:
        return 1 << 16


@dataclass(frozen=True)
class Check:
    """A promise of a stream that is CHECKED.

    Args:
        name: that of its dead letters, so it counts.
        order: a number that rises in order of declaration.
    """

    name: str
    promise: Promise
    order: int = field(default=0, compare=False)


@dataclass(frozen=True, eq=False)
class StreamScan(Emitted, Scan):
    """The elements of a declared stream that break none of `checks`.

    checks: its promises that are CHECKED, in order of declaration. What is remembered for them is that of the stream
    since they were declared, whatever queries come and go, so all readers read one step.
    """

    checks: tuple[Check, ...] = ()

    @property
    def needs(self) -> Needs:
        return {self.source.name: Need()}

    @property
    def promises(self) -> Promises:
        places = {c: place for place, c in reversed(list(enumerate(self.columns)))}
        used = (one for one in self.source.promises if one.mode is not PromiseMode.OBSERVED)
        whole = tuple(PassedPromise((Base(self.source.name, one),), one.columns) for one in (*used, *self._spoken))
        return moved_promises(whole, places.get)

    @property
    def _spoken(self) -> tuple[Promise, ...]:
        """Return that punctuations come, where they are declared: over all columns that elements have."""
        source = self.source
        if source.punctuated is None:
            return ()
        apart = (source.punctuated, source.heartbeat)
        return (Punctuated(tuple(c for c in range(len(source.columns)) if c not in apart), name="punctuations"),)

    @property
    def enters_with_elements(self) -> bool:
        return True

    @property
    def boundedness(self) -> Boundedness:
        name = self.source.name
        return Boundedness(Grade.UNBOUNDED, f"all of {name}", window_hint(name), name, None)

    @property
    def arrives_in_order(self) -> bool:
        # Elements are checked by value, in several shards.
        return not self.checks

    @property
    def timestamp_column(self) -> int | None:
        stamp = self.source.timestamp
        return self.columns.index(stamp) if stamp is not None and stamp in self.columns else None

    def describe(self) -> Mapping[str, str]:
        checked = {"checked": ", ".join(check.name for check in self.checks)} if self.checks else {}
        return {**super().describe(), **_described_time(self.source), **checked}


@dataclass(frozen=True, eq=False)
class RejectedScan(Emitted, Scan):
    """The elements of a declared stream that break a promise that is CHECKED. No query has it: the scans of the others
    rest on it, and it stands for itself from the declaration of the promise on."""

    check: Check

    @property
    def needs(self) -> Needs:
        return {self.source.name: Need()}

    @property
    def enters_with_elements(self) -> bool:
        return True

    @property
    def boundedness(self) -> Boundedness:
        name = self.source.name
        return Boundedness(Grade.UNBOUNDED, f"all of {name} that breaks {self.check.name}", "", name, None)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        return pruning.whole(self)

    def describe(self) -> Mapping[str, str]:
        return {**super().describe(), "breaks": self.check.name}


def stream_scan(source: Source, columns: tuple[int, ...]) -> StreamScan:
    """Return the elements of a declared stream, without those that break a promise that is CHECKED."""
    numbered = enumerate(source.promises)
    checks = tuple(Check(one.name, one, number) for number, one in numbered if one.mode is PromiseMode.CHECKED)
    return StreamScan(source, columns, checks)


def _described_time(source: Source) -> dict[str, str]:
    """Return what a declaration says of how time advances, beside the slack."""
    shown: dict[str, str] = {}
    if source.computed_timestamp is not None:
        shown["timestamps"] = source.shown_timestamp
    if source.ahead is not None and source.domain is not None:
        shown["advances"] = f"at most {source.domain.show_length(source.ahead)}"
    if source.heartbeat is not None:
        shown["heartbeats"] = f"by {source.columns[source.heartbeat].name}"
    if source.punctuated is not None:
        shown["punctuations"] = f"by {source.columns[source.punctuated].name}"
    if source.idle is not None and source.idle_advances:
        shown["when idle"] = f"advances after {CALENDAR.show_length(source.idle)}"
    return shown


@dataclass(frozen=True, eq=False)
class AcceptedScan(Emitted, Scan):
    """The elements of a stream that were accepted. Those that a punctuation rejects are among them, valid at no
    instant: they count for promises. Checks and operators with promises alone read it."""

    @property
    def boundedness(self) -> Boundedness:
        return StreamScan(self.source, self.columns).boundedness


@dataclass(frozen=True, eq=False)
class PunctuationScan(Emitted, Scan):
    """The punctuations of a stream as rows of one text, each at the instant from which on no row fulfils it. Operators
    alone read it."""

    @property
    def schema(self) -> Schema:
        return Schema((Field("punctuation", pa.string(), self.source.name),))


@dataclass(frozen=True, eq=False)
class RelationScan(Scan):
    """A declared relation: constant from the beginning of time, or updated by a timed source. The update columns
    (timestamp and operation) are ordinary columns too where the query reads them."""

    @property
    def needs(self) -> Needs:
        return {} if self.source.is_static else {self.source.name: Need()}

    @property
    def pattern(self) -> Pattern:
        # A relation that only gains rows is monotonic; static ones do not add to the pattern.
        return Pattern.STRICT if self.source.loses_rows else Pattern.MONOTONIC

    @property
    def keys(self) -> Keys:
        """Return the primary key, where all its columns are read."""
        declared = self.source.primary_key
        if not declared or not set(declared) <= set(self.columns):
            return NO_KEYS
        return frozenset({frozenset(self.columns.index(c) for c in declared)})

    @property
    def boundedness(self) -> Boundedness:
        source = self.source
        if source.is_static:
            return Boundedness(Grade.FIXED, f"{source.name}, which is static")
        if source.primary_key:
            names = ", ".join(source.columns[i].name for i in source.primary_key)
            text = f"the values of the primary key of {source.name} ({names})"
            return Boundedness(Grade.KEYS, text, "", source.name, None)
        if source.loses_rows:
            return Boundedness(Grade.KEYS, f"the rows of {source.name} that are not deleted", "", source.name, None)
        hint = f"declare {source.name} with a PRIMARY KEY, or with OPERATION BY and deletions"
        text = f"all rows of {source.name}, which has no key and never loses one"
        return Boundedness(Grade.UNBOUNDED, text, hint, source.name, None)

    @property
    def results_have_lives(self) -> bool:
        return self.source.operation is None

    @property
    def may_be_kept(self) -> bool:
        return True

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        rows = super().estimate_from(inputs, statistics)
        unique = {c for key in self.keys if len(key) == 1 for c in key}
        return replace(
            rows, distinct=tuple(rows.size if i in unique else v for i, v in enumerate(rows.distinct))
        ).decided()


def declared_sources(*roots: Algebra) -> dict[str, Source]:
    """Return the declared streams and relations that the plans read, by name, in the order of their first scans."""
    if len(roots) == 1:
        return dict(_declared(roots[0]))
    return {name: source for root in roots for name, source in _declared(root).items()}


@derived
def _declared(root: Algebra) -> dict[str, Source]:
    """Return the sources that one plan reads: a server asks that of every query at each change of one."""
    scans = (operator for operator in operators(root) if isinstance(operator, Scan))
    return {scan.source.name: scan.source for scan in scans}


def promises_checked(root: Algebra) -> dict[str, tuple[str, ...]]:
    """Return the names of the promises that are CHECKED for the plan, by name of the stream."""
    scans = (operator for operator in operators(root) if isinstance(operator, StreamScan) and operator.checks)
    return {scan.source.name: tuple(check.name for check in scan.checks) for scan in scans}


def scanned_columns(root: Algebra) -> dict[str, tuple[int, ...]]:
    """Return the positions of the declared columns that the plan reads, in order, by name of the stream or relation."""
    columns: dict[str, set[int]] = {}
    for operator in operators(root):
        if isinstance(operator, Scan):
            columns.setdefault(operator.source.name, set()).update(operator.columns)
    return {name: tuple(sorted(positions)) for name, positions in columns.items()}


def over_sources(root: Algebra, sources: Mapping[str, Source]) -> Algebra:
    """Return the plan with the declarations `sources`, by name, in place of those that its scans have."""

    def change(node: Node) -> Node:
        if isinstance(node, Scan) and node.source.name in sources:
            return replace(node, source=sources[node.source.name])
        return node

    return transform_up(root, change)


def unchecked(root: Algebra, streams: Container[str]) -> Algebra:
    """Return the plan without checks of some streams, whose rows have been judged. streams: names in lower case."""

    def change(node: Node) -> Node:
        if isinstance(node, StreamScan) and node.checks and node.source.name.lower() in streams:
            return replace(node, checks=())
        return node

    return transform_up(root, change)


def needs_of_last(stream: Algebra, last: LastRows, ticks: int = 0) -> Needs:
    """Return the need of the last elements of `stream`, of partitions by its own columns, from `ticks` before τ0 on.
    Of any stream but a declared one, whose elements are not those of one source, everything."""
    if not isinstance(stream, StreamScan):
        return everything(stream.source_names)
    partition = tuple(stream.columns[i] for i in last.partition)
    return {stream.source.name: Need(ticks, frozenset({replace(last, partition=partition)}))}
