"""Relation to stream: ISTREAM, DSTREAM, RSTREAM [semantics 4.3]."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from penstock.algebra.nodes.base import Algebra, Emitted, TimeModelWindow, Unary
from penstock.algebra.nodes.base.checks import need_relations
from penstock.algebra.nodes.base.fields import NOT_IN_DATA
from penstock.algebra.nodes.promised import enters_at_once
from penstock.algebra.nodes.scans import RelationScan
from penstock.algebra.nodes.session_window import SessionWindow, ValidWindow
from penstock.algebra.nodes.until_next import UntilNext
from penstock.algebra.properties.need import Needs, needs_of_relations
from penstock.algebra.properties.promises import NO_PROMISES, Promises
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings
from penstock.algebra.properties.update_pattern import Pattern


class StreamKind(enum.Enum):
    ISTREAM = "ISTREAM"
    DSTREAM = "DSTREAM"
    RSTREAM = "RSTREAM"


@dataclass(frozen=True, eq=False)
class RelationToStream(Emitted, Unary):
    """The stream that `kind` makes of a relation; the ts of an element is the instant at which it is emitted.

    Args:
        by_values: as the answer of a query it emits the rows of an instant in the order of their values, as FREQUENCY
            picks of them.
        settled: a rule has put windows below that end nothing which is emitted: `--drain` does not wait for their ends.
    """

    kind: StreamKind
    by_values: bool = field(default=False, metadata={"transparent": True, **NOT_IN_DATA})
    settled: bool = field(default=False, metadata=NOT_IN_DATA)

    def __post_init__(self) -> None:
        need_relations(self.inputs, "P0307")

    @property
    def ending_inputs(self) -> tuple[Algebra, ...]:
        return tuple(window.input for window in own_windows(self)) if self.settled else self.inputs

    def as_read(self) -> Algebra:
        windowless = self.input.without_window() if self.kind is StreamKind.ISTREAM else None
        return self if windowless is None else windowless.as_read()

    @property
    def needs(self) -> Needs:
        # The changes after τ0 are those since R(τ0).
        return needs_of_relations(self.inputs)

    @property
    def enters_with_elements(self) -> bool:
        """Return whether the rows of the relation are emitted once each, with the timestamps of their elements: it only
        grows, and nothing lets them enter later."""
        below = self.input
        grows = self.kind is StreamKind.ISTREAM and below.pattern is Pattern.MONOTONIC
        return grows and below.enters_with_elements and enters_at_once(below)

    @property
    def promises(self) -> Promises:
        return self.input.promises if self.enters_with_elements else NO_PROMISES

    @property
    def timestamp_column(self) -> int | None:
        # Each tuple enters at its own timestamp; tuples that hold theirs are equal at one instant only.
        return self.input.timestamp_column if self.kind is StreamKind.ISTREAM else None

    @property
    def rising(self) -> Risings:
        return self.input.rising if self.kind is StreamKind.ISTREAM else NO_RISINGS

    def describe(self) -> Mapping[str, str]:
        text = {"kind": self.kind.value}
        if self.kind is StreamKind.RSTREAM:
            period = evaluation_period(self)
            domain = self.domain
            show = domain.show_length if domain else str
            text["evaluated"] = "every arrival and change" if period is None else f"every {show(period[0])}"
        return text


def own_windows(node: Algebra) -> Iterator[TimeModelWindow]:
    """Return the windows of a query itself: those not inside a derived stream below."""
    for child in node.inputs:
        if isinstance(child, TimeModelWindow):
            yield child
        else:
            yield from own_windows(child)


def own_sessions(node: Algebra) -> Iterator[SessionWindow]:
    """Return the session windows of a query itself."""
    for child in node.inputs:
        if isinstance(child, SessionWindow):
            yield child
        elif not isinstance(child, TimeModelWindow | UntilNext):
            yield from own_sessions(child)


def arrivals_of(node: Algebra) -> Iterator[tuple[Algebra, tuple[int | None, int]]]:
    """Return the streams of a query itself at whose arrivals it is evaluated, each with the (slide, align) of its
    window. Arrivals of sessions count when these end."""
    for child in node.inputs:
        if isinstance(child, TimeModelWindow | UntilNext):
            yield child.input, (child.slide, child.align)
        elif isinstance(child, ValidWindow) and child.input.is_stream:
            yield child.input, (None, 0)
        else:
            yield from arrivals_of(child)


def evaluation_period(node: RelationToStream) -> tuple[int, int] | None:
    """Return (slide, align) when all the query's windows have the same SLIDE, else None: RSTREAM is then evaluated at
    every instant at which an element of one of its streams arrives or the relation changes [semantics 4.3]. A SLIDE in
    rows has no boundaries in time."""
    slides = {boundaries for _, boundaries in arrivals_of(node)}
    if len(slides) != 1:
        return None
    slide, align = slides.pop()
    return None if slide is None else (slide, align)


def updated_relations(node: Algebra) -> Iterator[RelationScan]:
    """Return the relations with updates of the query itself."""
    for child in node.inputs:
        if isinstance(child, RelationScan) and not child.source.is_static:
            yield child
        elif not isinstance(child, TimeModelWindow | UntilNext):
            yield from updated_relations(child)
