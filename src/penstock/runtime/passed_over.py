"""What records that no query reads still do: they are counted, and time goes on by them.

A reader that passes records over knows that none of them is wanted, and nothing of time (`connectors/contract.py`).
Whether one of them is late, or has no timestamp, depends on what came before. It is none where statistics bound their
timestamps by more than what is late, however they are ordered; else their timestamps are read and looked at, which is
one column instead of all. Where one of them has to be set apart all are read, as if they had not been passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.algebra.scans import Source
from penstock.connectors.contract import Parsed, PassedOver
from penstock.physical.ingest import MOST_TICKS, read_columns, stamp
from penstock.physical.progress import SourceProgress


def passed_over(
    source: Source, found: PassedOver, seen: SourceProgress, now: int | None = None
) -> tuple[int, SourceProgress] | None:
    """How many records they are, and what is seen of the source after them; None where some are late or unusable. seen:
    what was seen before them; now: the stamp of SYSTEM TIME."""
    if found.rows is not None and found.low is not None and found.high is not None:
        highest = found.high if seen.high is None else max(found.high, seen.high)
        bounded = found.low > -MOST_TICKS and found.high < MOST_TICKS
        if bounded and found.low >= highest - source.slack and found.low > seen.beat:
            return found.rows, seen.merge(SourceProgress(found.low, found.high))
    columns = read_columns(source, ())
    rows = 0
    for parsed in found.read(columns):
        stamped = stamp(source, parsed.batch, columns, (), seen, now)
        if parsed.rejected or len(stamped.late) or len(stamped.unusable):
            return None
        seen = seen.merge(stamped.progress)
        rows += parsed.batch.num_rows
    return rows, seen


def count_rows(found: PassedOver) -> int | None:
    """How many records they are, of a relation without time; None where the file turns out to be damaged."""
    if found.rows is not None:
        return found.rows
    rows = 0
    for parsed in found.read(()):
        if parsed.rejected:
            return None
        rows += parsed.batch.num_rows
    return rows


def as_read(parsed: Parsed, columns: tuple[int, ...]) -> Iterator[Parsed]:
    """The records of `parsed` with none of them passed over."""
    yield replace(parsed, passed=None)
    if parsed.passed is not None:
        yield from parsed.passed.read(columns)
