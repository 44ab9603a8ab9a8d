"""What is seen of a stream to measure how closely it keeps to promises: its instants, and a sample of its values.

The sample is of values, by their hash: of a value all rows are in it, or none. Of an order also the instants at which
the greatest value rises, and the least one falls, since every row is held against these. Tasks see parts of a round;
`runtime/monitoring/constraints.py` puts them together.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algebra.analysis.promise_candidates import has_order
from penstock.algebra.nodes.scans import Source
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.extremes import order_keys
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.storage.documents import Document, Json, as_array, as_document, as_integer, as_text, text

#: One of so many values is in the sample: 2 to this power.
SAMPLE_BITS = 6
#: Instants, and rows that raise the greatest value, that a task reports of a round. Of more those between are left out:
#: k is then smaller by at most the rows between two of them.
MOST_REPORTED = 8_192
_MIXED = np.uint64(0x9E3779B97F4A7C15)
_LEAST = np.iinfo(np.int64).min
_NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True)
class SampledRows:
    """Rows of the sample, those of one value and instant together.

    Args:
        hashes: of the values, as bits of int64.
        ts: their instants.
        rows: how many each stands for.
        keys: of an order, the values as integers in their order; empty otherwise.
        risen: of an order, (instants, keys) of rows that raise the greatest key so far.
        fallen: the same of `descending` keys: of rows that lower the least one.
    """

    hashes: Int64s
    ts: Int64s
    rows: Int64s
    keys: Int64s = field(default_factory=lambda: _NO_TIMES)
    risen: tuple[Int64s, Int64s] = (_NO_TIMES, _NO_TIMES)
    fallen: tuple[Int64s, Int64s] = (_NO_TIMES, _NO_TIMES)


@dataclass(frozen=True)
class ObservedRows:
    """What one task has seen of a stream in a round.

    Args:
        instants, counts: how many elements have each timestamp; ascending.
        samples: by columns.
    """

    source: str
    instants: Int64s
    counts: Int64s
    samples: Mapping[tuple[int, ...], SampledRows]

    def as_json(self) -> Document:
        samples: list[Json] = [
            {
                "columns": list(columns),
                "arrays": [_text(a) for a in (s.hashes, s.ts, s.rows, s.keys, *s.risen, *s.fallen)],
            }
            for columns, s in self.samples.items()
        ]
        return {
            "source": self.source,
            "instants": _text(self.instants),
            "counts": _text(self.counts),
            "samples": samples,
        }

    @staticmethod
    def from_json(fields: Document) -> ObservedRows:
        """Return what `as_json` wrote."""
        samples = {}
        for one in as_array(fields["samples"], "samples"):
            sample = as_document(one, "sample")
            columns = tuple(as_integer(c, "columns") for c in as_array(sample["columns"], "columns"))
            arrays = [_array(as_text(a, "arrays")) for a in as_array(sample["arrays"], "arrays")]
            risen, fallen = (arrays[4], arrays[5]), (arrays[6], arrays[7])
            samples[columns] = SampledRows(arrays[0], arrays[1], arrays[2], arrays[3], risen, fallen)
        instants, counts = _array(text(fields, "instants")), _array(text(fields, "counts"))
        return ObservedRows(text(fields, "source"), instants, counts, samples)


class Observer:
    """Sees the elements of one stream that one task accepts.

    Args:
        source: with the columns that are measured (`Source.observed`).
        columns: positions of the declared columns that the elements have.
    """

    def __init__(self, source: Source, columns: Sequence[int]) -> None:
        self._source = source
        self._places = {
            measured: tuple(columns.index(c) for c in measured)
            for measured in source.observed
            if set(measured) <= set(columns)
        }
        self._begin()

    def _begin(self) -> None:
        self._runs: list[tuple[Int64s, Int64s]] = []
        self._samples: dict[tuple[int, ...], list[SampledRows]] = {columns: [] for columns in self._places}

    def take(self, elements: Elements) -> None:
        """See accepted elements, at least one."""
        found = ArrivedInstants(elements.ts)
        self._runs.append((found.instants, found.counts))
        for columns, places in self._places.items():
            self._samples[columns].append(_sampled([elements.columns[p] for p in places], found))

    def seen(self) -> ObservedRows | None:
        """Return what has been seen since the last call; None for nothing."""
        if not self._runs:
            return None
        instants, counts = _runs(*(np.concatenate([run[i] for run in self._runs]) for i in (0, 1)))
        samples = {columns: _together(parts) for columns, parts in self._samples.items()}
        self._begin()
        return ObservedRows(self._source.name, instants, counts, samples)


class ArrivedInstants:
    """The different timestamps of some elements, at least one, in ascending order, and how often each occurs."""

    def __init__(self, ts: Int64s) -> None:
        self.ts = ts
        #: The elements in the order of their timestamps; None where they have it.
        self._order: Int64s | None = None
        if not bool((ts[1:] >= ts[:-1]).all()):
            self._order = np.argsort(ts, kind="stable")
            ts = ts[self._order]
        self._begins = np.append(0, np.flatnonzero(ts[1:] != ts[:-1]) + 1)
        self.instants = ts[self._begins]
        self.counts = np.diff(self._begins, append=len(ts))

    def greatest(self, keys: Int64s) -> Int64s:
        """Return the greatest key of each instant. keys: of the elements."""
        found: Int64s = np.maximum.reduceat(keys if self._order is None else keys[self._order], self._begins)
        return found


def _runs(instants: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return different timestamps, and how many elements have them; of very many only some, with those between."""
    if not bool((instants[1:] > instants[:-1]).all()):
        order = np.argsort(instants, kind="stable")
        instants, counts = instants[order], counts[order]
        begins = np.append(0, np.flatnonzero(instants[1:] != instants[:-1]) + 1)
        instants, counts = instants[begins], np.add.reduceat(counts, begins)
    if len(instants) > MOST_REPORTED:
        ends = np.linspace(0, len(instants) - 1, MOST_REPORTED).astype(np.int64)
        instants, counts = instants[ends], np.diff(np.cumsum(counts)[ends], prepend=0)
    return instants, counts


def _sampled(columns: Sequence[pa.Array], found: ArrivedInstants) -> SampledRows:
    first, _ = fingerprints(columns, len(found.ts))
    hashes = first * _MIXED
    whole = _whole(columns, len(found.ts))
    chosen = hashes >> np.uint64(64 - SAMPLE_BITS) == 0 if SAMPLE_BITS else np.ones(len(hashes), np.bool_)
    rows = np.flatnonzero(chosen if whole is None else chosen & whole)
    ones = np.ones(len(rows), np.int64)
    sampled = SampledRows(hashes[rows].view(np.int64), found.ts[rows], ones)
    if len(columns) > 1 or not has_order(columns[0].type):
        return sampled
    keys = order_keys(columns[0])
    both = [one if whole is None else np.where(whole, one, _LEAST) for one in (keys, descending(keys))]
    risen, fallen = (_risen(found.instants, found.greatest(one)) for one in both)
    return replace(sampled, keys=keys[rows], risen=risen, fallen=fallen)


def descending(keys: Int64s) -> Int64s:
    """Return keys in the opposite order."""
    return ~keys


def _whole(columns: Sequence[pa.Array], length: int) -> Bools | None:
    """Return the rows without NULL and NaN, of which something is promised; None for all."""
    found: Bools | None = None
    for column in columns:
        there: Bools | None = None
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(column.type):
            numbers = ~np.isnan(column.to_numpy(zero_copy_only=False))
            there = numbers if there is None else there & numbers
        if there is not None:
            found = there if found is None else found & there
    return found


def _risen(instants: Int64s, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the instants at which the greatest key rises, and that key.

    Args:
        instants, keys: different ones in ascending order, and the greatest key of each.
    """
    highest = np.maximum.accumulate(keys)
    rises = np.append(highest[:1] > _LEAST, highest[1:] > highest[:-1])
    rows = np.flatnonzero(rises)
    if len(rows) > MOST_REPORTED:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_REPORTED).astype(np.int64)]
    return instants[rows], highest[rows]


def risen(ts: Int64s, keys: Int64s) -> tuple[Int64s, Int64s]:
    """Return the instants at which the greatest key rises, and that key. ts, keys: of rows in any order."""
    if not len(ts):
        return ts, keys
    found = ArrivedInstants(ts)
    return _risen(found.instants, found.greatest(keys))


def _together(parts: Sequence[SampledRows]) -> SampledRows:
    """Return the sample of several batches, rows of one value and instant as one."""
    hashes, ts, rows = (np.concatenate([getattr(p, name) for p in parts]) for name in ("hashes", "ts", "rows"))
    keys = np.concatenate([p.keys for p in parts])
    order = np.lexsort((ts, hashes))
    hashes, ts, rows = hashes[order], ts[order], rows[order]
    begins = np.flatnonzero(np.append(True, (hashes[1:] != hashes[:-1]) | (ts[1:] != ts[:-1]))[: len(hashes)])
    sums = np.add.reduceat(rows, begins) if len(rows) else rows
    raised = risen(*(np.concatenate([p.risen[i] for p in parts]) for i in (0, 1)))
    lowered = risen(*(np.concatenate([p.fallen[i] for p in parts]) for i in (0, 1)))
    return SampledRows(hashes[begins], ts[begins], sums, keys[order][begins] if len(keys) else keys, raised, lowered)


def _text(array: Int64s) -> str:
    return b64encode(np.ascontiguousarray(array, np.int64).tobytes()).decode("ascii")


def _array(written: str) -> Int64s:
    return np.frombuffer(b64decode(written), np.int64)
