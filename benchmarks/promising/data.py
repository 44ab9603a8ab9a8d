"""Retail transactions like those of `[pt 5]`, whose WalMart logs are not to be had.

Items are drawn by Zipf's law with exponent 1.17 over 1,000 items, the same in all stores: two transactions have one
item with a probability of 6.7 %, the selectivity of the paper's join. An item has a log-normal price of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ITEMS, EXPONENT = 1_000, 1.17
#: Milliseconds after which the ranking of items is rotated, in the variant that drifts.
DRIFT = 20_000
COLUMNS = "StoreID INT, TransactionID BIGINT, ts BIGINT, ItemID INT, Price DOUBLE"


def retail(store: int, rows: int, seed: int, mean: float = 100.0, drift: bool = False) -> pa.Table:
    """Return transactions of a store, in order of time.

    Args:
        mean: milliseconds between two transactions, exponentially distributed.
        drift: rotate the ranking of items by 50 places every 20 seconds.
    """
    draw = np.random.default_rng([seed, store, 2005])
    ts = np.floor(np.cumsum(draw.exponential(mean, rows))).astype(np.int64)
    weights = 1.0 / np.arange(1, ITEMS + 1) ** EXPONENT
    ranks = draw.choice(ITEMS, rows, p=weights / weights.sum())
    if drift:
        ranks = (ranks + ts // DRIFT * 50) % ITEMS
    # Which item has which rank, and its price, are the same in every store.
    shared = np.random.default_rng([seed, 2005])
    items = shared.permutation(ITEMS)[ranks]
    prices = np.exp(shared.normal(2.0, 0.8, ITEMS))
    return pa.table(
        {
            "StoreID": np.full(rows, store, np.int32),
            "TransactionID": np.arange(rows, dtype=np.int64),
            "ts": ts,
            "ItemID": items.astype(np.int32),
            "Price": np.round(prices[items], 2),
        }
    )


def selectivity(ids: np.ndarray, others: np.ndarray) -> float:
    """Return the share of pairs with equal items."""
    one, two = np.bincount(ids, minlength=ITEMS), np.bincount(others, minlength=ITEMS)
    return float(one @ two) / (len(ids) * len(others))
