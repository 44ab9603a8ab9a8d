"""The queue of a preference as a plain list: what the compiled loop must do, entry by entry and unit by unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass
class NaiveElement:
    side: int
    number: int
    order: int
    ts: int
    exp: int
    key: int | None


@dataclass
class NaiveEntry:
    x: NaiveElement
    left: list[NaiveElement]
    """candidates that are left, newest first"""
    stage: int
    base: float
    race: float
    place: int
    """among the entries of x: the larger, the newer"""
    stretch: int | None
    had: bool
    key: float = 0.0


@dataclass
class NaiveQueue:
    """sort: 0 DESC, 1 ASC, 2 WEIGHTED. every: by probed side, the length of a period. rate: units per tick, None for
    `grant` units per element. granularity: (stretch, now) -> granularity."""

    sort: int
    fade: float
    every: tuple[int, int]
    by_age: bool
    grant: int
    rate: Fraction | None
    limit: int
    depth: int
    granularity: object = None
    entries: list[NaiveEntry] = field(default_factory=list)
    #: The number of the first slot whose unit has not been done.
    slot: int = -(10**9)
    periods: list[int] = field(default_factory=lambda: [-(10**9), -(10**9)])
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("done", "expired", "shed", "units", "at once"), 0)
    )
    results: list[tuple[int, int, int, int]] = field(default_factory=list)

    def _faded(self, entry: NaiveEntry, at: int) -> float:
        every = self.every[1 - entry.x.side]
        if every == 0:
            return 1.0
        if self.by_age:
            alive = [c.ts for c in entry.left if c.exp > at]
            return self.fade ** ((at - (alive[0] if alive else entry.x.ts)) // every)
        if entry.stretch is None:
            return 1.0
        if entry.stretch < 0:
            return self.fade**self.depth
        return self.fade ** (self.granularity(entry.stretch, at // every) - 1)  # type: ignore[operator]

    def _make_key(self, entry: NaiveEntry, at: int) -> None:
        fade = self._faded(entry, at)
        if self.sort == 0:
            key = -(entry.base * fade)
        elif self.sort == 1:
            key = entry.base / fade
        else:
            key = entry.race / (entry.base * fade) if entry.base * fade > 0 else math.inf
        entry.key = math.inf if math.isnan(key) else key

    def begin(self, at: int) -> None:
        """Expire, and make keys anew."""
        kept = []
        for e in self.entries:
            alive = [c for c in e.left if c.exp > at]
            if e.x.exp <= at or (e.had and not alive):
                self.counts["expired"] += 1
            else:
                kept.append(e)
        self.entries = kept
        for side, every in enumerate(self.every):
            if every and at // every != self.periods[side]:
                self.periods[side] = at // every
                for e in self.entries:
                    if 1 - e.x.side == side:
                        self._make_key(e, at // every * every)

    def _order(self, entry: NaiveEntry) -> tuple[float, int, int]:
        return entry.key, entry.x.order, -entry.place

    def work(self, at: int) -> None:
        entry = min(self.entries, key=self._order)
        self.counts["units"] += 1
        entry.left = [c for c in entry.left if c.exp > at]
        if entry.stage:
            partner = entry.left.pop(0) if entry.left else None
            number = -1 if partner is None else partner.number
            self.results.append((entry.x.side, entry.x.number, number, at))
        entry.stage = max(entry.stage, 1)
        if not entry.left:
            self.entries.remove(entry)
            self.counts["done"] += 1

    def between(self, until: int) -> None:
        """Work at the ticks up to `until`, before anything else enters."""
        while self.rate and self.entries:
            at = math.ceil(self.slot / self.rate)
            if at > until:
                return
            self.begin(at)
            if self.entries:
                self.work(at)
                self.slot += 1

    def _at_once(self, at: int, entering: list[NaiveEntry], credit: int) -> bool:
        """Do all work of entries that come where none waits, where the credit covers it with one look-up for each
        element; return whether."""
        looking = {e.x.order for e in entering if not e.stage}
        pairs = [(e.x, candidate) for e in entering for candidate in e.left]
        if len(looking) + len(pairs) > credit:
            return False
        for x, candidate in sorted(pairs, key=lambda pair: (pair[0].order, -pair[1].number)):
            self.results.append((x.side, x.number, candidate.number, at))
        self.counts["units"] += len(looking) + len(pairs)
        self.counts["done"] += len(looking) + sum(e.stage > 0 for e in entering)
        self.counts["at once"] += len(pairs) > 0
        return True

    def instant(self, at: int, entering: list[NaiveEntry], paying: int) -> None:
        # What has waited before has the units up to here.
        self.between(at)
        self.begin(at)
        idle = not self.entries
        if idle and not self.rate and self._at_once(at, entering, self.grant * paying):
            return
        for e in entering:
            self._make_key(e, at)
            self.entries.append(e)
        if self.rate:
            if idle:
                self.slot = max(self.slot, math.floor(at * self.rate))
            while self.entries and self.slot / self.rate <= at:
                self.work(at)
                self.slot += 1
        else:
            for _ in range(self.grant * paying):
                if self.entries:
                    self.work(at)
        self.entries.sort(key=self._order)
        self.counts["shed"] += max(0, len(self.entries) - self.limit)
        del self.entries[self.limit :]
