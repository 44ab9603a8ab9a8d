"""Thin inputs: what an operator gets of declared streams to know when their values are closed.

They come from scans of their own, so that all elements that were accepted count: those that a selection drops, those
that a punctuation rejects, and those that cannot join for a NULL elsewhere. Where an operator reads all of them anyway,
it needs no thin rows. How many elements a stream has at each instant is added up where they are ingested.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.algebra import Algebra, Project, StreamScan
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.scans import AcceptedScan, PunctuationScan, Source
from penstock.algebra.properties.promised_state import EndingPromise
from penstock.algebra.properties.promises import (
    Base,
    Clustered,
    ForeignKey,
    Ordered,
    PassedPromise,
    Promise,
    Punctuated,
    Unique,
    Within,
)
from penstock.expressions.coercion import cast_to
from penstock.expressions.nodes import Column
from penstock.physical.plan.inputs import InstantCountsSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.promises.closings import ClosingBase, ClosingSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered
from penstock.types import Field

_EVERYWHERE = Exchange((), everywhere=True)


class ThinInputs:
    """The thin inputs of one operator; each is read once, however many promises need it.

    Args:
        below: the inputs of the operator, in which the declared streams are.
        first: the number of its other inputs, which come before the thin ones.
    """

    def __init__(self, below: Sequence[Algebra], first: int, builder: Builder) -> None:
        scans = [node for root in below for node in operators(root) if isinstance(node, StreamScan)]
        self._sources: dict[str, Source] = {scan.source.name: scan.source for scan in scans}
        self._first, self._builder = first, builder
        #: Edges into the operator, in the order of their ports.
        self.edges: list[Edge] = []

    def closing(
        self,
        promise: PassedPromise,
        lying: Sequence[int] | None,
        types: Sequence[pa.DataType] | None = None,
        rows: tuple[int, tuple[int, ...]] | None = None,
    ) -> ClosingSpec:
        """Return how a promise is followed that closes values, or a reference.

        Args:
            lying: places in `promise.columns`: the columns by whose hash the operator's rows lie in shards. All rows of
                one value of CLUSTERED BY must be in one shard, so it has all of these columns; None where it has not:
                each shard then gets the rows of all values. Of other promises it is not read.
            types: of the columns of the promise as the operator compares them; None for those that they have.
            rows: another port of the operator whose rows are those that would be thin, and the places of the columns of
                the promise in them.
        """
        bases = tuple(self._base(base, lying, types, rows) for base in promise.bases)
        return ClosingSpec(bases, self.text(promise))

    def text(self, promise: PassedPromise) -> str:
        """Return a promise as users read it, such as `UNIQUE id of O`."""
        source = self._sources[promise.bases[0].source]
        names = tuple(source.columns[c].name for c in promise.promise.columns)
        return EndingPromise(promise, names, source.domain).text()

    def _base(
        self,
        base: Base,
        lying: Sequence[int] | None,
        types: Sequence[pa.DataType] | None,
        rows: tuple[int, tuple[int, ...]] | None,
    ) -> ClosingBase:
        promise = base.promise
        assert not isinstance(promise, Unique), "UNIQUE closes a value with its own row"
        if isinstance(promise, Punctuated):
            edge = Edge(self._builder.lower(PunctuationScan(self._sources[base.source], ())).step, _EVERYWHERE)
            return ClosingBase(promise, (pa.string(),), self._place(edge), None, (0,))
        counted = within(promise).rows is not None
        if isinstance(promise, ForeignKey):
            at_once = within(promise) == Within()
            return ClosingBase(promise, (), None, self._counts(promise.parent) if counted and not at_once else None)
        source = self._sources[base.source]
        own = tuple(source.columns[c].type for c in promise.columns)
        made = own if types is None else tuple(types)
        if rows is not None:
            return ClosingBase(promise, made, rows[0], self._counts(base.source) if counted else None, rows[1])
        everywhere = lying is None or isinstance(promise, Ordered)
        exchange = _EVERYWHERE if lying is None or everywhere else Exchange(tuple(lying))
        values = self._port(base.source, promise.columns, made, exchange)
        counts = None if not counted else values if everywhere else self._counts(base.source)
        return ClosingBase(promise, made, values, counts, tuple(range(len(made))))

    def _counts(self, name: str) -> int:
        """Return the port of how many elements of a stream each instant has."""
        builder, scan = self._builder, AcceptedScan(self._sources[name], ())
        known_as = f"counts of {builder.known_as(scan)}"
        if known_as not in builder.known:
            every = Edge(builder.lower(scan).step)
            step = builder.add(InstantCountsSpec(), [every], 0, scan, [pa.int64()], ["count"])
            builder.known[known_as] = Lowered(step, 0)
        return self._place(Edge(builder.known[known_as].step, _EVERYWHERE))

    def _port(
        self,
        name: str,
        columns: tuple[int, ...],
        types: Sequence[pa.DataType],
        exchange: Exchange,
    ) -> int:
        """Return the port of the elements of a stream with some of their columns, as values of the types."""
        scan = AcceptedScan(self._sources[name], columns)
        thin: Algebra = scan
        if scan.schema.types != tuple(types):
            fields = tuple(Field(f.name, t, f.qualifier) for f, t in zip(scan.schema, types, strict=True))
            casts = (
                cast_to(Column(f.type, i, f.name), t) for i, (f, t) in enumerate(zip(scan.schema, types, strict=True))
            )
            thin = Project(scan, tuple(casts), fields)
        edge = Edge(self._builder.lower(thin).step, exchange)
        return self._place(edge)

    def _place(self, edge: Edge) -> int:
        """Return the port of an edge into the operator."""
        if edge not in self.edges:
            self.edges.append(edge)
        return self._first + self.edges.index(edge)


def within(promise: Promise) -> Within:
    """Return how closely data keep to a promise on values."""
    assert isinstance(promise, Clustered | Ordered | ForeignKey), "UNIQUE has no k"
    return promise.within
