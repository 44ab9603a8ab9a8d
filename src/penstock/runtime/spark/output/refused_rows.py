"""Keep as dead letters the rows of results that their sinks cannot hold.

Contract: writing a batch again replaces what it wrote before, as with answers, so a replay leaves one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.connectors.contract import Rejected, Sink
from penstock.connectors.deadletters import DeadLetter, DeadLetters, fails_of_values, reason_kind

#: Distinguishes files of results, which go by the name of their query.
_RESULT = "result-"


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
