"""With what probability each emitted result had been emitted by now: the inclusion records that ESTIMATE reads.

The meaning is that of Records in `algebra/nodes/preferences.py`. An entry that waits has a key that no threshold of its
shard was above, so what a result has met before it was emitted need not be known: the first threshold above its key is
the largest so far. Results whose probability is 1 do not change any more, and are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.expressions.sampling.inclusion import SIDE, packed
from penstock.physical.elements import Bools, Elements, concat, empty, int64s, unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.preferences.layout import (
    BY_AGE,
    DEPTHS,
    EVERY,
    LEAST_SHED,
    R_AT,
    R_DRAWN,
    R_MADE,
    R_SIDE,
    R_SINCE,
    R_STRETCH,
    RATES,
    REST,
    THRESHOLD,
    V_BASE,
    V_COST,
    V_KEY,
    V_RACE,
    WHOLE,
    Float64s,
    Int64s,
)
from penstock.physical.synopses.preferences.machine import granularity
from penstock.physical.synopses.preferences.waiting_entries import WorkDone
from penstock.storage.documents import Document, integer, integers

# A result: integers, and floats. BEST: the largest product of a threshold above its key and its weight, NaN before it
# counts. CAP: the least key that was shed since it was made, NaN for none. CHANCE: as its record says, 0 before it has
# one.
MADE, SINCE, STRETCH, DRAWN, PROBED = 0, 1, 2, 3, 4
INTEGERS = 5
RACE, BASE, COST, BEST, CAP, CHANCE = 0, 1, 2, 3, 4, 5
FLOATS = 6


@dataclass(frozen=True)
class Thresholds:
    """What a round says beside results. at: ticks, ascending; what: THRESHOLD or LEAST_SHED; keys: as in `layout.py`.
    A threshold comes before what is shed at its instant. granted: a round under AUTO, whose results all meet it."""

    at: Int64s
    what: Int64s
    keys: Float64s
    granted: bool


class ResultChances(Synopsis):
    """The results of a shard that are alive and whose probability may change.

    Args:
        types: of a result's columns, without the record.
        parameters: columns SORT.. of `layout.py`.
        fade: the factor a.
    """

    def __init__(self, types: Sequence[pa.DataType], parameters: Int64s, fade: float) -> None:
        self._parameters, self._fade = parameters, fade
        #: ts: when they were emitted, ascending.
        self._results = empty(types)
        self._integers: Int64s = np.empty((INTEGERS, 0), np.int64)
        self._floats: Float64s = np.empty((FLOATS, 0), np.float64)
        #: What was shed: instants, and keys that increase with them. Others are less than a later one.
        self._shed_at: Int64s = np.empty(0, np.int64)
        self._shed_keys: Float64s = np.empty(0, np.float64)
        self._new: list[tuple[Elements, Int64s, Float64s]] = []
        self._chunk: pa.RecordBatch | None = None
        self._id = 0

    def add(self, results: Elements, rows: Int64s, values: Float64s) -> None:
        """Take results that were emitted. rows, values: of each, as in `layout.py`."""
        made = np.empty((INTEGERS, len(rows)), np.int64)
        for column, taken in ((MADE, R_MADE), (SINCE, R_SINCE), (STRETCH, R_STRETCH), (DRAWN, R_DRAWN)):
            made[column] = rows[:, taken]
        made[PROBED] = 1 - rows[:, R_SIDE]
        found = np.full((FLOATS, len(rows)), np.nan)
        found[RACE], found[BASE], found[COST] = values[:, V_RACE], values[:, V_BASE], values[:, V_COST]
        found[CHANCE] = 0.0
        self._new.append((results, made, found))

    def follow(self, thresholds: Thresholds | None, ended: int) -> Elements | None:
        """Return the changes of the results with their records, by thresholds since the last call; then forget what
        ends at `ended` or before."""
        self._merge()
        if thresholds is None:
            self.expire(ended)
            return None
        rows, at, met, self._shed_at, self._shed_keys = _follow(
            thresholds.at, thresholds.what, thresholds.keys, thresholds.granted, self._results.ts, self._results.exp,
            self._integers, self._floats, self._parameters, self._fade, self._shed_at, self._shed_keys,
        )  # fmt: skip
        self._chunk = None
        changes = self._changes(rows, at, met) if len(rows) else None
        self.expire(ended)
        return changes

    def expire(self, ended: int) -> None:
        """Forget results that end at `ended` or before, and those whose probability is 1."""
        self._merge()
        self._keep((self._results.exp > ended) & (self._floats[CHANCE] < 1.0))

    def forget_sheds(self) -> None:
        """Forget what was shed, where no entry waits that was there."""
        self._shed_at, self._shed_keys = self._shed_at[:0], self._shed_keys[:0]

    def _merge(self) -> None:
        if not self._new:
            return
        parts = [self._results, *(part[0] for part in self._new)]
        results = concat([part for part in parts if len(part)] or parts[:1])
        integers = np.concatenate([self._integers, *(part[1] for part in self._new)], axis=1)
        values = np.concatenate([self._floats, *(part[2] for part in self._new)], axis=1)
        order = np.argsort(results.ts, kind="stable")
        self._results, self._new, self._chunk = results.take(order), [], None
        self._integers, self._floats = np.ascontiguousarray(integers[:, order]), np.ascontiguousarray(values[:, order])

    def _keep(self, kept: Bools) -> None:
        if kept.all():
            return
        places = np.flatnonzero(kept)
        self._results, self._chunk = self._results.take(places), None
        self._integers = np.ascontiguousarray(self._integers[:, places])
        self._floats = np.ascontiguousarray(self._floats[:, places])

    def _changes(self, rows: Int64s, at: Int64s, met: Float64s) -> Elements:
        order = np.argsort(rows, kind="stable")
        rows, at, met = rows[order], at[order], met[order]
        ratios = (met / self._floats[COST][rows]).tolist()
        # One by one: compiled loops over several values may give other bits.
        chances = np.fromiter((-math.expm1(-ratio) for ratio in ratios), np.float64, len(ratios))
        first = np.diff(rows, prepend=-1) != 0
        before = np.where(first, self._floats[CHANCE][rows], np.concatenate([[0.0], chances[:-1]]))
        self._floats[CHANCE][rows] = chances
        changed = chances != before
        rows, at, chances, before = rows[changed], at[changed], chances[changed], before[changed]
        had = before > 0.0
        which = np.concatenate([rows[had], rows])
        sides = np.zeros(len(which), SIDE)
        sides["pi"], sides["cluster"] = np.concatenate([before[had], chances]), self._integers[DRAWN][which]
        signs = np.concatenate([np.full(int(had.sum()), -1), np.ones(len(rows), np.int64)])
        found = self._results.take(which)
        return Elements((*found.columns, packed(sides)), np.concatenate([at[had], at]), found.exp, signs)

    # -- durability ------------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple[Document, Chunks]:
        self._merge()
        if self._chunk is None:
            self._id += 1
            arrays = [*self._results.columns, pa.array(self._results.ts), pa.array(self._results.exp)]
            arrays += [pa.array(one) for one in (*self._integers, *self._floats)]
            self._chunk = unnamed(arrays)
        sheds = {"shed at": self._shed_at.tolist(), "shed keys": self._shed_keys.view(np.int64).tolist()}
        return {"id": self._id, **sheds}, {self._id: self._chunk}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._id = integer(manifest, "id")
        self._chunk = chunk = chunks[self._id]
        self._shed_at = np.array(integers(manifest, "shed at"), np.int64)
        self._shed_keys = np.array(integers(manifest, "shed keys"), np.int64).view(np.float64)
        width = len(self._results.columns)
        columns = chunk.columns
        self._results = Elements(tuple(columns[:width]), int64s(columns[width]), int64s(columns[width + 1]))
        own = columns[width + 2 :]
        self._integers = np.array([int64s(one) for one in own[:INTEGERS]], np.int64).reshape(INTEGERS, -1)
        self._floats = np.array([np.asarray(one) for one in own[INTEGERS:]], np.float64).reshape(FLOATS, -1)

    @property
    def rows(self) -> int:
        return len(self._results) + sum(len(part[0]) for part in self._new)

    @property
    def nbytes(self) -> int:
        return self._results.nbytes + self._integers.nbytes + self._floats.nbytes


def split(done: WorkDone, granted_until: int | None) -> tuple[WorkDone, Thresholds]:
    """Return the results of work, and what it says beside them. granted_until: the last tick of a round under AUTO."""
    pairs = done.integers[:, R_SIDE] >= 0
    rows, keys = done.integers[~pairs], done.values[~pairs, V_KEY]
    what, at = rows[:, R_SIDE], rows[:, R_AT].copy()
    if granted_until is not None:
        # What is shed may have been made anywhere in the round.
        at[what == LEAST_SHED] = granted_until
    thresholds = Thresholds(at, what.copy(), keys, granted_until is not None)
    return WorkDone(done.integers[pairs], done.values[pairs]), thresholds


def together(parts: Sequence[Thresholds]) -> Thresholds:
    """Return the thresholds of a round, of each instant that at its end alone."""
    at, what, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "what", "keys"))
    last = np.ones(len(at), np.bool_)
    thresholds = np.flatnonzero(what == THRESHOLD)
    last[thresholds[:-1]] = at[thresholds[1:]] != at[thresholds[:-1]]
    return replace(parts[0], at=at[last], what=what[last], keys=keys[last])


@nb.njit(cache=True, error_model="numpy")
def _faded(at, since, stretch, probed, parameters, fade):  # type: ignore[no-untyped-def]
    """Return by what the weight of an entry has faded at an instant, whether it waits or not."""
    every = parameters[EVERY + probed]
    if every == 0:
        return 1.0
    if parameters[BY_AGE]:
        return math.pow(fade, float((at - since) // every))
    if stretch == WHOLE:
        return 1.0
    depth = parameters[DEPTHS + probed]
    if stretch == REST:
        return math.pow(fade, float(depth))
    return math.pow(fade, float(granularity(stretch, at // every, parameters[RATES + probed], depth) - 1))


@nb.njit(cache=True, error_model="numpy")
def _follow(  # type: ignore[no-untyped-def]
    said_at, said_what, said_keys, granted, emitted, ends, integers, values, parameters, fade, shed_at, shed_keys,
):  # fmt: skip
    """Follow the thresholds of a round; return the changes of `BEST` as (result, instant, new value), and what was
    shed."""
    size, sheds = 1024, shed_at.shape[0]
    rows, at, found = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64)
    all_at, all_keys = np.empty(sheds + said_at.shape[0], np.int64), np.empty(sheds + said_at.shape[0], np.float64)
    all_at[:sheds] = shed_at
    all_keys[:sheds] = shed_keys
    made, since, stretch, probed = integers[MADE], integers[SINCE], integers[STRETCH], integers[PROBED]
    race, base, best, cap = values[RACE], values[BASE], values[BEST], values[CAP]
    count = there = 0
    for said in range(said_at.shape[0]):
        now, key = said_at[said], said_keys[said]
        while there < emitted.shape[0] and (granted or emitted[there] <= now):
            if sheds and math.isnan(cap[there]):
                place = np.searchsorted(all_at[:sheds], made[there])
                if place < sheds:
                    cap[there] = all_keys[place]
            there += 1
        if said_what[said] == LEAST_SHED:
            for r in range(there):
                if not cap[r] <= key:
                    cap[r] = key
            while sheds and all_keys[sheds - 1] >= key:
                sheds -= 1
            all_at[sheds], all_keys[sheds] = now, key
            sheds += 1
            continue
        for r in range(there):
            least = key
            if not math.isnan(cap[r]) and not least <= cap[r]:
                least = cap[r]
            # Fading makes no weight larger.
            if best[r] == np.inf or least * base[r] <= best[r] or ends[r] <= now:
                continue
            own = max(now, emitted[r])
            if ends[r] <= own:
                continue
            met = np.inf
            if not math.isnan(least):
                period = parameters[EVERY + probed[r]]
                keyed_at = max(now, made[r])
                if period and parameters[BY_AGE]:
                    keyed_at = max(made[r], now // period * period)
                weight = base[r] * _faded(keyed_at, since[r], stretch[r], probed[r], parameters, fade)
                if not weight > 0 or not race[r] / weight < least:
                    continue
                met = least * weight
            if met <= best[r]:
                continue
            best[r] = met
            if count == size:
                size *= 2
                rows, at, found = _longer(rows, size), _longer(at, size), _longer(found, size)
            rows[count], at[count], found[count] = r, own, met
            count += 1
    return rows[:count], at[:count], found[:count], all_at[:sheds].copy(), all_keys[:sheds].copy()


@nb.njit(cache=True)
def _longer(array, size):  # type: ignore[no-untyped-def]
    more = np.empty(size, array.dtype)
    more[: array.shape[0]] = array
    return more
