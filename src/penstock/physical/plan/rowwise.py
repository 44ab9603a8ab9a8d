"""The specs of operators that process each element alone, and of their union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Expression
from penstock.figures import ESTIMATE_WIDTH
from penstock.figures.figure import Figure
from penstock.physical.plan.spec import Memory, PassingSpec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import StateInput

#: The figure of the widest bounds. What ends with `share` is not added up over shards: the greatest counts.


@dataclass(frozen=True)
class FilterSpec(PassingSpec):
    """The elements for which `predicate` is TRUE."""

    forwards_early: ClassVar[bool] = True
    streams_batches: ClassVar[bool] = True
    keeps_times: ClassVar[bool] = True
    only_varies: ClassVar[bool] = True

    predicate: Expression

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    @property
    def condition(self) -> Expression:
        return self.predicate

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return {"predicate": to_sql(self.predicate, inputs[0])}


@dataclass(frozen=True)
class WatchedSpec(PassingSpec):
    """All elements, of which those that satisfy a condition are counted. conditions: by the figure that counts them;
    widths: shares, of which the widest of the rows that came last is the figure `ESTIMATE_WIDTH`."""

    forwards_early: ClassVar[bool] = True
    streams_batches: ClassVar[bool] = True
    keeps_times: ClassVar[bool] = True

    conditions: tuple[tuple[Figure, Expression], ...]
    widths: tuple[Expression, ...] = ()

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        texts = {figure.name: to_sql(condition, inputs[0]) for figure, condition in self.conditions}
        widths = ", ".join(to_sql(width, inputs[0]) for width in self.widths)
        return texts | ({ESTIMATE_WIDTH.name: widths} if widths else {})


@dataclass(frozen=True)
class ProjectSpec(PassingSpec):
    """Elements with one column per expression."""

    forwards_early: ClassVar[bool] = True
    streams_batches: ClassVar[bool] = True
    keeps_times: ClassVar[bool] = True

    expressions: tuple[Expression, ...]

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return {"columns": ", ".join(to_sql(e, inputs[0]) for e in self.expressions)}


@dataclass(frozen=True)
class UnionSpec(PassingSpec):
    """The union of all ports. together: the elements of a round become one batch."""

    forwards_early: ClassVar[bool] = True

    together: bool = False

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        # Panes of a finer window that several share, on their way to one of them.
        return inputs[0].lanes
