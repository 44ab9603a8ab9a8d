"""Static relations of a job: read whole and computed once before the start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, placed, with_heartbeats
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters
from penstock.connectors.sources import open_source, read_split
from penstock.expressions.nodes import Expression
from penstock.expressions.values.shown import shown_row
from penstock.physical.elements import Elements
from penstock.physical.execution.meter import Meter
from penstock.physical.execution.primary_keys import keyed_rows
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.source_predicate import source_predicate_of
from penstock.runtime.local.runtime import compute_statics, static_sources
from penstock.runtime.rejected_rows import RejectedRows
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
        predicate = source_predicate_of(plan.statics.values(), name)
        tables[name], counts[name] = accepted_rows(source, DeadLetters(dead_letters), predicate)
    return compute_statics(plan, tables, meters), counts


def accepted_rows(
    source: Source, letters: DeadLetters | None, predicate: Expression | None = None
) -> tuple[pa.Table, StaticCounts]:
    """Return the rows of a declared relation that fit it, and the counts of its records. Raises PenstockError P0403 for
    a relation declared ON ERROR FAIL.

    Args:
        letters: receives the records that were rejected; None to keep none.
        predicate: as for `read_relation`.
    """
    whole, unparsed, passed = read_relation(source, predicate)
    table, reasons = keyed_rows(source, whole)
    rejected = RejectedRows(source)
    for record in unparsed:
        rejected.reject(DeadLetter.of(record))
    for position, reason in reasons.items():
        rejected.reject(DeadLetter(source.name, None, shown_row(whole, position)[:1000], reason))
    if letters is not None and rejected.letters:
        letters.write(source.name, 0, 0, rejected.letters)
    malformed = dict(rejected.malformed)
    return table, StaticCounts(table.num_rows + sum(malformed.values()) + passed, malformed, passed)


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
