"""All updates of a posted relation up to now: those that the run has read, and those posted since."""

from __future__ import annotations

from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.runtime.spark.catching_up.kept_relations import KeptRelations
from penstock.runtime.spark.catching_up.past_input import KnownPast
from penstock.runtime.spark.catching_up.update_reader import UpdateReader
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Intake
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.input.split_files import SplitFiles
from penstock.types import END


def present_updates(
    folder: Folder, intake: Intake, rounds: RoundLog, kept: KeptRelations, source: str
) -> list[Elements] | None:
    """Return the accepted updates of a posted relation in the order of arrival, with all declared columns, without
    those that its content does not show any more; None where the run does not keep it.

    Raises:
        PenstockError: P0401, posted rows are gone.
    """

    def known_past(offset: Offset, batch: int) -> KnownPast:
        return KnownPast(folder, intake.births, offset, rounds.splits)

    read_as = next((one for one in intake.sources if one.name == source), None)
    if read_as is None or read_as.is_static:
        return None
    known = rounds.delivered_state(known_past)
    view = kept.of(read_as, intake.births).view(known, END)
    if view is None:
        return None
    # Rows that were posted before the look at what has been found are among these splits, or are found now.
    file = source_file(source, intake.births)
    splits = rounds.splits(file) or SplitFiles(folder, file).read()
    connector = open_source(read_as)
    new = [split for path in connector.discover(frozenset(s.path for s in splits)) for split in connector.splits(path)]
    # They are later than all that have been read, and their order is that of arrival.
    now = (view.progress.high or 0) if read_as.system_time else None
    reader = UpdateReader(read_as, view.progress)
    unread = ReadTask("", 0, source, (*splits[view.splits :], *new), now=now)
    return [*view.parts, *reader.read_task(unread)]
