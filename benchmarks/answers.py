"""Answers compared: an order-independent checksum of a result, and the answer DuckDB gives over the whole history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.queries import BenchQuery

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Checksum:
    """rows; sums: of each compared column; bag: the sum, mod 2^64, of a hash of every row."""

    rows: int
    sums: tuple[int, ...]
    bag: int

    def __add__(self, other: Checksum) -> Checksum:
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True))
        return Checksum(self.rows + other.rows, sums, (self.bag + other.bag) % 2**64)

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.bag:016x}"


def result_checksum(folder: Path, query: BenchQuery, last: int) -> Checksum:
    """Of the parquet files of a result, without the rows at instants after `last`."""
    total = none_of(query)
    if not any(folder.rglob("*.parquet")):
        return total
    # A sink's own bookkeeping lies in names that begin with _ or a dot, which a dataset passes over.
    for batch in ds.dataset(folder, format="parquet").to_batches(columns=list(query.columns)):
        total += of_batch(batch, query, last)
    return total


def reference_checksum(data: Path, query: BenchQuery, last: int) -> Checksum:
    """Of what plain SQL returns over all the files at once."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE VIEW C AS SELECT * FROM read_parquet('{data}/*.parquet')")
        chosen = ", ".join(query.columns)
        reader = connection.sql(f"SELECT {chosen} FROM ({query.reference})").to_arrow_reader(1_000_000)
        total = none_of(query)
        for batch in reader:
            total += of_batch(batch, query, last)
    return total


def none_of(query: BenchQuery) -> Checksum:
    """Of an answer without rows."""
    return checksum([np.empty(0, np.int64)] * len(query.columns))


def of_batch(batch: pa.RecordBatch, query: BenchQuery, last: int) -> Checksum:
    """Of rows with the columns of the query, without those at instants after `last`."""
    return of_columns([batch.column(name).to_numpy(zero_copy_only=False) for name in query.columns], query, last)


def of_columns(columns: Sequence[np.ndarray], query: BenchQuery, last: int) -> Checksum:
    """Of rows as one array per column of the query, without those at instants after `last`."""
    columns = [np.rint(column).astype(np.int64) for column in columns]
    if query.columns[0] == "ts":
        kept = columns[0] <= last
        columns = [column[kept] for column in columns]
    return checksum(columns)


def checksum(columns: list[np.ndarray]) -> Checksum:
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed + _STEP) ^ column.view(np.uint64)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
        mixed ^= mixed >> np.uint64(31)
    sums = tuple(int(column.sum()) for column in columns)
    return Checksum(len(mixed), sums, int(mixed.sum(dtype=np.uint64)))
