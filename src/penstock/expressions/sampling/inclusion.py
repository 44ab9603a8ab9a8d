"""Inclusion records: with what probability a row was kept, and with which others, as a hidden column.

A row that a sample, shedding or a preference let through carries one where an ESTIMATE reads it
(`Algebra.with_inclusion`): 32 bytes, which the estimators are computed of, whoever wrote them.

- pi: the probability that the row was kept, in (0, 1];
- cluster: rows that are kept or dropped together have the same one;
- stratum, size: a simple random sample of `size` of the stratum's size / pi clusters. size is 0 for clusters that are
  kept independently of each other, and -1 where the probabilities of pairs are not known. Below -1 the row is a pair of
  rows of two independent samples: kept with probabilities p and pi / p, with the clusters `cluster` and `stratum`; the
  bits of -size are p's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INCLUSION = pa.binary()
RECORD = np.dtype([("pi", "<f8"), ("cluster", "<i8"), ("stratum", "<i8"), ("size", "<i8")])
#: The sizes of strata that are none.
INDEPENDENT, UNKNOWN = 0, -1

Records = npt.NDArray[np.void]


def packed(records: Records) -> pa.Array:
    """Return records as a column."""
    count = len(records)
    offsets = np.arange(count + 1, dtype=np.int32) * RECORD.itemsize
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(records).tobytes())]
    return pa.Array.from_buffers(INCLUSION, count, buffers)


def unpacked(column: pa.Array) -> Records:
    """Return the records of a column without NULL."""
    _, offsets, data = column.buffers()
    first = int(np.frombuffer(offsets, np.int32)[column.offset]) if len(column) else 0
    return np.frombuffer(data or b"", RECORD, len(column), first)


def independent(pi: float, clusters: npt.NDArray[np.int64]) -> pa.Array:
    """Return the records of clusters that are kept with probability `pi`, independently of each other."""
    records = np.zeros(len(clusters), RECORD)
    records["pi"], records["cluster"] = pi, clusters
    return packed(records)


def of_independent_pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the records of joined rows of two samples that are drawn independently of each other, each of clusters
    that are kept independently."""
    one, other = unpacked(left), unpacked(right)
    made = one.copy()
    known = (one["size"] == INDEPENDENT) & (other["size"] == INDEPENDENT)
    with np.errstate(over="ignore", invalid="ignore"):
        made["pi"] = one["pi"] * other["pi"]
    made["stratum"] = other["cluster"]
    made["size"] = np.where(known, -np.ascontiguousarray(one["pi"]).view(np.int64), UNKNOWN)
    return packed(made)


def of_pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the records of joined rows: two of one cluster are kept by the rarer draw, since samples are nested;
    others by both, and the probabilities of pairs of such rows are not known."""
    one, other = unpacked(left), unpacked(right)
    made = one.copy()
    same = (one["cluster"] == other["cluster"]) & (one["size"] == INDEPENDENT) & (other["size"] == INDEPENDENT)
    # Bytes that a query passes off as a record may hold any number as their probability.
    with np.errstate(over="ignore", invalid="ignore"):
        made["pi"] = np.where(same, np.minimum(one["pi"], other["pi"]), one["pi"] * other["pi"])
    made["size"] = np.where(same, INDEPENDENT, UNKNOWN)
    return packed(made)
