"""The kept input of a source: the past of queries that begin later.

A history holds the accepted elements with all declared columns, in the order of arrival; those that a punctuation
rejects are among them, valid at no instant, since they count for promises. Whether an element was late has been decided
when it arrived, so a query that begins later reads what one that was always there has read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import Held, LastRows, Need, Ticks, most_rows, ticks_without
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.checks.unrejected import unbroken
from penstock.physical.operators.updates import paired_updates
from penstock.physical.plan.inputs import update_rule
from penstock.runtime.live.parts import append_part

#: The updates of a relation are folded when there are more old ones than this, and than twice those that were left.
_FEWEST = 256


@dataclass(frozen=True)
class _Span:
    """A part, with its least and its largest tick, and whether its ticks ascend."""

    part: Elements
    first: int
    last: int
    ascends: bool

    @staticmethod
    def of(part: Elements) -> _Span:
        ts = part.ts
        return _Span(part, int(ts.min()), int(ts.max()), bool((ts[:-1] <= ts[1:]).all()))

    def count(self, until: int) -> int:
        """Return how many elements have a tick up to `until`."""
        if until < self.first:
            return 0
        if until >= self.last:
            return len(self.part)
        ts = self.part.ts
        return int(np.searchsorted(ts, until, "right") if self.ascends else np.count_nonzero(ts <= until))

    def largest(self, until: int) -> int:
        """Return the largest tick up to `until`; there is one."""
        if until >= self.last:
            return self.last
        ts = self.part.ts
        return int(ts[self.count(until) - 1] if self.ascends else ts[ts <= until].max())


@dataclass
class History:
    """The elements of one source.

    Args:
        source: the declaration.
        retain: for how many ticks before the heartbeat elements are kept; None for ever. Of a relation, the updates
            that make its content are kept beyond that.
        parts: the elements in order of arrival; those of a stream up to `dropped` do not count.
        dropped: the largest tick of an element that has been dropped, of a relation the one up to which its updates
            have been folded; None for none.
        rejected: by the names of promises that are CHECKED, those of the elements that break them, in order of time.
        spoken: punctuations as operators get them, each at the instant from which on no element fulfils it.
    """

    source: Source
    retain: int | None = None
    parts: list[Elements] = field(default_factory=list)
    dropped: int | None = None
    rejected: dict[str, list[Elements]] = field(default_factory=dict)
    spoken: list[Elements] = field(default_factory=list)
    #: The number of updates that the last folding left.
    _held: int = 0
    #: What is known of the parts, by their `id`.
    _spans: Mapping[int, _Span] = field(default_factory=dict)

    def add(self, elements: Elements) -> None:
        if len(elements):
            append_part(self.parts, elements, concat)

    def speak(self, punctuations: Elements) -> None:
        """Keep punctuations."""
        if len(punctuations):
            append_part(self.spoken, punctuations, concat)

    def reject(self, promise: str, elements: Elements) -> None:
        """Note elements that break a promise: they are in `parts` all the same, since they count for other promises."""
        if len(elements):
            append_part(self.rejected.setdefault(promise, []), elements, concat)

    def rejections(self, promise: str, after: int, until: int) -> Elements | None:
        """Return the elements with ticks in (after, until] that break a promise; None for none."""
        parts = (part.filter((part.ts > after) & (part.ts <= until)) for part in self.rejected.get(promise, ()))
        found = [part for part in parts if len(part)]
        return concat(found) if found else None

    def copy(self) -> History:
        """Return the history as it is now; the elements are shared with it."""
        rejected = {promise: list(parts) for promise, parts in self.rejected.items()}
        return replace(self, parts=list(self.parts), rejected=rejected, spoken=list(self.spoken))

    def forget(self, heartbeat: int) -> None:
        """Drop what is older than `retain` at `heartbeat`: elements of a stream, and updates of a relation that its
        content no longer shows."""
        if self.retain is None or heartbeat == NOTHING:
            return
        until = heartbeat - self.retain
        spans = self._known_spans()
        if self.source.is_stream:
            self._forget_elements(spans, until)
            return
        old_updates = sum(span.count(until) for span in spans)
        if old_updates <= max(_FEWEST, 2 * self._held):
            return
        kept = folded(self.source, concat(self.parts), until)
        self._held = int(np.count_nonzero(kept.ts <= until))
        if len(kept) < sum(map(len, self.parts)):
            self.dropped = until
            self.parts = [kept] if len(kept) else []

    def _forget_elements(self, spans: Sequence[_Span], until: int) -> None:
        """Drop the elements of a stream up to `until`. Where they are the smaller half of a part, they stay in it, and
        are passed over: no element after them has a tick that small."""
        old = [(span, count) for span in spans if (count := span.count(until))]
        if not old:
            return
        self.dropped = max(
            [*(span.largest(until) for span, _ in old), *([] if self.dropped is None else [self.dropped])]
        )
        for promise, parts in self.rejected.items():
            self.rejected[promise] = _after(parts, self.dropped)
        # Elements that came before a punctuation are not later than that.
        self.spoken = _after(self.spoken, self.dropped)
        left = {id(span.part): count for span, count in old}
        kept: list[Elements] = []
        for part in self.parts:
            gone = left.get(id(part), 0)
            if gone < len(part):
                kept.append(part.filter(part.ts > until) if 2 * gone >= len(part) else part)
        self.parts = kept

    def _known_spans(self) -> list[_Span]:
        """Return the spans of the parts; those of new ones are computed."""
        known = self._spans
        spans = [
            found if (found := known.get(id(part))) is not None and found.part is part else _Span.of(part)
            for part in self.parts
        ]
        self._spans = {id(span.part): span for span in spans}
        return spans

    def has(self, need: Need, tick: int) -> bool:
        """Return whether everything is kept that `need` names at the instant `tick`."""
        if self.dropped is None:
            return True
        if need.ticks is None or tick - need.ticks < self.dropped:
            return False
        count = most_rows(need)
        return not need.rows or (count is not None and len(self.held(tick - need.ticks)) >= count)

    def held(self, until: int) -> Ticks:
        """Return the ticks of the elements up to `until`, behind those that have been dropped; of a stream with several
        promises that are CHECKED perhaps fewer."""
        if self.dropped is None or not self.parts:
            return np.empty(0, np.int64)
        ticks = np.concatenate([part.valid().ts for part in self.parts])
        rejected = [part.ts for parts in self.rejected.values() for part in parts]
        if rejected:
            ticks = ticks_without(ticks, np.concatenate(rejected))
        return ticks[(ticks > self.dropped) & (ticks <= until)]

    def since(self, need: Need, tick: int, promises: Collection[str] = ()) -> list[Elements]:
        """Return what `need` names at the instant `tick`, and all elements after it.

        Args:
            promises: the names of those that are CHECKED; what they reject is not among the last rows of a need.
        """
        if not self.parts or need.ticks is None:
            return list(self.parts)
        begin = tick - need.ticks
        if not self.source.is_stream:
            return [_begun(concat(self.parts), begin)]
        if not need.rows:
            parts = [span.part for span in self._known_spans() if span.last > begin]
            return [concat([part.filter(part.ts > begin) for part in parts])] if parts else []
        whole = concat(self.parts)
        if self.dropped is not None:
            whole = whole.filter(whole.ts > self.dropped)
        chosen = whole.ts > begin
        older = ~chosen & (whole.exp > whole.ts)
        if promises:
            if any(last.multiple > 1 for last in need.rows):
                return [whole]
            rejected = [part for promise in promises for part in self.rejected.get(promise, ())]
            if rejected:
                older[older] = unbroken(whole.filter(older), rejected)
        for last in need.rows:
            chosen[_last(whole, np.flatnonzero(older), last)] = True
        if promises:
            # Rows of one instant have no order of arrival behind a check.
            chosen |= np.isin(whole.ts, whole.ts[chosen & older])
        return [whole.filter(chosen)]


def _after(parts: list[Elements], until: int) -> list[Elements]:
    """Return what has a tick after `until` of some parts; parts of which the smaller half is older stay as they are."""
    old = [int(np.count_nonzero(part.ts <= until)) for part in parts]
    if not any(2 * count >= len(part) for count, part in zip(old, parts, strict=True)):
        return parts
    kept = (p if 2 * n < len(p) else p.filter(p.ts > until) for n, p in zip(old, parts, strict=True))
    return [part for part in kept if len(part)]


def final_elements(histories: Mapping[str, History], progress: Mapping[str, SourceProgress]) -> Held:
    """Return what is kept of sources and final: behind what has been dropped, up to their heartbeats."""
    return lambda name: histories[name].held(progress[name].heartbeat(histories[name].source.slack))


def folded(source: Source, updates: Elements, tick: int) -> Elements:
    """Return the updates of a relation without those up to `tick` that its content at `tick` does not show. Of a NON
    RETROACTIVE relation the last pair of updates of each deleted key remains, since the key may not come again."""
    past = np.flatnonzero(updates.ts <= tick)
    if not source.loses_rows or not len(past):
        return updates
    past = past[np.argsort(updates.ts[past], kind="stable")]
    value_columns = (i for i in range(len(updates.columns)) if i not in (*source.time_columns, source.operation))
    key = [updates.columns[i].take(pa.array(past)) for i in source.primary_key or value_columns]
    rule, once = update_rule(source)
    signs = updates.signs[past]
    ended_by, applied = paired_updates(key, signs, rule, once)
    stays = applied & (signs > 0) & (ended_by < 0)
    if once:
        # Such a key is deleted once.
        ended = np.flatnonzero(ended_by >= 0)
        stays[ended] = stays[ended_by[ended]] = True
    later = np.flatnonzero(updates.ts > tick)
    return updates.take(np.sort(np.concatenate([past[stays], later])))


def _begun(updates: Elements, tick: int) -> Elements:
    """Return the updates of a relation in the order in which they apply, those up to `tick` as one change at `tick`."""
    order = np.argsort(np.maximum(updates.ts, tick), kind="stable")
    past = np.flatnonzero(updates.ts <= tick)
    order[: len(past)] = past[np.argsort(updates.ts[past], kind="stable")]
    ordered = updates.take(order)
    return Elements(ordered.columns, np.maximum(ordered.ts, tick), ordered.exp, ordered.sign)


def _last(elements: Elements, rows: Int64s, last: LastRows) -> Int64s:
    """Return which of `rows` are the last ones of their partition, in the order of (timestamp, arrival)."""
    backwards = rows[np.argsort(elements.ts[rows], kind="stable")][::-1]
    if not last.partition:
        return backwards[: last.kept(len(backwards))]
    positions = pa.array(backwards)
    first, second = fingerprints([elements.columns[i].take(positions) for i in last.partition], len(backwards))
    _, partition = np.unique(np.rec.fromarrays([first, second]), return_inverse=True)
    order = np.argsort(partition, kind="stable")
    starts = (
        np.concatenate([[0], np.flatnonzero(np.diff(partition[order])) + 1]) if len(order) else np.zeros(0, np.int64)
    )
    sizes = np.diff(np.append(starts, len(order)))
    kept_counts = np.array([last.kept(size) for size in sizes.tolist()], np.int64)
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    return backwards[order[rank < np.repeat(kept_counts, sizes)]]
