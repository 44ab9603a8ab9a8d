"""The logical algebra's base: what every operator of a query is and which properties it derives.

A node is a stream (an append-only bag of (tuple, ts)) or a relation (a bag that varies over time), [semantics 2]. Each
operator family has its own file in this folder; each derives its properties from its inputs:

- `schema`: the columns;
- `is_stream`: stream or relation;
- `domain`: the time domain, None where no timed input stands below (static relations fit every domain);
- `pattern`: the update pattern [semantics 5];
- `keys`: sets of column positions that are unique in R(τ) at every τ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.tree import Node, walk
from penstock.types import Schema, TimeDomain

Keys = frozenset[frozenset[int]]
NO_KEYS: Keys = frozenset()


@dataclass(frozen=True, eq=False)
class Algebra(Node):
    """A logical operator. Immutable; equal plans have equal fingerprints. What is derived of its inputs is computed
    once, since a plan asks for it again and again, at every level of all that stands above."""

    def __init_subclass__(cls) -> None:
        for name in _DERIVED:
            given = cls.__dict__.get(name)
            if isinstance(given, property) and not getattr(given.fget, "__isabstractmethod__", False):
                setattr(cls, name, _computed_once(f"_{cls.__qualname__}.{name}", given))

    @property
    @abstractmethod
    def schema(self) -> Schema: ...

    @property
    @abstractmethod
    def pattern(self) -> Pattern: ...

    @property
    def is_stream(self) -> bool:
        return False

    @property
    def keys(self) -> Keys:
        return NO_KEYS

    @property
    def inputs(self) -> tuple[Algebra, ...]:
        """The algebra nodes directly below (children that are expressions left out)."""
        known = self.__dict__.get("_inputs")
        if known is None:
            known = tuple(child for child in self.children if isinstance(child, Algebra))
            object.__setattr__(self, "_inputs", known)
        return cast("tuple[Algebra, ...]", known)

    @property
    def domain(self) -> TimeDomain | None:
        known = self.__dict__.get("_domain", _UNKNOWN)
        if known is _UNKNOWN:
            known = common_domain(self.inputs)
            object.__setattr__(self, "_domain", known)
        return cast("TimeDomain | None", known)

    def describe(self) -> Mapping[str, str]:
        """What explain shows of this node beside its name, pattern and keys: parameter -> text."""
        return {}


_UNKNOWN = object()
_DERIVED = ("schema", "pattern", "keys", "domain", "is_stream")


def _computed_once(place: str, given: property) -> property:
    """The property `given`, kept in the node under the name `place`."""

    def read(node: Algebra) -> Any:
        if place not in node.__dict__:
            object.__setattr__(node, place, given.__get__(node))
        return node.__dict__[place]

    return property(read, doc=given.__doc__)


@dataclass(frozen=True, eq=False)
class Unary(Algebra):
    """An operator over one input, whose columns it hands on where it does not say otherwise."""

    input: Algebra

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, eq=False)
class RowWise(Unary):
    """What looks at each row alone."""

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern


@dataclass(frozen=True, eq=False)
class Compared(Algebra):
    """What compares the copies of a tuple on two sides. every: by multiplicities; else as sets, and an answer is there
    once. Column types agree; names are the left's."""

    left: Algebra
    right: Algebra
    every: bool

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def whole(self) -> Keys:
        """The key that every set has: all columns together."""
        return frozenset({frozenset(range(len(self.schema)))})

    def describe(self) -> Mapping[str, str]:
        return {"copies": "all" if self.every else "one"}


@dataclass(frozen=True, eq=False)
class Emitted(Algebra):
    """A stream of what is told: nothing in it is ever taken back."""

    @property
    def is_stream(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC


def common_domain(inputs: tuple[Algebra, ...]) -> TimeDomain | None:
    """Return the one domain of `inputs`. Raises PenstockError P0302 when two differ."""
    domains = {d for d in (node.domain for node in inputs) if d is not None}
    if len(domains) > 1:
        shown = " and ".join(sorted("TIMESTAMP" if d.calendar else f"integers of {d.unit.name}" for d in domains))
        raise PenstockError("P0302", f"streams of different time domains in one query: {shown}")
    return next(iter(domains), None)


def leaves(node: Algebra) -> Iterator[Algebra]:
    """Return the algebra nodes without inputs, left to right."""
    for found in walk(node):
        if isinstance(found, Algebra) and not found.inputs:
            yield found


def column_labels(schema: Schema) -> tuple[str, ...]:
    """What to call the columns in text, by position: their names; where two are alike, with their source's name before
    them, or their position behind."""
    qualified = [f"{f.qualifier}.{f.name}" if f.qualifier else f.name for f in schema]
    return tuple(
        name if schema.names.count(name) == 1 else q if qualified.count(q) == 1 else f"{name}#{i}"
        for i, (name, q) in enumerate(zip(schema.names, qualified, strict=True))
    )


def named(text: str, name: str) -> str:
    """Return an item of a list of columns: `text AS name`, or the text alone where it says the name already."""
    return text if text == name else f"{text} AS {name}"


def is_static(node: Algebra) -> bool:
    """Return whether the relation is the same at every instant: only static relations stand below. A stream made of
    them does not count: its elements come at the first instant, and a window over them ends."""
    return node.domain is None and not any(isinstance(n, Algebra) and n.is_stream for n in walk(node))
