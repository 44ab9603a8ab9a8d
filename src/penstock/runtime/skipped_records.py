"""Account for skipped records: they are counted, and they advance the heartbeat.

A reader that skips records knows that no query reads them, but nothing of their time (`connectors/contract.py`).
Whether one of them is late, or has no timestamp, depends on the records before it. None is, where statistics bound
their timestamps more narrowly than lateness in whatever order they lie; otherwise their timestamps are read and
checked, which costs one column instead of all. Where one of them must be set apart, all are read as if none had been
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, SkippedRecords
from penstock.physical.execution.ingest import read_columns, stamp
from penstock.physical.execution.progress import SourceProgress
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.types import MOST_TICKS


def progress_after(
    source: Source, skipped: SkippedRecords, seen: SourceProgress, now: int | None = None
) -> tuple[int, SourceProgress] | None:
    """Return the number of skipped records and the progress of the source after them; None where some are late or
    unusable.

    Args:
        seen: progress before them.
        now: the stamp of SYSTEM TIME.
    """
    has_statistics = skipped.rows is not None and skipped.low is not None and skipped.high is not None
    silent = source.heartbeat is None and source.punctuated is None
    if has_statistics and silent and not len(seen.punctuations or ()):
        assert skipped.rows is not None and skipped.low is not None and skipped.high is not None
        highest = skipped.high if seen.high is None else max(skipped.high, seen.high)
        is_in_range = skipped.low > -MOST_TICKS and skipped.high < MOST_TICKS
        first = skipped.low if seen.high is None else seen.high
        is_not_too_far_ahead = source.ahead is None or skipped.high <= first + source.ahead
        if is_in_range and is_not_too_far_ahead and skipped.low >= highest - source.slack and skipped.low > seen.beat:
            return skipped.rows, seen.merge(SourceProgress(skipped.low, skipped.high))
    columns = read_columns(source, (), (seen.punctuations or Punctuations()).columns)
    rows = 0
    for parsed in skipped.read(columns):
        stamped = stamp(source, parsed.batch, columns, (), seen, now)
        if parsed.rejected or len(stamped.late) or len(stamped.unusable):
            return None
        seen = seen.merge(stamped.progress)
        rows += parsed.batch.num_rows
    return rows, seen


def count_rows(skipped: SkippedRecords) -> int | None:
    """Return the number of skipped records of a relation without time; None where the file proves to be damaged."""
    if skipped.rows is not None:
        return skipped.rows
    rows = 0
    for parsed in skipped.read(()):
        if parsed.rejected:
            return None
        rows += parsed.batch.num_rows
    return rows


def as_read(parsed: ParsedRecords, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
    """Yield the records of `parsed` and then those it skipped, so that none is skipped."""
    yield replace(parsed, skipped=None)
    if parsed.skipped is not None:
        yield from parsed.skipped.read(columns)
