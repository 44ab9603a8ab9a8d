"""WITH PREFERENCE: a join or selection whose work waits in a queue, by key, until a budget covers it `[pt 4]`.

The meaning is that of `algebra/nodes/preferences.py`. What is emitted depends on the elements, the number of shards and
what was granted, never on how elements were cut into rounds. Elements are taken in the order (ts, side, arrival) once
the heartbeat has reached them; a pair is emitted at the instant at which it is examined.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock import figures
from penstock.algebra.nodes.preference_clause import BudgetKind, Preference
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.arrays import Float64s, joined
from penstock.events import log_event, logger_of
from penstock.expressions.evaluation.evaluate import mask
from penstock.expressions.nodes import Expression
from penstock.expressions.sketches.count_sketch import value_hashes
from penstock.figures.figure import FigureValues
from penstock.physical.decisions import Decided
from penstock.physical.elements import Bools, Elements, Int64s, empty
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer
from penstock.physical.operators.joins.join import keyed
from penstock.physical.operators.preferences.entries import Direction, MakingElements
from penstock.physical.operators.preferences.feedback import StreamAhead
from penstock.physical.operators.preferences.parameters import queue_parameters
from penstock.physical.plan.preferences.queries import AT_ONCE
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.preferences.layout import SPAN_BITS
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.physical.synopses.preferences.result_messages import (
    Thresholds,
    result_messages,
    split,
    threshold_messages,
    together,
)
from penstock.physical.synopses.preferences.waiting_entries import EntryInstants, NewEntries, WaitingEntries, WorkDone
from penstock.physical.synopses.summaries.declared import summary_of
from penstock.physical.synopses.summaries.stream_summary import StreamSummary, ZoneEstimates
from penstock.storage.documents import Document, flag, integer
from penstock.types import BEGIN, END

# --- Rounds whose work is done at once: nothing waits before, and the budget covers all units of every instant.
#
# No entry then needs a place in the queue, and no summary is asked: pairs are examined in batches, as a plain join
# does.

#: Pairs are examined in portions of about this many.
PAIRS_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Arrivals:
    """What has arrived at one input.

    Args:
        direction: how elements make entries.
        making: those that do.
        others: the elements that they look up.
    """

    direction: Direction
    making: MakingElements
    others: NumberedElements

    def count_pairs(self, most: int) -> Int64s | None:
        """Return the pairs of each element; None where they are more than `most` together."""
        if self.direction.alone:
            return np.ones(len(self.making.elements), np.int64)
        return self.others.count_alive(self.making.starts, self.making.elements.ts, most)

    def units(self, pairs: Int64s) -> Int64s:
        """Return the units of each element, which is looked up once."""
        return pairs if self.direction.single or self.direction.alone else pairs + 1

    def part(self, low: int, high: int) -> Arrivals:
        """Return elements low to before high."""
        if low == 0 and high == len(self.making.elements):
            return self
        one = self.making
        making = MakingElements(
            one.elements.slice(low, high),
            one.numbers[low:high],
            one.starts[low:high],
            one.bounds[low:high],
            one.orders[low:high],
        )
        return replace(self, making=making)


@dataclass(frozen=True)
class WorkAtOnce:
    """Pairs of one input that are examined when its elements arrive.

    Args:
        x: by pair, its element.
        partners: by pair, the other element; None for a selection.
        entries, units: how many are done.
    """

    x: Elements
    partners: Elements | None
    entries: int
    units: int


def is_covered(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s], units_per_element: int | None, most: int) -> bool:
    """Return whether the budget covers all units. pairs: by input and element; units_per_element: grants, if any; most:
    units of all together."""
    units = [one.units(count) for one, count in zip(arrivals, pairs, strict=True)]
    if sum(int(of.sum()) for of in units) > most:
        return False
    if units_per_element is None or max(int(of.max(initial=0)) for of in units) <= units_per_element:
        return True
    ts = np.concatenate([one.making.elements.ts for one in arrivals])
    every = np.concatenate(units)
    order = np.argsort(ts, kind="stable")
    starts = np.flatnonzero(np.diff(ts[order], prepend=ts[order][0] - 1))
    counts = np.diff(np.append(starts, len(ts)))
    return bool((np.add.reduceat(every[order], starts) <= units_per_element * counts).all())


def in_one_portion(pairs: Sequence[Int64s]) -> bool:
    """Return whether pairs are so few that they are examined together; then places of elements are not needed."""
    return sum(int(count.sum()) for count in pairs) <= PAIRS_AT_ONCE


def portions(arrivals: Sequence[Arrivals], pairs: Sequence[Int64s]) -> Iterator[list[tuple[Arrivals, Int64s]]]:
    """Yield what arrived in the order of the elements, cut so that about `PAIRS_AT_ONCE` pairs are in a portion."""
    if in_one_portion(pairs):
        yield list(zip(arrivals, pairs, strict=True))
        return
    orders = np.concatenate([one.making.orders for one in arrivals])
    order = np.argsort(orders, kind="stable")
    before = np.cumsum(np.concatenate(pairs)[order])
    portion = np.append(0, before[:-1]) // PAIRS_AT_ONCE
    begins = orders[order][np.flatnonzero(np.diff(portion, prepend=-1))].tolist()
    for low, high in zip(begins, [*begins[1:], int(orders.max()) + 1], strict=True):
        found = []
        for one, count in zip(arrivals, pairs, strict=True):
            first, last = (int(place) for place in np.searchsorted(one.making.orders, [low, high]))
            found.append((one.part(first, last), count[first:last]))
        yield found


def work_at_once(arrived: Arrivals, counts: Int64s) -> WorkAtOnce:
    """Return the pairs of elements. counts: pairs of each."""
    direction, making, others = arrived.direction, arrived.making, arrived.others
    size = len(making.elements)
    if direction.alone:
        return WorkAtOnce(making.elements, None, size, size)
    which, numbers = others.alive(making.starts, counts, making.elements.ts)
    x = making.elements.take(which)
    partners = others.rows_of(numbers) if len(numbers) else empty(direction.types[1 - direction.side])
    look_ups = 0 if direction.single else size
    return WorkAtOnce(x, partners, look_ups or len(which), look_ups + len(which))


LOG = logger_of("preferences")

#: What is granted where nothing was decided: all work.
UNLIMITED = 1 << 62


@dataclass(frozen=True)
class PreferenceSide:
    """An input of a preference.

    Args:
        key: columns by which its elements are found.
        condition: what elements must pass to make entries and to be found, or None.
        arrival: whether its elements come in order of arrival.
        summary: of its stream, or None.
        summarised: columns of its summary, or of that of the other side, in the summary's order; by this side's own
            positions.
    """

    key: tuple[int, ...]
    condition: Expression | None
    arrival: bool
    summary: SummaryDefinition | None = None
    summarised: tuple[int, ...] = ()

    def passing(self, elements: Elements) -> Bools:
        """Return which elements make entries and can be found."""
        passes = keyed(elements, self.key)
        if self.condition is not None:
            passes &= mask(self.condition, elements.columns, len(elements))
        return passes


class Preferring(Operator, ABC):
    """The common part of joins and selections.

    State: the elements of both sides, the summaries, the entries that wait, and elements ahead of the heartbeat.

    Args:
        preference: of the query.
        shards: how many there are.
        inputs: a `PreferenceSide` for each input; there are one or two.
        directions: by input, how its elements make entries.
        stored: by side, its elements; the second is a table, or empty, where there is one input.
        probes: by input, the side whose summary its elements ask: the other one, or itself.
        later: what streams that are joined later multiply priorities by.
    """

    def __init__(
        self,
        preference: Preference,
        shards: int,
        inputs: Sequence[PreferenceSide],
        directions: Sequence[Direction],
        stored: tuple[NumberedElements, NumberedElements],
        probes: Sequence[int],
        later: Sequence[StreamAhead] = (),
    ) -> None:
        self._preference, self._inputs, self._directions, self._probes = preference, inputs, directions, probes
        self._stored, self._later = stored, later
        self._early = [ArrivalOrderBuffer(one.arrival) for one in inputs]
        self._summaries: list[StreamSummary | None] = [
            None if one.summary is None else summary_of(one.summary) for one in inputs
        ]
        definitions = [one.summary for one in inputs]
        by_probed = (definitions[0], definitions[1]) if len(inputs) == 2 else (None, definitions[0])
        self._parameters = queue_parameters(preference, shards, by_probed, len(inputs) == 1)
        self._granted = preference.budget.kind is BudgetKind.AUTO
        self._queue = WaitingEntries(self._parameters, stored)
        self._types = [kind for side in directions[0].types for kind in side]
        #: Elements that have made entries so far, and the last heartbeat.
        self._order, self._reached = 0, BEGIN - 1
        self._shards, self._warned = shards, False
        #: Units, as grants count them, times `AT_ONCE`.
        self._charged = 0
        #: What ends as time goes on: a table that never changes does not.
        self._ending = stored[: len(inputs)]

    def synopses(self) -> Mapping[str, Synopsis]:
        found: dict[str, Synopsis] = {}
        for port, name in enumerate(("left", "right")[: len(self._inputs)]):
            found[f"{name} early"] = self._early[port].queue
            found[name] = self._stored[port]
            summary = self._summaries[port]
            if summary is not None:
                found[f"{name} summary"] = summary
        for place, ahead in enumerate(self._later):
            found |= {f"later {place} early": ahead.early.queue, f"later {place} summary": ahead.stream_summary}
        return {**found, "entries": self._queue}

    def marks(self) -> Document:
        return {"order": self._order, "reached": self._reached, "warned": self._warned, "charged": self._charged}

    def restore_marks(self, marks: Document) -> None:
        self._order, self._reached = integer(marks, "order"), integer(marks, "reached")
        self._warned = flag(marks, "warned")
        self._charged = integer(marks, "charged")

    def figures(self) -> FigureValues:
        queue = self._queue
        if not self._order:
            return {}
        missing, unknown = queue.pairs_missing
        return {
            **queue.results.figures(),
            **({figures.UNITS_CHARGED: self._charged / AT_ONCE} if self._granted else {}),
            figures.PREFERENCE_ROWS: self._order,
            figures.PAIRS_EXAMINED: queue.number("pairs"),
            figures.PAIRS_MISSING: missing,
            figures.LOOK_UPS_MISSING: unknown,
            figures.LOOK_UPS: queue.number("look_ups"),
            figures.LOOK_UP_PAIRS: queue.number("look_up_pairs"),
            figures.UNITS_DONE: queue.number("units_done"),
            figures.UNITS_WAITING: queue.units_waiting,
            figures.UNITS_EXPIRED: queue.number("units_expired"),
            figures.UNITS_SHED: queue.number("units_shed"),
            figures.ENTRIES_MADE: queue.number("made_entries"),
            figures.ENTRIES_DONE: queue.number("done"),
            figures.ENTRIES_WAITING: queue.number("waiting"),
            figures.ENTRIES_EXPIRED: queue.number("expired"),
            figures.ENTRIES_SHED: queue.number("shed"),
        }

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port >= len(self._inputs):
            self._later[port - len(self._inputs)].add(elements)
            return []
        # NULL in a key column joins nothing. An exchange by the whole key drops such rows, one by the summarised
        # columns alone keeps some; arrival numbers must not depend on that.
        joins = keyed(elements, self._inputs[port].key)
        self._early[port].add(elements if joins.all() else elements.filter(joins))
        return []

    def advance(self, moment: Moment) -> Iterator[Elements]:
        heartbeat = moment.heartbeat
        due = [early.until(heartbeat) for early in self._early]
        if heartbeat <= self._reached:
            return
        sides = [one if one is not None else self._none(port) for port, one in enumerate(due)]
        passing = [side.passing(one) for side, one in zip(self._inputs, sides, strict=True)]
        arrivals = self._arrive(sides, passing)
        grant = self._grant(moment) if self._granted else None
        pairs, before = self._covered(arrivals, grant), self._queue.number("units_done")
        if pairs is None or not in_one_portion(pairs):
            arrivals = _placed(arrivals, sides, passing, self._order)
        self._order += sum(map(len, sides))
        if pairs is not None:
            self._summarise(sides, heartbeat)
            for portion in portions(arrivals, pairs):
                yield from self._at_once([work_at_once(one, count) for one, count in portion])
        else:
            instants, fresh = self._entries(arrivals, sides, passing, heartbeat)
            work: Iterable[WorkDone] = (
                self._queue.run(instants, fresh, heartbeat)
                if grant is None
                else self._queue.run_granted(self._reached, grant, fresh)
            )
            if self._preference.records:
                yield from self._recorded(work, heartbeat)
                work = ()
            for done in work:
                yield from self._results(done)
        self._charged += (self._queue.number("units_done") - before) * (AT_ONCE if pairs is None else 1)
        self._reached = heartbeat
        self._warn_once()
        ended = min(heartbeat, END - 1) + 1
        self._queue.expire(ended)
        for stored in self._ending:
            stored.expire(ended)

    def _warn_once(self) -> None:
        """Warn when the queue sheds for the first time."""
        if self._queue.number("shed") and not self._warned:
            message = (
                f"{self._preference.query or 'a query'} drops entries: more than {self._preference.queue:,} wait"
                " (SET preference_queue)"
            )
            log_event(LOG, logging.WARNING, "preference_queue_full", message, query=self._preference.query)
        self._warned = self._queue.number("shed") > 0

    def _grant(self, moment: Moment) -> int:
        """Return the units of the round in this shard: an equal part of what was decided, rounded up for each join, as
        none may stand still; all where nothing was, and once the inputs have ended: nothing competes with the entries
        that wait any more."""
        decided = moment.decided.every(Decided.UNITS).values()
        if not decided or not moment.open:
            return UNLIMITED
        part, rest = divmod(-(-max(decided) // self._preference.budget.joins), self._shards)
        return part + (moment.shard < rest)

    # -- arrivals ----------------------------------------------------------------------------------------------------

    def _arrive(self, sides: Sequence[Elements], passing: Sequence[Bools]) -> list[Arrivals]:
        """Store and number elements; return by input those that make entries, without their places among all."""
        first = [self._stored[port].next for port in range(len(sides))]
        words = [self._stored[port].add(one) for port, one in enumerate(sides)]
        found: list[Arrivals] = []
        for port, elements in enumerate(sides):
            rows = np.flatnonzero(passing[port])
            other = self._stored[1 - port]
            bounds = np.full(len(elements), other.next)
            if len(sides) == 2:
                bounds = first[1 - port] + np.searchsorted(
                    sides[1 - port].ts, elements.ts, side="right" if port else "left"
                )
            bounds = bounds[rows]
            makers = elements.filter(passing[port])
            starts, bounds = self._partners(port, makers, first[port] + rows, words[port][rows], bounds)
            making = MakingElements(makers, first[port] + rows, starts, bounds)
            found.append(Arrivals(self._directions[port], making, other))
        return found

    def _entries(
        self, arrivals: Sequence[Arrivals], sides: Sequence[Elements], passing: Sequence[Bools], heartbeat: int
    ) -> tuple[EntryInstants, NewEntries]:
        """Return the entries that elements make, and their instants."""
        fed_back = self._fed_back([one.making.elements for one in arrivals], heartbeat)
        parts = [
            one.direction.entries(one.making, one.others, self._ask(port, sides, passing), fed_back[port])
            for port, one in enumerate(arrivals)
        ]
        at, paying = np.unique(np.concatenate([one.making.elements.ts for one in arrivals]), return_counts=True)
        return _in_order(parts, at, paying)

    def _summarise(self, sides: Sequence[Elements], heartbeat: int) -> None:
        """Take elements into the summaries, which are not asked."""
        for side, summary, elements in zip(self._inputs, self._summaries, sides, strict=True):
            if summary is not None and len(elements):
                columns = [elements.columns[c] for c in side.summarised]
                summary.count_later(elements.ts, *value_hashes(self._preference.seed, columns, len(elements)))
        for ahead in self._later:
            ahead.summarise(heartbeat)

    def _partners(
        self, port: int, makers: Elements, numbers: Int64s, words: Int64s, bounds: Int64s
    ) -> tuple[Int64s, Int64s]:
        """Return of each element of an input the newest of its partners, -1 for none, and a bound of the numbers of
        them. words: of its key; bounds: of the elements that came before."""
        return self._stored[1 - port].newest_before(words, bounds), bounds

    def _fed_back(self, makers: Sequence[Elements], heartbeat: int) -> list[Float64s]:
        """Return by input what priorities of its elements are multiplied by."""
        found = [np.ones(len(one), np.float64) for one in makers]
        for ahead in self._later:
            found = ahead.multiply(makers, found, heartbeat)
        return found

    def _none(self, port: int) -> Elements:
        return empty(self._directions[0].types[port])

    def _ask(self, port: int, sides: Sequence[Elements], passing: Sequence[Bools]) -> ZoneEstimates | None:
        """Count the elements of the side that an input asks, and return the zones of that input's elements."""
        side = self._probes[port]
        summary = self._summaries[side]
        if summary is None:
            return None
        seed = self._preference.seed
        counted, asking = sides[side], sides[port].filter(passing[port])
        hashes, known = value_hashes(seed, [counted.columns[c] for c in self._inputs[side].summarised], len(counted))
        asked, asked_known = value_hashes(seed, [asking.columns[c] for c in self._inputs[port].summarised], len(asking))
        ts = np.concatenate([counted.ts, asking.ts])
        # Behind all elements of their instant.
        order = np.argsort(ts, kind="stable")
        updates = order < len(counted)
        zones = summary.process(
            ts[order], np.concatenate([hashes, asked])[order], np.concatenate([known, asked_known])[order], updates
        )
        return zones._replace(event=order[zones.event] - len(counted))

    # -- results -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _examined(self, side: int, x: Elements, partners: Elements | None, at: Int64s) -> tuple[Elements, Bools]:
        """Return the pairs, examined at instants, that pass the residual condition, and which did. x: of `side`."""

    def _results(self, done: WorkDone) -> Iterator[Elements]:
        """Yield what was examined and belongs to the result."""
        for side in range(len(self._inputs)):
            rows = done.rows.compress(done.rows["side"] == side) if len(self._inputs) > 1 else done.rows
            if not len(rows):
                continue
            x = self._stored[side].rows_of(np.ascontiguousarray(rows["x"]))
            partners = None
            if not self._directions[side].alone:
                partners = self._stored[1 - side].rows_of(np.ascontiguousarray(rows["partner"]))
            result, passed = self._examined(side, x, partners, np.ascontiguousarray(rows["at"]))
            self._queue.results.add(rows.compress(passed), self._apart(x, partners, passed))
            if not len(result):
                continue
            if self._preference.records:
                result = result_messages(result, rows.compress(passed))
            yield result

    def _recorded(self, work: Iterable[WorkDone], heartbeat: int) -> Iterator[Elements]:
        """Yield results, and the thresholds that they meet, as messages."""
        found: list[Thresholds] = []
        for one in work:
            done, thresholds = split(one, heartbeat if self._granted else None)
            found.append(thresholds)
            yield from self._results(done)
        if found:
            thresholds = together(found)
            if len(thresholds.at):
                yield threshold_messages(thresholds, self._types)

    def _apart(self, x: Elements, partners: Elements | None, passed: Bools) -> Int64s | None:
        """Return |ts1 - ts2| of the pairs of two streams that passed."""
        return None if partners is None or len(self._inputs) < 2 else np.abs(x.ts - partners.ts)[passed]

    def _covered(self, arrivals: Sequence[Arrivals], grant: int | None) -> list[Int64s] | None:
        """Return by input the pairs of each element where nothing waits and the budget covers all work of the round,
        of elements that zones do not divide; otherwise None. A processor with a rate covers no instant with two units,
        and records need thresholds; a grant covers `AT_ONCE` times as many units as without the queue."""
        budget = self._preference.budget
        if self._queue.number("waiting") or budget.kind is BudgetKind.PER_TIME or self._preference.records:
            return None
        most = budget.units * sum(len(one.making.elements) for one in arrivals)
        if grant is not None:
            most = min(AT_ONCE * grant, UNLIMITED)
        found: list[Int64s] = []
        for one in arrivals:
            pairs = one.count_pairs(most)
            if pairs is None:
                return None
            found.append(pairs)
        return found if is_covered(arrivals, found, budget.units if grant is None else None, most) else None

    def _at_once(self, work: Sequence[WorkAtOnce]) -> Iterator[Elements]:
        """Yield the results of what needs no place in the queue."""
        for side, one in enumerate(work):
            result, passed = self._examined(side, one.x, one.partners, one.x.ts)
            self._queue.results.add_prompt(len(result), self._apart(one.x, one.partners, passed))
            self._queue.count_done(one.entries, one.units, len(one.x))
            if len(result):
                yield result


def _placed(
    arrivals: Sequence[Arrivals], sides: Sequence[Elements], passing: Sequence[Bools], before: int
) -> list[Arrivals]:
    """Return what arrived with its places among all elements. before: how many came before."""
    places = _places([one.ts for one in sides])
    return [
        replace(one, making=replace(one.making, orders=2 * (before + places[port][passing[port]]) + port))
        for port, one in enumerate(arrivals)
    ]


def _places(times: Sequence[Int64s]) -> list[Int64s]:
    """Return by input the places of its elements in the order (ts, input, arrival)."""
    order = np.argsort(np.concatenate(times), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return list(np.split(places, np.cumsum([len(ts) for ts in times])[:-1]))


def _in_order(parts: Sequence[NewEntries], at: Int64s, paying: Int64s) -> tuple[EntryInstants, NewEntries]:
    """Return entries of both directions in one order, and their instants."""
    zones = np.concatenate([part.zones for part in parts])
    shift = 0
    for part in parts:
        spans = part.rows["spans"]
        spans[spans > 0] += shift << SPAN_BITS
        shift += len(part.zones)
    rows = joined([part.rows for part in parts])
    rows = rows.take(np.argsort(rows["order"], kind="stable"))
    offsets = np.append(np.searchsorted(rows["made"], at), len(rows))
    return EntryInstants(at, offsets.astype(np.int64), paying.astype(np.int64)), NewEntries(rows, zones)
