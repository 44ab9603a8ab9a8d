"""The spec of joins whose rows leave by promises of streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra.nodes.promised import JoinResult
from penstock.algebra.properties.promises import ForeignKey
from penstock.expressions.nodes import Expression
from penstock.physical.plan.joins.specs import residual_text
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import INDEX, TIMES, StateInput, StatePart, all_rows


@dataclass(frozen=True)
class ClosedBy:
    """By what rows of a side are closed.

    Args:
        closing: how the promise is followed.
        columns: of the row, in the order of the promise's; of a reference its own.
    """

    closing: ClosingSpec
    columns: tuple[int, ...]

    @property
    def is_reference(self) -> bool:
        """Return whether a row is closed when it is settled, whatever its values."""
        return isinstance(self.closing.bases[0].promise, ForeignKey)


@dataclass(frozen=True)
class PromisedSide:
    """One input of a join whose rows leave by promises.

    Args:
        types: of its columns, those behind `width` for the operator alone.
        width: how many of them are those of the relation.
        key: the columns that are compared for equality.
        leaving: by what a row leaves; the first to close decides.
        once: whether a row leaves after it finds a row of the other side with its key.
        unique: the promises by which that is so, as users read them.
        slide, align: the boundaries at which rows of the other side enter, None where they enter with their elements.
        came: the column with the timestamp of the row's element; None where the row enters at it.
        entering: by condition what closes a row so that it enters; empty for rows that do not wait for that.
        ends: whether rows end with a window.
        accepted: whether the rows that a punctuation rejects are among them, valid at no instant.
    """

    types: tuple[pa.DataType, ...]
    width: int
    key: tuple[int, ...]
    leaving: tuple[ClosedBy, ...]
    once: bool = False
    unique: str = field(default="", compare=False)
    slide: int | None = None
    align: int = 0
    came: int | None = None
    entering: tuple[tuple[ClosedBy, ...], ...] = ()
    ends: bool = False
    accepted: bool = False

    @property
    def closed_by(self) -> tuple[ClosedBy, ...]:
        """Return all that closes rows."""
        return (*self.leaving, *(one for condition in self.entering for one in condition))


@dataclass(frozen=True)
class PromisedJoinSpec(Spec):
    """A join whose rows leave by promises. Its ports are left, right, and the thin inputs of the promises.

    Args:
        residual: over the joined row.
    """

    sides: tuple[PromisedSide, PromisedSide]
    residual: Expression | None
    joined: JoinResult

    @property
    def preserved(self) -> tuple[int, ...]:
        """Return the sides whose rows are answered for what partners they have."""
        if self.joined is JoinResult.INNER:
            return ()
        return (0, 1) if self.joined is JoinResult.FULL else (0,)

    @property
    def emits_pairs(self) -> bool:
        """Return whether pairs are emitted."""
        return self.joined in (JoinResult.INNER, JoinResult.LEFT, JoinResult.FULL)

    @property
    def closings(self) -> tuple[ClosingSpec, ...]:
        """Return how the promises that close values are followed, each once."""
        found = (one.closing for side in self.sides for one in side.closed_by if not one.is_reference)
        return tuple(dict.fromkeys(found))

    def describe(self) -> Mapping[str, Parameter]:
        return {"keeps": self.joined.value, "state": "rows by key until promises end them"}

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        left, right = inputs[:2]
        pairs = zip(self.sides[0].key, self.sides[1].key, strict=True)
        on = " AND ".join(f"{left[a]} = {right[b]}" for a, b in pairs)
        both = [*left[: self.sides[0].width], *right[: self.sides[1].width]]
        return {"on": on, **residual_text(self.residual, both)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        for one, side in zip(inputs[:2], ("left", "right"), strict=True):
            yield all_rows(one, f"rows of the {side} side", TIMES + INDEX)
