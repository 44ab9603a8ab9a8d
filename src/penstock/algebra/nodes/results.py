"""Individual results: those that WSTREAM windows, and those that RESTORE returns [semantics 4.3].

A relation may be represented by validity intervals: each result begins at one instant and ends at another, and equal
results have one interval each. `has_lives` (`base.py`) returns for which relations the operator tree determines them:
windows, and operators over windows that work row by row or pair by pair. Any other relation (groups, updates) is only a
bag: results begin and end where R changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.algebra.nodes.base import Algebra, Emitted, TimeModelWindow, Unary, has_lives, is_static
from penstock.algebra.nodes.base.checks import need_relations, refused
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind, evaluation_period
from penstock.algebra.properties.need import Needs, longer, needs_of_relations, together
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class IndividualResults(Emitted, Unary):
    """The stream of all results of a relation seen as monotonic `[golab 3.3.3]`: each at the instant at which it
    begins, whatever expires. `input` has validity intervals; of other relations this stream is their ISTREAM."""

    in_language: ClassVar[str] = "WSTREAM"

    def __post_init__(self) -> None:
        need_relations(self.inputs, "P0307")

    def as_read(self) -> Algebra:
        windowless = self.input.without_window(ended=True)
        return self if windowless is None else windowless.as_read()

    @property
    def needs(self) -> Needs:
        return needs_of_relations(self.inputs)


@dataclass(frozen=True, eq=False)
class Restored(Emitted):
    """The output of `reported` at the boundaries align + k·slide, and with each boundary also what was lost since the
    previous one `[golab 3.3.4]`: of RSTREAM the results that began and ended in between; of ISTREAM all insertions that
    the continual query has emitted, so those too of rows that had gone and came back.

    continual: the same relation, its windows without SLIDE, so that R is that of `reported` at every boundary. by_life:
    whether validity intervals decide which results were short-lived; else its bag does, the oldest of equal tuples
    leaving first.
    """

    reported: RelationToStream
    continual: Algebra
    slide: int
    align: int
    by_life: bool

    @property
    def needs(self) -> Needs:
        # A short-lived result is emitted at the boundary after it began; what is there at the boundary before that, and
        # looks as if it began there, is emitted no later than τ0.
        below = needs_of_relations((self.continual,))
        return together([self.reported.needs, longer(below, 2 * self.slide)])

    @property
    def schema(self) -> Schema:
        return self.reported.schema

    def describe(self) -> Mapping[str, str]:
        domain = self.domain
        return {"restored": f"every {(domain.show_length if domain else str)(self.slide)}"}


def restored(reported: Algebra) -> Restored:
    """Return `reported`, an ISTREAM or RSTREAM, with what is lost between two boundaries of its one slide. Raises
    PenstockError P0319 for another operator, and where there is none."""
    if not isinstance(reported, RelationToStream) or reported.kind is StreamKind.DSTREAM:
        raise refused("only ISTREAM and RSTREAM restore results", "P0319")
    period = evaluation_period(reported)
    if period is None:
        hint = "results are lost only between slide boundaries: give all windows of the query the same SLIDE"
        raise refused("RESTORE needs one common SLIDE", "P0319", hint)
    continual = without_slide(reported.input)
    return Restored(reported, continual, *period, has_lives(continual) and continual.pattern is not Pattern.STRICT)


def not_to_be_kept(node: Algebra) -> Algebra | None:
    """Return the first operator of the query itself whose results may not be windowed (DISTINCT, negation), None for
    none."""
    if is_static(node) or node.is_stream:
        return None
    if not node.may_be_kept:
        return node
    return next((operator for operator in map(not_to_be_kept, node.inputs) if operator is not None), None)


def without_slide(node: Algebra) -> Algebra:
    """Return the query with its own windows re-evaluated at every tick."""
    if isinstance(node, TimeModelWindow):
        return node.without_slide()
    if node.is_stream:
        return node
    return node.with_children(tuple(without_slide(c) if isinstance(c, Algebra) else c for c in node.children))
