"""The base class of the logical algebra: the operators of a query and the properties that they derive.

A node is a stream (an append-only bag of (tuple, ts)) or a relation (a bag that varies over time), [semantics 2]. Each
operator family has its own file in this folder; each derives its properties from its inputs:

- `schema`: the columns;
- `is_stream`: stream or relation;
- `domain`: the time domain, None without a timed input below (static relations fit every domain);
- `pattern`: the update pattern [semantics 5];
- `keys`: sets of column positions that are unique in R(τ) at every τ;
- `boundedness`: what bounds the rows that are valid at one time;
- changes over time: order of arrival, timestamps, instants, evaluations;
- `estimate_from`, `cost_from`: the expected rows, and the expected number of elements processed.

An operator overrides the defaults here. A default is safe: an operator without an override is never moved, merged or
read in another way.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from penstock.algebra.nodes.computed_once import compute_once
from penstock.algebra.optimizer.statistics import HORIZON, Statistics, seconds
from penstock.algebra.properties.boundedness import Boundedness, Grade, together, window_hint
from penstock.algebra.properties.cardinality import STORED_AND_LOOKED_UP, Estimate
from penstock.algebra.properties.need import Needs, everything, needs_of_relations
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.tree import Node, reached
from penstock.types import Schema, TimeDomain

Keys = frozenset[frozenset[int]]
NO_KEYS: Keys = frozenset()


class Evaluation(NamedTuple):
    """The frequency at which an operator is evaluated: every `tuples`-th tuple of each substream by the columns `by`,
    or the ticks align + k·`ticks`. One of the two is None."""

    tuples: int | None
    ticks: int | None
    align: int
    by: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Algebra(Node):
    """A logical operator. Immutable; equal plans have equal fingerprints. Derived properties are computed once per
    node, since every operator above reads them again."""

    def __init_subclass__(cls) -> None:
        compute_once(cls)

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
        """Return the algebra nodes directly below (children that are expressions left out)."""
        known = self.__dict__.get("_inputs")
        if known is None:
            known = tuple(child for child in self.children if isinstance(child, Algebra))
            object.__setattr__(self, "_inputs", known)
        return cast("tuple[Algebra, ...]", known)

    @property
    def domain(self) -> TimeDomain | None:
        return common_domain(self.inputs)

    def describe(self) -> Mapping[str, str]:
        """Return the parameters that EXPLAIN shows beside the name, pattern and keys: parameter -> text."""
        return {}

    # Boundedness

    @property
    def boundedness(self) -> Boundedness:
        """Return what bounds the relation. Of a stream: what bounds its elements if all of them were stored."""
        return together(child.boundedness for child in self.inputs)

    def bounded_by_keys(self, columns: tuple[int, ...], below: Boundedness, plural: str) -> Boundedness:
        """Return the boundedness of one row, or a few, for every value of `columns`: that of the rows below, else the
        number of these values. plural: the noun of what is stored for each, such as `groups`."""
        if not columns:
            return Boundedness(Grade.FIXED, f"one {plural.removesuffix('s')}")
        if below.grade <= Grade.KEYS:
            return below
        labels = column_labels(self.schema)
        names = ", ".join(labels[i] for i in columns)
        hint = f"{plural} never end over {below.by}; {below.hint}" if below.hint else ""
        return Boundedness(Grade.KEYS, f"the number of {plural} ({names})", hint, below.source, None)

    @property
    def source_names(self) -> tuple[str, ...]:
        """Return the names of the declared streams and relations below, left to right, each once."""
        return tuple(dict.fromkeys(name for child in self.inputs for name in child.source_names))

    @property
    def carries_ends(self) -> bool:
        """Return whether elements carry their expiration; else negative tuples end them, or nothing does."""
        return any(child.carries_ends for child in self.inputs if not child.is_stream)

    # The past

    @property
    def needs(self) -> Needs:
        """Return what is needed of each source to determine the result from an instant on (`properties/need.py`): what
        the inputs need where their content at an instant determines the result there, else everything."""
        return needs_of_relations(self.inputs) if self.is_plain_sql else everything(self.source_names)

    # Changes over time

    @property
    def arrives_in_order(self) -> bool:
        """Return whether the elements of the stream have an order of arrival [semantics 1, 4.1]."""
        return False

    def as_read(self) -> Algebra:
        """Return the stream without ISTREAMs, and results of WSTREAM, over operators that only select and project
        another stream; the node itself where there are none."""
        return self

    def without_window(self, ended: bool = False) -> Algebra | None:
        """Return the stream that this relation only selects and projects, with these operators over it; None for
        anything else. ended: its elements may expire, as long as each enters when it arrives."""
        return None

    @property
    def timestamp_column(self) -> int | None:
        """Return the column that holds, in every row, the timestamp of the row's stream element: FIRST and LAST order
        rows by it [semantics 4.2]. None when no column certainly does."""
        return None

    def evaluations(self) -> Iterable[Evaluation]:
        """Return the frequencies and SLIDEs at which this operator is evaluated."""
        return ()

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        """Return whether every row lives only while a row of an input for which `holds` is true lives."""
        return False

    @property
    def is_instantaneous(self) -> bool:
        """Return whether every element of the relation lives only at ticks at which an element of one of its own
        windows arrives, whatever selections are later pushed below these windows. An RSTREAM over it needs no
        arrivals that the WHERE drops [semantics 4.3]: R is empty at these instants, and nothing would be emitted."""
        return self.lives_within(lambda child: child.is_instantaneous)

    @property
    def is_windowed(self) -> bool:
        """Return whether every element of the relation lives only while an element of one of its own windows does, not
        for ever, whatever selections are later pushed below these windows. An RSTREAM over it need not know when the
        elements that the WHERE drops expire, which decides how long time advances with `--drain`."""
        return self.lives_within(lambda child: child.is_windowed)

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        """Return whether every element, however it is computed, ends one tick after its beginning. holds: the same
        property of an input."""
        return False

    @property
    def results_have_lives(self) -> bool:
        """Return whether every result has a validity interval that follows from those of its input rows
        (`algebra/nodes/results.py`)."""
        return False

    @property
    def may_be_kept(self) -> bool:
        """Return whether the results still answer the query when WSTREAM keeps them beyond their expiration."""
        return False

    @property
    def may_stand_over_internal(self) -> bool:
        """Return whether the results stay right when those of INTERNAL windows below never expire."""
        return False

    @property
    def is_elementwise(self) -> bool:
        """Return whether every tuple of the relation enters with one element of each of its streams, and so has a
        timestamp: that of the element, or of the latest one."""
        return False

    @property
    def over_one_window(self) -> bool:
        """Return whether the tuples are elements of one window that decides about each of them alone."""
        return False

    @property
    def is_plain_sql(self) -> bool:
        """Return whether the relation, at every instant, is what plain SQL returns over its inputs at that instant
        alone: then a one-time query computes it once, over their content."""
        return False

    # Estimate and cost

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        """Return the estimate of this operator from those of its `inputs`. By default: the distinct values of the first
        input's columns."""
        known = inputs[0].distinct if inputs else ()
        distinct = tuple(known[i] if i < len(known) else math.inf for i in range(len(self.schema)))
        rate = sum(i.rate for i in inputs) or 1.0
        length = max((i.length for i in inputs), default=HORIZON)
        result = Estimate(rate, length, distinct, rate if self.pattern is Pattern.STRICT else 0.0)
        return result if self.is_stream else result.decided()

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        """Return the elements per second that this operator alone processes. inputs, own: the estimates of its inputs
        and of itself. By default it has no state, and reads each element once."""
        return self.received(inputs)

    def received(self, inputs: Sequence[Estimate]) -> float:
        """Return the elements per second that arrive from `inputs`; a static input is a table, from which none
        arrive."""
        pairs = zip(self.inputs, inputs, strict=True)
        return sum(expected.emitted for child, expected in pairs if not is_static(child))

    def cost_with_state(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        """Return the cost of an operator that stores what it receives."""
        return STORED_AND_LOOKED_UP * self.received(inputs) + own.emitted


compute_once(Algebra)


@dataclass(frozen=True, eq=False)
class Unary(Algebra):
    """An operator over one input, whose columns it passes on unless it overrides `schema`."""

    input: Algebra

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True, eq=False)
class RowWise(Unary):
    """An operator that processes each row alone."""

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern

    @property
    def needs(self) -> Needs:
        return self.input.needs

    @property
    def arrives_in_order(self) -> bool:
        return self.input.arrives_in_order

    def as_read(self) -> Algebra:
        below = self.input.as_read()
        return self if below is self.input else replace(self, input=below)

    def without_window(self, ended: bool = False) -> Algebra | None:
        below = self.input.without_window(ended)
        return None if below is None else replace(self, input=below)

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    @property
    def results_have_lives(self) -> bool:
        return has_lives(self.input)

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def may_stand_over_internal(self) -> bool:
        return True

    @property
    def is_elementwise(self) -> bool:
        return self.input.is_elementwise

    @property
    def over_one_window(self) -> bool:
        return self.input.over_one_window


@dataclass(frozen=True, eq=False)
class StreamToRelation(Unary):
    """A window: it turns a stream into a relation. Base of every kind of window; a kind with the fields `slide`,
    `align` or `partition` overrides these properties by them."""

    @property
    def slide(self) -> int | None:
        """Return the ticks between two boundaries at which the content changes; None where it may change at every
        tick."""
        return None

    @property
    def align(self) -> int:
        """Return the tick that boundaries are counted from."""
        return 0

    @property
    def partition(self) -> tuple[int, ...]:
        """Return the columns whose values define partitions, each of which is a window of its own."""
        return ()

    @property
    def results_have_lives(self) -> bool:
        return True

    @property
    def may_be_kept(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class TimeModelWindow(StreamToRelation):
    """A window over the time line of timestamps: base of every kind except that of the sequence model."""

    @property
    def lifetime(self) -> int | None:
        """Return the maximal number of ticks for which an element is valid, before SLIDE rounds; None where time alone
        does not end it."""
        return None

    @property
    def judges_alone(self) -> bool:
        """Return whether the validity of an element follows from its own timestamp alone, and SLIDE rounds both ends up
        to a boundary."""
        return False

    @property
    def order_of_ends(self) -> tuple[object, ...] | None:
        """Return what decides the order of expiration of elements that arrived in order: elements of two windows for
        which it is equal expire in order of arrival. None where elements of this window alone may not."""
        return None

    @property
    def boundedness(self) -> Boundedness:
        names = ", ".join(self.source_names)
        source = names.split(", ")[0]
        return Boundedness(Grade.UNBOUNDED, f"the window UNBOUNDED of {names}", window_hint(source), source, None)

    @property
    def carries_ends(self) -> bool:
        return self.pattern in (Pattern.WEAKEST, Pattern.WEAK)

    @property
    def is_elementwise(self) -> bool:
        return self.judges_alone

    @property
    def over_one_window(self) -> bool:
        return self.judges_alone

    def evaluations(self) -> Iterable[Evaluation]:
        return () if self.slide is None else (Evaluation(None, self.slide, self.align, ()),)

    def without_slide(self) -> TimeModelWindow:
        """Return the window of the same length whose content may change at every tick."""
        assert self.slide is None, f"{type(self).__name__} does not say what it is without SLIDE"
        return self

    def on_the_line(self) -> StreamToRelation | None:
        """Return this window as one of the sequence model (`algebra/nodes/frequency.py`), None if it has no such
        form."""
        return None

    def bounded(self, ticks: int) -> Boundedness:
        """Return the boundedness of a window whose elements have all expired after `ticks`."""
        length = 0.0 if self.domain is None else seconds(ticks, self.domain)
        return Boundedness(Grade.BOUNDED, self.described, length=length)

    @property
    def described(self) -> str:
        """Return the window as SQL, such as `RANGE 10 SECOND of S`."""
        return f"{self.describe()['window']} of {', '.join(self.source_names)}"


@dataclass(frozen=True, eq=False)
class Compared(Algebra):
    """A comparison of the copies of a tuple on two sides. every: by multiplicities; else as sets, with one copy in the
    result. Column types agree; names are the left's."""

    left: Algebra
    right: Algebra
    every: bool

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return self.left.schema

    @property
    def whole(self) -> Keys:
        """Return the key that every set has: all columns together."""
        return frozenset({frozenset(range(len(self.schema)))})

    @property
    def carries_ends(self) -> bool:
        return False

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        return {"copies": "all" if self.every else "one"}


@dataclass(frozen=True, eq=False)
class Emitted(Algebra):
    """A stream of results: it is append-only, so nothing in it is ever retracted."""

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


def operators(root: Algebra) -> Iterator[Algebra]:
    """Return the operators of a plan, parents first, one with several parents once."""
    return reached(root, lambda node: node.inputs)


def leaves(node: Algebra) -> Iterator[Algebra]:
    """Return the operators without inputs, left to right, one with several parents once."""
    return (operator for operator in operators(node) if not operator.inputs)


def column_labels(schema: Schema) -> tuple[str, ...]:
    """Return the labels of the columns, by position: their names; where two are alike, with their source's name as a
    prefix, or their position as a suffix."""
    qualified = [f"{f.qualifier}.{f.name}" if f.qualifier else f.name for f in schema]
    return tuple(
        name if schema.names.count(name) == 1 else q if qualified.count(q) == 1 else f"{name}#{i}"
        for i, (name, q) in enumerate(zip(schema.names, qualified, strict=True))
    )


def named(text: str, name: str) -> str:
    """Return an item of a list of columns: `text AS name`, or the text alone where it is the name already."""
    return text if text == name else f"{text} AS {name}"


def has_lives(node: Algebra) -> bool:
    """Return whether every result of `node` has a validity interval that follows from those of its input rows."""
    return is_static(node) or node.results_have_lives


def is_static(node: Algebra) -> bool:
    """Return whether the relation is the same at every instant: it reads static relations only. A stream made of them
    does not count: its elements arrive at the first instant, and a window over them ends."""
    return node.domain is None and not any(n.is_stream for n in operators(node))
