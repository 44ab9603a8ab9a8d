"""Orders and Fulfilments as in `[cidr 4.1]`, and what promises over them give, by definition.

Orders come 100 ms apart in the mean, exponentially. An order has 1 to 6 items, each a row of `O (t, id, item)`, all of
one instant. It is fulfilled after an exponential delay, item by item, each a row of `F (t, id, item)`. Times are in ms.
How far rows are out of their order is drawn for a k: the largest scale of exponential delays (cut at four means) with
which the streams still keep `WITHIN k ROWS` [docs/promises.md]. No code of the engine is used here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: Mean time between two orders, in ms.
GAP = 100
#: Steps in which the scale of a disorder is halved.
_STEPS = 12


@dataclass(frozen=True)
class Rows:
    """Rows of one stream, by time. t: ms; id, item: the order and its item."""

    t: Ints
    id: Ints
    item: Ints

    def __len__(self) -> int:
        return len(self.t)

    def by(self, order: Ints) -> Rows:
        return Rows(self.t[order], self.id[order], self.item[order])

    def table(self) -> pa.Table:
        return pa.table({"t": self.t, "id": self.id, "item": self.item})


@dataclass(frozen=True)
class Traffic:
    """Both streams. parents: of each fulfilment, the row of its order item."""

    orders: Rows
    fulfilments: Rows
    parents: Ints

    def inputs(self) -> dict[str, pa.Table]:
        return {"O": self.orders.table(), "F": self.fulfilments.table()}

    def of_answer(self, there: Flags) -> tuple[Ints, Ints, Ints]:
        """Return the columns of the answers of some fulfilments."""
        f = self.fulfilments
        return f.id[there], f.item[there], f.t[there]

    def open_at(self, instants: Ints) -> tuple[Ints, Ints]:
        """Return how many orders are open at instants, and how many rows they have: all items of an order that has
        come are held until its last one is fulfilled."""
        came, heads, sizes = np.unique(self.orders.id, return_index=True, return_counts=True)
        begun, last = self.orders.t[heads], np.zeros(int(came[-1]) + 1, np.int64)
        np.maximum.at(last, self.fulfilments.id, self.fulfilments.t)
        ended = np.maximum(last[came], begun)
        rows = _up_to(begun, sizes, instants) - _up_to(ended, sizes, instants)
        return _up_to(begun, np.ones_like(begun), instants) - _up_to(ended, np.ones_like(begun), instants), rows


def _up_to(times: Ints, weights: Ints, instants: Ints) -> Ints:
    order = np.argsort(times, kind="stable")
    sums = np.concatenate([[0], np.cumsum(weights[order])])
    return np.asarray(sums[np.searchsorted(times[order], instants, "right")], np.int64)


@dataclass(frozen=True)
class Disorder:
    """How far rows are out of order.

    Args:
        apart: fulfilments keep CLUSTERED BY (id), or with `in_turn` ORDERED BY (id), WITHIN that many rows.
        behind: orders come up to that many rows of O behind their first fulfilment.
        in_turn: orders are fulfilled in the order in which they came; else each by its own delay.
        late: share of fulfilments, drawn at random, that come later by an exponential number of rows.
        late_orders: share of orders that do so, in rows of O behind their fulfilments.
        by: mean of these numbers of rows.
    """

    apart: int = 0
    behind: int = 0
    in_turn: bool = False
    late: float = 0.0
    late_orders: float = 0.0
    by: int = 200


IN_ORDER = Disorder()


def traffic(count: int, waiting: int, disorder: Disorder = Disorder(), seed: int = 1) -> Traffic:
    """Return `count` orders and their fulfilments. waiting: about how many orders are open at a time."""
    draw = np.random.default_rng(seed)
    placed = 1 + np.cumsum(draw.exponential(GAP, count)).astype(np.int64)
    sizes = draw.integers(1, 7, count)
    leaves = placed + draw.exponential(GAP * waiting, count)
    turns = np.arange(count) if disorder.in_turn else np.argsort(leaves, kind="stable")
    ids, items = np.repeat(turns, sizes[turns]), _items(sizes[turns])
    times = np.sort(np.repeat(np.sort(leaves), sizes[turns]) + draw.exponential(GAP / 4, len(ids))).astype(np.int64)
    delays = _delays(draw, len(ids))
    needed = order_needs if disorder.in_turn else cluster_needs

    def shuffled(scale: float) -> Rows:
        order = np.argsort(np.arange(len(ids)) + scale * delays, kind="stable")
        return Rows(times, ids[order], items[order])

    fulfilments = shuffled(_largest(lambda s: needed(shuffled(s)), disorder.apart, 4.0 * disorder.apart + 1))
    fulfilments = _some_late(draw, fulfilments, disorder.late, disorder.by)
    # No fulfilment comes before its order.
    shift = max(0, int((placed[fulfilments.id] - fulfilments.t).max()))
    fulfilments = Rows(fulfilments.t + shift, fulfilments.id, fulfilments.item)
    lags = _delays(draw, count)

    def lagging(scale: float) -> Ints:
        return np.asarray(placed + (scale * lags).astype(np.int64), np.int64)

    def needs_of(scale: float) -> Ints:
        return reference_needs(_orders(lagging(scale), sizes), fulfilments)[0]

    placed = lagging(_largest(needs_of, disorder.behind, 100.0 * GAP * (disorder.behind + 1)))
    chosen = draw.random(count) < disorder.late_orders
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, fulfilments.id, fulfilments.t)
    behind = first + (draw.exponential(disorder.by * GAP / 3.5, count)).astype(np.int64)
    orders = _orders(np.where(chosen, np.maximum(placed, behind), placed), sizes)
    return Traffic(orders, fulfilments, reference_needs(orders, fulfilments)[1])


def _items(sizes: Ints) -> Ints:
    starts = np.cumsum(sizes) - sizes
    return np.asarray(np.arange(int(sizes.sum())) - np.repeat(starts, sizes), np.int64)


def _delays(draw: np.random.Generator, count: int) -> Floats:
    return np.minimum(draw.exponential(0.25, count), 1.0)


def _orders(placed: Ints, sizes: Ints) -> Rows:
    ids = np.repeat(np.arange(len(sizes)), sizes)
    rows = Rows(placed[ids], ids, _items(sizes))
    return rows.by(np.argsort(rows.t, kind="stable"))


def _some_late(draw: np.random.Generator, rows: Rows, share: float, by: int) -> Rows:
    chosen = draw.random(len(rows)) < share
    places = np.arange(len(rows)) + np.where(chosen, draw.exponential(by, len(rows)), 0.0)
    order = np.argsort(places, kind="stable")
    return Rows(rows.t, rows.id[order], rows.item[order])


def _largest(needs: Callable[[float], Ints], k: int, most: float) -> float:
    """Return the largest scale found up to `most` with which no row needs more than k."""
    if k == 0:
        return 0.0
    low, high = 0.0, most
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if int(needs(middle).max(initial=0)) <= k else (low, middle)
    return low


# --- by definition. N(t) is the number of rows of a stream up to t; a row needs the least k that it does not break.


def cluster_needs(rows: Rows) -> Ints:
    """Return by row, in the order of (id, t), what it needs of CLUSTERED BY (id): how many rows came in between the
    instants of the row before it with its id, and its own."""
    order = np.lexsort((rows.t, rows.id))
    ids, t = rows.id[order], rows.t[order]
    needs = np.zeros(len(rows), np.int64)
    between = np.searchsorted(rows.t, t[1:], "left") - np.searchsorted(rows.t, t[:-1], "right")
    needs[1:] = np.where(ids[1:] == ids[:-1], np.maximum(between, 0), 0)
    return needs


def order_needs(rows: Rows) -> Ints:
    """Return by row what it needs of ORDERED BY (id): how many rows came from the first with a greater id to it."""
    greatest = np.maximum.accumulate(rows.id)
    first = np.minimum(np.searchsorted(greatest, rows.id, "right"), len(rows) - 1)
    earlier = (greatest[first] > rows.id) & (rows.t[first] < rows.t)
    before = np.searchsorted(rows.t, rows.t, "left")
    return np.where(earlier, before - np.searchsorted(rows.t, rows.t[first], "right") + 1, 0)


def reference_needs(orders: Rows, fulfilments: Rows) -> tuple[Ints, Ints]:
    """Return by fulfilment what it needs of its FOREIGN KEY, and the row of its order item."""
    keys = orders.id * 8 + orders.item
    by_key = np.argsort(keys, kind="stable")
    parents = by_key[np.searchsorted(keys[by_key], fulfilments.id * 8 + fulfilments.item)]
    t = orders.t[parents]
    ahead = np.searchsorted(orders.t, t, "left") - np.searchsorted(orders.t, fulfilments.t, "right") + 1
    return np.where(t > fulfilments.t, ahead, 0), parents


def closed_before(rows: Traffic, k: int) -> Flags:
    """Return by fulfilment whether CLUSTERED BY (id) WITHIN k ROWS closed its order after this had come."""
    fulfilments = rows.fulfilments
    order = np.lexsort((fulfilments.t, fulfilments.id))
    ids, t = fulfilments.id[order], fulfilments.t[order]
    needs = cluster_needs(fulfilments)
    # The row before a gap at which its order was closed, and the instant of that.
    gaps = np.flatnonzero(needs > k)
    closing = np.full(len(ids), -1, np.int64)
    closing[gaps] = fulfilments.t[np.searchsorted(fulfilments.t, t[gaps - 1], "right") + k]
    last = np.maximum.accumulate(np.where(closing >= 0, np.arange(len(ids)), -1))
    there = (last >= 0) & (ids[last] == ids)
    lost = np.zeros(len(ids), np.bool_)
    lost[order] = there & (closing[last] >= rows.orders.t[rows.parents[order]])
    return lost


def answered(
    rows: Traffic, clustered: int | None = None, ordered: int | None = None, reference: int | None = None
) -> tuple[Ints, Flags]:
    """Return by fulfilment the instant of its answer, and whether it is answered at all under promises with these k."""
    there = np.ones(len(rows.fulfilments), np.bool_)
    came = rows.orders.t[rows.parents]
    after = came > rows.fulfilments.t
    if clustered is not None:
        there &= after | ~closed_before(rows, clustered)
    if ordered is not None:
        there &= after | (order_needs(rows.fulfilments) <= ordered)
    if reference is not None:
        there &= reference_needs(rows.orders, rows.fulfilments)[0] <= reference
    return np.maximum(came, rows.fulfilments.t), there
