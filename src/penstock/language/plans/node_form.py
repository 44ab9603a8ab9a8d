"""What an operator is read over, and the form of an entry of the registry (`nodes.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from penstock.algebra import Algebra
from penstock.errors import PenstockError
from penstock.language.plan_form import Part, fault
from penstock.language.plans.scalar_binding import NamedColumns, ScalarReader
from penstock.language.plans.scalar_text import column_names
from penstock.quantities import LARGEST_BIGINT
from penstock.types import LONGEST_TICKS

E = TypeVar("E", bound=Enum)
Fields = dict[str, Any]

#: More rows than a relation has.
MOST_ROWS = 2**31 - 1
#: The largest number of rows that a window counts.
MOST_COUNTED = 2**62


@dataclass(frozen=True)
class Below:
    """What an operator is read over.

    Args:
        pointer: to the operator.
        fields: those that are written.
        inputs: the operators below, in order.
        line: the streams of the enclosing query in the sequence model; None outside of one.
        scalars: binds its expressions.
    """

    pointer: str
    fields: Mapping[str, Part]
    inputs: tuple[Algebra, ...]
    line: tuple[Algebra, ...] | None
    scalars: ScalarReader

    @property
    def input(self) -> Algebra:
        return self.inputs[0]

    @property
    def columns(self) -> NamedColumns:
        return NamedColumns.of(self.input.schema)

    @property
    def seed(self) -> int:
        return self.fields["seed"].whole(-LARGEST_BIGINT - 1, LARGEST_BIGINT)

    def refuse(self, message: str, code: str = "P0341", hint: str | None = None) -> PenstockError:
        return fault(self.pointer, message, code, hint)

    def whole(self, name: str, least: int, most: int, absent: int | None = None) -> int | None:
        """Return a number, `absent` where the field is not written."""
        return self.fields[name].whole(least, most) if name in self.fields else absent

    def ticks(self, name: str) -> int | None:
        """Return a length of time, None where it is not written."""
        return self.whole(name, 1, LONGEST_TICKS - 1)

    def enum(self, name: str, kind: type[E]) -> E:
        words = {one.name: one for one in kind}
        return words[self.fields[name].one_of(words)]

    def partition(self, name: str = "partition") -> tuple[int, ...]:
        return self.columns.positions(self.fields[name]) if name in self.fields else ()


@dataclass(frozen=True)
class NodeForm:
    """One operator as data.

    Args:
        write: returns the fields that are written of one.
        read: builds one over its inputs. Raises PenstockError.
        fields, needed: the fields that it may have and must have.
        inputs: how many inputs it has, at least and at most; None for any number.
        below: the inputs that are written; by default all.
    """

    write: Callable[[Any], Fields]
    read: Callable[[Below], Algebra]
    fields: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    inputs: tuple[int, int | None] = (1, 1)
    below: Callable[[Any], Sequence[Algebra]] = field(default=lambda node: node.inputs)


def given(**values: Any) -> Fields:
    """Return the fields that have a value."""
    return {name: value for name, value in values.items() if value not in (None, (), [], "")}


def names_of(node: Algebra, positions: Sequence[int]) -> list[str]:
    names = column_names(node.schema)
    return [names[i] for i in positions]


def slide_of(below: Below) -> tuple[int | None, int]:
    """Return the slide, None for none, and the tick that its boundaries are counted from."""
    slide = below.ticks("slide")
    if slide is None and "align" in below.fields:
        raise fault(below.fields["align"].pointer, "align needs a slide", "P0102")
    return slide, 0 if slide is None else below.whole("align", 0, slide - 1, 0) or 0
