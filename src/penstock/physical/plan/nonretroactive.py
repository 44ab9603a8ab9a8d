"""The specs of joins with NON RETROACTIVE relations, and of what they ask by."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.nodes import Expression
from penstock.physical.plan.plan import Spec


@dataclass(frozen=True)
class NRRJoinSpec(Spec):
    """Join of elements (port 0) with a NON RETROACTIVE relation (port 1) as of when they came.

    came: the column of port 0 that says when, by at most `behind` ticks before an element's ts; None for the ts itself.
    strict: port 0 may bring negative tuples; width: how many columns it has. announced: port 2 tells up to when nothing
    asks any more, in place of `behind`."""

    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    residual: Expression | None
    came: int | None = None
    behind: int = 0
    strict: bool = False
    width: int = 0
    announced: bool = False

    def describe(self) -> dict[str, str]:
        state = "the relation, " + ("results that may be taken back" if self.strict else "nothing of the stream")
        return {"state": state}


@dataclass(frozen=True)
class StampSpec(Spec):
    """Elements with their ts as a last column."""
