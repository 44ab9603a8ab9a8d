"""One-time queries at a server: what they read, and what they answer.

Rows posted to a relation are its content. Those posted to a stream are kept where it is retained; without Spark they
are read once, so a query over them is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.connectors.sources import open_source
from penstock.control.posted_rows import POSTED, PostedRows
from penstock.errors import PenstockError
from penstock.language.commands import SelectOnce
from penstock.results.select import LiveAnswer
from penstock.results.source_rows import DeclaredRows, SourceRows
from penstock.runtime.local.one_time import sources_of

#: The connector of a query's answers in a one-time query.
ANSWERS = "RESULTS"
#: Seconds for which idempotency keys of posted rows are kept.
RETENTION = 7 * 86400.0


@dataclass(frozen=True)
class SelectScope:
    """What one-time queries may read.

    Args:
        sources: by name in lower case, number and declaration of each.
        queries: by name in lower case, place and definition of each.
    """

    sources: Mapping[str, tuple[int, Source]]
    queries: Mapping[str, tuple[int, Query]]


@dataclass(frozen=True)
class SelectedRows:
    """The answer of a one-time query.

    Args:
        tick: its instant; None where it has none.
        staleness: seconds since the batch was delivered as of which the answer is; None where it is of none.
        since: of streams that were read whole, the tick after which their elements are in the answer.
    """

    table: pa.Table
    tick: int | None
    staleness: float | None = None
    since: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(live: LiveAnswer) -> SelectedRows:
        """Return the answer of a reader."""
        return SelectedRows(live.answer.table, live.answer.tick, live.staleness, live.since)


@dataclass(frozen=True)
class PostedTable:
    """The rows of a relation that were posted, in a folder with one for each source. See the contract `SourceRows`."""

    source: Source
    root: Path
    number: int

    def table(self) -> pa.Table:
        return PostedRows(self.root, RETENTION).table(self.source, self.number)


def whole_inputs(command: SelectOnce, scope: SelectScope, posted: Path) -> dict[str, SourceRows]:
    """Return the rows of the inputs that a query reads as a whole, by name in lower case: static relations, and others
    that end. posted: the folder of posted rows."""
    inputs: dict[str, SourceRows] = {}
    for name, source in sources_of(command.query).items():
        key = name.lower()
        if source.connector == ANSWERS:
            continue
        if source.connector in POSTED and key in scope.sources:
            if not source.is_stream:
                inputs[key] = PostedTable(source, posted, scope.sources[key][0])
        elif open_source(source).bounded:
            inputs[key] = DeclaredRows(source)
    return inputs


def check_readable(command: SelectOnce, inputs: Mapping[str, SourceRows]) -> None:
    """Raise PenstockError for what a query reads that is not among `inputs`: P0711 for answers and for streams whose
    rows are not kept, P0622 for an input without an end."""
    for name, source in sources_of(command.query).items():
        if name.lower() in inputs:
            continue
        if source.connector == ANSWERS:
            hint = "read them with GET /v1/queries/{query}/results"
            raise PenstockError("P0711", f"the answers of query {name} cannot be selected here", hint=hint)
        if source.connector in POSTED:
            hint = "subscribe to a query over it, or read a relation"
            raise PenstockError("P0711", f"the rows of stream {name} are not kept", hint=hint)
        hint = "subscribe to a query over it"
        raise PenstockError("P0622", f"{name} has no end, so its rows cannot be had all at once", hint=hint)
