"""The rows that a static relation has: those with their declared period, and of these with one key the first."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.ingest import NULL_KEY, malformed_periods
from penstock.physical.kernels.compiled import group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.updates import DUPLICATE_KEY


def keyed_rows(source: Source, table: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows of a static relation that its primary key and its declared period allow, and the reasons for the
    others, by position."""
    malformed = malformed_periods(source, table, range(len(source.columns)))
    if not source.primary_key or not table.num_rows:
        return (_without(table, malformed) if malformed else table), malformed
    columns = [table.column(i).combine_chunks() for i in source.primary_key]
    absent = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        absent |= column.is_null().to_numpy(zero_copy_only=False)
    nulls = absent.copy()
    absent[list(malformed)] = True
    whole = np.flatnonzero(~absent)
    chosen = pa.array(whole)
    _, heads = group_codes(*fingerprints([column.take(chosen) for column in columns], len(whole)))
    stays = np.zeros(table.num_rows, np.bool_)
    stays[whole[heads]] = True
    reasons = {int(i): NULL_KEY if nulls[i] else malformed.get(int(i), DUPLICATE_KEY) for i in np.flatnonzero(~stays)}
    return table.filter(pa.array(stays)), reasons


def _without(table: pa.Table, positions: Collection[int]) -> pa.Table:
    stays = np.ones(table.num_rows, np.bool_)
    stays[list(positions)] = False
    return table.filter(pa.array(stays))
