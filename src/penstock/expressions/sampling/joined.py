"""The variance of a sum over rows that depend on several draws: joined rows of two or more samples.

Two rows i and j with π_i and π_j are both kept with π_ij, so Horvitz and Thompson's estimate of the variance is Σ_ij
v_i v_j (1 - π_i π_j / π_ij), with v = y/π. What is in parentheses is not 0 only for rows with draws in common:

- of an independent draw that both depend on, at the levels a and b, π_i π_j / π_ij has the factor max(a, b);
- of n of the N clusters of a stratum it has the factor c = n(N-1) / (N(n-1)) for two clusters, and n/N for one.

Both are 1 minus a sum over *tokens* that the two rows share: of a draw one for each level at or above that of the row,
weighing what the level is below the next higher one; of a stratum 1 - c for the stratum, and c - n/N for the cluster.
A product over draws of such terms is a sum over choices of tokens, one of each of some draws; so the variance is
Σ ± w (Σ v)² over the choices that occur, with the rows that have all tokens of a choice added up. No pair of rows is
looked at, and two, three or more samples are alike.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.expressions.draws import mixed
from penstock.expressions.sampling.inclusion import INDEPENDENT, Inclusion

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

#: What differences of sums keep of them is noise below this share.
_NOISE = 1e-13
_LEVEL, _STRATUM, _CLUSTER = (np.uint64(n * 0x9E3779B97F4A7C15 % 2**64) for n in (3, 5, 7))


def without_cancelled(difference: Float64s, scale: Float64s) -> Float64s:
    """Return differences, 0 where they are but the rounding of numbers of the size `scale`."""
    return np.where(np.abs(difference) <= _NOISE * scale, 0.0, difference)


def draws_of_rows(records: Inclusion) -> Int64s:
    """Return a number for each row that is equal for rows that depend on the same draws."""
    sides = records.sides
    names = mixed(sides["cluster"].view(np.uint64) + mixed(sides["stratum"].view(np.uint64)))
    total = np.zeros(len(records.counts), np.uint64)
    np.add.at(total, records.rows, names)
    return total.view(np.int64)


def variance_of_joined(groups: Int64s, count: int, y: Float64s, records: Inclusion) -> Float64s:
    """Return the variance of Σ y/π of each group in [0, count). groups, y: of each row. NaN where the estimate is
    negative, as it may be for values of both signs, and where one cluster of several was drawn."""
    if not len(groups):
        return np.zeros(count)
    rows, keys, weights = _choices(groups, records)
    v = (y / records.pi)[rows]
    own = groups[rows]
    order = np.lexsort([keys, own])
    own, keys, weights, v = own[order], keys[order], weights[order], v[order]
    starts = np.flatnonzero(np.concatenate([[True], (own[1:] != own[:-1]) | (keys[1:] != keys[:-1])]))
    parts = weights[starts] * np.add.reduceat(v, starts) ** 2
    total = np.bincount(own[starts], parts, count).astype(np.float64)
    found = without_cancelled(total, np.bincount(own[starts], np.abs(parts), count).astype(np.float64))
    found[found < 0.0] = np.nan
    return found


def _choices(groups: Int64s, records: Inclusion) -> tuple[Int64s, UInt64s, Float64s]:
    """Return (row, choice, weight with its sign) for every choice of tokens of every row."""
    token_starts, tokens, token_weights = _tokens(groups, records)
    rows = np.arange(len(groups))
    keys, weights = np.zeros(len(rows), np.uint64), np.full(len(rows), -1.0)
    some = np.zeros(len(rows), np.bool_)
    for place in range(int(records.counts.max())):
        there = np.flatnonzero(records.counts[rows] > place)
        side = records.starts[rows[there]] + place
        many = token_starts[side + 1] - token_starts[side]
        of = np.repeat(there, many)
        first = np.repeat(np.cumsum(many) - many, many)
        token = np.arange(len(of)) - first + np.repeat(token_starts[side], many)
        # The order of draws is none of a choice's: the sum of what stands for its tokens is its key.
        keys = np.concatenate([keys, keys[of] + tokens[token]])
        weights = np.concatenate([weights, -weights[of] * token_weights[token]])
        rows = np.concatenate([rows, rows[of]])
        some = np.concatenate([some, np.ones(len(of), np.bool_)])
    return rows[some], keys[some], weights[some]


def _tokens(groups: Int64s, records: Inclusion) -> tuple[Int64s, UInt64s, Float64s]:
    """Return the tokens of each side: (where those of a side begin, what stands for each, its weight)."""
    sides = records.sides
    alone = sides["size"] == INDEPENDENT
    many = np.where(alone, 1, 2)
    tokens, weights = np.empty((2, len(sides)), np.uint64), np.empty((2, len(sides)))
    cluster, stratum = sides["cluster"].view(np.uint64), sides["stratum"].view(np.uint64)
    n, p = sides["size"].astype(np.float64), sides["pi"]
    whole = np.rint(n / p)
    spread = np.where(whole <= 1.0, 1.0, n * (whole - 1.0) / (whole * (n - 1.0)))
    tokens[0] = np.where(alone, mixed(cluster + _LEVEL), mixed(stratum + _STRATUM))
    weights[0] = np.where(alone, 1.0 - p, 1.0 - spread)
    tokens[1], weights[1] = mixed(mixed(stratum + _CLUSTER) + cluster), spread - p
    levels = _levels(groups, records, alone)
    if levels is None:
        return _rows_of(many, tokens, weights)
    return _with_levels(many, tokens, weights, *levels)


def _rows_of(many: Int64s, tokens: npt.NDArray[np.uint64], weights: Float64s) -> tuple[Int64s, UInt64s, Float64s]:
    starts = np.concatenate([[0], np.cumsum(many)])
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], many)
    side = np.repeat(np.arange(len(many)), many)
    return starts, tokens[place, side], weights[place, side]


def _levels(groups: Int64s, records: Inclusion, alone: npt.NDArray[np.bool_]) -> tuple[Int64s, Float64s] | None:
    """Return of each side that one of its draw's levels, and of each level the one above (1 above the highest), where
    some draw of a group has several; else None. Level number 0 of a draw is the highest."""
    own, sides = groups[records.rows], records.sides
    keys = np.stack([own, sides["cluster"], np.where(alone, 0, 1), -sides["pi"].view(np.int64)])
    found, inverse = np.unique(keys, axis=1, return_inverse=True)
    same = (found[:3, 1:] == found[:3, :-1]).all(axis=0) & (found[2, 1:] == 0)
    if not same.any():
        return None
    begins = np.concatenate([[True], ~same])
    number = np.arange(found.shape[1]) - np.maximum.accumulate(np.where(begins, np.arange(found.shape[1]), 0))
    level = (-found[3]).view(np.float64)
    above = np.where(begins, 1.0, np.concatenate([[1.0], level[:-1]]))
    # One row for each level: its number, and what it is below the next higher one.
    return np.stack([number, np.arange(found.shape[1])])[:, inverse.ravel()], above - level


def _with_levels(
    many: Int64s, tokens: npt.NDArray[np.uint64], weights: Float64s, place: Int64s, below: Float64s
) -> tuple[Int64s, UInt64s, Float64s]:
    """Return the tokens of each side with one for each level of its draw from the highest to its own."""
    number, level = place
    alone = many == 1
    counts = np.where(alone, number + 1, many)
    starts = np.concatenate([[0], np.cumsum(counts)])
    nth = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    side = np.repeat(np.arange(len(many)), counts)
    drawn = alone[side]
    other = np.where(drawn, 0, nth)
    found, weight = tokens[other, side], weights[other, side]
    highest = level[side] - number[side]
    weight = np.where(drawn, below[highest + nth * drawn], weight)
    # The first one is as without levels: what stands for it does not depend on what other groups hold.
    found = np.where(drawn & (nth > 0), mixed(found + nth.astype(np.uint64)), found)
    return starts, found, weight
