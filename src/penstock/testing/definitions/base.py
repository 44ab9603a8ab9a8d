"""The parts of a definition: streams as bags of (timestamp, tuple), relations as functions from instants to bags."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any, cast

import pyarrow as pa

from penstock.algebra import (
    Algebra,
)
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.properties.punctuations import Punctuation
from penstock.expressions.nodes import Column, Expression
from penstock.testing.scalars.dates import evaluate_apart
from penstock.testing.scalars.values import Row, key_of, python_values
from penstock.tree import walk
from penstock.types import END

Bag = list[Row]


@dataclass(frozen=True)
class Stream:
    """A bag of (timestamp, tuple)."""

    elements: list[tuple[int, Row]]


@dataclass(frozen=True)
class Relation:
    """R(τ) by `at`. `instants`: every finite instant at which R may differ from the instant before. `lives`: the
    validity [start, end) of each row of R(τ), in the same order, for relations made of windows by selection,
    projection, joins and unions."""

    instants: frozenset[int]
    at: Callable[[int], Bag]
    lives: Callable[[int], list[tuple[int, int]]] | None = None


@dataclass(frozen=True)
class InstantLine:
    """The instants 1, 2, ... of a query in the sequence model.

    `ticks`: their timestamps; `arrived`: for each stream, by its position, the (instant, tuple) of its elements;
    `boundaries`: for each (slide, align) the instants that are boundaries.
    """

    ticks: list[int]
    arrived: list[list[tuple[int, Row]]]
    boundaries: Mapping[tuple[int, int], list[int]]


@dataclass(frozen=True)
class Shards:
    """The shards of a run, on which the answer of a preference alone depends. of: returns the shard of each row, of the
    columns by which rows are divided."""

    count: int
    of: Callable[[Sequence[pa.Array], int], Sequence[int]]


@dataclass(frozen=True)
class World:
    """The inputs as the query sees them: per source the (timestamp, row) pairs that were not late, in arrival order.

    A static relation's rows are valid from BEGIN. `final`: the last instant of the query's time; `line`: inside a query
    in the sequence model, its instants; `known`: results computed before, by fingerprint; `firsts`: the first timestamp
    of each source, where `rows` lacks the past; `shards`: by what preferences divide their rows; `accepted`: of streams
    with promises that are CHECKED also the rows that break them, and those that a punctuation rejects, which count for
    when values are closed; `punctuations`: of each stream, those that came with the instants from which on nothing
    fulfils all conditions of one.
    """

    rows: Mapping[str, list[tuple[int, Row]]]
    final: int
    line: InstantLine | None = None
    known: dict[str, Stream | Relation] = field(default_factory=dict, repr=False, compare=False)
    firsts: Mapping[str, int] = field(default_factory=dict)
    shards: Shards | None = None
    accepted: Mapping[str, list[tuple[int, Row]]] = field(default_factory=dict)
    punctuations: Mapping[str, Sequence[tuple[int, Sequence[Punctuation]]]] = field(default_factory=dict)

    def accepted_of(self, source: str) -> list[tuple[int, Row]]:
        """Return all rows of a stream that were not late."""
        return self.accepted.get(source, self.rows[source])


def first_instant(node: Algebra, world: World) -> int | None:
    """Return t0, where the time line of a query begins.

    It is the smallest timestamp of any timed input below `node`; 0 where all inputs are static relations; None while no
    timed input has any element. In the sequence model it is the first instant.
    """
    if world.line is not None:
        return 1 if world.line.ticks else None
    timed = [name for name, source in declared_sources(node).items() if not source.is_static]
    if not timed:
        return 0
    known = [world.firsts[name] for name in timed if name in world.firsts]
    return min(known + [ts for name in timed for ts, _ in world.rows[name]], default=None)


def steps(relation: Relation, start: int | None) -> Iterable[tuple[int, Bag, Bag]]:
    """Yield (τ, R(τ−1), R(τ)) for every instant from `start` on at which R may change; before `start` R is empty."""
    if start is None:
        return
    before: Bag = []
    for tau in sorted({start} | {i for i in relation.instants if i > start}):
        now = relation.at(tau)
        yield tau, before, now
        before = now


def minus(left: Bag, right: Bag) -> Bag:
    """Return the bag difference left − right."""
    taken = Counter(map(key_of, right))
    rest = []
    for row in left:
        key = key_of(row)
        if taken[key]:
            taken[key] -= 1
        else:
            rest.append(row)
    return rest


@singledispatch
def _meaning(node: Algebra, world: World) -> Stream | Relation:
    raise TypeError(f"the oracle has no definition of {type(node).__name__}")


class _Denote:
    """`_meaning`, computed once for a node that occurs several times in a query."""

    register = staticmethod(_meaning.register)
    dispatch = staticmethod(_meaning.dispatch)
    registry = _meaning.registry

    def __call__(self, node: Algebra, world: World) -> Stream | Relation:
        found = world.known.get(node.fingerprint) if hasattr(node, "fingerprint") else None
        if found is None:
            found = _meaning(node, world)
            if isinstance(found, Relation):
                found = Relation(found.instants, functools.cache(found.at), found.lives)
            world.known[node.fingerprint] = found
        return found


#: `denote(node, world)`: the meaning of `node` over `world`. Registered per operator with `denote.register`; a test
#: walks all subclasses of Algebra.
denote = cast("functools._SingleDispatchCallable[Stream | Relation]", _Denote())


def relation(node: Algebra, world: World) -> Relation:
    """Return `node` as a relation: a stream in place of a relation is unbounded [semantics 4.1]."""
    meaning = denote(node, world)
    if isinstance(meaning, Relation):
        return meaning
    return windowed([(ts, (ts, END), row) for ts, row in meaning.elements])


def windowed(elements: list[tuple[int, tuple[int, int], Row]]) -> Relation:
    """Return the relation of elements that are valid while start ≤ τ < end."""
    shown = [(start, end, row) for _, (start, end), row in elements if start < end]
    instants = frozenset(tick for start, end, _ in shown for tick in (start, end) if tick != END)

    def live(tau: int) -> list[tuple[int, int, Row]]:
        return [element for element in shown if element[0] <= tau < element[1]]

    return Relation(
        instants,
        lambda tau: [row for _, _, row in live(tau)],
        lambda tau: [(start, end) for start, end, _ in live(tau)],
    )


def crossed(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """Return the validity of a row that is made of two."""
    return max(one[0], other[0]), min(one[1], other[1])


def values_of(expression: Expression, rows: Bag) -> list[Any]:
    """Evaluate `expression` for every row; the types of the columns it does not read do not matter."""
    if not rows:
        return []
    if isinstance(expression, Column):
        return [row[expression.index] for row in rows]
    types = {node.index: node.type for node in walk(expression) if isinstance(node, Column)}
    columns = [
        pa.array([row[i] for row in rows], types[i]) if i in types else pa.nulls(len(rows)) for i in range(len(rows[0]))
    ]
    return python_values(evaluate_apart(expression, columns, len(rows)))
