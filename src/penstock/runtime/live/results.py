"""The answers of a query, and the result in which they appear.

A *track* is a query that runs: its final answers and, of a relation, its content. A *result* is a place that shows one
track at a time, from a *first* instant on; of a relation it emits the net difference at that instant to what it has
emitted before. An answer is emitted when its instant is final, so what is emitted depends on the input and on the
commands, not on the rounds (`penstock.testing.live`, the law).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.physical.elements import Elements, concat
from penstock.physical.execution.answers import answer_table
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.live.content import Content, difference
from penstock.runtime.live.parts import append_part


@dataclass
class Track:
    """A query that runs. birth: the version of the plan in which it began; since: the tick AT which it begins, None
    where that is behind it; early: answers beyond `reached`, the instant up to which answers are final; content: that
    of a relation at `reached`."""

    query: Query
    birth: int
    content: Content
    since: int | None = None
    early: list[Elements] = field(default_factory=list)
    reached: int = NOTHING

    @property
    def key(self) -> str:
        """Return the name of its query in the plan, which is never used again."""
        return str(self.birth)

    def take(self, parts: Iterable[Elements]) -> None:
        """Accept answers of a round."""
        types = self.query.root.schema.types
        for part in parts:
            columns = [c if c.type == t else c.cast(t) for c, t in zip(part.columns, types, strict=True)]
            if len(part):
                append_part(self.early, part.with_columns(columns), concat)

    def final(self, tick: int) -> Elements | None:
        """Remove and return the answers up to `tick`."""
        self.reached = max(self.reached, tick)
        finals, self.early, parts = [], [], self.early
        for part in parts:
            final = part.ts <= tick
            if final.any():
                finals.append(part.filter(final))
            if not final.all():
                self.early.append(part.filter(~final) if final.any() else part)
        return concat(finals) if finals else None

    def copy(self, content: Content) -> Track:
        """Return the track as it is now, with a copy of its content."""
        return replace(self, content=content, early=list(self.early))


@dataclass
class LiveResult:
    """A place of answers. track: the one that it shows, None while its query is paused; muted: the track runs, and
    nothing is emitted; first: the first instant at which the track is shown; waits: that has not been reached; reached:
    up to which instant everything has been answered; content: what has been emitted of a relation; goes_on: it has
    shown a track."""

    query: Query
    content: Content
    track: Track | None = None
    muted: bool = False
    first: int = NOTHING
    waits: bool = False
    reached: int = NOTHING
    goes_on: bool = False
    #: What `kept` has returned, None where something has changed since.
    _kept: LiveResult | None = field(default=None, init=False, repr=False, compare=False)

    def take(self, parts: Iterable[Elements]) -> None:
        """Accept answers of a round for its track."""
        assert self.track is not None, "a paused query has no answers"
        self._kept = None
        self.track.take(parts)

    def show(self, track: Track, first: int) -> None:
        """Show `track` from the instant `first` on, or from the first one that has not been answered."""
        self._kept = None
        self.content = self.content.copy()
        self.track, self.muted, self.waits, self.goes_on = track, False, True, True
        self.first = max(first, self.reached + 1)

    def show_after(self, track: Track, tick: int) -> None:
        """Show `track` from R(`tick`) on, or with the elements of a stream after `tick`, and not before it begins."""
        since = tick if track.since is None else max(tick, track.since)
        self.show(track, since + int(track.query.root.is_stream))

    def pause(self) -> None:
        """Show nothing."""
        self._kept = None
        self.content, self.track = self.content.copy(), None

    def mute(self) -> None:
        """Emit nothing while the track continues to run."""
        self._kept = None
        self.content, self.muted = self.content.copy(), True

    def advance(self, tick: int) -> pa.Table:
        """Return the answers that the heartbeat `tick` makes final."""
        track = self.track
        assert track is not None, "a paused query has no heartbeat"
        before = track.reached, self.waits, self.reached
        final = track.final(tick)
        if self.query.root.is_stream:
            emitted = None if final is None or self.muted else final.filter(final.ts >= self.first)
        else:
            emitted = self._changes(track, final, tick)
        if not self.muted and tick >= self.first:
            self.waits, self.reached = False, max(self.reached, tick)
        if final is not None or before != (track.reached, self.waits, self.reached):
            self._kept = None
        return answer_table(self.query, [emitted] if emitted is not None and len(emitted) else [])

    @property
    def answered(self) -> int:
        """Return the instant up to which everything that is to be emitted has been, NOTHING for none. A stream that
        begins behind an instant has been answered up to that."""
        track = self.track
        if track is None or self.muted or track.reached + int(self.query.root.is_stream) < self.first:
            return self.reached
        return max(self.reached, track.reached)

    def _changes(self, track: Track, final: Elements | None, tick: int) -> Elements | None:
        if self.muted or tick < self.first:
            if final is not None:
                track.content.add(final)
            return None
        if not self.waits:
            if final is not None:
                track.content.add(final)
                self.content = track.content
            return final
        later = None
        if final is not None:
            track.content.add(final.filter(final.ts <= self.first))
            later = final.filter(final.ts > self.first)
        changes = difference(self.content, track.content, self.first)
        if later is not None and len(later):
            track.content.add(later)
            changes = concat([changes, later])
        self.content = track.content
        return changes

    def kept(self) -> LiveResult:
        """Return the result as it is now, which nothing changes: the same object as the last time where nothing has
        changed since."""
        if self._kept is None:
            self._kept = self.copy()
        return self._kept

    def resumed(self) -> LiveResult:
        """Return a result that goes on from this one."""
        made = self.copy()
        made._kept = self
        return made

    def copy(self) -> LiveResult:
        """Return the result as it is now; rows are shared with it, and a content that it shares with its track."""
        content, track = self.content.copy(), self.track
        if track is not None:
            track = track.copy(content if track.content is self.content else track.content.copy())
        return replace(self, content=content, track=track)
