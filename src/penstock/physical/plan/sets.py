"""The specs of duplicate elimination, set operations, and first rows."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.physical.plan.spec import Memory, Spec, has_one_form, queue_kinds, with_queue
from penstock.physical.plan.state.state_parts import (
    DUE,
    StateInput,
    StatePart,
    all_rows,
    between_boundaries,
    pending_ends,
    slots,
    until_boundary,
)
from penstock.physical.plan.state.time_endings import TimeEnding, shown_endings, until_final
from penstock.physical.plan.step_choices import SynopsisKinds


@dataclass(frozen=True)
class DistinctSpec(Spec):
    """Duplicate elimination. strict: negative tuples may arrive, so copies are counted; else δ* stores one expiration
    per tuple. ending: by which rows become final, which are dropped then."""

    types: tuple[pa.DataType, ...]
    strict: bool
    listed: bool = False
    ending: tuple[TimeEnding, ...] = ()

    @property
    def waits(self) -> bool:
        return self.strict

    @property
    def memory(self) -> Memory:
        # δ* emits a tuple in pieces, one behind the other: where they meet depends on copies that have left.
        return Memory.LIVE if self.strict and has_one_form(self.types) else Memory.HISTORY

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(False, self.listed) if self.strict else {}

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> dict[str, str]:
        state = "counts" if self.strict else "list of all input" if self.listed else "δ*"
        return {"state": state, **shown_endings(self.ending)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = slots(inputs[0], 3, "different rows", 0 if self.strict else DUE)
        yield from until_final([rows], () if self.listed else self.ending, "different rows")
        if self.strict:
            yield from pending_ends(inputs[0])
        elif self.listed:
            yield all_rows(inputs[0], "all rows")


class CopyRule(enum.Enum):
    """How a set operation computes the copies of a tuple from those on either side."""

    EXCEPT_ALL = "EXCEPT ALL"
    INTERSECT_ALL = "INTERSECT ALL"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True)
class SetOperationSpec(Spec):
    """Port 0 is the left side, port 1 the right."""

    kind: CopyRule
    types: tuple[pa.DataType, ...]
    listed: bool = False

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(False, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    @property
    def memory(self) -> Memory:
        # The copies in the result follow from the live copies on either side, of each tuple by itself. What is valid
        # now was emitted without an end, since an end is emitted with a tuple only if both lie in one round.
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind.value, "state": "counts" + (", ends in a list" if self.listed else "")}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        for one in inputs:
            yield slots(one, 4, "different rows with counts")
            yield from pending_ends(one)


@dataclass(frozen=True)
class TopKSpec(Spec):
    """The first rows by `order`, which names every column; with `partition`, of all rows that agree in these columns.
    step: `local`, of one shard's rows, or `final`; scattered: rows lie in the shard in which their senders put them, so
    that it does not follow from the row; lasting: no row ever leaves, so those behind the last place are forgotten;
    ending: rows end at the instant known on arrival, so a row is forgotten that so many precede which end no
    earlier."""

    order: tuple[SortKey, ...]
    limit: int
    offset: int
    types: tuple[pa.DataType, ...]
    step: str = "final"
    listed: bool = False
    partition: tuple[int, ...] = ()
    scattered: bool = field(default=False, metadata={"transparent": True})
    lasting: bool = False
    ending: bool = False

    @property
    def memory(self) -> Memory:
        # The first rows follow from the live ones, as the order names every column. Those of one shard do so only where
        # it follows from a row in which shard it is. Else: x is among the first of its shard, and y is not, for a query
        # that saw them come in two tasks; of one that read them as its past in one task, y is among the first of the
        # same shard and x is not. Merged, its consumer would not receive the end of x, which was never among the first.
        return Memory.LIVE if has_one_form(self.types) and not self.scattered else Memory.HISTORY

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(False, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> dict[str, str]:
        kept = "rows that may come first" if self.ending else "rows with counts"
        found = {
            "limit": str(self.limit),
            "step": self.step,
            "state": "first rows" if self.lasting else kept,
        }
        if self.partition:
            found["of each"] = ", ".join(f"#{i}" for i in self.partition)
        return found | ({"offset": str(self.offset)} if self.offset else {})

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        part = slots(one, 2, "rows that may come first")
        if self.lasting:
            parts = one.values(self.partition) if self.partition else 1.0
            kept = min(part.rows, (self.limit + self.offset) * parts)
            limit = Boundedness(Grade.BOUNDED, f"LIMIT {self.limit}")
            bound = one.by_keys(self.partition, "parts") if self.partition else limit
            yield StatePart(part.what, kept, part.nbytes / part.rows * kept, bound)
            return
        if self.ending:
            # Of rows in random order; of those with one end at most LIMIT and OFFSET. The state is pruned when it has
            # twice as many.
            parts = one.values(self.partition) if self.partition else 1.0
            first = max(1.0, (self.limit + self.offset) * parts)
            later = min(part.rows / first, one.size / between_boundaries(one))
            kept = min(part.rows, 2 * first * (1.0 + math.log(max(1.0, later))))
            yield StatePart(part.what, kept, part.nbytes / part.rows * kept, part.bound)
            yield from (replace(end, rows=kept, nbytes=end.nbytes / end.rows * kept) for end in pending_ends(one))
            yield from until_boundary(one)
            return
        yield part
        yield from pending_ends(one)
