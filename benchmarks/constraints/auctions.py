"""Winning bids of Nexmark (query 9) without any window: an auction is punctuated in the stream of bids when it ends.

Auctions begin 1 s apart in the mean, exponentially, and last an exponential time; 20 bids in the mean come while an
auction is open, at any of its instants. A bid below the reserve is none. At the end of auction n stands the record
`auction = n`; behind each 50th of them also `auction <= m` for all m up to which no auction is open: what is contained
in a punctuation is not kept beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.constraints.data import Flags, Ints
from benchmarks.constraints.watching import Moment, Watch, check
from benchmarks.local_harness import Measured, measure

#: Mean time between the beginnings of two auctions, in ms.
GAP = 1000
BIDS = 20
#: Rounds until the last auction begins.
_ROUNDS = 40
_DECLARED = """
CREATE STREAM A (t BIGINT, id BIGINT, reserve BIGINT) FROM MEMORY () TIMESTAMP BY t UNIT MILLISECOND {of_auctions};
CREATE STREAM B (t BIGINT, auction BIGINT, price BIGINT, ending STRING) FROM MEMORY () TIMESTAMP BY t UNIT MILLISECOND
  PUNCTUATED BY ending {of_bids};
"""
_JOINED = "FROM A, B WHERE A.id = B.auction AND B.price >= A.reserve"
_WINNING = f"SELECT B.auction, MAX(B.price) AS price {_JOINED} GROUP BY B.auction HAVING CLOSED(B.auction)"
_ALL = f"SELECT B.auction, B.price, B.t AS at {_JOINED}"
_REFERENCE = ("UNIQUE (id)", "FOREIGN KEY (auction) REFERENCES A")
NOT, ENDS, BOTH = "not punctuated", "ends", "ends and bounds"
#: Of each run: the promises of both streams, its query, and how the bids are punctuated.
RUNS: Mapping[str, tuple[tuple[str, str], str, str]] = {
    "winning bids, ends and bounds": (_REFERENCE, _WINNING, BOTH),
    "winning bids, ends alone": (_REFERENCE, _WINNING, ENDS),
    "bids, ends and bounds": (_REFERENCE, _ALL, BOTH),
    "bids, not punctuated": (_REFERENCE, _ALL, NOT),
    "bids, no promise": (("", ""), _ALL, NOT),
}
#: Ends of auctions between two bounds.
_EVERY = 50


@dataclass(frozen=True)
class Market:
    """Auctions by their numbers, and bids by time. Times are in ms; bids are those of auctions that have begun and not
    ended."""

    begun: Ints
    ended: Ints
    reserve: Ints
    t: Ints
    auction: Ints
    price: Ints

    def inputs(self, punctuated: str) -> dict[str, pa.Table]:
        count = len(self.begun)
        bids = {"t": self.t, "auction": self.auction, "price": self.price}
        rows = [pa.table({**bids, "ending": pa.nulls(len(self.t), pa.string())})]
        if punctuated != NOT:
            ends = np.argsort(self.ended, kind="stable")
            rows.append(_records(self.ended[ends], [f"auction = {number}" for number in ends.tolist()]))
        if punctuated == BOTH:
            # Behind so many ends, all auctions below the first that has not ended.
            places = np.empty(count, np.int64)
            places[ends] = np.arange(count)
            done = np.arange(_EVERY, count, _EVERY)
            first = np.searchsorted(np.maximum.accumulate(places), done)
            known = first > 0
            instants = self.ended[ends[done[known] - 1]]
            rows.append(_records(instants, [f"auction <= {one - 1}" for one in first[known].tolist()]))
        # What ends at an instant stands behind the bids of that instant.
        order = np.argsort(np.concatenate([one["t"].to_numpy() for one in rows]), kind="stable")
        auctions = pa.table({"t": self.begun, "id": np.arange(count), "reserve": self.reserve})
        return {"A": auctions, "B": pa.concat_tables(rows).take(order)}

    def open_at(self, instants: Ints) -> Ints:
        """Return how many auctions are open at instants."""
        ends = np.sort(self.ended)
        return np.asarray(
            np.searchsorted(self.begun, instants, "right") - np.searchsorted(ends, instants, "right"), np.int64
        )

    def winning(self) -> tuple[tuple[Ints, Ints], Ints]:
        """Return the auctions with a bid and its highest price, and when each is known: at the last bid of all before
        the end of the auction."""
        bids = self.price >= self.reserve[self.auction]
        best = np.full(len(self.begun), -1)
        np.maximum.at(best, self.auction[bids], self.price[bids])
        there = np.flatnonzero(best >= 0)
        last = np.searchsorted(self.t, self.ended[there], "right") - 1
        return (there, best[there]), self.t[last]


def _records(instants: Ints, ending: list[str]) -> pa.Table:
    none = pa.nulls(len(ending), pa.int64())
    return pa.table({"t": instants, "auction": none, "price": none, "ending": pa.array(ending, pa.string())})


def market(count: int, waiting: int, seed: int = 1) -> Market:
    """Return `count` auctions, of which about `waiting` are open at a time."""
    draw = np.random.default_rng(seed)
    begun = 1 + np.cumsum(draw.exponential(GAP, count)).astype(np.int64)
    lasts = 1 + draw.exponential(GAP * waiting, count).astype(np.int64)
    auction = np.repeat(np.arange(count), draw.poisson(BIDS, count))
    t = begun[auction] + (draw.random(len(auction)) * lasts[auction]).astype(np.int64)
    order = np.argsort(t, kind="stable")
    prices = draw.integers(1, 1_000_000, len(auction))
    return Market(begun, begun + lasts, draw.integers(1, 500_000, count), t[order], auction[order], prices)


@dataclass(frozen=True)
class Outcome:
    """A run. moments: what was held; open: auctions that were open then."""

    measured: Measured
    moments: list[Moment]
    open: Ints


def run(name: str, auctions: Market) -> Outcome:
    """Run the query of this name. Raises AssertionError where its answer is not that of the definition."""
    promises, text, punctuated = RUNS[name]
    declared = _DECLARED.format(of_auctions=promises[0], of_bids=promises[1])
    last = int(auctions.begun[-1])
    watch = Watch(last)
    script = f"{declared}CREATE QUERY q AS {text};"
    found = measure(script, auctions.inputs(punctuated), step=max(1, last // _ROUNDS), warm=last // 4, each=watch)
    if text == _WINNING:
        columns, instants = auctions.winning()
        check(found, columns, instants)
    else:
        bids: Flags = auctions.price >= auctions.reserve[auctions.auction]
        t = auctions.t[bids]
        check(found, (auctions.auction[bids], auctions.price[bids], t), t)
    ends = np.array([moment.at - 1 for moment in watch.moments], np.int64)
    return Outcome(found, watch.moments, auctions.open_at(ends))
