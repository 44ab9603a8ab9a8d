"""The contents of relations that a run on Spark has emitted, folded from its logs of changes.

Queries INTO RESULTS have theirs in the log of results, the others in a log beside it (`RecordedSink`). A content is
given up that is too large, or whose changes are gone: then its result cannot continue.
"""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.physical.elements import concat, empty
from penstock.physical.execution.progress import NOTHING
from penstock.results.content import ResultContents
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.output.emitted_content import EmittedContent
from penstock.storage import storage

_RESET = "RESET begins the result again"


class EmittedContents:
    """The contents of the run in one checkpoint. To be made before the run starts, which removes rows.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Folder) -> None:
        #: Of the log of results.
        self.results = ResultContents(folder.results)
        self._logs = [(folder.results, self.results), (folder.emitted, ResultContents(folder.emitted))]
        for _, contents in self._logs:
            contents.guard()

    def read(self, result: str) -> EmittedContent:
        """Return the content of the result with an id. Raises PenstockError P0711 where it is not kept."""
        for place, contents in self._logs:
            if storage().exists(place / "queries" / f"{result}.json"):
                state = contents.state(result)
                if state.given_up:
                    raise PenstockError("P0711", f"its content is not kept: {state.given_up}", hint=_RESET)
                early = concat(state.early) if state.early else empty(state.types)
                return EmittedContent(state.settled.rows(), early, NOTHING if state.tick is None else state.tick)
        raise PenstockError("P0711", "its changes were not recorded", hint=_RESET)

    def close(self) -> None:
        """Stop looking after the logs."""
        for _, contents in self._logs:
            contents.close()
