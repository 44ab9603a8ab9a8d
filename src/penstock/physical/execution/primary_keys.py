"""Primary keys of static relations: of rows with one key, the first stays."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.physical.execution.ingest import NULL_KEY
from penstock.physical.kernels.compiled import group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.updates import DUPLICATE_KEY


def keyed_rows(source: Source, table: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the rows of a static relation that its primary key allows, and the reasons for the others, by position."""
    if not source.primary_key or not table.num_rows:
        return table, {}
    columns = [table.column(i).combine_chunks() for i in source.primary_key]
    absent = np.zeros(table.num_rows, np.bool_)
    for column in columns:
        absent |= column.is_null().to_numpy(zero_copy_only=False)
    whole = np.flatnonzero(~absent)
    chosen = pa.array(whole)
    _, heads = group_codes(*fingerprints([column.take(chosen) for column in columns], len(whole)))
    stays = np.zeros(table.num_rows, np.bool_)
    stays[whole[heads]] = True
    reasons = {int(i): NULL_KEY if absent[i] else DUPLICATE_KEY for i in np.flatnonzero(~stays)}
    return table.filter(pa.array(stays)), reasons
