"""Write as dead letters what the end of a plan could not use: updates that their relations could not apply, as reported
by the last stage, and rows of results that their sinks cannot hold.

Contract: writing a batch again replaces what it wrote before, as with answers, so a replay leaves one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from penstock.algebra.nodes.scans import OnError, Source
from penstock.connectors.contract import Rejected, Sink
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error, fails_of_values, reason_kind
from penstock.physical.operators import Rejection
from penstock.physical.operators.checks.first_checks import first_of_checks

#: Distinguishes files of the stages from those of the ingest, whose rounds have a numbering of their own.
_PART = "stage-"
#: Distinguishes files of results, which go by the name of their query.
_RESULT = "result-"


def write_rejections(
    rejections: Iterable[Rejection], sources: Mapping[str, Source], letters: DeadLetters, batch: int, task: int = 0
) -> dict[str, dict[str, int]]:
    """Write the dead letters of one batch, those of all its tasks; return the counts by source and reason. Raises
    PenstockError P0403 for a source declared ON ERROR FAIL.
    """
    by_source: dict[str, list[Rejection]] = {}
    for rejection in first_of_checks(rejections):
        by_source.setdefault(rejection.source, []).append(rejection)
    for name, source_rejections in by_source.items():
        source, first = sources[name], source_rejections[0]
        if source.on_error is OnError.FAIL:
            raise as_error(Rejected(f"batch {batch}", None, first.record, first.reason), name)
        if source.on_error is OnError.DEAD_LETTER:
            in_order = sorted(source_rejections, key=lambda r: (r.ts, r.record))
            letters_of_source = [DeadLetter(f"batch {batch}", None, r.record[:1000], r.reason, r.ts) for r in in_order]
            letters.write(name, batch, task, letters_of_source, _PART)
    return {name: dict(Counter(r.reason for r in source_rejections)) for name, source_rejections in by_source.items()}


def keep_refused(sink: Sink, letters: DeadLetters) -> None:
    """Have the rows that `sink` refuses written to the dead letters of its query, unless they are to end the run."""
    if fails_of_values(sink.query):
        return

    def keep(batch: int, rows: Sequence[Rejected]) -> None:
        letters.write(sink.query.name, batch, 0, [DeadLetter.of(row) for row in rows], _RESULT)

    sink.refuse = keep


def refused_in(letters: DeadLetters, query: str, batch: int) -> Counter[str]:
    """Return how many rows of a batch the sink of `query` refused, by reason. They are counted from what was written,
    since a sink that has the batch already does not refuse them again.
    """
    return Counter(reason_kind(letter.reason) for letter in letters.read_part(query, batch, 0, _RESULT))
