"""All updates of a posted relation up to now: those that the run has read, and those posted since."""

from __future__ import annotations

from contextlib import ExitStack

from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.hydration.past_input import KnownPast
from penstock.runtime.spark.hydration.update_reader import UpdateReader
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.runtime.spark.retention.retained_log import Pins
from penstock.types import END

#: The reader for which nothing is removed meanwhile; there is one at a time.
_READER = "present"


def present_updates(
    folder: Folder, intake: Intake, rounds: RoundLog, kept: KeptRelations, source: str
) -> list[Elements] | None:
    """Return the accepted updates of a posted relation in the order of arrival, with all declared columns, without
    those that its content does not show any more; None for what is no timed source of the run.

    Raises:
        PenstockError: P0605, posted rows are gone.
    """
    read_as = next((one for one in intake.sources if one.name == source), None)
    if read_as is None or read_as.is_static:
        return None
    file = source_file(source, intake.births)
    with ExitStack() as pins:

        def known_past(offset: Offset, batch: int) -> KnownPast:
            known = KnownPast(folder, intake.births, offset, rounds.splits)
            pins.enter_context(Pins(folder).pinned(_READER, file, known.compacted(source).splits))
            return known

        known = rounds.delivered_state(known_past)
        view = kept.of(read_as, intake.births).view(known, END)
        if view is not None:
            parts, progress, first = [*view.parts], view.progress, view.splits
        else:
            # More than is kept in memory.
            compacted = known.compacted(source)
            parts, progress, first = [*compacted.read()], compacted.progress, compacted.splits
        # Rows that were posted before the look at what has been found are among these splits, or are found now.
        splits = rounds.splits(file) or SplitFiles(folder, file).read()
        connector = open_source(read_as)
        found = connector.discover(frozenset(split.path for split in splits))
        new = [split for path in found for split in connector.splits(path)]
        # They are later than all that have been read, and their order is that of arrival.
        now = (progress.high or 0) if read_as.system_time else None
        reader = UpdateReader(read_as, progress)
        unread = ReadTask("", 0, source, (*splits[first:], *new), now=now)
        return [*parts, *reader.read_task(unread)]
