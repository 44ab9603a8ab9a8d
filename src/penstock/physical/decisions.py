"""What a run decides by measuring, and repeats in a replay.

Whatever is decided by a clock or by how large something has grown must not be decided twice: rows would be dropped in
one attempt of a round and kept in the next. So the driver decides once, before the round, and the decisions stand in
the round's offset (`runtime/spark/checkpoint/offset.py`) as the wall clock does. Ingest and stages read them, never
measure.

A decision is a number for a *subject* (a query, a source, a sample), by *kind*. Numbers are exact: a share is
written as a whole number of parts of `WHOLE`, so that it is read from JSON unchanged.

A new kind of decision is a member of `Decided`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from penstock.storage.documents import Document, as_integer, nested

#: Shares and probabilities are parts of this: hashes of 63 bits are compared with them.
WHOLE = 1 << 63
#: The subject of a decision for all queries alike; no query has this name.
EVERY_QUERY = ""


class Decided(enum.Enum):
    """The kinds of decisions; the value is the name in the offset."""

    #: Of a query that sheds by CPU: values are kept whose hash is below. It only falls.
    KEEP_BELOW = "keep_below"
    #: Of a query that sheds: the bytes of its part of `state_limit`.
    STATE_BUDGET = "state_budget"
    #: Of a query: what a scheduler has granted it for the round, in microseconds.
    GRANT = "grant"
    #: Of a query with a preference AUTO: the units of work of a round, over all shards.
    UNITS = "units"
    #: Of `EVERY_QUERY`: about how many bytes of answers a query emits in a round, over all shards.
    ANSWER_BYTES = "answer_bytes"


@dataclass(frozen=True)
class Decisions:
    """All that was decided before a round. numbers: by kind, by subject."""

    numbers: Mapping[Decided, Mapping[str, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(self.numbers.values())

    def of(self, kind: Decided, subject: str) -> int | None:
        """Return what was decided for a subject, None for nothing."""
        return self.numbers.get(kind, {}).get(subject)

    def least(self, kind: Decided) -> int | None:
        """Return the least of the decisions of one kind, None for none."""
        return min(self.every(kind).values(), default=None)

    def share(self, kind: Decided, subject: str) -> float:
        """Return a decision as a share; 1 where nothing was decided."""
        number = self.of(kind, subject)
        return 1.0 if number is None else number / WHOLE

    def every(self, kind: Decided) -> Mapping[str, int]:
        """Return the decisions of one kind, by subject."""
        return self.numbers.get(kind, {})

    def with_all(self, kind: Decided, numbers: Mapping[str, int]) -> Decisions:
        """Return the decisions with those of one kind replaced, subject by subject."""
        return Decisions({**self.numbers, kind: {**self.every(kind), **numbers}})

    def only(self, subjects: Collection[str]) -> Decisions:
        """Return the decisions for some subjects: those that are still there after a change of the plan."""
        kept = {
            kind: {s: n for s, n in by.items() if s in subjects or s == EVERY_QUERY}
            for kind, by in self.numbers.items()
        }
        return Decisions({kind: by for kind, by in kept.items() if by})

    def as_json(self) -> Document:
        """Return the decisions as JSON, for `from_json`."""
        return {kind.value: dict(by) for kind, by in self.numbers.items() if by}

    @staticmethod
    def from_json(fields: Document) -> Decisions:
        """Return the decisions that `as_json` wrote."""
        return Decisions(
            {Decided(kind): {s: as_integer(n, kind) for s, n in nested(fields, kind).items()} for kind in fields}
        )


NO_DECISIONS = Decisions()

#: Decides the next round: (what stood in the offset of the last one) -> what stands in that of the next.
Decide = Callable[[Decisions], Decisions]

#: A keep rate moves this part of the way to what the last round calls for.
_SMOOTHING = 0.5


def next_keep_below(before: int | None, used: float, allowed: float) -> int:
    """Return the threshold of the next round of a query that may use `allowed` cores.

    rate <- min(1, rate * allowed / used), smoothed. The threshold only falls: a value that is kept again would be
    emitted as if it began then, and 10 % is part of 20 %.

    Args:
        before: the threshold of the round that was measured, None for the first.
        used: cores that the query used in it.
    """
    whole = WHOLE if before is None else before
    if used <= allowed or used <= 0:
        return whole
    target = whole * (allowed / used)
    return min(whole, max(1, int(whole + _SMOOTHING * (target - whole))))


def divided(limit: int, used: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, int]:
    """Return the part of `limit` bytes of each query that sheds, so that their weighted errors are alike [bulletin].

    A query that needs less than its part leaves the rest to the others.

    Args:
        limit: bytes of state for all of them together.
        used: bytes that each would hold, as measured.
        weights: their importance; 0 counts as a small part of the others'.
    """
    parts: dict[str, int] = {}
    left, open_queries = max(0, limit), dict(used)
    while open_queries:
        total = sum(_weighted(name, size, weights) for name, size in open_queries.items())
        share = {n: int(left * _weighted(n, s, weights) / total) if total else 0 for n, s in open_queries.items()}
        satisfied = [n for n, size in open_queries.items() if size <= share[n]]
        if not satisfied:
            return parts | share
        for name in satisfied:
            parts[name] = open_queries.pop(name)
            left -= parts[name]
    return parts


def _weighted(name: str, size: int, weights: Mapping[str, float]) -> float:
    return max(weights.get(name, 1.0), 1e-3) * max(1, size)
