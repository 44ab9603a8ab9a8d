"""RESULTS: answers kept by the run itself, for readers that come and go (`penstock.results`).

All queries of a run write into one log, a file a batch (`connectors/results`). Rows are kept for `retain` after their
delivery, and up to `max_bytes`; `results_max_bytes` bounds those of all queries together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import ResultPlace, Sink
from penstock.connectors.options import DURATION, SIZE, Option, Options, OptionTable
from penstock.connectors.results.result_folder import ResultRecord
from penstock.connectors.results.result_log import ResultLog
from penstock.errors import PenstockError

_RETAIN = Option("retain", DURATION, "how long rows are kept after their delivery", "1 day", is_bound=True)
_MAX_BYTES = Option(
    "max_bytes", SIZE, "how much of the rows is kept, and of the content of a relation", "1 GB", is_bound=True
)


class ResultsSink(Sink):
    OPTIONS = OptionTable((_RETAIN, _MAX_BYTES))
    writes_empty = False

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._retain, self._max_bytes = self._bounds_of(query)
        self._results: ResultLog | None = None
        self._schema = query.output_schema

    def _bounds_of(self, query: Query) -> tuple[float, int]:
        options = Options(f"INTO RESULTS of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        return options.value(_RETAIN), options.value(_MAX_BYTES)

    @property
    def place(self) -> str:
        return "the results of the run" + (f", as {self.own_place.id}" if self.own_place is not None else "")

    def open(self, resume: bool, overwrite: bool) -> None:
        place = self.own_place
        if place is None:
            message = f"query {self.query.name}: there is no run that keeps its RESULTS"
            raise PenstockError("P0502", message, hint="start it with `penstock run` or at a server")
        try:
            self._results = ResultLog.join(place.folder, place.limit)
            self._register(place)
        except OSError as error:
            raise self._failed(error) from error
        self.log = self._results

    def set_bounds(self, query: Query) -> None:
        super().set_bounds(query)
        self._retain, self._max_bytes = self._bounds_of(query)
        assert self.own_place is not None, "it is open"
        try:
            self._register(self.own_place)
        except OSError as error:
            raise self._failed(error) from error

    def _register(self, place: ResultPlace) -> None:
        assert self._results is not None, "it has joined"
        self._results.register(ResultRecord.of(place.id, self.query, self._retain, self._max_bytes, place.whole))

    def write(self, batch: int, table: pa.Table) -> None:
        self.write_pieces(batch, iter([table]))

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        assert self._results is not None and self.own_place is not None, "it is open"
        schema = self._schema
        first = next(pieces)
        if not first.num_rows:
            return
        typed = (piece if piece.schema.equals(schema) else piece.cast(schema) for piece in chain([first], pieces))
        try:
            self._results.add(batch, self.own_place.id, typed)
        except (OSError, pa.ArrowException) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        if self._results is not None and self.own_place is not None:
            self._results.close(self.own_place.id)
            self._results = self.log = None

    def _failed(self, error: Exception) -> PenstockError:
        reason = getattr(error, "strerror", None) or str(error)
        return PenstockError(
            "P0502",
            f"query {self.query.name}: its results cannot be written: {reason}",
            cause=error,
            hint="free space on that disk, or allow writing there; nothing of this batch is visible",
        )
