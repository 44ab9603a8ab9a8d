"""A named query as the binder returns it: the root of its algebra and its sink."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.types import CALENDAR, TimeDomain


@dataclass(frozen=True)
class SinkSpec:
    """INTO connector (options). `connector` in upper case: FILES, CONSOLE or MEMORY; option keys in lower case."""

    connector: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, key: str, default: str = "") -> str:
        return dict(self.options).get(key, default)


class StartMode(enum.Enum):
    """Where the answer of a query begins that is registered while its streams run."""

    NOW = "NOW"
    WARM = "WARM"
    AT = "AT"
    BEGINNING = "BEGINNING"


@dataclass(frozen=True)
class Start:
    """START of a query. With τ0 the query's heartbeat at the round boundary at which it begins:

    - NOW: its streams are cut off before the boundary; a relation begins with its content at τ0;
    - WARM: the answer over the whole streams at instants after τ0; that of a relation begins with R(τ0);
    - AT: as WARM, with the tick `at` in place of τ0;
    - BEGINNING: the whole answer over the whole streams.

    wait: WARM may also begin later than τ0, at the first instant at which nothing is missing that the query needs of
    the past. An engine that has found that instant notes it as `at`.
    """

    mode: StartMode = StartMode.NOW
    at: int | None = None
    wait: bool = False

    @property
    def words(self) -> str:
        """Return the words of the clause, without an instant."""
        return f"{self.mode.value} WAIT" if self.wait else self.mode.value


@dataclass(frozen=True, order=True)
class PlanChoice:
    """A choice of how a query runs, in place of the planner's; it never has a bearing on the answer.

    Args:
        operator: the key of what it is about (`algebra/analysis/operator_keys.py`), a dot, and the name of the
            physical operator.
        attribute: `join_order`, `shared`, or `kind.` with the part of the state.
        value: as text.
    """

    operator: str
    attribute: str
    value: str


@dataclass(frozen=True)
class Query:
    """A continuous query. A stream root is emitted as (ts, items); a relation root as changes (ts, op, items). text:
    the statement as written; choices: of its plan, in order; uncoalesced: the sources, as named in FROM, whose periods
    are read as each row has them, since nothing is coalesced without a list of columns."""

    name: str
    root: Algebra
    sink: SinkSpec
    text: str = ""
    choices: tuple[PlanChoice, ...] = ()
    uncoalesced: tuple[str, ...] = ()

    def __deepcopy__(self, memo: object) -> Query:
        """Return the query: nothing changes it."""
        return self

    @property
    def domain(self) -> TimeDomain:
        """Return the query's time domain; a query over static relations alone is emitted in calendar time."""
        return self.root.domain or CALENDAR

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the column names of the result: `ts`, then `op` for a relation, then the items; an item whose name is
        taken gets a number as a suffix (`ts_1`)."""
        own = ("ts",) if self.root.is_stream else ("ts", "op")
        return distinct_names(own, self.root.schema.names)

    @cached_property
    def output_schema(self) -> pa.Schema:
        """Return the columns of the result, by `output_names`."""
        op = [] if self.root.is_stream else [pa.string()]
        types = [self.domain.type(), *op, *self.root.schema.types]
        return pa.schema(list(zip(self.output_names, types, strict=True)))

    @property
    def selected_columns(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Return the columns, as (name, type), that a one-time query reads of the answer: of a stream `ts` and the
        items, of a relation the items."""
        if self.root.is_stream:
            return tuple((field.name, field.type) for field in self.output_schema)
        return tuple(zip(distinct_names((), self.root.schema.names), self.root.schema.types, strict=True))

    def __getstate__(self) -> dict[str, object]:
        # Equal queries have equal pickles, whatever has been asked of them.
        return {field.name: getattr(self, field.name) for field in fields(self)}


def distinct_names(taken: Sequence[str], items: Sequence[str]) -> tuple[str, ...]:
    """Return the names `taken`, then those of `items`; an item whose name occurred before, in any case of letters, gets
    a number as a suffix."""
    names = list(taken)
    used = {name.lower() for name in names}
    for item in items:
        name, number = item, 0
        while name.lower() in used:
            number += 1
            name = f"{item}_{number}"
        names.append(name)
        used.add(name.lower())
    return tuple(names)
