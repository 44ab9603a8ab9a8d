"""Messages of a preference in place of the inclusion records of its results: new results, and thresholds in between.

Both travel as elements of the relation, whose last column has the message as bytes: what was emitted, with what its
probability depends on; and rows without values for the thresholds of the shard. Their reader makes the records
from them (`operators/preferences/records.py`), or sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Float64s, Int64s, Records, text_bytes
from penstock.expressions.sampling.inclusion import INCLUSION
from penstock.physical.elements import Elements
from penstock.physical.synopses.preferences.layout import LEAST_SHED, THRESHOLD
from penstock.physical.synopses.preferences.waiting_entries import WorkDone
from penstock.types import END

#: Of a result, in the order of `result_chances.py`; of a threshold, what it is, and whether the round is granted.
_RESULT = np.dtype([("integers", "<i8", 5), ("floats", "<f8", 3)])
_THRESHOLD = np.dtype([("what", "<i8"), ("key", "<f8"), ("granted", "<i8")])


class NewResults(NamedTuple):
    """Of results: the integers MADE, SINCE, STRETCH, DRAWN, PROBED, and the floats RACE, BASE, COST, by number."""

    integers: Int64s
    floats: Float64s


@dataclass(frozen=True)
class Thresholds:
    """The rows of a round beside its results. at: ticks, ascending; what, keys: as in `layout.py`.
    A threshold comes before what is shed at its instant. granted: a round under AUTO, whose results all meet it."""

    at: Int64s
    what: Int64s
    keys: Float64s
    granted: bool


def result_messages(results: Elements, rows: Records) -> Elements:
    """Return results that were emitted, with their messages. rows: of `RESULT`."""
    made = np.zeros(len(rows), _RESULT)
    for place, name in enumerate(("made", "since", "stretch", "drawn")):
        made["integers"][:, place] = rows[name]
    made["integers"][:, 4] = 1 - rows["side"]
    for place, name in enumerate(("race", "product", "cost")):
        made["floats"][:, place] = rows[name]
    return Elements((*results.columns, _as_bytes(made)), results.ts, results.exp)


def threshold_messages(thresholds: Thresholds, types: Sequence[pa.DataType]) -> Elements:
    """Return thresholds as elements. types: of the columns of a result."""
    count = len(thresholds.at)
    made = np.zeros(count, _THRESHOLD)
    made["what"], made["key"], made["granted"] = thresholds.what, thresholds.keys, thresholds.granted
    columns = (*(pa.nulls(count, one) for one in types), _as_bytes(made))
    return Elements(columns, thresholds.at, np.full(count, END))


def read_messages(elements: Elements) -> tuple[Elements, NewResults] | Thresholds:
    """Return results without their messages, and these; or thresholds. Elements of a batch are of one kind."""
    bounds, data = text_bytes(elements.columns[-1])
    content = data[bounds[0] : bounds[-1]]
    if int(bounds[1] - bounds[0]) == _RESULT.itemsize:
        made = content.view(_RESULT)
        new = NewResults(np.ascontiguousarray(made["integers"].T), np.ascontiguousarray(made["floats"].T))
        return Elements(elements.columns[:-1], elements.ts, elements.exp), new
    sent = content.view(_THRESHOLD)
    keys = np.ascontiguousarray(sent["key"])
    return Thresholds(elements.ts, np.ascontiguousarray(sent["what"]), keys, bool(sent["granted"][0]))


def _as_bytes(made: npt.NDArray[np.void]) -> pa.Array:
    offsets = np.arange(len(made) + 1, dtype=np.int32) * np.int32(made.dtype.itemsize)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(made.tobytes())]
    return pa.Array.from_buffers(INCLUSION, len(made), buffers)


def split(done: WorkDone, granted_until: int | None) -> tuple[WorkDone, Thresholds]:
    """Return the results of work, and its thresholds. granted_until: the last tick of a round under AUTO."""
    pairs = done.rows["side"] >= 0
    rows = done.rows.compress(~pairs)
    what, at, keys = (np.ascontiguousarray(rows[name]) for name in ("side", "at", "key"))
    if granted_until is not None:
        # What is shed may have been made anywhere in the round.
        at[what == LEAST_SHED] = granted_until
    thresholds = Thresholds(at, what, keys, granted_until is not None)
    return WorkDone(done.rows.compress(pairs)), thresholds


def together(parts: Sequence[Thresholds]) -> Thresholds:
    """Return the thresholds of a round, of each instant that at its end alone."""
    at, what, keys = (np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "what", "keys"))
    last = np.ones(len(at), np.bool_)
    thresholds = np.flatnonzero(what == THRESHOLD)
    last[thresholds[:-1]] = at[thresholds[1:]] != at[thresholds[:-1]]
    return replace(parts[0], at=at[last], what=what[last], keys=keys[last])
