"""The rows of a shard, where every shard has all of them."""

from __future__ import annotations

import numpy as np

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import cut_by_shard
from penstock.physical.kernels.fingerprints import fingerprints


def rows_of_shard(rows: Elements, key: tuple[int, ...], shard: int, shards: int) -> Elements:
    """Return the rows that lie in a shard. key: the columns by which rows are partitioned; without any, all are in the
    first one."""
    if not key:
        return rows if shard == 0 else rows.slice(0, 0)
    first, _ = fingerprints([rows.columns[i] for i in key], len(rows))
    order, bounds = cut_by_shard(first, shards)
    return rows.take(np.asarray(order[bounds[shard] : bounds[shard + 1]]))
