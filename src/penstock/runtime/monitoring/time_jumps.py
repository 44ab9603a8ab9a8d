"""Jumps of time: one timestamp far ahead advances the time of its stream and makes all later records late
(docs/language/time.md).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from penstock.algebra.analysis.periods import shortest_slide
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.scans import Source
from penstock.events import log_event, logger_of

LOG = logger_of("runtime")
#: A jump over more boundaries of a window than this is reported.
MOST_BOUNDARIES = 10_000


def jump_warning(source: Source, jump: int, roots: Iterable[Algebra]) -> str | None:
    """Return the warning for a jump of `jump` ticks in the time of `source`, or None. roots: all queries."""
    # Boundaries are a tick apart at least: a shorter jump needs no look at the queries.
    if source.ahead is not None or source.domain is None or jump <= MOST_BOUNDARIES:
        return None
    slide = shortest_slide(roots, source.name)
    if slide is None or jump <= MOST_BOUNDARIES * slide:
        return None
    return (
        f"the time of {source.name} jumped by {source.domain.show_length(jump)}, over more than {MOST_BOUNDARIES:,} "
        "boundaries of a window; where that is one wrong timestamp, all that follows is late: declare the stream with "
        "ADVANCE AT MOST and a length that no true silence has, and such a record is a dead letter"
    )


def warn_of_jumps(
    sources: Mapping[str, Source], jumps: Mapping[str, int], roots: Iterable[Algebra], warned: set[str]
) -> None:
    """Warn of each source by its longest jump, except those in `warned`, to which warned sources are added."""
    query_roots = list(roots)
    for name, jump in jumps.items():
        if name in warned or name not in sources:
            continue
        message = jump_warning(sources[name], jump, query_roots)
        if message is not None:
            warned.add(name)
            log_event(LOG, logging.WARNING, "jump", message, source=name, ticks=jump)
