"""How fast input is taken: the least time between batches, how much one may read, and the controller of batch sizes.

The controller steers by the time that the last batch took towards a target. A batch costs a floor plus its bytes, so
the limit is scaled by target over measured, by a factor of two at the most: a limit that fits stays, one that does not
is approached from either side without overshooting, as the floor damps it. A batch that did not use the limit says
nothing of what a larger one would take, so it never raises it. The limit that a round was planned with stands in its
offset: planned again after a crash, it reads the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.settings import Settings

#: The limit starts here when there is a target, and never falls below the least.
FIRST, LEAST = 4 * 2**20, 16 * 2**10
#: The first round of many queries may read so much in any case.
_FIRST_OF_MANY = 16 * 2**20
_MOST_CHANGE = 2.0
#: A batch with so much of the limit has used it.
_USED = 0.5


@dataclass(frozen=True)
class Pace:
    """trigger: seconds between the starts of two rounds; target: seconds that a batch should take; 0 for none.
    max_bytes, max_rows: what a round reads at the most, 0 rows for no limit; max_told: bytes of answers that it should
    tell at the most; queries: how many answer it."""

    trigger: float = 0.0
    target: float = 0.0
    max_bytes: int = 256 * 2**20
    max_rows: int = 0
    max_told: int = 2 * 2**30
    queries: int = 1

    @staticmethod
    def of(settings: Settings, queries: int = 1) -> Pace:
        return Pace(
            settings["trigger"], settings["target_latency"], settings["max_batch_bytes"], settings["max_batch_rows"],
            settings["max_batch_answers"], queries,
        )  # fmt: skip

    @property
    def first(self) -> int:
        """The limit of the first round, in bytes."""
        first = min(self.max_bytes, max(_FIRST_OF_MANY, self.max_bytes // max(1, self.queries)))
        return min(FIRST, first) if self.target else first

    def next_limit(self, limit: int, read: int, seconds: float | None, told: int | None = None) -> int:
        """The limit after a round that read `read` bytes under `limit`, took `seconds` and told `told` bytes; None:
        nobody knows."""
        return min(self.max_bytes, self._by_time(limit, read, seconds), self._by_answers(limit, read, told))

    def _by_time(self, limit: int, read: int, seconds: float | None) -> int:
        if not self.target:
            return self.max_bytes
        if seconds is None or seconds <= 0:
            return limit
        return self._scaled(limit, read, max(1 / _MOST_CHANGE, self.target / seconds))

    def _by_answers(self, limit: int, read: int, told: int | None) -> int:
        if told is None:
            return self.max_bytes
        return self._scaled(limit, read, self.max_told / max(1, told))

    def _scaled(self, limit: int, read: int, factor: float) -> int:
        used = read >= _USED * limit
        if factor > 1 and not used:
            return limit
        # What was read counts, not what might have been: a split larger than the limit is read whole.
        base = max(read, limit) if used else limit
        return max(min(LEAST, self.max_bytes), int(base * min(_MOST_CHANGE, factor)))
