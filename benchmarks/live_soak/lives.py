"""What a result must contain over its life, and where what subscribers received differs from it.

A result is written in episodes: a query begins, is paused, goes on or gives way to another one. Each begins at the
instant that the server named in its reply, τ0, and answers the instants behind it (docs/live.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.live_soak.feed import STEP
from benchmarks.live_soak.shapes import Change, Shape, Span

#: Before any row was read.
NOTHING = -STEP


@dataclass
class Episode:
    """A query that answers for a time.

    Args:
        warm: whether it began as if it had always been there; otherwise it reads what comes after τ0.
        begun: τ0, or `NOTHING`.
        last: the last row of the stream that had been read then, -1 for none.
        reached: an instant that it has answered before it ended.
        resumed: whether nothing answered before it.
    """

    shape: Shape
    warm: bool
    begun: int
    last: int
    reached: int = NOTHING
    resumed: bool = False

    def answer(self, seed: int, after: int, until: int) -> list[Change]:
        return self.shape.answer(Span(seed, 0 if self.warm else self.last + 1, after, until))

    @property
    def left_early(self) -> int | None:
        """Return the instant behind τ0 if a row of it had been read by then, None otherwise: what leaves before its
        instant is complete had been answered by the query before."""
        return self.begun + 1 if self.shape.leaves_early and self.begun + 1 == self.last * STEP else None


@dataclass
class Life:
    """A query by its name, and what its subscriber has received.

    Args:
        number: never that of another query.
        received: the changes, and `final` up to which instant they are complete.
        faults: what a subscriber noticed by itself.
    """

    number: int
    name: str
    episodes: list[Episode] = field(default_factory=list)
    received: list[Change] = field(default_factory=list)
    final: int = NOTHING
    paused: bool = False
    faults: list[str] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        return self.episodes[-1].shape


def wrong(life: Life, seed: int, leaves_early: bool = True) -> Iterator[str]:
    """Yield in words what is wrong with what was received of a query. leaves_early: whether the engine answers rows of
    an instant before it is complete; the one without Spark does not."""
    yield from (f"{life.name}: {fault}" for fault in life.faults)
    received = sorted(life.received)
    for number, episode in enumerate(life.episodes):
        last = number + 1 == len(life.episodes)
        end = None if last else life.episodes[number + 1].begun
        own = [one for one in received if one[0] > episode.begun - _early(episode) and (end is None or one[0] <= end)]
        until = max(episode.reached, max((tick for tick, _, _ in own), default=NOTHING))
        expected = Counter(one for one in episode.answer(seed, episode.begun, until) if one[0] <= until)
        found = Counter(own)
        if number and leaves_early and (tick := episode.left_early) is not None:
            before = life.episodes[number - 1]
            answered = [one for one in before.answer(seed, episode.begun, tick) if one[0] == tick]
            # A query that was paused had answered it if it had been read before the pause.
            if not episode.resumed or Counter(one for one in own if one[0] == tick) == Counter(answered):
                expected = Counter(one for one in expected.elements() if one[0] != tick) + Counter(answered)
        missing, extra = expected - found, found - expected
        if missing or extra:
            yield (
                f"{life.name}, episode {number + 1} of {len(life.episodes)}, {episode}: {missing.total()} of "
                f"{expected.total()} changes are missing {sorted(missing)[:3]}, {extra.total()} are too many "
                f"{sorted(extra)[:3]}"
            )


def _early(episode: Episode) -> int:
    """A relation shows its content at the instant at which it begins."""
    return 0 if episode.shape.is_stream else 1
