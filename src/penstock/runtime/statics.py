"""Static relations of a job: read whole and computed once before the start."""

from __future__ import annotations

import pyarrow as pa

from penstock.algebra.scans import OnError, Source
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error
from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.physical.plan import Plan
from penstock.runtime.local import compute_statics


def read_statics(plan: Plan, dead_letters: str) -> dict[str, Elements]:
    """The static relations that `plan` needs, as elements by table name."""
    declared = {name: source for sub in plan.statics.values() for name, source in sub.sources.items()}
    tables = {name: read_relation(source, dead_letters) for name, source in declared.items()}
    return compute_statics(plan, tables)


def read_relation(source: Source, dead_letters: str) -> pa.Table:
    """All rows of a declared relation; malformed records go where the declaration says."""
    connector = open_source(source)
    columns = tuple(range(len(source.columns)))
    batches: list[pa.RecordBatch] = []
    rejected: list[Rejected] = []
    for path in connector.discover(frozenset()):
        for split in connector.splits(path):
            for parsed in connector.read(split, columns):
                batches.append(parsed.batch)
                rejected += parsed.rejected
    if rejected and source.on_error is OnError.FAIL:
        raise as_error(rejected[0], source.name)
    if rejected and source.on_error is OnError.DEAD_LETTER:
        DeadLetters(dead_letters).write(source.name, 0, 0, [DeadLetter.of(r) for r in rejected])
    schema = pa.schema([pa.field(f.name, f.type) for f in source.columns])
    return pa.Table.from_batches([_named(b, schema) for b in batches], schema)


def _named(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
