"""What a run reports about itself while it works and at its end."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class SourceCounts:
    """rows: records read, whatever became of them; late, malformed: kept out of the queries; needed_slack: the ORDER
    WITHIN that would have kept the late ones, as people write it, None when none came late; reasons: malformed records
    by what was wrong; heartbeat: how far its time is known, as people read it, `ended` at its end, empty for a static
    relation and before anything came; waiting: bytes that have been found and not read yet."""

    rows: int = 0
    late: int = 0
    malformed: int = 0
    needed_slack: str | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    heartbeat: str = ""
    waiting: int = 0


@dataclass
class QueryCounts:
    """rows: result rows written; heartbeat: how far the answer is final, as people read it; place: where it lies."""

    rows: int = 0
    heartbeat: str = ""
    place: str = ""


@dataclass
class RunProgress:
    """rows_per_second: input rows over the time of the run; batches, batch_seconds: how many
    there were, and the time that those of this run took to execute. heartbeat: the least of all queries'."""

    rows_in: int = 0
    rows_out: int = 0
    heartbeat: str = ""
    rows_per_second: float = 0.0
    batches: int = 0
    batch_seconds: float = 0.0
    sources: dict[str, SourceCounts] = field(default_factory=dict)
    queries: dict[str, QueryCounts] = field(default_factory=dict)
