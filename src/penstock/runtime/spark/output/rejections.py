"""Write updates that their relations could not apply, as reported by the last stage, as dead letters, and count them.

Contract: writing a batch again replaces what it wrote before, as with answers, so a replay leaves one copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from penstock.algebra.nodes.scans import OnError, Source
from penstock.connectors.contract import Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error
from penstock.physical.operators import Rejection

#: Distinguishes files of the stages from those of the ingest, whose rounds have a numbering of their own.
_PART = "stage-"


def write_rejections(
    found: Iterable[Rejection], sources: Mapping[str, Source], letters: DeadLetters, batch: int, task: int = 0
) -> dict[str, dict[str, int]]:
    """Write the dead letters of one batch; return the counts by source and reason. Raises PenstockError P0403 for a
    source declared ON ERROR FAIL.
    """
    by_source: dict[str, list[Rejection]] = {}
    for rejection in found:
        by_source.setdefault(rejection.source, []).append(rejection)
    for name, rejections in by_source.items():
        source, first = sources[name], rejections[0]
        if source.on_error is OnError.FAIL:
            raise as_error(Rejected(f"batch {batch}", None, first.record, first.reason), name)
        if source.on_error is OnError.DEAD_LETTER:
            in_order = sorted(rejections, key=lambda r: (r.ts, r.record))
            kept = [DeadLetter(f"batch {batch}", None, r.record[:1000], r.reason, r.ts) for r in in_order]
            letters.write(name, batch, task, kept, _PART)
    return {name: dict(Counter(r.reason for r in rejections)) for name, rejections in by_source.items()}
