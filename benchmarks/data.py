"""The connection stream of the bench: made once per size, the same on every machine.

`ts` BIGINT milliseconds, 10 rows each; `src` INT, Zipf over 10,000 values; `dst` INT, uniform over 100,000;
`proto` one of four strings; `bytes` DOUBLE, whole numbers, so that sums are exact in whatever order they are added.
Parquet in ten files, time-ordered; file names sort in that order.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / "data"
FILES = 10
ROWS_PER_MS = 10
#: The first timestamp: a boundary of every slide used here.
START_MS = 1_700_000_000_000
SOURCES, DESTINATIONS = 10_000, 100_000
PROTOCOLS, WEIGHTS = ("tcp", "udp", "icmp", "gre"), (0.60, 0.30, 0.07, 0.03)
_SEED = 2013


def connections(rows: int) -> Path:
    """The folder with `rows` rows (a multiple of 100), made if it is not there."""
    if rows <= 0 or rows % (FILES * ROWS_PER_MS):
        raise ValueError(f"rows must be a multiple of {FILES * ROWS_PER_MS}")
    folder = FOLDER / f"connections-{rows}"
    if not folder.is_dir():
        _write(folder, rows)
    return folder


def last_ms(rows: int) -> int:
    """The largest timestamp of a stream of `rows` rows."""
    return START_MS + (rows - 1) // ROWS_PER_MS


def _write(folder: Path, rows: int) -> None:
    half_made = folder.with_name(f"{folder.name}.{os.getpid()}")
    half_made.mkdir(parents=True)
    for number, table in enumerate(_tables(rows)):
        pq.write_table(table, half_made / f"part-{number:02d}.parquet", row_group_size=250_000)
    half_made.rename(folder)


def _tables(rows: int) -> Iterator[pa.Table]:
    weights = 1.0 / np.arange(1, SOURCES + 1) ** 1.1
    source_ends = np.cumsum(weights / weights.sum())
    # Rank and name of a source are unrelated, as they would be among real addresses.
    source_names = np.random.default_rng(_SEED).permutation(SOURCES).astype(np.int32)
    protocol_ends = np.cumsum(WEIGHTS)
    size = rows // FILES
    for number in range(FILES):
        random = np.random.default_rng((_SEED, number))
        ranks = np.minimum(np.searchsorted(source_ends, random.random(size)), SOURCES - 1)
        protocols = np.minimum(np.searchsorted(protocol_ends, random.random(size)), len(PROTOCOLS) - 1)
        yield pa.table(
            {
                "ts": START_MS + np.arange(number * size, (number + 1) * size, dtype=np.int64) // ROWS_PER_MS,
                "src": source_names[ranks],
                "dst": random.integers(0, DESTINATIONS, size, dtype=np.int32),
                "proto": pa.DictionaryArray.from_arrays(protocols.astype(np.int8), list(PROTOCOLS)).cast(pa.string()),
                "bytes": np.floor(random.exponential(800.0, size)) + 40.0,
            }
        )
