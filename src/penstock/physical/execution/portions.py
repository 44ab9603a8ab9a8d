"""How much of a round's answers a step emits: its portion, and what is left over for later rounds.

An answer may be far larger than the input: a window that slides by a microsecond has 3.6 billion boundaries an hour. So
an operator whose spec divides (`Spec.divides`) advances up to the instant at which its portion is used, and goes on in
the next round from there. The steps behind it advance as far as it has, also in later stages, and the heartbeat of
their queries is that instant; steps that are shared with other queries are never held back.

Contract: portions are measured in bytes of values, which follow from the rows alone. So a round that is repeated ends
at the same instant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from penstock.physical.decisions import EVERY_QUERY, Decided, Decisions
from penstock.physical.elements import Elements
from penstock.physical.execution.answers import column_bytes, width
from penstock.physical.operators import Moment
from penstock.physical.plan.plan import Step

#: Bytes of a timestamp in an answer.
_TIMESTAMP = 8
#: Rows of the first part of a portion, before the length of its rows is known. Each part has at most so many times the
#: rows of the one before it.
_FIRST, _GROWTH = 16, 4
#: Bytes that a value of any length is taken for before one has been seen.
_VALUE = 32


#: By query that is behind its heartbeat, the instant that it has reached: none.
NOTHING_BEHIND: Mapping[str, int] = MappingProxyType({})


def portion_of(decided: Decisions, shards: int) -> int | None:
    """Return the bytes that one step may emit in a round in one of `shards` shards; None for any number."""
    nbytes = decided.of(Decided.ANSWER_BYTES, EVERY_QUERY)
    return None if nbytes is None else max(1, nbytes // shards)


def with_portions(decided: Decisions, queries: int, nbytes: int) -> Decisions:
    """Return the decisions of a round with the part that each of so many queries has of `nbytes` of answers."""
    return decided.with_all(Decided.ANSWER_BYTES, {EVERY_QUERY: max(1, nbytes // max(1, queries))})


class Portion:
    """What a step may still emit in a round.

    Args:
        nbytes: of the whole portion.
        types: of the columns that the step emits.
    """

    def __init__(self, nbytes: int, types: Sequence[pa.DataType]) -> None:
        self._left = nbytes
        bits = [width(kind) for kind in types]
        self._fixed = _TIMESTAMP + sum(one // 8 for one in bits if one is not None)
        self._long = [column for column, one in enumerate(bits) if one is None]
        self._row = float(self._fixed + _VALUE * len(self._long))
        self._most: int | None = _FIRST if self._long else None

    @property
    def is_used(self) -> bool:
        """Return whether nothing is left."""
        return self._left <= 0

    @property
    def rows(self) -> int:
        """Return about how many rows the step may emit next, at least one."""
        rows = max(1, int(self._left / self._row))
        return rows if self._most is None else min(rows, self._most)

    def take(self, emitted: Elements) -> None:
        """Take what was emitted from the portion."""
        size = self._fixed * len(emitted) + sum(column_bytes(emitted.columns[c]) for c in self._long)
        self._left -= size
        if len(emitted) and self._long:
            self._row = size / len(emitted)

    def grow(self) -> None:
        """Go on to the next part, which may have more rows."""
        if self._most is not None:
            self._most *= _GROWTH


def earliest(*found: Mapping[str, int]) -> dict[str, int]:
    """Return by query the earliest of the instants that each of several places has reached; those that are not behind
    are left out."""
    reached: dict[str, int] = {}
    for instants in found:
        for query, instant in instants.items():
            reached[query] = min(instant, reached.get(query, instant))
    return reached


class StepsBehind:
    """The steps of a stage that have not reached the heartbeat of their queries in a round.

    Args:
        direct: by step, those through which its rows pass as soon as they are produced.
        queries: receives by query the instant that its steps have reached.
    """

    def __init__(self, direct: Mapping[int, Mapping[int, Step]], queries: dict[str, int]) -> None:
        self._direct, self._queries = direct, queries
        self._instants: dict[int, int] = {}

    def moment(self, step: Step, moment: Moment) -> Moment:
        """Return the moment to which a step advances, which none of its inputs is behind. moment: of its queries."""
        instants = [self._instants[edge.step] for edge in step.inputs if edge.step in self._instants]
        return self.advanced(step, moment, min(instants)) if instants else moment

    def advanced(self, step: Step, moment: Moment, instant: int) -> Moment:
        """Note that a step has advanced to `instant`; return it as a moment. moment: to which it was to advance."""
        if instant >= moment.heartbeat:
            return moment
        self._note(step, instant)
        return replace(moment, heartbeat=instant, open=False)

    def _note(self, step: Step, instant: int) -> None:
        self._instants[step.id] = instant
        for query in step.queries:
            self._queries[query] = min(instant, self._queries.get(query, instant))
        for consumer in self._direct[step.id].values():
            self._note(consumer, instant)


class HeldAnswers:
    """Answers of queries of which not every shard has reached their instant, until all have."""

    def __init__(self) -> None:
        self._held: dict[str, list[Elements]] = {}

    def until(self, answers: Mapping[str, Sequence[Elements]], reached: Mapping[str, int]) -> dict[str, list[Elements]]:
        """Add the answers of a round; return those that are due.

        Args:
            reached: by query that is behind, the instant up to which its answers are due.
        """
        due: dict[str, list[Elements]] = {}
        for query in [*self._held, *(name for name in answers if name not in self._held)]:
            parts = [*self._held.pop(query, ()), *answers.get(query, ())]
            if query in reached:
                late = [part.filter(part.ts > reached[query]) for part in parts]
                parts = [part.filter(part.ts <= reached[query]) for part in parts]
                if late := [part for part in late if len(part)]:
                    self._held[query] = late
            if parts := [part for part in parts if len(part)]:
                due[query] = parts
        return due
