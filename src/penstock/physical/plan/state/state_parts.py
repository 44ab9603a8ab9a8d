"""Descriptions of state before a run: the inputs of an operator, the parts that it stores, and their sizes.

Every spec describes what its operator stores (`Spec.state`), mirroring the synopses of the operator. The formulas here
are those that several specs share. Sizes follow from the estimates of the inputs; they are good for an order of
magnitude.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra, TimeModelWindow, operators
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import seconds
from penstock.physical.plan.state.aggregate_layout import AggregateLayout

#: Bytes of a value without a fixed width, and of the times and sign of an element.
TEXT, TIMES, SIGN = 16, 16, 8
#: Bytes of a slot beside its accumulators and columns (the key's fingerprint).
SLOT = 16
#: Bytes of a row of a join in the index from its key (a hash join index; sorted runs take about as much); of a row
#: whose expiration is found by an index.
INDEX, DUE = 40, 16


@dataclass(frozen=True)
class StateInput:
    """An input of an operator. lanes: the layout of its accumulators where its rows are panes; elements: how many
    elements each of them is made of; period: seconds between their boundaries, 0 where there are none."""

    node: Algebra
    content: Boundedness
    expected: Estimate
    types: tuple[pa.DataType, ...]
    lanes: AggregateLayout | None = None
    elements: float = 1.0
    period: float = 0.0

    @property
    def size(self) -> float:
        """Return the number of rows that are valid at one time."""
        return self.expected.size

    def values(self, columns: Sequence[int]) -> float:
        """Return the number of different values of some columns among them."""
        found = 1.0
        for column in columns:
            found *= self.expected.distinct[column] if column < len(self.expected.distinct) else self.size
        return max(1.0, min(self.size, found))

    def by_keys(self, columns: tuple[int, ...], what: str) -> Boundedness:
        """Return what bounds one row, or a few, for every value of `columns`. what: as in `Algebra.bounded_by_keys`."""
        return self.node.bounded_by_keys(columns, self.content, what)


@dataclass(frozen=True)
class StatePart:
    """State of one kind that an operator stores. what: its description for users."""

    what: str
    rows: float
    nbytes: float
    bound: Boundedness


def width(types: Iterable[pa.DataType]) -> int:
    """Return the bytes of a row of columns."""
    return sum(width_of_value(type_) for type_ in types)


def width_of_value(type_: pa.DataType) -> int:
    """Return the bytes of a value."""
    if pa.types.is_struct(type_):
        return width([field.type for field in type_])
    try:
        return int(-(-type_.bit_width // 8))
    except ValueError:
        return TEXT


def all_rows(one: StateInput, what: str, beside: int = TIMES) -> StatePart:
    """Return all rows that are valid at one time. beside: bytes of a row beside its columns."""
    return StatePart(what, one.size, one.size * (width(one.types) + beside), one.content)


def pending_ends(one: StateInput, what: str = "rows that will end") -> Iterable[StatePart]:
    """Return the state of rows until they expire: none where they do not, or negative tuples end them."""
    return [all_rows(one, what)] if one.node.carries_ends else ()


def between_boundaries(one: StateInput) -> float:
    """Return how many rows have one end: those of a slide, of a tick where windows do not slide, one without time."""
    if one.node.domain is None:
        return 1.0
    windows = (window for window in operators(one.node) if isinstance(window, TimeModelWindow) and window.judges_alone)
    period = seconds(max((window.slide or 1 for window in windows), default=1), one.node.domain)
    return max(1.0, min(one.size, one.expected.rate * period))


def until_boundary(one: StateInput) -> Iterable[StatePart]:
    """Return the rows that wait for the next boundary of their windows."""
    rows = between_boundaries(one)
    yield StatePart("rows of the next boundary", rows, rows * (width(one.types) + TIMES + SIGN), one.content)


def slots(one: StateInput, counts: int, what: str, beside: int = 0) -> StatePart:
    """Return a table with one slot for every different row. counts: 64-bit numbers of a slot; beside: bytes of a row
    beside these and its columns."""
    rows = one.values(tuple(range(len(one.types))))
    bound = one.by_keys(tuple(range(len(one.node.schema))), "different rows")
    return StatePart(what, rows, rows * (SLOT + 8 * counts + width(one.types) + beside), bound)
