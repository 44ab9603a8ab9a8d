"""Updates of a relation, in (timestamp, arrival) order: insertions, and deletions by negative tuples [semantics 3].

A row is identified by its primary key, or else by all its columns except timestamp and operation; in the second case a
`-` deletes the oldest of equal rows. An update that cannot be applied is rejected with a reason, and leaves the
relation unchanged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.expressions.values.shown import shown_row
from penstock.physical.elements import Bools, Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_time, argsort_uint64, group_codes, in_time, sum_by_code
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.operators.base.contract import JointAdvance, Moment, Rejection
from penstock.physical.operators.base.owned_rows import FEW_ROWS, OwnedRows, unshared
from penstock.physical.operators.base.reorder_buffer import JointInput, ReorderBuffer, ReorderingOperator
from penstock.physical.plan.inputs import UpdateRule, UpdatesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.sorted_runs import SortedRuns, cancel, probe_run
from penstock.types import END

_COMES, _GOES, _WAS = 0, 1, 2
_FINE, _NO_ROW, _DUPLICATE, _USED = 0, 1, 2, 3
DUPLICATE_KEY = "duplicate primary key"
REASONS = {
    _NO_ROW: "no such row to delete",
    _DUPLICATE: DUPLICATE_KEY,
    _USED: "primary key used again after its deletion",
}


@loop
def _pair(codes: Int64s, order: Int64s, kind: Int64s, ended_by: Int64s, verdict: Int64s, queue: Int64s) -> None:
    """Pair insertions and deletions of a bag, first in, first out: ended_by[i] of an insertion becomes the row of the
    `-` that deletes it. order: rows sorted by code, then by time."""
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


@loop
def _by_key(
    codes: Int64s, order: Int64s, kind: Int64s, replaces: bool, once: bool, ended_by: Int64s, verdict: Int64s
) -> None:
    """Pair insertions and deletions where each code has at most one row.

    replaces: an insertion replaces the present row, and a deletion of an absent row has no effect; otherwise both are
    rejected. once: after the row of a code was deleted (or after a row of kind _WAS) the code cannot be inserted
    again."""
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


class Updates(ReorderingOperator):
    """State: the rows of the relation, updates ahead of the heartbeat, and the keys that may not be inserted again.

    Rows are kept in runs sorted by their identity; deleted rows are kept as negative tuples in the same runs until the
    runs are merged. So the cost of a round, and what it writes, is proportional to its changes."""

    def __init__(self, spec: UpdatesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        self._rows = SortedRuns(spec.key, strict=True)
        self._deleted = SortedRuns(spec.key, strict=False)
        self._rejected: list[Rejection] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "rows": self._rows, "deleted": self._deleted}

    def rejections(self) -> list[Rejection]:
        rejected, self._rejected = self._rejected, []
        return rejected

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        if not in_time(arrived.ts):
            arrived = arrived.take(np.argsort(arrived.ts, kind="stable"))
        deleted, stored = self._known(self._deleted, arrived), self._known(self._rows, arrived)
        rows = concat([*deleted, *stored, arrived])
        deleted_count, known_count = sum(map(len, deleted)), sum(map(len, (*deleted, *stored)))
        kind = np.where(rows.signs < 0, _GOES, _COMES)
        kind[:deleted_count] = _WAS
        key = [rows.columns[i] for i in self._spec.key]
        ended_by, verdict = judged(fingerprints(key, len(rows)), kind, self._spec.rule, self._spec.once)
        self._reject(rows, verdict)
        fresh = np.arange(len(rows)) >= known_count
        comings = _plain(rows.take(np.flatnonzero(fresh & (verdict == _FINE) & (kind == _COMES))))
        # The negative tuple has the columns of the row that it deletes, and the time of the deletion.
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

    def joint_key(self) -> Hashable | None:
        spec = self._spec
        return None if spec.once else (spec.key, spec.types, spec.rule)

    @staticmethod
    def advance_jointly(operators: Sequence[Updates], moments: Sequence[Moment]) -> JointAdvance:
        """Advance relations that have few rows. As these are few, all are written when one changes, so deleted
        rows leave no negative tuples behind."""
        few = [i for i, one in enumerate(operators) if one._rows.rows <= FEW_ROWS]
        came = JointInput(few, [one._early for one in operators], moments[0].heartbeat)
        if came.due is None:
            return JointAdvance({i: [] for i in few}, came.accept)
        advanced = _JointUpdates.of(operators, came.due)
        if advanced is None:
            return JointAdvance({}, lambda: None)

        def settle() -> None:
            came.accept()
            advanced.settle(operators)

        return JointAdvance({i: [] for i in few} | advanced.emitted, settle)

    def _known(self, runs: SortedRuns, arrived: Elements) -> list[Elements]:
        """Return the elements of `runs` whose identity is that of a row that arrived, oldest first: none, or one
        batch."""
        if not runs.rows:
            return []
        first, second = fingerprints([arrived.columns[i] for i in self._spec.key], len(arrived))
        _, heads = group_codes(first, second)
        first, second = first[heads], second[heads]
        # All elements in the state began before the elements that arrive.
        at = np.full(len(heads), int(arrived.ts.max()), np.int64)
        asking = Elements((), at, at + 1)
        matching = [run.elements.take(rows) for run in runs for _, rows in (probe_run(run, asking, first, second),)]
        matching = [part for part in matching if len(part)]
        if not matching:
            return []
        netted = _plain(_netted(concat(matching)))
        return [netted.take(np.argsort(netted.ts, kind="stable"))] if len(netted) else []

    def _key_alone(self, rows: Elements) -> Elements:
        """Return `rows` with every column that is not part of the key set to NULL."""
        columns = [c if i in self._spec.key else pa.nulls(len(rows), c.type) for i, c in enumerate(rows.columns)]
        return _plain(rows.with_columns(columns))

    def _reject(self, rows: Elements, verdict: Int64s) -> None:
        self._rejected += self._rejections(rows, verdict)

    def _rejections(self, rows: Elements, verdict: Int64s) -> Iterator[Rejection]:
        batch = pa.RecordBatch.from_arrays(list(rows.columns), list(self._spec.names)) if verdict.any() else None
        for i in np.flatnonzero(verdict).tolist():
            record = shown_row(batch, i)
            yield Rejection(self._spec.source, int(rows.ts[i]), record, REASONS[int(verdict[i])])


@dataclass(frozen=True)
class _JointUpdates:
    """What updates do to several relations. emitted, left: by relation that changes, its changes and its rows
    afterwards; rejected: by relation, the updates that cannot be applied."""

    rejected: dict[int, list[Rejection]]
    emitted: dict[int, list[Elements]]
    left: dict[int, Elements]

    @staticmethod
    def of(operators: Sequence[Updates], new: OwnedRows) -> _JointUpdates | None:
        """Apply the updates `new`; None where rows end by themselves."""
        concerned = np.unique(new.owners).tolist()
        stored = _alone([(i, part) for i in concerned for part in operators[i]._rows.parts])
        known = 0 if stored is None else len(stored)
        rows = new if stored is None else OwnedRows.both(stored, new)
        if bool((rows.rows.exp < END).any()):
            return None
        # What is stored began before what arrived. Of one instant, what came first is first.
        order = argsort_time(rows.rows.ts)
        rows, fresh = rows.take(order), order >= known
        spec = operators[concerned[0]]._spec
        kind = np.where(rows.rows.signs < 0, _GOES, _COMES)
        ended_by, verdict = judged(rows.fingerprints(spec.key), kind, spec.rule, spec.once)
        there = (verdict == _FINE) & (kind == _COMES)
        comings, ended = np.flatnonzero(fresh & there), np.flatnonzero(ended_by >= 0)
        changes = rows.take(np.concatenate([comings, ended]))
        # The negative tuple has the columns of the row that it deletes, and the time of the deletion.
        ts, signs = changes.rows.ts.copy(), np.ones(len(changes), np.int64)
        ts[len(comings) :], signs[len(comings) :] = rows.rows.ts[ended_by[ended]], -1
        changes = OwnedRows(Elements(changes.rows.columns, ts, changes.rows.exp, signs), changes.owners)
        left = rows.take(np.flatnonzero(there & (ended_by < 0)))
        count = len(operators)
        emitted = {i: [_unsigned(part)] for i, part in enumerate(changes.in_order().split(count)) if len(part)}
        kept = left.in_order().split(count)
        rejected: dict[int, list[Rejection]] = {}
        wrong = np.flatnonzero(verdict)
        for i in np.unique(rows.owners[wrong]).tolist():
            its = wrong[rows.owners[wrong] == i]
            rejected[i] = list(operators[i]._rejections(rows.rows.take(its), verdict[its]))
        return _JointUpdates(rejected, emitted, {i: unshared(_plain(kept[i])) for i in emitted})

    def settle(self, operators: Sequence[Updates]) -> None:
        """Give relations their rows."""
        for i, rejections in self.rejected.items():
            operators[i]._rejected += rejections
        for i, rows in self.left.items():
            operators[i]._rows.replace(rows)


def _alone(parts: Sequence[tuple[int, Elements]]) -> OwnedRows | None:
    """Return the rows of relations without the deleted ones, None if there are none."""
    if not parts:
        return None
    stored = OwnedRows.of(parts)
    if stored.rows.sign is None:
        return stored
    kept = OwnedRows.unmarked(cancel(stored.marked()))
    return kept.take(np.flatnonzero((kept.rows.signs > 0) & (kept.rows.exp == END)))


def _unsigned(rows: Elements) -> Elements:
    """Return rows without signs where all are 1."""
    return _plain(rows) if rows.sign is None or bool((rows.sign == 1).all()) else rows


def paired_updates(key: Sequence[pa.Array], signs: Int64s, rule: UpdateRule, once: bool) -> tuple[Int64s, Bools]:
    """Apply updates to an empty relation.

    Args:
        key: the columns that identify a row, in (timestamp, arrival) order.
        signs: -1 of a deletion, 1 of an insertion.
        once: a key that was deleted cannot be inserted again.

    Returns:
        for each insertion the position of the update that ended it, -1 for none and for a deletion; and which updates
        have been applied.
    """
    ended_by, verdict = judged(fingerprints(key, len(signs)), np.where(signs < 0, _GOES, _COMES), rule, once)
    return ended_by, verdict == _FINE


def judged(key: tuple[UInt64s, UInt64s], kind: Int64s, rule: UpdateRule, once: bool) -> tuple[Int64s, Int64s]:
    """Apply updates, given the fingerprints of what identifies their rows; return for each row what ended it, and a
    verdict."""
    codes, _ = group_codes(*key)
    order = argsort_uint64(codes.astype(np.uint64))
    ended_by, verdict = np.full(len(kind), -1, np.int64), np.zeros(len(kind), np.int64)
    if rule is UpdateRule.BAG:
        _pair(codes, order, kind, ended_by, verdict, np.empty(len(kind), np.int64))
    else:
        _by_key(codes, order, kind, rule is UpdateRule.REPLACE, once, ended_by, verdict)
    return ended_by, verdict


def _netted(elements: Elements) -> Elements:
    """Return every tuple with its net multiplicity: insertions minus deletions."""
    if elements.sign is None:
        return elements
    # Insertions first: the first element of a tuple determines since when it is valid.
    elements = elements.take(np.argsort(-elements.signs, kind="stable"))
    codes, heads = group_codes(*fingerprints(elements.columns, len(elements)))
    left = np.maximum(sum_by_code(codes, elements.signs, len(heads)), 0)
    return elements.take(np.repeat(heads, left))


def _plain(elements: Elements) -> Elements:
    return Elements(elements.columns, elements.ts, elements.exp)
