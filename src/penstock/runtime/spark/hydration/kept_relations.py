"""The updated relations of a run as they are now, kept once for all that read them: SELECT, UPDATE and DELETE, and
queries that begin NOW.

Of each relation that has been read, the accepted updates are in memory, those up to some instant folded into its
content there. Each reader first reads on, from where the one before it stood to the round delivered last; so the first
reader after a start reads all updates, and the others what is new. Of a posted relation it reads those that have been
compacted (`retention/compacted_updates.py`), and the posts behind them.

Contract: a reader gives the earliest instant that it needs. Nothing is folded beyond that, nor beyond the heartbeat of
the relation; up to its heartbeat at a round, a relation is the same at all later rounds, so what others have read
meanwhile does not show. A reader that needs an earlier instant than what has been folded gets nothing here and reads
the updates again; the folding then stays further behind, so that the next such reader need not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from penstock.algebra.nodes.scans import Source
from penstock.physical.elements import Elements, concat
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.runtime.live.history import History
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.hydration.past_input import KnownPast
from penstock.runtime.spark.hydration.update_reader import ReadStep, UpdateReader, UpdateSource

#: Updates that are not folded while they are fewer.
_FEW = 256
#: Bytes of all relations together, unless a run sets another limit.
_LIMIT = 256 * 2**20
#: The folding stays so many times further behind than the reader that came too late needed.
_FURTHER = 2
#: Called after each part that is read, with its bytes and the seconds that it took. What it raises ends the reading,
#: which another reader continues.
OnPart = Callable[[int, float], None]


@dataclass(frozen=True)
class RelationView:
    """A relation as some reader sees it.

    Args:
        parts: its updates in the order of arrival, with all declared columns; of those up to `folded`, the ones that
            make its content there.
        folded: None where no update is left out.
        progress: of the source after them; `first` is the least timestamp of all.
        splits: number of splits of the source that they are from.
    """

    parts: tuple[Elements, ...]
    folded: int | None
    progress: SourceProgress
    splits: int


class KeptRelation:
    """One relation. Used by several threads.

    Args:
        source: as the run reads it.
        limit: bytes beyond which it is not kept.

    Attributes:
        nbytes: that it takes; read without waiting for a reader.
        read_at: when it was read last, in seconds of the monotonic clock.
    """

    def __init__(self, folder: Folder, source: Source, limit: int) -> None:
        self.source = source
        self._limit = limit
        self._updates = UpdateSource(folder, source)
        self._is_kept = self._updates.is_readable
        self._history = History(source, 0)
        #: Rows in `_history`, and those of them that came after the last attempt to fold.
        self._rows = self._fresh = 0
        self._progress = SourceProgress()
        #: The round and the number of splits up to which updates have been read.
        self._position = 0, 0
        #: How far the folding stays behind the heartbeat.
        self._behind = 0
        #: Readers that still need instants from a tick on.
        self._held: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._lock = threading.RLock()
        self.read_at = time.monotonic()
        self.nbytes = 0

    def hold(self, reader: object, known: KnownPast, earliest: int) -> bool:
        """Keep what a reader needs that needs no instant before `earliest`, until `release` or as long as the reader
        lives; return whether it is there."""
        with self._lock:
            if self._is_beyond(known, earliest):
                return False
            self._held[reader] = earliest
            return True

    def release(self, reader: object) -> None:
        """Keep nothing for a reader any more."""
        with self._lock:
            self._held.pop(reader, None)

    def read_on(self, known: KnownPast, on_part: OnPart | None = None) -> bool:
        """Read what the run has read up to `known` and has not been read here; return whether that is possible. Other
        readers come between two parts.

        Raises:
            PenstockError: P0401 and others, of the connector; what was read before stays.
        """
        while True:
            with self._lock:
                self._read_compacted(known)
                steps = self._missing(known)
            if not steps:
                return steps is not None
            for step in steps:
                began = time.monotonic()
                with self._lock:
                    if self._position != step.position:
                        break  # another reader has been faster
                    self._read(step, known)
                if on_part is not None:
                    on_part(step.bytes, time.monotonic() - began)

    def view(
        self, known: KnownPast, earliest: int, often: bool = True, on_part: OnPart | None = None
    ) -> RelationView | None:
        """Return the relation as of `known` or a later round, for a reader that needs no instant before `earliest`;
        None where that is not kept.

        Args:
            often: whether other readers are to be expected that need as early instants.

        Raises:
            PenstockError: as `read_on`.
        """
        self.read_at = time.monotonic()
        if not self.read_on(known, on_part):
            return None
        with self._lock:
            if not self._is_kept or self._is_beyond(known, earliest, often):
                return None
            self._fold(min(earliest, self._foldable(known)))
            history = self._history
            if len(history.parts) > 1:
                history.parts = [concat(history.parts)]
            return RelationView(tuple(history.parts), history.dropped, self._progress, self._position[1])

    def missing_bytes(self, known: KnownPast) -> int:
        """Return how many bytes `read_on` would read."""
        with self._lock:
            return sum(step.bytes for step in self._missing(known) or ())

    # -- folding -----------------------------------------------------------------------------------------------

    def _is_beyond(self, known: KnownPast, earliest: int, often: bool = True) -> bool:
        """Return whether an instant has been folded that a reader needs."""
        folded = self._history.dropped
        if folded is None or folded <= earliest:
            return False
        if often and earliest > NOTHING:
            self._behind = max(self._behind, _FURTHER * (self._heartbeat(known) - earliest))
        return True

    def _heartbeat(self, known: KnownPast) -> int:
        """Return the heartbeat of the relation, as if it had not ended: its last instant is never folded."""
        return known.offset.progress(self.source.name).heartbeat(self.source.slack)

    def _foldable(self, known: KnownPast) -> int:
        """Return up to which tick updates may be folded."""
        return min([self._heartbeat(known) - self._behind, *self._held.values()])

    def _fold(self, until: int) -> None:
        self._fresh = 0
        if until > NOTHING:
            self._history.forget(until)
            self._rows = sum(map(len, self._history.parts))
        self.nbytes = sum(part.nbytes for part in self._history.parts)
        if self.nbytes > self._limit:
            self._is_kept = False
            self._history, self.nbytes = History(self.source, 0), 0

    # -- reading on --------------------------------------------------------------------------------------------

    def _missing(self, known: KnownPast) -> list[ReadStep] | None:
        """Return what is to be read, in order; None where that cannot be read again."""
        return self._updates.unread(known, self._position) if self._is_kept else None

    def _read_compacted(self, known: KnownPast) -> None:
        """Begin with what has been compacted, where posts are gone that have not been read here."""
        compacted = known.compacted(self.source.name)
        if not self._is_kept or self._position[1] >= compacted.splits:
            return
        history = History(self.source, 0, [*compacted.read()], compacted.folded)
        # From here on nothing fails.
        self._history, self._progress = history, compacted.progress
        self._position = compacted.round, compacted.splits
        self._rows = self._fresh = sum(map(len, history.parts))
        self._fold(self._foldable(known))

    def _read(self, step: ReadStep, known: KnownPast) -> None:
        reader = UpdateReader(self.source, self._progress)
        parts = [part for task in step.tasks for part in reader.read_task(task)]
        # From here on nothing fails: a part is never read twice.
        self._position = step.round, step.position[1] + step.splits
        self._progress = reader.progress
        rows = sum(map(len, parts))
        for part in parts:
            self._history.add(part)
            self.nbytes += part.nbytes
        self._rows, self._fresh = self._rows + rows, self._fresh + rows
        if self._fresh > max(_FEW, self._rows // 2):
            # Updates come in the order of time, since a relation has no slack.
            self._fold(self._foldable(known))


class KeptRelations:
    """The relations of one run. Used by several threads.

    Args:
        folder: of the run.
        limit: bytes of all together; those go first that have not been read for longest.
    """

    def __init__(self, folder: Folder, limit: int = _LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._known: dict[str, KeptRelation] = {}
        self._lock = threading.Lock()

    def of(self, source: Source, births: Mapping[str, int]) -> KeptRelation:
        """Return a relation.

        Args:
            source: as the run reads it.
            births: the epochs in which sources began.
        """
        file = source_file(source.name, births)
        with self._lock:
            found = self._known.get(file)
            if found is None or found.source != source:
                found = self._known[file] = KeptRelation(self._folder, source, self._limit)
            self._trim(found)
            return found

    def keep_only(self, sources: Iterable[Source], births: Mapping[str, int]) -> None:
        """Forget the relations that are not among `sources`."""
        files = {source_file(source.name, births) for source in sources}
        with self._lock:
            self._known = {file: one for file, one in self._known.items() if file in files}

    def _trim(self, needed: KeptRelation) -> None:
        """Forget relations while all together take too much."""
        sizes = {file: one.nbytes for file, one in self._known.items()}
        for file, one in sorted(self._known.items(), key=lambda pair: pair[1].read_at):
            if sum(sizes.values()) <= self._limit:
                return
            if one is not needed:
                del self._known[file], sizes[file]
