"""The sources of a query that is answered in this process: whether they end, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError
from penstock.storage.names import file_name

#: Rows of MEMORY sources and heartbeats among them, by source name in lower case.
MemoryRows = Mapping[str, Sequence[tuple[Any, ...] | StreamRecord]]
#: Connectors of rows that this process has already.
_OWN = ("MEMORY", "DATAFRAME")


def check_bounded(source: Source, frame: Any, what: str) -> None:
    """Check that all of a source can be read in this process.

    Args:
        frame: the table passed from Python for the source.
        what: what needs its end, such as `there is no run of it to measure`, and a hint behind a line end.

    Raises:
        PenstockError: P0622 for a source without an end; P0401 to P0404 for one that cannot be read.
    """
    reason, _, hint = what.partition("\n")
    if source.connector == "DATAFRAME" and not isinstance(frame, pa.Table):
        message = f"{source.name} is a Spark DataFrame, which only a run on Spark reads"
        raise PenstockError("P0622", message, hint=f"hand it over as an Arrow table, or {hint}")
    connector = open_source(source)
    if not connector.bounded:
        raise PenstockError(
            "P0622", f"{source.name} has no end, so {reason}", hint=f"declare it over a copy that ends, or {hint}"
        )
    if source.connector not in _OWN:
        connector.check()


def spooled(source: Source, rows: MemoryRows, frames: Mapping[str, Any], folder: Path) -> Source:
    """Return the same source; rows in memory are first written to a file in `folder`, which its connector reads."""
    if source.connector not in _OWN:
        return source
    path = str(folder / f"{file_name(source.name)}.arrow")
    frame = frames.get(source.name)
    spool(source, frame if frame is not None else list(rows.get(source.name.lower(), ())), path)
    return replace(source, options=(("spool", path),))
