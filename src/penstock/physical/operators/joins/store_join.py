"""The join of one or two windows over stores (`window_store.py`), and of several such joins in one call."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from penstock.physical.elements import Elements, Int64s, concat, empty
from penstock.physical.kernels.compiled import argsort_code_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import JointAdvance, Moment, Operator
from penstock.physical.operators.base.owned_rows import FEW_ROWS, OwnedRows, unshared
from penstock.physical.operators.joins.join import PROBES_AT_ONCE, Side, combine
from penstock.physical.operators.joins.window_store import Probes, StoredRows, StoreReader, WindowStore
from penstock.physical.plan.joins.specs import StoreJoinSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.physical.synopses.join_indexes.sorted_runs import cancel
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END

#: The rows of a side that has so many times fewer than the store has new ones are looked up there, instead of these.
_SMALLER = 4

#: Joins that advance in one call emit no more rows in it.
_MOST_AT_ONCE = 1 << 20
_NO_ROWS = empty([])


class StoreJoin(Operator):
    """State: the elements of a side that is not a window over a store; where it takes its results back, the instant up
    to which it has."""

    def __init__(self, spec: StoreJoinSpec) -> None:
        self._spec = spec
        self._own = {port: Side(spec, port) for port in (0, 1) if spec.windows[port] is None}
        self._came: list[Elements] = []
        self._readers: dict[int, StoreReader] = {}
        self._taken_back = BEGIN

    def synopses(self) -> Mapping[str, Synopsis]:
        return {("left", "right")[port]: side.held for port, side in self._own.items()}

    def marks(self) -> Document:
        return {"taken back": self._taken_back} if self._spec.takes_back and self._taken_back > BEGIN else {}

    def restore_marks(self, marks: Document) -> None:
        self._taken_back = integer(marks, "taken back")

    def attach(self, inputs: Sequence[Operator]) -> None:
        stores = iter(inputs)
        before, self._readers = self._readers, {}
        for port, length in enumerate(self._spec.windows):
            if length is not None:
                store = next(stores)
                assert isinstance(store, WindowStore)
                self._readers[port] = StoreReader(store, length, before.get(port), not self._own)

    def detach(self) -> None:
        for reader in self._readers.values():
            reader.detach()

    def joint_key(self) -> Hashable | None:
        spec, own = self._spec, [side.held for side in self._own.values()]
        if len(own) != 1 or not isinstance(own[0], HashJoinIndex) or spec.residual is not None:
            return None
        ((port, reader),) = self._readers.items()
        keys = spec.left_key, spec.right_key, spec.null_safe
        return id(reader.store), port, keys, spec.left_types, spec.right_types, spec.takes_back

    @staticmethod
    def advance_jointly(operators: Sequence[StoreJoin], moments: Sequence[Moment]) -> JointAdvance:
        """Join windows over one store, each of its own length, with several sides that have few rows: the rows of all
        of them are looked up in one pass."""
        after, moment = operators[0]._taken_back, moments[0]
        which = {
            i: side.held
            for i, one in enumerate(operators)
            for side in one._own.values()
            if isinstance(side.held, HashJoinIndex)
            and one._taken_back == after
            and side.held.rows + sum(map(len, one._came)) <= FEW_ROWS
        }
        if len(which) < 2:
            return JointAdvance({}, lambda: None)
        held = [(i, part) for i, index in which.items() for part in index.parts]
        came = [(i, part) for i in which for part in operators[i]._came]
        joined = _JointJoins(operators, next(iter(which)), moment)
        if not joined.run(held, came):
            return JointAdvance({}, lambda: None)
        made = {i: [rows] for i, rows in enumerate(joined.emitted(len(operators))) if len(rows)}
        left = joined.left.split(len(operators)) if joined.left is not None else [_NO_ROWS] * len(operators)
        changes = (i for i, index in which.items() if operators[i]._came or index.rows != len(left[i]))
        changed = {i: unshared(left[i]) for i in changes}

        def settle() -> None:
            for i, rows in changed.items():
                which[i].replace(rows)
            for i in which:
                one = operators[i]
                one._came = []
                if one._spec.takes_back:
                    one._taken_back = max(after, moment.heartbeat)
                for reader in one._readers.values():
                    reader.passed(moment.heartbeat)

        return JointAdvance({i: [] for i in which} | made, settle)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = elements.filter(self._own[port].joinable(elements))
        if len(elements):
            self._came.append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        result = self._join_own(moment) if self._own else self._join_stores()
        for reader in self._readers.values():
            reader.passed(moment.heartbeat)
        return result

    def _join_stores(self) -> list[Elements]:
        left, right = self._readers[0], self._readers[1]
        result: list[Elements] = []
        if (fresh := left.fresh) is not None:
            result += self._combined(fresh, 0, right.meet(fresh))
        if (fresh := right.fresh) is not None:
            # The pairs of new rows are there already.
            result += self._combined(fresh, 1, left.meet(fresh, StoredRows.OLD))
        return result

    def _join_own(self, moment: Moment) -> list[Elements]:
        ((port, side),) = self._own.items()
        reader, held = self._readers[1 - port], side.held
        assert isinstance(held, HashJoinIndex)
        result: list[Elements] = []
        if (fresh := reader.fresh) is not None and held.rows:
            if _SMALLER * held.rows < len(fresh[0]):
                # The store finds its new rows by key: so what is done follows from this side and the results.
                stored = held.probes()
                result += self._combined(stored, port, reader.meet(stored, StoredRows.FRESH))
            else:
                result += self._combined(fresh, 1 - port, held.meet(*fresh, PROBES_AT_ONCE))
        if self._came:
            rows = concat(self._came)
            self._came = []
            key = self._spec.right_key if port else self._spec.left_key
            probes = rows, *fingerprints([rows.columns[i] for i in key], len(rows))
            # The store has its new rows already.
            result += self._combined(probes, port, reader.meet(probes))
            held.add(rows.filter(rows.exp > self._gone(moment)))
        if self._spec.takes_back:
            result += self._take_back(moment, port, reader, held)
        held.expire(self._gone(moment) - 1)
        return result

    def _gone(self, moment: Moment) -> int:
        """Return until when elements of the join's own side may have ended that are needed no more."""
        # What ends in the instant after the heartbeat is met by the rows that leave the window then.
        return moment.heartbeat if self._spec.takes_back else moment.heartbeat + 1

    def _take_back(self, moment: Moment, port: int, reader: StoreReader, held: HashJoinIndex) -> list[Elements]:
        """Return the ends of the results whose rows have left the window."""
        after, self._taken_back = self._taken_back, max(self._taken_back, moment.heartbeat)
        # Nothing ends at the end of time.
        leaving = reader.leaving(after, min(moment.heartbeat, END - 1)) if held.rows else None
        if leaving is None:
            return []
        if _SMALLER * held.rows < len(leaving):
            stored = held.probes()
            met = self._combined(stored, port, leaving.index.meet(*stored, PROBES_AT_ONCE), ends=True)
        else:
            met = self._combined(leaving.probes, 1 - port, held.meet(*leaving.probes, PROBES_AT_ONCE), ends=True)
        # A row and its partner have met in the last instant of the window, so the result has not ended before.
        return [taken_back(part) for part in met]

    def _combined(
        self, probes: Probes, port: int, met: Iterator[tuple[Int64s, Elements]], ends: bool = False
    ) -> list[Elements]:
        """Return the results of what probes from the side `port` have met. ends: as of rows that leave the window."""
        result: list[Elements] = []
        for probe, other in met:
            pair = [probes[0].take(probe), other]
            if port:
                pair.reverse()
            if self._spec.takes_back and not ends:
                pair = self._without_ends(pair)
            result += combine(pair[0], pair[1], self._spec.residual)
        return result

    def _without_ends(self, pair: list[Elements]) -> list[Elements]:
        """Return matching elements with the ends that results have by themselves: where the element of the join's own
        side ends before the other has left the window."""
        (own,) = self._own
        mine, window = pair[own], pair[1 - own]
        never = np.full(len(mine), END, np.int64)
        found = [replace(window, exp=never)] * 2
        found[own] = replace(mine, exp=np.where(mine.exp < window.exp, mine.exp, never))
        return found


class _JointJoins:
    """Joins of windows over one store with several sides. left: the rows of the sides afterwards, None for none."""

    def __init__(self, joins: Sequence[StoreJoin], first: int, moment: Moment) -> None:
        join = self._join = joins[first]
        self._moment = moment
        ((self._port, reader),) = ((1 - port, reader) for port, reader in join._readers.items())
        self._store = reader.store
        readers = [reader for one in joins for reader in one._readers.values()]
        #: Of the window of each join.
        self._lengths = np.fromiter((reader.length for reader in readers), np.int64, len(readers))
        self._readers = readers
        spec = join._spec
        self._key = spec.right_key if self._port else spec.left_key
        #: Where results have the number of their operator: behind the columns of the side.
        self._owner = -1 if self._port else len(spec.left_types)
        self._emitted: list[OwnedRows] = []
        self._rows = 0
        self.left: OwnedRows | None = None

    def run(self, held: Sequence[tuple[int, Elements]], came: Sequence[tuple[int, Elements]]) -> bool:
        """Join; return whether all results were found: otherwise there are too many of them.

        Args:
            held, came: the rows that the sides have, and those that have arrived.
        """
        stored = OwnedRows.of(held) if held else None
        if stored is not None and self._store.has_fresh:
            probes = self._probes(stored)
            met = self._store.meet(probes, self._lengths[stored.owners], StoredRows.FRESH)
            if not self._found(probes, met):
                return False
        if came:
            arrived = OwnedRows.of(came)
            # The store has its new rows already.
            probes = self._probes(arrived)
            if not self._found(probes, self._store.meet(probes, self._lengths[arrived.owners], StoredRows.ALL)):
                return False
            stored = arrived if stored is None else OwnedRows.both(stored, arrived)
        if stored is None:
            return True
        join, moment = self._join, self._moment
        stored = OwnedRows.unmarked(cancel(stored.marked()))
        if join._spec.takes_back and len(stored) and not self._taken_back(stored):
            return False
        kept = stored.take(np.flatnonzero(stored.rows.exp > join._gone(moment)))
        # By operator, in order of expiration.
        self.left = kept.take(argsort_code_time(kept.owners, kept.rows.exp)) if len(kept) else None
        return True

    def _taken_back(self, stored: OwnedRows) -> bool:
        """Find the results that end as their rows leave their windows; return whether there are not too many."""
        after, until = self._join._taken_back, min(self._moment.heartbeat, END - 1)
        if after >= until:
            return True
        probes = self._probes(stored)
        lengths = self._lengths[stored.owners]
        met = self._store.meet_leaving(probes, lengths, after, until)
        if met is not None:
            return self._found(probes, iter(met), ends=True)
        first = {int(length): place for place, length in reversed(list(enumerate(self._lengths.tolist())))}
        for length in np.unique(lengths).tolist():
            leaving = self._readers[first[length]].leaving(after, until)
            if leaving is not None:
                probes = self._probes(stored.take(np.flatnonzero(lengths == length)))
                if not self._found(probes, leaving.index.meet(*probes, PROBES_AT_ONCE), ends=True):
                    return False
        return True

    def _probes(self, rows: OwnedRows) -> Probes:
        """Return rows as what is looked up, with the number of their operator."""
        return rows.marked(), *fingerprints([rows.rows.columns[i] for i in self._key], len(rows))

    def _found(self, probes: Probes, met: Iterator[tuple[Int64s, Elements]], ends: bool = False) -> bool:
        """Take results; return whether there are not too many."""
        for pair in met:
            for part in self._join._combined(probes, self._port, iter([pair]), ends):
                if ends:
                    part = taken_back(part)
                self._emitted.append(OwnedRows.unmarked(part, self._owner))
                self._rows += len(part)
            if self._rows > _MOST_AT_ONCE:
                return False
        return True

    def emitted(self, count: int) -> list[Elements]:
        """Return the results of each of `count` operators."""
        if not self._emitted:
            return []
        rows = OwnedRows(
            concat([part.rows for part in self._emitted]), np.concatenate([part.owners for part in self._emitted])
        )
        return rows.in_order().split(count)


def taken_back(results: Elements) -> Elements:
    """Return the ends of results whose rows leave the window."""
    return Elements(results.columns, results.exp, np.full(len(results), END, np.int64), -results.signs)
