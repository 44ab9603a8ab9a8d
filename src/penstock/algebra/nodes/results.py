"""Results that count one by one: those that WSTREAM windows, and those that RESTORE gives back [semantics 4.3].

A relation may be told as lives: each result comes at one instant and goes at another, and equal results are still so
many lives. `has_lives` says for which relations an operator tree decides them: windows, and what is row by row or pair
by pair over windows. Of any other relation (groups, updates) only its bag counts: results come and go where R changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, Emitted, Unary, is_static
from penstock.algebra.nodes.frequency_window import FrequencyWindow
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.multi_join import MultiJoin
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import RelationScan
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.algebra.nodes.windows import RowWindow, Window
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class IndividualResults(Emitted, Unary):
    """The stream of all results of a relation seen as monotonic `[golab 3.3.3]`: each at the instant it comes, whatever
    goes. `input` has lives; of other relations this stream is their ISTREAM."""


@dataclass(frozen=True, eq=False)
class Restored(Emitted):
    """What `reported` tells at the boundaries align + k·slide, and with each boundary also the results that began and
    ended since the one before `[golab 3.3.4]`.

    continual: the same relation, its windows without SLIDE, so that R is that of `reported` at every boundary.
    by_life: whether its lives decide what was short-lived; else its bag does, the oldest of equal tuples going
    first.
    """

    reported: RelationToStream
    continual: Algebra
    slide: int
    align: int
    by_life: bool

    @property
    def schema(self) -> Schema:
        return self.reported.schema

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        return {"restored": f"every {(domain.show_length if domain else str)(self.slide)}"}


def has_lives(node: Algebra) -> bool:
    """Return whether every result of `node` has a life that follows from those of the rows it was made of."""
    return is_static(node) or _has_lives(node)


@singledispatch
def _has_lives(node: Algebra) -> bool:
    return False


@_has_lives.register(Window)
@_has_lives.register(RowWindow)
@_has_lives.register(FrequencyWindow)
def _window(node: Window | RowWindow | FrequencyWindow) -> bool:
    return True


@_has_lives.register
def _scan(node: RelationScan) -> bool:
    return node.source.operation is None


@_has_lives.register(Select)
@_has_lives.register(Project)
def _row(node: Select | Project) -> bool:
    return has_lives(node.input)


@_has_lives.register
def _union(node: UnionAll) -> bool:
    return all(has_lives(member) for member in node.members)


@_has_lives.register
def _join(node: Join) -> bool:
    # Where rows of both sides end early, a pair may have been taken back before it was ever one.
    ends_known = node.pattern is not Pattern.STRICT or any(map(is_static, node.inputs))
    return ends_known and has_lives(node.left) and has_lives(node.right)


@_has_lives.register(SemiJoin)
@_has_lives.register(OuterJoin)
def _match(node: SemiJoin | OuterJoin) -> bool:
    # A row that is looked up is decided once and for all.
    full = isinstance(node, OuterJoin) and node.kind is OuterKind.FULL
    return is_static(node.right) and not full and has_lives(node.left)


@_has_lives.register
def _nrr_join(node: NRRJoin) -> bool:
    # What an element met stays its own, whatever becomes of the relation.
    return has_lives(node.left)


@_has_lives.register
def _multi_join(node: MultiJoin) -> bool:
    return node.pattern is not Pattern.STRICT and all(has_lives(member) for member in node.members)


#: What WSTREAM may stand over: operators whose results still answer the query when they are kept beyond their time.
_MAY_BE_KEPT = (
    Aggregate, FrequencyWindow, Internal, Join, MultiJoin, Project, RelationScan, RowWindow, Select, UnionAll, Window,
)  # fmt: skip


def not_to_be_kept(node: Algebra) -> Algebra | None:
    """Return the first operator of the query itself whose results may not be windowed (DISTINCT, negation), None for
    none."""
    if is_static(node) or node.is_stream:
        return None
    if not isinstance(node, _MAY_BE_KEPT):
        return node
    return next((found for found in map(not_to_be_kept, node.inputs) if found is not None), None)


def without_slide(node: Algebra) -> Algebra:
    """Return the query with its own windows re-evaluated all the time."""
    if isinstance(node, Window | RowWindow):
        return replace(node, slide=None, align=0)
    if node.is_stream:
        return node
    return node.with_children(tuple(without_slide(c) if isinstance(c, Algebra) else c for c in node.children))
