"""The specs of leaves and roots of a plan: sources, updated and static relations, streams that are checked, answers."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.scans import Check, Source
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.promises import Ordered, Within
from penstock.physical.elements import Elements, forever
from penstock.physical.plan.spec import (
    Feed,
    Memory,
    PassingSpec,
    RecordedRejections,
    ReducingSpec,
    Spec,
    Verdicts,
    has_one_form,
)
from penstock.physical.plan.state.state_parts import SLOT, TIMES, StateInput, StatePart, width


@dataclass(frozen=True)
class ScanSpec(PassingSpec):
    """The elements of a source, as the ingest stamps them. `columns`: positions of the declared columns read."""

    source: Source
    columns: tuple[int, ...]

    @property
    def scanned(self) -> Source:
        return self.source

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    @property
    def scanned_columns(self) -> tuple[int, ...]:
        return self.columns

    def describe(self) -> dict[str, str]:
        return {"source": self.source.name, "columns": ", ".join(self.source.columns[i].name for i in self.columns)}


@dataclass(frozen=True)
class AcceptedScanSpec(ScanSpec):
    """The accepted elements of a stream: those that a punctuation rejects are among them, valid at no instant."""

    @property
    def title(self) -> str:
        return "AcceptedScan"

    @property
    def feed(self) -> Feed:
        return Feed.ACCEPTED


@dataclass(frozen=True)
class PunctuationScanSpec(ScanSpec):
    """The punctuations of a stream, as the ingest places them: a column of texts."""

    @property
    def title(self) -> str:
        return "PunctuationScan"

    @property
    def feed(self) -> Feed:
        return Feed.PUNCTUATIONS

    def describe(self) -> dict[str, str]:
        return {"source": self.source.name}


@dataclass(frozen=True)
class StaticSpec(PassingSpec):
    """A relation that never changes, computed once before the start. `table` is its name among the job's tables; hash:
    the columns by which its rows are partitioned over shards."""

    table: str
    key: tuple[int, ...]

    def describe(self) -> dict[str, str]:
        return {"table": self.table}

    @property
    def static_tables(self) -> tuple[str, ...]:
        return (self.table,)


@dataclass(frozen=True)
class ConstantSpec(PassingSpec):
    """Rows that a query holds itself; a step of the plan of a static relation. rows: as those of the operator
    (`algebra/nodes/constant.py`)."""

    rows: tuple[tuple[object, ...], ...]
    types: tuple[pa.DataType, ...]

    def describe(self) -> dict[str, str]:
        return {"rows": str(len(self.rows))}

    def elements(self) -> Elements:
        """Return the rows."""
        columns = [pa.array([row[i] for row in self.rows], type_) for i, type_ in enumerate(self.types)]
        return forever(columns, len(self.rows))


class UpdateRule(enum.Enum):
    """The identity of a row of an updated relation, and the effect of a row whose identity exists already."""

    BAG = "all columns"
    REPLACE = "primary key, replaced"
    UNIQUE = "primary key, unique"


def update_rule(source: Source) -> tuple[UpdateRule, bool]:
    """Return what the updates of a relation do, and whether a key may not be used again once deleted."""
    deletes = source.operation is not None
    by_key = UpdateRule.UNIQUE if deletes and not source.upserts else UpdateRule.REPLACE
    rule = by_key if source.primary_key else UpdateRule.BAG
    return rule, source.non_retroactive and deletes and bool(source.primary_key)


@dataclass(frozen=True)
class UpdatesSpec(Spec):
    """Updates of the relation `source`, `+` and `-` by sign. key: the columns that identify rows (the primary key, or
    all but timestamp and operation); names: of all columns; once: a key may not be used again once deleted."""

    source: str
    key: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    rule: UpdateRule
    once: bool = False

    @property
    def memory(self) -> Memory:
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"row": self.rule.value, "state": "the relation" + (", keys deleted" if self.once else "")}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = made.values(self.key) if self.rule is not UpdateRule.BAG else made.size
        yield StatePart("the relation", rows, rows * (width(made.types) + TIMES), made.content)
        if self.once:
            hint = "without OPERATION BY keys are replaced, and none is remembered"
            bound = Boundedness(Grade.KEYS, f"the keys that were deleted from {self.source}", hint, self.source, None)
            yield StatePart("keys deleted", rows, rows * (width(made.types[k] for k in self.key) + TIMES), bound)


@dataclass(frozen=True)
class InstantCountsSpec(ReducingSpec):
    """How many elements of a batch each instant has: one element for each, with a column of INT64, and with the
    greatest value of `greatest` behind it.

    Args:
        greatest: the column whose greatest value is kept, None for none.
        descending: the least one in its place.
    """

    greatest: int | None = None
    descending: bool = False


@dataclass(frozen=True)
class CheckSpec(Spec):
    """The rows of port 0, all that were accepted, that break a promise; they are dead letters, but for those that a
    punctuation rejects. Rows of one value are in one shard; where k is a number of rows, and for an order, port 1 has
    the counts of all elements in every shard.

    Args:
        source, names, types: of the stream, for dead letters.
        recorded: where a past is read, the verdicts of the check that has judged it. It does not count for what the
            step is.
    """

    source: str
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    check: Check
    recorded: RecordedRejections | None = field(default=None, compare=False, repr=False)

    @property
    def memory(self) -> Memory:
        return Memory.DECLARED

    @property
    def within(self) -> Within | None:
        """Return k; None for UNIQUE, which has none."""
        return getattr(self.check.promise, "within", None)

    def judged(self, verdicts: Verdicts) -> CheckSpec:
        return replace(self, recorded=verdicts(self.source, self.check.name))

    def describe(self) -> dict[str, str]:
        columns = ", ".join(self.names[i] for i in self.check.promise.columns)
        return {"constraint": self.check.name, "promise": f"{self.check.promise.WORDS} ({columns})"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        promise = self.check.promise
        if isinstance(promise, Ordered):
            yield StatePart("greatest values", 1, TIMES + width([self.types[promise.columns[0]]]), _FIXED)
            return
        values = inputs[0].values(promise.columns)
        hint = "a promise that is ASSERTED remembers only open values"
        bound = Boundedness(Grade.KEYS, f"all values of {self.source} that came", hint, self.source, None)
        yield StatePart("values that came", values, values * (SLOT + TIMES + 8), bound)


_FIXED = Boundedness(Grade.FIXED, "the greatest values that are not yet k old")


@dataclass(frozen=True)
class UnrejectedSpec(Spec):
    """The rows of port 0, all that were accepted, without those that a punctuation or some check rejects, which come at
    ports 1, 2, ... of checks; equal rows of one instant are in one shard.

    Args:
        checks: the names of the promises, by port.
    """

    checks: tuple[str, ...]

    @property
    def memory(self) -> Memory:
        # A row that came before a query began is either emitted by then, or rejected copies of it are later ones.
        return Memory.LIVE

    def describe(self) -> dict[str, str]:
        return {"constraints": ", ".join(self.checks)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return ()


@dataclass(frozen=True)
class OutputSpec(PassingSpec):
    """The answer of a query: elements whose ts is the instant and whose sign is `+` or `-`."""

    streams_batches: ClassVar[bool] = True
    names_only: ClassVar[frozenset[str]] = frozenset({"query"})

    query: str

    @property
    def answered(self) -> str:
        return self.query

    def describe(self) -> dict[str, str]:
        return {"query": self.query}
