"""The base class of the logical algebra: the operators of a query and the properties that they derive.

A node is a stream (an append-only bag of (tuple, ts)) or a relation (a bag that varies over time), [semantics 2]. Each
operator family has its own file in this folder; each derives its properties from its inputs:

- `schema`: the columns;
- `is_stream`: stream or relation;
- `domain`: the time domain, None without a timed input below (static relations fit every domain);
- `pattern`: the update pattern [semantics 5];
- `keys`: sets of column positions that are unique in R(τ) at every τ;
- `boundedness`: what bounds the rows that are valid at one time;
- `domains`: which values the columns can have;
- changes over time: order of arrival, timestamps, instants, evaluations, ends;
- columns: which are read of the inputs, and from which of these each follows;
- `estimate_from`, `cost_from`: the expected rows, and the expected number of elements processed.

An operator overrides the defaults here. A default is safe: an operator without an override is never moved, merged or
read in another way.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

from penstock.algebra.properties.boundedness import Boundedness, Grade, together
from penstock.algebra.properties.cardinality import STORED_AND_LOOKED_UP, Estimate
from penstock.algebra.properties.computation import Computation
from penstock.algebra.properties.domains import Domains, domain_of_type, number_of_values
from penstock.algebra.properties.need import Needs, everything, needs_of_relations
from penstock.algebra.properties.promises import NO_PROMISES, Promises
from penstock.algebra.properties.statistics import HORIZON, Statistics
from penstock.algebra.properties.timestamps import NO_RISINGS, Rising, Risings, Timestamps, exact
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.nodes import Column, Expression, remap
from penstock.expressions.sampling.inclusion import INCLUSION
from penstock.tree import Node, derived, reached
from penstock.types import Field, Schema, TimeDomain

# --- The inclusion records of sampled rows, as a last column (`expressions/sampling/inclusion.py`).
#
# Contract: `Algebra.with_inclusion()` returns the relation with one more column, or None where nothing below is
# sampled. A node that drops elements with a known probability appends the column; row by row operators and joins pass
# it on; everything else refuses, since the probability of its rows is not known.

#: The hidden column.
RECORD = Field("inclusion", INCLUSION)


def inclusion_column(position: int) -> Column:
    """Return a reference to the records at `position`."""
    return Column(INCLUSION, position, RECORD.name)


# --- Properties of operators that are computed once for each node: what stands above reads them again and again, and
# an operator may stand below several.

_PROPERTIES = (
    "schema",
    "pattern",
    "keys",
    "domain",
    "is_stream",
    "boundedness",
    "domains",
    "source_names",
    "carries_ends",
    "arrives_in_order",
    "is_instantaneous",
    "is_windowed",
    "results_have_lives",
    "promises",
    "enters_with_elements",
    "timestamps",
    "rising",
    "needs",
)


def compute_once(kind: type) -> None:
    """Let the class `kind` of operators compute the properties that it defines itself once for each node."""
    for name in _PROPERTIES:
        own = vars(kind).get(name)
        if isinstance(own, property) and own.fget and not getattr(own.fget, "__isabstractmethod__", False):
            setattr(kind, name, property(derived(own.fget), doc=own.__doc__))


Keys = frozenset[frozenset[int]]
NO_KEYS: Keys = frozenset()


class Evaluation(NamedTuple):
    """The frequency at which an operator is evaluated: every `tuples`-th tuple of each substream by the columns `by`,
    or the ticks align + k·`ticks`. One of the two is None."""

    tuples: int | None
    ticks: int | None
    align: int
    by: tuple[int, ...]


class Delay(NamedTuple):
    """How long after an instant something may end: `ticks` later, or at the first boundary align + k·`slide` from there
    on; None: not only at boundaries. ticks None: how long that is depends on the rows."""

    ticks: int | None
    slide: int | None = None
    align: int = 0


@dataclass(frozen=True)
class Pruned:
    """The operator `node`, with at least the columns that were requested. positions: by position before, the position
    that the column now has."""

    node: Algebra
    positions: Mapping[int, int]

    def moved(self, expression: Expression) -> Expression:
        """Return `expression` over the columns at their new positions."""
        return remap(expression, lambda i: self.positions[i])


class ColumnPruning(Protocol):
    """Result of pruning the columns of an operator (`optimizer/rules/prune_columns.py`)."""

    def pruned(self, node: Algebra, needed: frozenset[int]) -> Pruned:
        """Return the input `node` with at least the `needed` columns, in any order."""

    def narrowed(self, node: Algebra, needed: frozenset[int]) -> Pruned:
        """Return the input `node` of an operator that stores or ships rows, with the `needed` columns and no other."""

    def chosen(self, node: Algebra, columns: Sequence[int], named: bool) -> Algebra:
        """Return the input `node` with exactly the `columns`, in that order; named: with their names too."""

    def whole(self, node: Algebra) -> Pruned:
        """Return `node`, which reads all columns of its inputs."""


@dataclass(frozen=True, eq=False)
class Algebra(Node):
    """A logical operator. Immutable; equal plans have equal fingerprints. Derived properties are computed once per
    node, since every operator above reads them again."""

    #: What the operator is called in the language; empty where that is the name of its class.
    in_language: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        compute_once(cls)

    @property
    def worded(self) -> str:
        """Return what messages call the operator: `GROUP BY`."""
        return self.in_language or type(self).__name__.upper()

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

    @cached_property
    def inputs(self) -> tuple[Algebra, ...]:
        """Return the algebra nodes directly below (children that are expressions left out)."""
        return tuple(child for child in self.children if isinstance(child, Algebra))

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

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        """Return what bounds each relation that the operator stores, whatever plan carries it out; none for one that
        stores none, or no more than its result needs."""
        return ()

    def ended(self, rate: Callable[[str], float]) -> tuple[Boundedness, ...]:
        """Return what bounds each relation that it stores, where promises end rows, with how many rows are expected.

        Args:
            rate: returns the rows a second of a stream.
        """
        return ()

    def bounded_by_keys(self, columns: tuple[int, ...], below: Boundedness, plural: str) -> Boundedness:
        """Return the boundedness of one row, or a few, for every value of `columns`: that of the rows below, else the
        number of these values. plural: the noun of what is stored for each, such as `groups`."""
        if not columns:
            return Boundedness(Grade.FIXED, f"one {plural.removesuffix('s')}")
        if below.grade <= Grade.PROMISED:
            return below
        labels = column_labels(self.schema)
        names = ", ".join(labels[i] for i in columns)
        number = number_of_values(self.domains, columns)
        if number is not None:
            return Boundedness(Grade.BOUNDED, f"at most {number:,} {plural} ({names})", length=None)
        if below.grade is Grade.KEYS:
            return below
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

    # Values

    @property
    def domains(self) -> Domains:
        """Return by column which values it can have (`properties/domains.py`)."""
        return tuple(domain_of_type(f.type) for f in self.schema)

    # The past

    @property
    def needs(self) -> Needs:
        """Return what is needed of each source to determine the result from an instant on (`properties/need.py`): what
        the inputs need where their content at an instant determines the result there, else everything."""
        return needs_of_relations(self.inputs) if self.is_plain_sql else everything(self.source_names)

    # Promises

    @property
    def promises(self) -> Promises:
        """Return what declared streams promise that holds of the rows (`properties/promises.py`)."""
        return NO_PROMISES

    @property
    def enters_with_elements(self) -> bool:
        """Return whether every row enters with one element of each of its streams, and nothing but windows in time ends
        it: NOW, RANGE and their SLIDE, or none."""
        return False

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

    @property
    def timestamps(self) -> Timestamps:
        """Return the columns that hold the instant at which a row enters (`properties/timestamps.py`)."""
        return exact(self.rising)

    @property
    def rising(self) -> Risings:
        """Return these columns, and those that never decrease with that instant."""
        column = self.timestamp_column
        return NO_RISINGS if column is None else {column: Rising(self.schema[column].type, 0)}

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

    @property
    def varies_by_itself(self) -> bool:
        """Return whether rows come and go with time although no input changes."""
        return False

    @property
    def delays(self) -> tuple[Delay, ...]:
        """Return how long after the last end below this operator something may end in it: `--drain` advances time so
        far."""
        return ()

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        """Return the inputs of which a missing tuple would make results that are wrong, not only fewer."""
        return ()

    @property
    def ending_inputs(self) -> tuple[Algebra, ...]:
        """Return the inputs whose last end decides how far `--drain` advances time."""
        return self.inputs

    def with_arrival_time(self) -> Algebra:
        """Return this relation, which `is_elementwise`, with the arrival time of each tuple as a last column
        (`arrival_time.py`)."""
        raise AssertionError(f"tuples of {type(self).__name__} do not enter with elements of streams")

    def with_inclusion(self) -> Algebra | None:
        """Return this relation or stream with the inclusion record of each tuple as a last column (`algebra.py`);
        None where nothing below is sampled. Raises PenstockError P0355 where the probability of its tuples is not
        known."""
        if all(child.with_inclusion() is None for child in self.inputs):
            return None
        hint = "over a sample ESTIMATE knows selections, projections, windows in time and inner joins"
        raise PenstockError("P0355", f"ESTIMATE through {self.worded} of a sample", hint=hint)

    @property
    def drawn_by(self) -> tuple[str, int] | None:
        """Return by which draws elements are left out, as the name of what is drawn from and the seed; None where none
        are."""
        return None

    # Columns

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        """Return this operator over inputs with the columns that it reads to compute the `needed` ones of its own. By
        default it reads all."""
        return pruning.whole(self)

    def computation(self, column: int) -> Computation | None:
        """Return how a column follows from the inputs; None where it does not, or where that is not known."""
        return None

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


def stays_or_passes(node: Algebra) -> bool:
    """Return whether no row of the relation leaves, or each lives for one instant alone."""
    return node.pattern is Pattern.MONOTONIC or node.is_instantaneous


_ONE_DOMAIN = "declare the timestamps of all of them in one way: as TIMESTAMP, or as integers of one UNIT"


def common_domain(inputs: tuple[Algebra, ...]) -> TimeDomain | None:
    """Return the one domain of `inputs`. Raises PenstockError P0302 when two differ."""
    domains = {d for d in (node.domain for node in inputs) if d is not None}
    if len(domains) > 1:
        shown = " and ".join(sorted("TIMESTAMP" if d.calendar else f"integers of {d.unit.name}" for d in domains))
        raise PenstockError("P0302", f"streams of different time domains in one query: {shown}", hint=_ONE_DOMAIN)
    return next(iter(domains), None)


def operators(root: Algebra) -> Iterator[Algebra]:
    """Return the operators of a plan, parents first, one with several parents once."""
    return reached(root, lambda node: node.inputs)


def has_operator(root: Algebra, *kinds: type[Algebra]) -> bool:
    """Return whether a plan has an operator of one of the classes `kinds`. Each operator keeps the classes of those
    below it: this is called for each of a thousand views upon each other, and must not walk the whole plan each time.
    """
    stack = [root]
    while stack:
        # Inputs first, so that a deep plan needs no deep stack.
        unknown = [one for one in stack[-1].inputs if not _kinds_of.is_known(one)]
        if unknown:
            stack += unknown
        else:
            _kinds_of(stack.pop())
    return any(issubclass(kind, kinds) for kind in _kinds_of(root))


@derived
def _kinds_of(root: Algebra) -> frozenset[type[Algebra]]:
    return frozenset({type(root)}).union(*map(_kinds_of, root.inputs))


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


def stored_sides(sides: Iterable[Algebra]) -> tuple[Boundedness, ...]:
    """Return what bounds the inputs of a join, which stores them all but for static ones."""
    return tuple(side.boundedness for side in sides if not is_static(side))


def has_lives(node: Algebra) -> bool:
    """Return whether every result of `node` has a validity interval that follows from those of its input rows."""
    return is_static(node) or node.results_have_lives


def is_static(node: Algebra) -> bool:
    """Return whether the relation is the same at every instant: it reads static relations only. A stream made of them
    does not count: its elements arrive at the first instant, and a window over them ends."""
    return node.domain is None and not any(n.is_stream or n.varies_by_itself for n in operators(node))
