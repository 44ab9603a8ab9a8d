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
_MOST_CHANGE = 2.0
#: A batch with so much of the limit has used it.
_USED = 0.5


@dataclass(frozen=True)
class Pace:
    """trigger: seconds between the starts of two rounds; target: seconds that a batch should take; 0 for none.
    max_bytes, max_rows: what a round reads at the most, 0 rows for no limit."""

    trigger: float = 0.0
    target: float = 0.0
    max_bytes: int = 256 * 2**20
    max_rows: int = 0

    @staticmethod
    def of(settings: Settings) -> Pace:
        return Pace(
            settings["trigger"], settings["target_latency"], settings["max_batch_bytes"], settings["max_batch_rows"]
        )

    @property
    def first(self) -> int:
        """The limit of the first round, in bytes."""
        return min(FIRST, self.max_bytes) if self.target else self.max_bytes

    def next_limit(self, limit: int, read: int, seconds: float | None) -> int:
        """The limit after a round that read `read` bytes under `limit` and took `seconds`; None: nobody knows."""
        if not self.target:
            return self.max_bytes
        if seconds is None or seconds <= 0:
            return min(limit, self.max_bytes)
        factor = min(_MOST_CHANGE, max(1 / _MOST_CHANGE, self.target / seconds))
        # What was read counts, not what might have been: a split larger than the limit is read whole.
        base = max(read, limit) if read >= _USED * limit else limit
        if factor > 1 and read < _USED * limit:
            return min(limit, self.max_bytes)
        return min(self.max_bytes, max(min(LEAST, self.max_bytes), int(base * factor)))
