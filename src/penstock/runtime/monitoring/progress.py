"""Counts that a run reports while it works and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SourceCounts:
    """Counts of one source.

    Args:
        rows: records read, whether or not they became elements.
        late, malformed: records kept out of the queries.
        needed_slack: the ORDER WITHIN that would have kept the late ones, formatted; None when none was late.
        reasons: malformed records by reason.
        heartbeat: formatted for people; `ended` at its end, empty for a static relation and before the first record.
        waiting: bytes discovered but not read yet.
        records_waiting: records of a topic that are not read yet, None for other sources.
    """

    rows: int = 0
    late: int = 0
    malformed: int = 0
    needed_slack: str | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    heartbeat: str = ""
    waiting: int = 0
    records_waiting: int | None = None


@dataclass
class QueryCounts:
    """Counts of one query.

    Args:
        rows: result rows written.
        heartbeat: the time up to which the answer is final, formatted for people.
        place: where the answer is written.
        backfilled: result rows that a backfill wrote, from input read before the query was added.
        refused: by reason, rows among them that the sink cannot hold; they are dead letters of the query.
        open_periods: sessions, and stretches that CLOSED waits for, which have not ended and are in no answer.
        preference: how much of the work of its preference is done, and how late, for people; empty without one.
    """

    rows: int = 0
    heartbeat: str = ""
    place: str = ""
    backfilled: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    open_periods: int = 0
    preference: str = ""


@dataclass
class RunProgress:
    """Counts of the whole run.

    Args:
        rows_per_second: input rows over the duration of the run.
        batches, batch_seconds: number of batches, and the time that those of this process took.
        heartbeat: the minimum over all queries.
    """

    rows_in: int = 0
    rows_out: int = 0
    heartbeat: str = ""
    rows_per_second: float = 0.0
    batches: int = 0
    batch_seconds: float = 0.0
    sources: dict[str, SourceCounts] = field(default_factory=dict)
    queries: dict[str, QueryCounts] = field(default_factory=dict)
