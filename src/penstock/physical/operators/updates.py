"""Updates of a relation, in (timestamp, arrival) order: rows come, and go by negative tuples (LANGUAGE 3).

What names a row is its primary key, or all its columns but timestamp and operation; then a `-` takes the oldest of
equal rows. An update that cannot be is rejected with its reason, and the relation stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import argsort_uint64, group_codes
from penstock.physical.operators.contract import Moment, Operator, Rejection
from penstock.physical.operators.pending import Early
from penstock.physical.plan import UpdateRule, UpdatesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.held import Held
from penstock.types import END

_COMES, _GOES, _WAS = 0, 1, 2
_FINE, _NO_ROW, _DUPLICATE, _USED = 0, 1, 2, 3
DUPLICATE_KEY = "duplicate primary key"
REASONS = {
    _NO_ROW: "no such row to delete",
    _DUPLICATE: DUPLICATE_KEY,
    _USED: "primary key used again after its deletion",
}


@nb.njit(cache=True)
def _pair(codes, order, kind, ended_by, verdict, queue):  # type: ignore[no-untyped-def]
    """Bags: ended_by[i] of a coming becomes the `-` that takes it away, first in, first out. order: sorted by code,
    then in time."""
    n = order.shape[0]
    i = 0
    while i < n:
        code = codes[order[i]]
        head = tail = i
        while i < n and codes[order[i]] == code:
            row = order[i]
            if kind[row] == _COMES:
                queue[tail] = row
                tail += 1
            elif head < tail:
                ended_by[queue[head]] = row
                head += 1
            else:
                verdict[row] = _NO_ROW
            i += 1


@nb.njit(cache=True)
def _by_key(codes, order, kind, replaces, once, ended_by, verdict):  # type: ignore[no-untyped-def]
    """At most one row of each code. replaces: a coming ends the row there is, and a going of none is
    nothing, else either is rejected; once: a code whose
    row was deleted (or that begins with a row of kind _WAS) has no other."""
    n = order.shape[0]
    i = 0
    while i < n:
        code = codes[order[i]]
        present = np.int64(-1)
        used = False
        while i < n and codes[order[i]] == code:
            row = order[i]
            if kind[row] == _WAS:
                used = True
            elif kind[row] == _GOES:
                if present >= 0:
                    ended_by[present] = row
                    present = np.int64(-1)
                    used = True
                elif not replaces:
                    verdict[row] = _NO_ROW
            elif present >= 0 and not replaces:
                verdict[row] = _DUPLICATE
            elif once and used:
                verdict[row] = _USED
            else:
                if present >= 0:
                    ended_by[present] = row
                present = row
            i += 1


class Updates(Operator):
    """State: the rows of the relation, updates ahead of the heartbeat, and the keys that may not come again."""

    def __init__(self, spec: UpdatesSpec) -> None:
        self._spec = spec
        self._early = Early()
        self._rows = Held()
        self._deleted = Held()
        self._rejected: list[Rejection] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "rows": self._rows, "deleted": self._deleted}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []

    def rejections(self) -> list[Rejection]:
        found, self._rejected = self._rejected, []
        return found

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        arrived = arrived.take(np.argsort(arrived.ts, kind="stable"))
        known = [held for held in (self._deleted.elements, self._rows.elements) if held is not None and len(held)]
        rows = concat([*known, arrived])
        kind = np.where(rows.signs < 0, _GOES, _COMES)
        kind[: self._deleted.rows] = _WAS
        ended_by, verdict = self._judge(rows, kind)
        stays = (ended_by < 0) & (verdict == _FINE) & (kind == _COMES)
        ended = np.flatnonzero(ended_by >= 0)
        self._rows.replace(_plain(rows.take(np.flatnonzero(stays))))
        self._remember(rows, np.concatenate([np.flatnonzero(kind == _WAS), ended]))
        self._reject(rows, verdict)
        fresh = np.arange(len(rows)) >= len(rows) - len(arrived)
        comings = _plain(rows.take(np.flatnonzero(fresh & (verdict == _FINE) & (kind == _COMES))))
        # The negative tuple carries the columns of the row it takes away, at its own time.
        size = len(ended)
        goings = Elements(
            rows.take(ended).columns,
            rows.ts[ended_by[ended]],
            np.full(size, END, np.int64),
            np.full(size, -1, np.int64),
        )
        return [part for part in (comings, goings) if len(part)]

    def _judge(self, rows: Elements, kind: Int64s) -> tuple[Int64s, Int64s]:
        first, second = fingerprints([rows.columns[i] for i in self._spec.key], len(rows))
        codes, _ = group_codes(first, second)
        order = argsort_uint64(codes.astype(np.uint64))
        ended_by, verdict = np.full(len(rows), -1, np.int64), np.zeros(len(rows), np.int64)
        rule = self._spec.rule
        if rule is UpdateRule.BAG:
            _pair(codes, order, kind, ended_by, verdict, np.empty(len(rows), np.int64))
        else:
            _by_key(codes, order, kind, rule is UpdateRule.REPLACE, self._spec.once, ended_by, verdict)
        return ended_by, verdict

    def _remember(self, rows: Elements, gone: Int64s) -> None:
        """Of the rows that are `gone`, the keys, where they may not be used again."""
        if not self._spec.once or len(gone) == self._deleted.rows:
            return
        keys = rows.take(gone)
        columns = [c if i in self._spec.key else pa.nulls(len(keys), c.type) for i, c in enumerate(keys.columns)]
        self._deleted.replace(_plain(keys.with_columns(columns)))

    def _reject(self, rows: Elements, verdict: Int64s) -> None:
        for i in np.flatnonzero(verdict).tolist():
            values = [column[i].as_py() for column in rows.columns]
            record = str(dict(zip(self._spec.names, values, strict=True)))
            self._rejected.append(Rejection(self._spec.source, int(rows.ts[i]), record, REASONS[int(verdict[i])]))


def _plain(elements: Elements) -> Elements:
    return Elements(elements.columns, elements.ts, elements.exp)
