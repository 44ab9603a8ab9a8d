"""Load shedding by its definitions: every arrival scans all tuples held. No heap, no lemma, nothing shared with the
machine.

The oracle of queries under a budget, and what the properties of `penstock.shedding` are tested against.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

_MASK = 2**64 - 1
#: Costs are compared in parts of this, so that a charge added to all keeps their order.
ONE = 2**40
Period = tuple[int, int]


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def salted(word: int, salt: int, seed: int = 0) -> int:
    """Return a hash of 63 bits of a word, another one for every salt."""
    return _mix((word & _MASK) ^ _mix((salt + _mix(seed & _MASK)) & _MASK)) >> 1


def hash_of_tuple(rank: int, begin: int, end: int, ts: int, seed: int = 0) -> int:
    """Return a hash of 63 bits of a tuple."""
    word = _mix((rank & _MASK) ^ _mix((2 + _mix(seed & _MASK)) & _MASK))
    for part in (begin, end, ts):
        word = _mix(word ^ _mix(part & _MASK))
    return word >> 1


@dataclass(frozen=True)
class HeldTuple:
    """A tuple that is held. rank: a hash of its value; number: of its arrival."""

    rank: int
    begin: int
    end: int
    expires: int
    ts: int
    number: int
    weight: int = 1

    @property
    def period(self) -> Period:
        return self.begin, self.end


def coalesced(periods: Iterable[Period]) -> list[Period]:
    """Return the maximal periods of a union; those that touch are one."""
    made: list[Period] = []
    for begin, end in sorted(periods):
        if made and begin <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((begin, end))
    return made


def _length(periods: Iterable[Period]) -> int:
    return sum(end - begin for begin, end in periods)


def accuracy(exact: Sequence[tuple[object, Period]], given: Sequence[tuple[object, Period]]) -> Fraction:
    """Return Acc of an answer by definition [tls III-B]: rows (value, period), both coalesced."""
    if not exact and not given:
        return Fraction(1)
    similar = Fraction(0)
    for value, (begin, end) in exact:
        common = sum(max(0, min(end, e) - max(begin, b)) for other, (b, e) in given if other == value)
        similar += Fraction(common, end - begin)
    values = {value for value, _ in exact} | {value for value, _ in given}
    counts = ([sum(1 for v, _ in rows if v == value) for rows in (exact, given)] for value in values)
    return similar / sum(max(pair) for pair in counts)


@dataclass
class _Lost:
    """Ticks known to have been dropped at the two ends of a stretch, by its first and last entry."""

    left: int = 0
    right: int = 0


@dataclass
class NaiveShedding:
    """The tuples held under one budget, by a policy's definition."""

    policy: str
    budget: int
    least_length: int = 0
    ordered: bool = True
    compact: bool = True
    seed: int = 0
    sample: float = 0.0
    held: list[HeldTuple] = field(default_factory=list)
    sampled: list[HeldTuple] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lost: dict[tuple[int, Period], _Lost] = {}
        self._arrived = self._entries = self._continued = 0
        #: The tuple that arrived last, held or not.
        self.last = HeldTuple(0, 0, 0, 0, 0, -1)
        self._least_begin: int | None = None
        self._threshold = 2**63
        self._sample_below = 0
        self._last_ends: dict[int, int] = {}
        #: Stretches that drops have cut off others, and that went with their last tuple.
        self.extraneous = self.vanished = 0

    @property
    def refuses_from(self) -> int:
        """The hash from which on values are refused."""
        return self._threshold

    # --- arrivals

    def arrive(
        self, rank: int, period: Period, ts: int, expires: int, clock: int | None = None, weight: int = 1
    ) -> list[HeldTuple]:
        """Take one arrival; return the tuples that it pushes out, in order."""
        begin, end = period
        arrived = HeldTuple(rank, begin, end, expires, ts, self._arrived, weight)
        self._arrived += 1
        self.last = arrived
        self.expire(ts if clock is None else clock)
        if self.ordered:
            self._least_begin = begin if self._least_begin is None else max(self._least_begin, begin)
        if rank >= self._threshold:
            if self._sample_below:
                self._put_in_sample(arrived)
            return self._shed(None) if self._weight() > self.budget else []
        if self.compact and any((t.rank, t.period, t.expires) == (rank, period, expires) for t in self.held):
            return self._shed(None) if self._weight() > self.budget else []
        self._entries += 1
        self._continued += rank in self._last_ends and begin <= self._last_ends[rank]
        before = self._stretches()
        self.held.append(arrived)
        self._last_ends[rank] = max(end, self._last_ends.get(rank, end))
        self._after_arrival(before)
        if self._sample_below:
            self._put_in_sample(arrived)
        if self._weight() <= self.budget:
            return []
        return self._shed(arrived)

    def expire(self, clock: int) -> None:
        """Remove what has left the window at `clock`, in the order of leaving."""
        for t in sorted((t for t in self.held if t.expires <= clock), key=lambda t: (t.expires, t.number)):
            self._remove(t, dropped=False)
        self.sampled = [t for t in self.sampled if t.expires > clock]

    def _weight(self) -> int:
        return sum(t.weight for t in self.held) + sum(t.weight for t in self.sampled)

    def refuse(self, threshold: int, clock: int) -> list[HeldTuple]:
        """Refuse values of at least this rank from now on; return what is dropped of them, in order."""
        if threshold >= self._threshold:
            return []
        self.expire(clock)
        self._begin_sample()
        self._threshold = threshold
        refused = [t for t in self.held if t.rank >= threshold]
        dropped = sorted(refused, key=lambda t: (t.rank, t.begin, -t.end, t.number))[::-1]
        for t in dropped:
            self._remove(t, dropped=True)
        return dropped

    def _begin_sample(self) -> None:
        if not self._sample_below and self.sample:
            self._sample_below = int(self.sample * 2.0**62) * 2
            for t in list(self.held):
                self._put_in_sample(t)

    def _shed(self, arrived: HeldTuple | None) -> list[HeldTuple]:
        self._begin_sample()
        dropped: list[HeldTuple] = []
        while self._weight() > self.budget:
            for t in self._next(arrived):
                self._remove(t, dropped=True)
                dropped.append(t)
        return dropped

    def _put_in_sample(self, t: HeldTuple) -> None:
        if salted(t.rank, 3, self.seed) < self._sample_below:
            self.sampled.append(t)
        while sum(t.weight for t in self.sampled) > self.budget // 10:
            self._sample_below //= 2
            self.sampled = [t for t in self.sampled if salted(t.rank, 3, self.seed) < self._sample_below]

    # --- what goes first

    def _next(self, arrived: HeldTuple | None) -> list[HeldTuple]:
        if self.policy == "random":
            return [min(self.held, key=lambda t: (-self._hash(t), t.number))]
        if self.policy == "newest":
            return [min(self.held, key=lambda t: t.number)]
        if self.policy == "value":
            self._threshold = max(t.rank for t in self.held)
            return sorted((t for t in self.held if t.rank == self._threshold), key=lambda t: (t.begin, -t.end))[::-1]
        spares = self.policy != "cals_q"
        candidates = [t for t in self.held if not (spares and t is arrived)] or self.held[-1:]
        return [min(candidates, key=lambda t: (self.cost(t), self._tie(t)))]

    def _hash(self, t: HeldTuple) -> int:
        return hash_of_tuple(t.rank, t.begin, t.end, t.ts, self.seed)

    def _tie(self, t: HeldTuple) -> tuple[int, ...]:
        if self.policy in ("cals_v", "cals_i"):
            return self._hash(t), t.number
        return int(not self.is_end(t)), t.expires, t.begin, t.rank, t.number

    def stretch_of(self, t: HeldTuple) -> Period:
        """Return the maximal period of the value around a tuple."""
        periods = coalesced(other.period for other in self.held if other.rank == t.rank)
        return next(p for p in periods if p[0] <= t.begin and t.end <= p[1])

    def is_end(self, t: HeldTuple) -> bool:
        """Return whether a tuple is the longest of those that begin first, or that end last, in its stretch."""
        begin, end = self.stretch_of(t)
        of_stretch = [o for o in self.held if o.rank == t.rank and begin <= o.begin and o.end <= end]
        left = min((o for o in of_stretch if o.begin == begin), key=lambda o: (-o.end, o.number))
        right = min((o for o in of_stretch if o.end == end), key=lambda o: (o.begin, o.number))
        return t is left or t is right

    def cost(self, t: HeldTuple) -> int:
        """Return what dropping a tuple costs, δ⁺ + ρ⁻ as far as the policy looks at them, in parts of `ONE`."""
        begin, end = stretch = self.stretch_of(t)
        others = [o.period for o in self.held if o.rank == t.rank and o is not t]
        pieces = [p for p in coalesced(others) if begin <= p[0] and p[1] <= end]
        redundant = pieces == [stretch]
        counted = [p for p in pieces if self._counts(p)]
        extra = max(0, len(counted) - 1)
        if self.policy == "cals_v":
            return 0 if redundant else ONE * (extra if counted else 1)
        length = end - begin
        lost = self._lost.get((t.rank, stretch), _Lost())
        whole = length + (lost.left + lost.right if self.policy == "cals_q" else 0)
        taken = (length if self._counts(stretch) else 0) - _length(counted)
        part = int(float(taken) / float(whole) * ONE)  # in doubles, which periods without an end need
        if self.policy == "cals_i":
            return part
        charge = 0
        if self.policy == "cals_q" and not redundant and counted and self._is_growing(t, stretch):
            charge = int(float(self._continued) / float(self._entries) * ONE)
        return extra * ONE + part + charge

    def _counts(self, piece: Period) -> bool:
        return self.policy != "cals_q" or piece[1] - piece[0] >= self.least_length or self._is_open(piece)

    def _is_open(self, piece: Period) -> bool:
        return not self.ordered or self._least_begin is None or piece[1] >= self._least_begin

    def _is_growing(self, t: HeldTuple, stretch: Period) -> bool:
        of_stretch = [o for o in self.held if o.rank == t.rank and o.end == stretch[1]]
        right = min(of_stretch, key=lambda o: (o.begin, o.number))
        return t is right and self._is_open(stretch)

    # --- what is known to be lost

    def _stretches(self) -> list[tuple[int, Period]]:
        ranks = {t.rank for t in self.held}
        return [(rank, p) for rank in ranks for p in coalesced(t.period for t in self.held if t.rank == rank)]

    def _after_arrival(self, before: Sequence[tuple[int, Period]]) -> None:
        """What was lost at an end stays known where the end stands."""
        lost = {}
        for rank, (begin, end) in self._stretches():
            left = [self._lost.get((rank, p), _Lost()).left for r, p in before if r == rank and p[0] == begin]
            right = [self._lost.get((rank, p), _Lost()).right for r, p in before if r == rank and p[1] == end]
            lost[rank, (begin, end)] = _Lost(*(side[0] if side else 0 for side in (left, right)))
        self._lost = lost

    def _remove(self, t: HeldTuple, *, dropped: bool) -> None:
        begin, end = stretch = self.stretch_of(t)
        lost = self._lost.pop((t.rank, stretch), _Lost())
        left = min((o for o in self.held if o.rank == t.rank and o.begin == begin), key=lambda o: (-o.end, o.number))
        was_first = t is left
        self.held.remove(t)
        rest = [o.period for o in self.held if o.rank == t.rank]
        if not rest:
            del self._last_ends[t.rank]
        pieces = [p for p in coalesced(rest) if begin <= p[0] and p[1] <= end]
        for piece in pieces:
            self._lost[t.rank, piece] = _Lost()
        if dropped:
            self.extraneous += max(0, len(pieces) - 1)
            self.vanished += not pieces
        if pieces and dropped:
            self._lost[t.rank, pieces[0]].left = lost.left + pieces[0][0] - begin
            self._lost[t.rank, pieces[-1]].right = lost.right + end - pieces[-1][1]
        elif pieces:
            self._lost[t.rank, pieces[0]].left = 0 if was_first else lost.left
            self._lost[t.rank, pieces[-1]].right = lost.right
