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
from penstock.physical.kernels import argsort_uint64, group_codes, sum_by_code
from penstock.physical.operators.contract import Moment, Rejection
from penstock.physical.operators.pending import Early, EarlyOperator
from penstock.physical.plan import UpdateRule, UpdatesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.runs import Runs, probe_run
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


class Updates(EarlyOperator):
    """State: the rows of the relation, updates ahead of the heartbeat, and the keys that may not come again.

    Rows lie in runs by what names them, and those that went as negative tuples beside them until runs are merged; so a
    round costs, and writes, what it changes."""

    def __init__(self, spec: UpdatesSpec) -> None:
        super().__init__(Early())
        self._spec = spec
        self._rows = Runs(spec.key, strict=True)
        self._deleted = Runs(spec.key, strict=False)
        self._rejected: list[Rejection] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "rows": self._rows, "deleted": self._deleted}

    def rejections(self) -> list[Rejection]:
        found, self._rejected = self._rejected, []
        return found

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        arrived = arrived.take(np.argsort(arrived.ts, kind="stable"))
        deleted, held = self._known(self._deleted, arrived), self._known(self._rows, arrived)
        rows = concat([*deleted, *held, arrived])
        was, known = sum(map(len, deleted)), sum(map(len, (*deleted, *held)))
        kind = np.where(rows.signs < 0, _GOES, _COMES)
        kind[:was] = _WAS
        ended_by, verdict = self._judge(rows, kind)
        self._reject(rows, verdict)
        fresh = np.arange(len(rows)) >= known
        comings = _plain(rows.take(np.flatnonzero(fresh & (verdict == _FINE) & (kind == _COMES))))
        # The negative tuple carries the columns of the row it takes away, at its own time.
        ended = np.flatnonzero(ended_by >= 0)
        size = len(ended)
        goings = Elements(
            rows.take(ended).columns,
            rows.ts[ended_by[ended]],
            np.full(size, END, np.int64),
            np.full(size, -1, np.int64),
        )
        changes = [part for part in (comings, goings) if len(part)]
        if changes:
            self._rows.add(concat(changes))
            self._rows.expire(moment.heartbeat)
        if self._spec.once and size:
            self._deleted.add(self._key_alone(rows.take(ended)))
        return changes

    def _known(self, runs: Runs, arrived: Elements) -> list[Elements]:
        """The elements of `runs` with names of rows that arrived, the oldest first: none, or one batch."""
        first, second = fingerprints([arrived.columns[i] for i in self._spec.key], len(arrived))
        _, heads = group_codes(first, second)
        first, second = first[heads], second[heads]
        # All that is held began before what arrives.
        at = np.full(len(heads), int(arrived.ts.max()), np.int64)
        asking = Elements((), at, at + 1)
        found = [run.elements.take(rows) for run in runs for _, rows in (probe_run(run, asking, first, second),)]
        found = [part for part in found if len(part)]
        if not found:
            return []
        netted = _plain(_netted(concat(found)))
        return [netted.take(np.argsort(netted.ts, kind="stable"))] if len(netted) else []

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

    def _key_alone(self, rows: Elements) -> Elements:
        """Of `rows` the keys; their other columns are NULL."""
        columns = [c if i in self._spec.key else pa.nulls(len(rows), c.type) for i, c in enumerate(rows.columns)]
        return _plain(rows.with_columns(columns))

    def _reject(self, rows: Elements, verdict: Int64s) -> None:
        for i in np.flatnonzero(verdict).tolist():
            values = [column[i].as_py() for column in rows.columns]
            record = str(dict(zip(self._spec.names, values, strict=True)))
            self._rejected.append(Rejection(self._spec.source, int(rows.ts[i]), record, REASONS[int(verdict[i])]))


def _netted(elements: Elements) -> Elements:
    """Every tuple as often as it is left when what went is set against what came."""
    if elements.sign is None:
        return elements
    # What came stands first, as it tells since when the tuple is there.
    elements = elements.take(np.argsort(-elements.signs, kind="stable"))
    codes, heads = group_codes(*fingerprints(elements.columns, len(elements)))
    left = np.maximum(sum_by_code(codes, elements.signs, len(heads)), 0)
    return elements.take(np.repeat(heads, left))


def _plain(elements: Elements) -> Elements:
    return Elements(elements.columns, elements.ts, elements.exp)
