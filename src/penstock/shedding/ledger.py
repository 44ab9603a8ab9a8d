"""What was dropped and may still be missing: counts by when it leaves the window, in a fixed number of buckets.

A dropped tuple counts until the last tick of its bucket has passed, so all figures are upper bounds; that of nothing is
exact. Bucket k has the drops that leave in [k w, (k + 1) w) for a width w that doubles when the buckets do not reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Int64s, Records
from penstock.shedding.layout import DROP

#: Number of buckets.
BUCKETS = 64


def drop_rows(at: Int64s, begins: Int64s, ends: Int64s, expires: Int64s, weights: Int64s) -> Records:
    """Return drops as a `Shedder` does, of which all that their periods cover is lost."""
    rows = np.zeros(len(at), DROP)
    rows["at"], rows["begin"], rows["end"] = at, begins, ends
    rows["lost"], rows["expires"], rows["weight"] = ends - begins, expires, weights
    return rows


@dataclass
class Ledger:
    """The drops whose life is not over.

    Args:
        no_end: what stands for no end, of periods and lives.
        width: of a bucket, in ticks.
        first: number of the first bucket that is kept.
        tuples, ticks: by bucket, the tuples dropped and the ticks lost with them.
        endless, begins: by bucket, the tuples dropped whose period has no end, and the sum of their begins.
        weights: by bucket, what the tuples dropped would count in the budget.
        grows: whether what was dropped goes on where more of its value follow: a session, which has ended once nothing
            that was dropped is live.
        left: ticks lost of such whose life is over, while others are live.
    """

    no_end: int
    width: int = 1
    first: int = 0
    tuples: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    ticks: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    endless: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    begins: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    weights: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    grows: bool = False
    left: int = 0

    def pass_to(self, clock: int) -> None:
        """Forget what has left the window at `clock`."""
        before = sum(self.ticks)
        self._pass_to(clock)
        self._leave(before)

    def _leave(self, before: int) -> None:
        """Keep in mind the ticks that have left, of `before`, which may belong to what still goes on."""
        self.left = self.left + before - sum(self.ticks) if self.grows and self.live else 0

    def _pass_to(self, clock: int) -> None:
        reached = clock // self.width
        gone = min(BUCKETS - 1, max(0, reached - self.first))
        if reached <= self.first:
            return
        for lane in self._lanes:
            # The last bucket has what never leaves.
            lane[:-1] = (lane[gone:-1] + [0] * gone)[: BUCKETS - 1]
        self.first = reached

    def add(self, drops: Records, clock: int) -> None:
        """Add drops that happened up to `clock`."""
        before = sum(self.ticks) + sum(drops["lost"][drops["end"] < self.no_end].tolist())
        self._pass_to(clock)
        self._add(drops.compress(drops["expires"] > clock))
        self._leave(before)

    def _add(self, drops: Records) -> None:
        expires = drops["expires"]
        if not len(drops):
            return
        ending = expires[expires < self.no_end]
        while len(ending) and int(ending.max()) // self.width - self.first >= BUCKETS - 1:
            self._widen()
        buckets = np.where(expires < self.no_end, expires // self.width - self.first, BUCKETS - 1)
        endless = drops["end"] >= self.no_end
        for k in np.unique(buckets).tolist():
            at = buckets == k
            self.tuples[k] += int(at.sum())
            self.weights[k] += sum(drops["weight"][at].tolist())
            self.ticks[k] += sum(drops["lost"][at & ~endless].tolist())
            self.endless[k] += int((at & endless).sum())
            self.begins[k] += sum(drops["begin"][at & endless].tolist())

    def _widen(self) -> None:
        first = self.first // 2
        for lane in self._lanes:
            wide = [0] * BUCKETS
            for k, count in enumerate(lane[:-1]):
                wide[(self.first + k) // 2 - first] += count
            wide[-1] = lane[-1]
            lane[:] = wide
        self.width, self.first = self.width * 2, first

    @property
    def _lanes(self) -> tuple[list[int], ...]:
        return self.tuples, self.ticks, self.endless, self.begins, self.weights

    @property
    def weight(self) -> int:
        """Return what the dropped tuples that may still be live would count in the budget."""
        return sum(self.weights)

    @property
    def live(self) -> int:
        """Return the dropped tuples that may still be live."""
        return sum(self.tuples)

    def lost(self, clock: int) -> int:
        """Return the ticks that may be missing in the answer at `clock`."""
        endless = sum(self.endless)
        return self.left + sum(self.ticks) + max(0, endless * (clock + 1) - sum(self.begins)) + endless

    def as_json(self) -> list[list[int]]:
        """Return the ledger as plain lists; `from_json` takes them back."""
        return [[self.no_end, self.width, self.first, int(self.grows), self.left], *self._lanes]

    @staticmethod
    def from_json(lists: list[list[int]]) -> Ledger:
        """Return the ledger that `as_json` wrote."""
        (no_end, width, first, grows, left), *lanes = lists
        found = Ledger(no_end, width, first)
        found.tuples, found.ticks, found.endless, found.begins, found.weights = (list(lane) for lane in lanes)
        found.grows, found.left = bool(grows), left
        return found
