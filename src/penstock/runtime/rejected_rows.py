"""Rows that are kept out of their stream or relation: counted by reason, and written as dead letters or the end of the
run, as ON ERROR says. Both engines use it.

Contract: what is written for a batch again replaces what was written before, so a replay leaves one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.algebra.nodes.scans import OnError, Source
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.connectors.contract import ParsedRecords
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error, reason_kind
from penstock.expressions.values.shown import shown_row
from penstock.physical.execution.ingest import StampedRows, shown_record
from penstock.physical.operators import Rejection
from penstock.physical.operators.checks.first_checks import without_repeats

#: Late rows of a task, or of a round, that are kept; all are counted.
_MOST_LATE = 100_000
#: Characters of a record that are kept.
_SHOWN = 1000
#: Distinguishes files of the stages from those of the ingest, whose rounds on Spark have a numbering of their own.
_STAGE = "stage-"
#: Maximum number of reasons of malformed records counted separately, by source.
MOST_REASONS = 100
OTHER_REASONS = "other reasons"


class RejectedRows:
    """What a task or a round keeps out of one source.

    Args:
        letters: the dead letters, in order.
        malformed: the number of rows by reason, without those that are late.
        late: the number of late rows.
        lag: the slack that would have kept them, in ticks.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.letters: list[DeadLetter] = []
        self.malformed: Counter[str] = Counter()
        self.late = 0
        self.lag = 0

    def reject(self, letter: DeadLetter) -> None:
        """Count a row and keep it. Raises PenstockError P0403 for a source declared ON ERROR FAIL."""
        if self._source.on_error is OnError.FAIL:
            raise as_error(letter, self._source.name)
        self.malformed[reason_kind(letter.reason)] += 1
        if self._source.on_error is OnError.DEAD_LETTER:
            self.letters.append(letter)

    def reject_unparsed(self, parsed: ParsedRecords) -> None:
        """Reject the records that did not parse. Raises PenstockError P0403."""
        for rejected in parsed.rejected:
            self.reject(DeadLetter.of(rejected))

    def reject_unusable(self, stamped: StampedRows, parsed: ParsedRecords, origin: str) -> None:
        """Reject the rows that became no elements, the late ones among them. Raises PenstockError P0403.

        Args:
            stamped: the rows of `parsed`.
            origin: where they come from, unless `parsed` knows it of each row.
        """
        for position, reason in zip(stamped.unusable.tolist(), stamped.reasons, strict=True):
            self.reject(_letter(parsed, position, reason, origin))
        if not len(stamped.late):
            return
        self.late += len(stamped.late)
        self.lag = max(self.lag, int(stamped.lag.max()))
        domain = self._source.domain
        late = stamped.late[: max(0, _MOST_LATE - len(self.letters))]
        for position, lag in zip(late.tolist(), stamped.lag.tolist(), strict=False):
            reason = f"late by {domain.show_length(lag) if domain else lag}"
            self.letters.append(_letter(parsed, position, reason, origin))

    def reject_record(self, record: StreamRecord, reason: str, origin: str) -> None:
        """Reject a heartbeat or a punctuation that is no row. Raises PenstockError P0403."""
        self.reject(DeadLetter(origin, None, shown_record(self._source, record), reason))

    def reject_by_operators(self, rejections: Iterable[Rejection], batch: int) -> None:
        """Reject what operators of a batch have rejected: updates that do not fit their relation, and elements that
        break a promise. Raises PenstockError P0403."""
        for one in sorted(rejections, key=lambda one: (one.ts, one.record)):
            self.reject(DeadLetter(f"batch {batch}", None, one.record[:_SHOWN], one.reason, one.ts))


def _letter(parsed: ParsedRecords, position: int, reason: str, origin: str) -> DeadLetter:
    path, line = parsed.where(position) if parsed.where else (origin, None)
    return DeadLetter(path, line, shown_row(parsed.batch, position)[:_SHOWN], reason)


def write_rejections(
    rejections: Iterable[Rejection], sources: Mapping[str, Source], letters: DeadLetters, batch: int, task: int = 0
) -> dict[str, dict[str, int]]:
    """Write the dead letters of what the stages of one batch have rejected, all its tasks together; return the counts
    by source and reason. Raises PenstockError P0403 for a source declared ON ERROR FAIL.
    """
    counts: dict[str, dict[str, int]] = {}
    for name, some in by_source(rejections).items():
        rejected = RejectedRows(sources[name])
        rejected.reject_by_operators(some, batch)
        if rejected.letters:
            letters.write(name, batch, task, rejected.letters, _STAGE)
        counts[name] = dict(rejected.malformed)
    return counts


def by_source(rejections: Iterable[Rejection]) -> dict[str, list[Rejection]]:
    """Return the rejections of a batch by source, each row once."""
    found: dict[str, list[Rejection]] = {}
    for one in without_repeats(rejections):
        found.setdefault(one.source, []).append(one)
    return found


def add_counts(reasons: Mapping[str, int], counts: dict[str, int]) -> None:
    """Add counts by reason.

    Reasons may contain numbers, so the number of reasons is bounded, lest the totals grow with the input.
    """
    for reason, count in reasons.items():
        counted_reason = reason if reason in counts or len(counts) < MOST_REASONS else OTHER_REASONS
        counts[counted_reason] = counts.get(counted_reason, 0) + count
