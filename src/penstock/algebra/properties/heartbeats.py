"""Heartbeats and punctuations among the rows of a table or an Arrow file, where no column of the rows says so: those of
ADVANCE and PUNCTUATE statements.

They stand in the schema's metadata, so that they are written with the rows. Contract: they are in the order in which
they came; a slice or a concatenation of tables has none, or wrong ones.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from penstock.algebra.properties.punctuations import Punctuation

_KEY = b"heartbeats"


@dataclass(frozen=True)
class Heartbeat:
    """A record of a stream that is no element: it promises that no element up to `tick` follows."""

    tick: int


#: A record of a stream that is no element.
StreamRecord: TypeAlias = Heartbeat | Punctuation


class PlacedHeartbeat(NamedTuple):
    """A heartbeat of a stream: the rows before it, its tick, and its arrival by the wall clock, where that is known; or
    a punctuation in its place, as text."""

    rows: int
    tick: int
    arrival: int = 0
    punctuation: str = ""

    @property
    def record(self) -> StreamRecord:
        return Punctuation.from_text(self.punctuation) if self.punctuation else Heartbeat(self.tick)


def placed(rows: int, record: StreamRecord) -> PlacedHeartbeat:
    """Return a record behind some rows."""
    if isinstance(record, Heartbeat):
        return PlacedHeartbeat(rows, record.tick)
    return PlacedHeartbeat(rows, 0, punctuation=record.as_text())


def with_heartbeats(table: pa.Table, heartbeats: Sequence[PlacedHeartbeat]) -> pa.Table:
    """Return the table with heartbeats between its rows."""
    others = {key: value for key, value in (table.schema.metadata or {}).items() if key != _KEY}
    more = {_KEY: json.dumps(heartbeats).encode()} if heartbeats else {}
    return table.replace_schema_metadata({**others, **more} or None)


def heartbeats_of(schema: pa.Schema) -> list[PlacedHeartbeat]:
    """Return the heartbeats between the rows of a table or a file, by its schema."""
    written = (schema.metadata or {}).get(_KEY)
    return [] if written is None else [PlacedHeartbeat(*fields) for fields in json.loads(written)]


def cut_at_heartbeats(schema: pa.Schema, rows: int) -> list[tuple[int, int]]:
    """Return the first row of each piece of a table between its heartbeats, and the row behind its last one. rows:
    those of the table."""
    return list(pairwise(sorted({0, rows, *(one.rows for one in heartbeats_of(schema))})))
