"""Rate control of input: the minimum time between batches, the maximum that one may read, and the controller of batch
sizes.

The controller steers the duration of batches towards a target. A batch costs a constant plus its bytes, so the limit is
scaled by target over measured duration, by at most a factor of two: a limit that fits stays, one that does not is
approached from either side without overshooting, damped by the constant. The duration of a batch that did not use
the limit shows nothing of a larger one's, so it never raises the limit. The limit of a round is part of its offset:
planned again after a crash, it reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings import Settings

#: The limit starts at FIRST when there is a target, and never falls below LEAST; in bytes.
FIRST, LEAST = 4 * 2**20, 16 * 2**10
#: Bytes that the first round of many queries may read in any case.
_FIRST_OF_MANY = 16 * 2**20
_MOST_CHANGE = 2.0
#: A batch that read this part of the limit counts as having used it.
_USED = 0.5


@dataclass(frozen=True)
class RateControl:
    """Limits of the input of rounds.

    Args:
        trigger: seconds between the starts of two rounds, 0 for no wait.
        target: target duration of a batch in seconds, 0 for none.
        max_bytes, max_rows: maximum that a round reads, 0 rows for no limit.
        max_answer_bytes: target maximum of the bytes of answers of a round.
        queries: number of queries that read the input.
    """

    trigger: float = 0.0
    target: float = 0.0
    max_bytes: int = 256 * 2**20
    max_rows: int = 0
    max_answer_bytes: int = 2 * 2**30
    queries: int = 1

    @staticmethod
    def of(settings: Settings, queries: int = 1, latency_target: float = 0.0) -> RateControl:
        """Return the limits of a run. latency_target: seconds that its tightest query allows, 0 for any."""
        target = min((each for each in (settings["target_latency"], latency_target) if each), default=0.0)
        return RateControl(
            settings["trigger"],
            target,
            settings["max_batch_bytes"],
            settings["max_batch_rows"],
            settings["max_batch_answers"],
            queries,
        )

    @property
    def first(self) -> int:
        """Return the limit of the first round, in bytes."""
        first = min(self.max_bytes, max(_FIRST_OF_MANY, self.max_bytes // max(1, self.queries)))
        return min(FIRST, first) if self.target else first

    def next_limit(self, limit: int, read: int, seconds: float | None, answer_bytes: int | None = None) -> int:
        """Return the limit after a round.

        Args:
            limit: the limit of that round, in bytes.
            read: bytes that it read.
            seconds: its duration, None if unknown.
            answer_bytes: bytes of its answers, None if unknown.
        """
        return min(self.max_bytes, self._by_time(limit, read, seconds), self._by_answers(limit, read, answer_bytes))

    def _by_time(self, limit: int, read: int, seconds: float | None) -> int:
        if not self.target:
            return self.max_bytes
        if seconds is None or seconds <= 0:
            return limit
        return self._scaled(limit, read, max(1 / _MOST_CHANGE, self.target / seconds))

    def _by_answers(self, limit: int, read: int, answer_bytes: int | None) -> int:
        if answer_bytes is None:
            return self.max_bytes
        return self._scaled(limit, read, self.max_answer_bytes / max(1, answer_bytes))

    def _scaled(self, limit: int, read: int, factor: float) -> int:
        used = read >= _USED * limit
        if factor > 1 and not used:
            return limit
        # The bytes that were read count: a split larger than the limit is read whole.
        base = max(read, limit) if used else limit
        return max(min(LEAST, self.max_bytes), int(base * min(_MOST_CHANGE, factor)))
