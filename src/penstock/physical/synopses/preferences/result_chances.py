"""With what probability each emitted result had been emitted by now: what the inclusion records that ESTIMATE reads are
made of.

The meaning is that of Records in `algebra/nodes/preferences.py`. An entry that waits has a key that no threshold of its
shard was above, so what a result has met before it was emitted need not be known: the first threshold above its key is
the largest so far. Results whose probability is 1 do not change any more, and are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.arrays import Float64s, Int64s, Numbers, Records
from penstock.compilation import loop
from penstock.physical.elements import Bools, Elements, concat, empty, int64s, unnamed
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.preferences.layout import EMPTIED, LEAST_SHED, REST, WHOLE
from penstock.physical.synopses.preferences.machine import granularity
from penstock.physical.synopses.preferences.result_messages import NewResults, Thresholds
from penstock.storage.documents import Document, integer, integers

# A result: integers, and floats. BEST: the largest product of a threshold above its key and its weight, NaN before it
# counts. CAP: the least key that was shed since it was made, NaN for none. CHANCE: as in its record, 0 before it has
# one.
MADE, SINCE, STRETCH, DRAWN, PROBED = 0, 1, 2, 3, 4
INTEGERS = 5
RACE, BASE, COST, BEST, CAP, CHANCE = 0, 1, 2, 3, 4, 5
FLOATS = 6


#: So many changes of probabilities are computed at a time, and those of the instant at which they are reached.
_MOST = 1 << 17


class ChanceChanges(NamedTuple):
    """Changes of results: of `rows`, at instants, the largest product that each has met by then."""

    rows: Int64s
    at: Int64s
    met: Float64s


class ResultChances(Synopsis):
    """The results of a shard that are alive and whose probability may change.

    Args:
        types: of a result's columns, without the record.
        parameters: a record of `PARAMETERS`.
    """

    def __init__(self, types: Sequence[pa.DataType], parameters: Records) -> None:
        self._parameters = parameters
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

    def add(self, kept: Elements, new: NewResults) -> None:
        """Take results that were emitted. kept: of each, with its life, what is read of it later."""
        floats = np.full((FLOATS, len(new.integers[0])), np.nan)
        floats[RACE], floats[BASE], floats[COST] = new.floats
        floats[CHANCE] = 0.0
        self._new.append((kept, new.integers, floats))

    def follow(self, thresholds: Thresholds) -> Iterator[ChanceChanges]:
        """Return the changes by thresholds since the last call, some at a time. Who reads them writes the probabilities
        to `chances`."""
        self._merge()
        start = there = 0
        while start < len(thresholds.at):
            rows, at, met, self._shed_at, self._shed_keys, start, there = _follow(
                thresholds.at,
                thresholds.what,
                thresholds.keys,
                thresholds.granted,
                self._results.ts,
                self._results.exp,
                self._integers,
                self._floats,
                self._parameters,
                self._shed_at,
                self._shed_keys,
                start,
                there,
                _MOST,
            )
            self._chunk = None
            if len(rows):
                yield ChanceChanges(rows, at, met)

    @property
    def results(self) -> Elements:
        """What is kept of the results."""
        self._merge()
        return self._results

    @property
    def chances(self) -> Float64s:
        """Their probabilities, 0 before they count."""
        chances: Float64s = self._floats[CHANCE]
        return chances

    @property
    def costs(self) -> Float64s:
        """By what the largest products are divided."""
        costs: Float64s = self._floats[COST]
        return costs

    @property
    def draws(self) -> Int64s:
        """The draws of their entries."""
        drawn: Int64s = self._integers[DRAWN]
        return drawn

    def expire(self, heartbeat: int) -> None:
        """Forget results that end at the heartbeat or before, and those whose probability is 1."""
        self._merge()
        self._keep((self._results.exp > heartbeat) & (self._floats[CHANCE] < 1.0))

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


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def _faded(at: int, since: int, stretch: int, probed: int, parameters: Records) -> float:
    """Return by what the weight of an entry has faded at an instant, whether it waits or not."""
    every = parameters[0].every[probed]
    if every == 0:
        return 1.0
    if parameters[0].by_age:
        return math.pow(parameters[0].fade, float((at - since) // every))
    if stretch == WHOLE:
        return 1.0
    depth = parameters[0].depths[probed]
    if stretch == REST:
        return math.pow(parameters[0].fade, float(depth))
    return math.pow(
        parameters[0].fade, float(granularity(stretch, at // every, parameters[0].rates[probed], depth) - 1)
    )


@compiled(reads="instants kinds keys emitted ends shed_at shed_keys", error_model="numpy")
def _follow(
    instants: Int64s,
    kinds: Int64s,
    keys: Float64s,
    granted: bool,
    emitted: Int64s,
    ends: Int64s,
    integers: Int64s,
    values: Float64s,
    parameters: Records,
    shed_at: Int64s,
    shed_keys: Float64s,
    start: int,
    there: int,
    most: int,
) -> tuple[Int64s, Int64s, Float64s, Int64s, Float64s, int, int]:
    """Follow the thresholds of a round from number `start` on, until there are `most` changes; return the changes of
    `BEST` as (result, instant, new value), what was shed, the number of the next threshold, and how many results had
    been emitted by then. there: how many had been emitted before."""
    size, sheds = 1024, shed_at.shape[0]
    rows, at, found = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.float64)
    all_at, all_keys = np.empty(sheds + instants.shape[0], np.int64), np.empty(sheds + instants.shape[0], np.float64)
    for i in range(sheds):
        all_at[i], all_keys[i] = shed_at[i], shed_keys[i]
    made, since, stretch, probed = integers[MADE], integers[SINCE], integers[STRETCH], integers[PROBED]
    race, base, best, cap = values[RACE], values[BASE], values[BEST], values[CAP]
    # The results that may still change.
    active = np.empty(emitted.shape[0], np.int64)
    alive = count = 0
    for r in range(there):
        if best[r] != np.inf:
            active[alive] = r
            alive += 1
    number = start
    while number < instants.shape[0] and count < most:
        now, key, what = instants[number], keys[number], kinds[number]
        number += 1
        while there < emitted.shape[0] and (granted or emitted[there] <= now):
            if sheds and math.isnan(cap[there]):
                place = np.searchsorted(all_at[:sheds], made[there])
                if place < sheds:
                    cap[there] = all_keys[place]
            active[alive] = there
            alive += 1
            there += 1
        if what == LEAST_SHED:
            for i in range(alive):
                if not cap[active[i]] <= key:
                    cap[active[i]] = key
            while sheds and all_keys[sheds - 1] >= key:
                sheds -= 1
            all_at[sheds], all_keys[sheds] = now, key
            sheds += 1
            continue
        left = 0
        for i in range(alive):
            r = active[i]
            if what == EMPTIED and made[r] >= now:
                active[left] = r
                left += 1
                continue
            own = max(now, emitted[r])
            if best[r] == np.inf or ends[r] <= own:
                continue
            active[left] = r
            left += 1
            least = key
            if not math.isnan(cap[r]) and not least <= cap[r]:
                least = cap[r]
            # Fading makes no weight larger.
            if least * base[r] <= best[r]:
                continue
            met = np.inf
            if not math.isnan(least):
                period = parameters[0].every[probed[r]]
                keyed_at = max(now, made[r])
                if period and parameters[0].by_age:
                    keyed_at = max(made[r], now // period * period)
                weight = base[r] * _faded(keyed_at, since[r], stretch[r], probed[r], parameters)
                if not weight > 0 or not race[r] / weight < least:
                    continue
                met = least * weight
            if met <= best[r]:
                continue
            best[r] = met
            if count == size:
                size *= 2
                rows, at, found = longer(rows, size), longer(at, size), longer(found, size)
            rows[count], at[count], found[count] = r, own, met
            count += 1
        alive = left
        if math.isnan(key):
            # Nothing waits that was there when entries were shed.
            sheds = 0
    sheds_at, sheds_keys = all_at[:sheds].copy(), all_keys[:sheds].copy()
    return rows[:count], at[:count], found[:count], sheds_at, sheds_keys, number, there


@loop
def longer(array: Numbers, size: int) -> Numbers:
    """Return a copy of `array` of one dimension with space for `size` numbers, which are not set behind its own."""
    more = np.empty(size, array.dtype)
    for i in range(array.shape[0]):
        more[i] = array[i]
    return more
