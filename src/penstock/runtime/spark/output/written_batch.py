"""What the sinks have received of a batch, and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.runtime.spark.checkpoint.query_failure import QueryFailure


@dataclass
class DeliveredAnswer:
    """Rows and bytes of an answer that its sink has received. at: when, in monotonic seconds."""

    rows: int = 0
    bytes: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class WrittenBatch:
    """A batch that the sinks have received.

    Args:
        ended: whether all sources have ended.
        round: its number; None where Spark plans the rounds.
        answers: by query.
        failed: the queries that failed.
        behind: whether answers are due that later rounds emit.
    """

    ended: bool
    round: int | None
    answers: Mapping[str, DeliveredAnswer]
    failed: dict[str, QueryFailure]
    behind: bool = False

    @property
    def bytes(self) -> int:
        """Return the bytes of all answers."""
        return sum(answer.bytes for answer in self.answers.values())

    def seconds_after(self, began: float) -> dict[str, float]:
        """Return by query with rows the seconds from `began`, in monotonic seconds, until its sink had them."""
        return {name: max(0.0, answer.at - began) for name, answer in self.answers.items() if answer.rows}
