"""Scans of streams, and the checks of promises that are CHECKED, which are there once for all readers.

Each check reads the ingest, since what another one or a punctuation rejects counts for it too, and emits what it
rejects. It is the same step whatever other promises there are and whichever queries read the stream. What is left of
the stream follows where equal rows meet what was rejected of them.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra import Project, StreamScan
from penstock.algebra.nodes.scans import AcceptedScan, RejectedScan
from penstock.algebra.optimizer.rules.support import column
from penstock.algebra.properties.promises import Ordered
from penstock.physical.plan.inputs import CheckSpec, InstantCountsSpec, ScanSpec, UnrejectedSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.rowwise import projected

_EVERYWHERE = Exchange((), everywhere=True)


@lower.register
def _stream_scan(node: StreamScan, builder: Builder) -> Lowered:
    if not node.checks:
        return Lowered(builder.add(ScanSpec(node.source, node.columns), (), 0, node), 0)
    whole = replace(node, columns=tuple(range(len(node.source.columns))))
    if node.columns != whole.columns:
        picked = tuple(column(whole.schema[c], c) for c in node.columns)
        return projected(Project(whole, picked, node.schema.fields), builder.lower(whole), builder)
    every = builder.lower(AcceptedScan(node.source, node.columns))
    rejected = [builder.lower(RejectedScan(node.source, node.columns, check)) for check in node.checks]
    # What a check of values has sent to the shards is not sent again.
    keys = [check.promise.columns for check in node.checks if not isinstance(check.promise, Ordered)]
    key = keys[0] if keys else node.columns
    is_there = len(rejected) == 1 and bool(keys)
    stage = 1 if is_there else 2
    edges = [Edge(one.step, None if is_there else Exchange(key)) for one in rejected]
    spec = UnrejectedSpec(tuple(check.name for check in node.checks))
    step = builder.add(spec, [Edge(every.step, Exchange(key)), *edges], stage, node)
    return Lowered(step, stage, frozenset({key}))


@lower.register
def _rejected_scan(node: RejectedScan, builder: Builder) -> Lowered:
    promise = node.check.promise
    every = builder.lower(AcceptedScan(node.source, node.columns))
    spec = CheckSpec(node.source.name, tuple(node.schema.names), tuple(node.schema.types), node.check)
    in_order = isinstance(promise, Ordered)
    edges = [Edge(every.step, Exchange(None if in_order else promise.columns))]
    if in_order or (spec.within is not None and spec.within.ticks is None):
        counts, types, names = InstantCountsSpec(), [pa.int64()], ["count"]
        if isinstance(promise, Ordered):
            counts = InstantCountsSpec(promise.columns[0], promise.descending)
            types, names = [*types, node.schema.types[promise.columns[0]]], ["count", "greatest"]
        counted = builder.add(counts, [Edge(every.step)], 0, node, types, names)
        edges.append(Edge(counted, _EVERYWHERE))
    step = builder.add(spec, edges, 1, node)
    return Lowered(step, 1, None if in_order else frozenset({promise.columns}))
