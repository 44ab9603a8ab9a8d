"""The contract between the service of a server and the engine behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.errors import PenstockError
from penstock.language.commands import SelectOnce
from penstock.physical.execution.flow_counts import TappedPort
from penstock.results.cancellation import Cancellation
from penstock.runtime.watching.taps import Tap
from penstock.server.service import ResultRequest, ResultSource
from penstock.server.statements.selecting import SelectedRows, SelectScope
from penstock.storage.documents import Document


class EngineSide(Protocol):
    """What the service reads of the engine beside the control."""

    def results(self, place: int, query: Query, request: ResultRequest) -> ResultSource:
        """Return a subscription to the results at a place. Raises PenstockError P0711, P0712."""

    def result_schema(self, query: Query) -> pa.Schema:
        """Return the columns of what `results` returns."""

    def select(
        self, command: SelectOnce, scope: SelectScope, statement: str, cancellation: Cancellation
    ) -> SelectedRows:
        """Return the answer of a one-time query.

        Args:
            scope: what it may read.
            statement: its id, which no other statement that runs has.
            cancellation: ends it.

        Raises:
            PenstockError: P0622, P0711 and P0721 for what is not kept, P0724 to P0726, and those of the query.
        """

    def has_read(self, source: int, post: int) -> bool:
        """Return whether a post of a source, and those before it, have been read and delivered, or nothing reads them.
        Both are given by their numbers."""

    def explain(self, query: Query, form: str) -> str:
        """Return the plan of a query."""

    def explain_start(self, query: Query) -> str:
        """Return with which START a query could begin now, and what provides its past. Raises PenstockError P0702."""

    def starts(self, query: Query) -> Sequence[Document]:
        """Return the same as documents: START, whether it is possible, and what would be read (`query_check.py`)."""

    def batch(self) -> tuple[int, float | None]:
        """Return the number of the last batch, and the seconds since then; None before the first."""

    def problem(self) -> str | None:
        """Return why no batch can be processed."""

    def ended_by(self) -> PenstockError | None:
        """Return the error that has ended the run, so that nothing goes on before another start; None without one."""

    def tap(self, edge: TappedPort, rows: int) -> Tap:
        """Return the next rows that pass over an edge; as `Engine.tap`."""

    def listen(self, on_batch: Callable[[Mapping[str, object]], None]) -> None:
        """Call `on_batch` after each batch, in any thread."""

    def close(self) -> None:
        """End after the round in hand."""
