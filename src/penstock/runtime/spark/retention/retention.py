"""Begin the logs of retained streams in the driver, and of what is rejected of them, and remove what is older than
RETAIN."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.retention.rejected_log import REJECTED, RejectedLog
from penstock.runtime.spark.retention.retained_log import RETAINED, Pins, RetainedLog
from penstock.storage import storage

#: The kinds of logs of a stream; both go by one name, so a pin holds both.
_KINDS = (RETAINED, REJECTED)
#: Rounds between two looks for files that are too old.
_EVERY = 16


class Retention:
    """The logs of all sources of a run.

    Args:
        delivered: the number of the round delivered last.
    """

    def __init__(self, folder: Folder, delivered: int) -> None:
        self._folder = folder
        self._pins = Pins(folder)
        self._pins.forget_all()
        for kind in _KINDS:
            for file in storage().list(folder.root / kind):
                RetainedLog(folder, file, kind=kind).forget_rounds_after(delivered)
        self._logs: list[tuple[Source, RetainedLog, RetainedLog | None]] = []

    def begin(self, intake: Intake, highs: Mapping[str, int | None]) -> None:
        """Retain the sources of `intake` that are declared so, and forget what is kept of others.

        Args:
            highs: the largest timestamp of what has been read of each source.
        """
        self._logs = []
        for source in intake.sources:
            if source.retain is not None:
                file, high = source_file(source.name, intake.births), highs.get(source.name)
                log, rejected = RetainedLog(self._folder, file), None
                log.begin(high)
                if source.name in intake.judged:
                    rejected = RejectedLog(self._folder, file).log
                    rejected.begin(high)
                self._logs.append((source, log, rejected))
        kept = {log.place for _, *logs in self._logs for log in logs if log is not None}
        for kind in _KINDS:
            place = self._folder.root / kind
            for file in storage().list(place):
                if place / file in kept:
                    continue
                if self._pins.keeps_all(file):
                    # It goes with a later change.
                    RetainedLog(self._folder, file, kind=kind).end()
                else:
                    storage().remove_tree(place / file)

    def releases(self, file: str, splits: int) -> bool:
        """Return whether no reader of the relation `file` needs what fewer compacted splits left (`Pins`)."""
        return self._pins.least(file, splits) == splits

    def delivered(self, round_: int, offset: Offset) -> None:
        """Remove what is too old now and then, when a round is delivered. offset: with its progress."""
        if round_ % _EVERY:
            return
        for source, log, rejected in self._logs:
            heartbeat = offset.progress(source.name).heartbeat(source.slack)
            if heartbeat == NOTHING or source.retain is None:
                continue
            until = self._pins.least(log.place.name, heartbeat - source.retain)
            if until is None:
                continue
            log.forget(until)
            if rejected is not None and (gone := log.after) is not None:
                # Of all that is retained it is known what was rejected.
                rejected.forget(gone)
