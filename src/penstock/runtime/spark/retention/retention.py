"""Begin the logs of retained streams in the driver, and remove what is older than RETAIN."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.physical.execution.progress import NOTHING
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.retention.retained_log import Pins, RetainedLog
from penstock.storage import storage

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
        for file in storage().list(folder.root / "retained"):
            RetainedLog(folder, file).forget_rounds_after(delivered)
        self._logs: dict[str, tuple[RetainedLog, int, int]] = {}

    def begin(self, intake: Intake, highs: Mapping[str, int | None]) -> None:
        """Retain the sources of `intake` that are declared so, and forget what is kept of others.

        Args:
            highs: the largest timestamp of what has been read of each source.
        """
        self._logs = {}
        for source in intake.sources:
            if source.retain is not None:
                log = RetainedLog(self._folder, source_file(source.name, intake.births))
                log.begin(highs.get(source.name))
                self._logs[source.name] = log, source.retain, source.slack
        kept = {log.place.name for log, _, _ in self._logs.values()}
        for file in storage().list(self._folder.root / "retained"):
            if file in kept:
                continue
            if self._pins.keeps_all(file):
                # It goes with a later change.
                RetainedLog(self._folder, file).end()
            else:
                storage().remove_tree(self._folder.root / "retained" / file)

    def releases(self, file: str, splits: int) -> bool:
        """Return whether no reader of the relation `file` needs what fewer compacted splits left (`Pins`)."""
        return self._pins.least(file, splits) == splits

    def delivered(self, round_: int, offset: Offset) -> None:
        """Remove what is too old now and then, when a round is delivered. offset: with its progress."""
        if round_ % _EVERY:
            return
        for name, (log, retain, slack) in self._logs.items():
            heartbeat = offset.progress(name).heartbeat(slack)
            if heartbeat == NOTHING:
                continue
            until = self._pins.least(log.place.name, heartbeat - retain)
            if until is not None:
                log.forget(until)
