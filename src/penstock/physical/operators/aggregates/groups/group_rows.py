"""Turn the history of groups into elements: one per interval in which a group's row does not change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Bools, Elements, Int64s, concat, taken
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


@dataclass(frozen=True)
class GroupHistory:
    """How groups changed in a round. Row k: from times[k] on, the group slots[k] has the values results[.][k], and a
    row only if live[k]; sorted by (slot, time). touched: the groups in order; was_live, before: whether each had a row
    before the round, and its values."""

    slots: Int64s
    times: Int64s
    live: Bools
    results: list[pa.Array]
    touched: Int64s
    was_live: Bools
    before: list[pa.Array]


def changed_rows(course: GroupHistory, groups: KeyedTable) -> list[Elements]:
    """Return closed elements with both ends, an open element for the last row of each group, and a negative tuple for
    the row that was open before."""
    index = np.searchsorted(course.touched, course.slots)
    chosen = np.flatnonzero(_changed(course, index))
    slots, times, live, index = course.slots[chosen], course.times[chosen], course.live[chosen], index[chosen]
    if not len(slots):
        return []
    same = slots[1:] == slots[:-1]
    ends = np.where(np.append(same, False), np.append(times[1:], END), END)
    parts: list[Elements] = []
    shown = np.flatnonzero(live)
    if len(shown):
        columns = [*groups.key_columns(slots[shown]), *taken(course.results, chosen[shown])]
        parts.append(Elements(tuple(columns), times[shown], ends[shown]))
    first = np.concatenate([[True], ~same])
    ended = np.flatnonzero(first & course.was_live[index])
    if len(ended):
        columns = [*groups.key_columns(slots[ended]), *taken(course.before, index[ended])]
        size = len(ended)
        parts.append(Elements(tuple(columns), times[ended], np.full(size, END), np.full(size, -1, np.int64)))
    return [concat(parts)] if parts else []


def _changed(course: GroupHistory, index: Int64s) -> Bools:
    """Return which rows differ from the row that the group had just before."""
    leads = np.concatenate([[True], course.slots[1:] != course.slots[:-1]])
    first, second = fingerprints(course.results, len(course.live))
    old_first, old_second = fingerprints(course.before, len(course.was_live))
    before_live = np.where(leads, course.was_live[index], np.concatenate([[False], course.live[:-1]]))
    before_first = np.where(leads, old_first[index], np.concatenate([first[:1], first[:-1]]))
    before_second = np.where(leads, old_second[index], np.concatenate([second[:1], second[:-1]]))
    same = (before_first == first) & (before_second == second)
    changed: Bools = (course.live != before_live) | (course.live & ~same)
    return changed
