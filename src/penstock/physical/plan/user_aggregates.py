"""The spec of user-defined aggregates: the state of each call, and the positions of its values."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.user import UserAggregate
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.state.state_parts import StateInput, StatePart, all_rows, pending_ends
from penstock.physical.plan.state.time_endings import TimeEnding, shown_endings, until_final

#: The least number of bytes of a pickled Python object.
OBJECT = 200


class UserState(enum.Enum):
    """The state of a group for one call: see `physical/operators/aggregates/user_defined/user_aggregate.py`."""

    EXPIRING = "one, with expire"
    PARTIAL = "one per end"
    LIVE = "live rows"


@dataclass(frozen=True)
class UserCallSpec:
    """arguments: positions among the argument columns; filter: the position of FILTER's condition there, or None."""

    user: UserAggregate
    arguments: tuple[int, ...]
    filter: int | None
    distinct: bool
    state: UserState

    def chosen(self, rows: pa.RecordBatch) -> list[pa.Array] | None:
        """Return the values of this call in `rows`, whose first column is no argument; None for no row."""
        if self.filter is not None and rows.num_rows:
            rows = rows.filter(rows.column(1 + self.filter))
        if not rows.num_rows:
            return None
        return [_plain(rows.column(1 + i)) for i in self.arguments]


@dataclass(frozen=True)
class UserAggregateSpec(Spec):
    """User-defined aggregates by group. keys: number of group columns; types: of the whole row; order: the origin of
    each of its columns, (whether it is a user's, its position there); fifo: rows expire in order of arrival; strict:
    rows may be retracted; ending: as of `AggregateSpec`."""

    keys: int
    calls: tuple[UserCallSpec, ...]
    order: tuple[tuple[bool, int], ...]
    types: tuple[pa.DataType, ...]
    fifo: bool
    strict: bool
    ending: tuple[TimeEnding, ...] = ()

    def describe(self) -> dict[str, str]:
        return {"state": ", ".join(f"{c.user.name}: {c.state.value}" for c in self.calls), **shown_endings(self.ending)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        _, rows = inputs
        groups = made.size if self.keys else 1.0
        nbytes = groups * OBJECT * (1 + len(self.calls))
        parts = [StatePart("groups with the states of user code", groups, nbytes, made.content)]
        if any(call.state is UserState.LIVE for call in self.calls):
            parts.append(all_rows(rows, "live rows"))
        yield from until_final(parts, self.ending, "groups")
        yield from pending_ends(rows)


def _plain(values: pa.Array) -> pa.Array:
    """Return `values` with -0.0 as 0.0, so that equal values are identical for user code."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type))
