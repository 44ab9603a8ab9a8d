"""The specs of operators whose state ends, or whose rows enter, by what streams promise (docs/promises.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.physical.plan.aggregates import AggregateSpec, grouped_state
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, all_rows
from penstock.physical.plan.step_choices import SynopsisKinds
from penstock.physical.plan.user_aggregates import UserAggregateSpec

#: Bytes of an open value in an index of closings, which keeps its fingerprint and not its columns.
OPEN_VALUE = 80


@dataclass(frozen=True)
class ValueClosing:
    """How the values of some columns are closed.

    Args:
        columns: of the value, in the order of the promise's columns.
        closing: None for UNIQUE, which closes the value of a row at its own instant.
        text: the promise as users read it.
    """

    columns: tuple[int, ...]
    closing: ClosingSpec | None
    text: str = field(default="", compare=False)


def open_values(rows: StateInput, closings: Iterable[ValueClosing]) -> StatePart:
    """Return the state of the indexes of closings: the values that are open."""
    count = sum(map(rows.values, {one.columns for one in closings if one.closing is not None}))
    return StatePart("values that are open", count, OPEN_VALUE * count, rows.content)


@dataclass(frozen=True)
class ClosingAggregateSpec(AggregateSpec):
    """Groups that end when their values are closed. Port 0 receives accumulator rows, the others thin rows.

    Args:
        closings: columns are places in the columns of the group; the first to close ends it.
        final: each group is emitted once, when it ends.
    """

    closings: tuple[ValueClosing, ...] = ()
    final: bool = False

    @property
    def title(self) -> str:
        return "Aggregate"

    @property
    def divides(self) -> bool:
        return False

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        # No row expires.
        return {}

    def describe(self) -> Mapping[str, Parameter]:
        found = {"state": "groups that are open"}
        return {**found, "emitted": "once, when closed"} if self.final else found

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = inputs[0]
        yield from grouped_state(self.plan, rows, self.input_types, made.content, stores_rows=False)
        columns = (ValueClosing(tuple(self.plan.group[c] for c in o.columns), o.closing) for o in self.closings)
        yield open_values(rows, columns)


@dataclass(frozen=True)
class ClosingUserAggregateSpec(UserAggregateSpec):
    """User-defined aggregates of such groups. Ports 0 and 1 as of `UserAggregateSpec`, the others receive thin rows.

    Args:
        key_types: of the columns of the group.
    """

    key_types: tuple[pa.DataType, ...] = ()
    closings: tuple[ValueClosing, ...] = ()
    final: bool = False

    @property
    def title(self) -> str:
        return "UserAggregate"

    def describe(self) -> dict[str, str]:
        return super().describe() | ({"emitted": "once, when closed"} if self.final else {})

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield from super().state(inputs[:2], made)
        yield open_values(inputs[1], self.closings)


@dataclass(frozen=True)
class ClosedRowsSpec(Spec):
    """Rows that enter when their values are closed. Port 0 receives the rows, the others thin rows.

    Args:
        conditions: all have to close; of each the first closing counts.
        types: of the columns of the rows.
    """

    conditions: tuple[tuple[ValueClosing, ...], ...]
    types: tuple[pa.DataType, ...]

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "rows that are not closed"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = inputs[0]
        yield all_rows(rows, "rows that are not closed", 2 * TIMES + 16 * len(self.conditions))
        yield open_values(rows, (one for condition in self.conditions for one in condition))
