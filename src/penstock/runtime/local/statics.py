"""Static relations of a job: read whole and computed once before the start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.scans import OnError, Source
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, placed, with_heartbeats
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error, reason_kind
from penstock.connectors.sources import open_source, read_split
from penstock.expressions.nodes import Expression
from penstock.expressions.values.shown import shown_row
from penstock.physical.elements import Elements
from penstock.physical.execution.meter import Meter
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.source_predicate import source_predicate_of
from penstock.runtime.local.runtime import compute_statics, static_sources
from penstock.runtime.skipped_records import as_read, count_rows


@dataclass(frozen=True)
class StaticCounts:
    """Counts of one relation. rows: its records; malformed: the malformed ones by reason; passed: the skipped ones."""

    rows: int
    malformed: dict[str, int]
    passed: int = 0


#: Counts by relation.
Counts = dict[str, StaticCounts]


def read_statics(
    plan: Plan, dead_letters: str, meters: Mapping[str, Meter] | None = None
) -> tuple[dict[str, Elements], Counts]:
    """Return the static relations that `plan` needs, as elements by table name, and the counts of records read for
    them.

    Args:
        meters: by table name, records the work of the steps that compute it.
    """
    tables: dict[str, pa.Table] = {}
    counts: Counts = {}
    for name, source in static_sources(plan).items():
        table, rejected, passed = read_relation(source, source_predicate_of(plan.statics.values(), name))
        tables[name], reasons = keyed_rows(source, table)
        for position, reason in reasons.items():
            record = shown_row(table, position)[:1000]
            rejected.append(Rejected(name, None, record, reason))
        if rejected and source.on_error is OnError.FAIL:
            raise as_error(rejected[0], source.name)
        if rejected and source.on_error is OnError.DEAD_LETTER:
            DeadLetters(dead_letters).write(source.name, 0, 0, [DeadLetter.of(r) for r in rejected])
        reasons_counted = Counter(reason_kind(r.reason) for r in rejected)
        counts[name] = StaticCounts(tables[name].num_rows + len(rejected) + passed, dict(reasons_counted), passed)
    return compute_statics(plan, tables, meters), counts


def read_relation(source: Source, predicate: Expression | None = None) -> tuple[pa.Table, list[Rejected], int]:
    """Return the rows of a declared relation, or of a stream with the heartbeats of statements among them, its rejected
    records, and the number of skipped rows.

    Args:
        predicate: source predicate; rows for which it does not hold may be skipped.
    """
    connector = open_source(source, predicate)
    columns = tuple(range(len(source.columns)))
    schema = pa.schema([pa.field(f.name, f.type) for f in source.columns])
    batches: list[pa.RecordBatch] = []
    rejected: list[Rejected] = []
    heartbeats: list[PlacedHeartbeat] = []
    passed = 0
    for path in connector.discover(frozenset()):
        for split in connector.splits(path):
            for chunk in read_split(connector, split, columns):
                if chunk.record is not None:
                    heartbeats.append(placed(sum(batch.num_rows for batch in batches), chunk.record))
                count = 0 if chunk.skipped is None else count_rows(chunk.skipped)
                passed += count or 0
                for parsed in [chunk] if count is not None else as_read(chunk, columns):
                    batches.append(pa.RecordBatch.from_arrays(parsed.batch.columns, schema=schema))
                    rejected += parsed.rejected
    return with_heartbeats(pa.Table.from_batches(batches, schema), heartbeats), rejected, passed
