"""The compiled loop over the instants: entries expire, enter, are worked on in the order of their keys, and are shed.

Entering, expiring and a unit of work cost O(log of the entries that wait); keys that fade are recomputed all together,
once a period. A look-up follows the chain of the elements with the key of x, from the newest before x on.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from penstock.arrays import Int32s, Int64s, Records
from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.preferences.heaps import move_end, put, rebuild, take
from penstock.physical.synopses.preferences.layout import (
    ASC,
    BEST,
    DESC,
    EMPTIED,
    EXPIRIES,
    LEAST_SHED,
    LOOKED_UP,
    NUMBERS,
    ONE_UNIT,
    PER_TIME,
    REST,
    RESULT,
    SPAN_BITS,
    WAITS_LOOK_UP,
    WHOLE,
    WORST,
    Queue,
)
from penstock.physical.synopses.preferences.result_figures import rate_next
from penstock.physical.synopses.preferences.work_at_once import units_at_once, work_at_once
from penstock.physical.synopses.preferences.work_rows import append_row, append_threshold, grown

#: Results after which the loop returns to its caller: between two instants, of a granted round between two units.
ENOUGH = 1 << 17


@loop
def granularity(stretch: int, now: int, rate: int, depth: int) -> int:
    """Return the granularity in which a stretch of granularity 1 lies while stretch `now` is being filled; depth + 1
    where it has left the last."""
    if stretch >= now:
        return 1
    if depth < 2 or stretch >= now - rate:
        return 2
    at, first = stretch, now - 1 - rate
    for level in range(3, depth + 1):
        at, first = at // rate, first // rate
        if at > first - rate:
            return level
        first -= rate
    return depth + 1


@loop
def _candidate(entries: Records, i: int, at: int, others: Records, base: int, spans: Int64s) -> int:
    """Return the next candidate of an entry that is alive at an instant, -1 for none."""
    number, low, high = entries[i].cursor, entries[i].low, entries[i].high
    if entries[i].stage == ONE_UNIT:
        return int(number)
    offset = entries[i].spans >> SPAN_BITS
    count = entries[i].spans & ((1 << SPAN_BITS) - 1)
    while number >= low and number >= base:
        row = number - base
        if others[row].latest <= at:
            return -1
        if number < high and others[row].exp > at:
            inside = False
            for k in range(offset, offset + count):
                if spans[k, 0] <= number < spans[k, 1]:
                    inside = True
                    break
            if not inside:
                return int(number)
        number = others[row].previous
    return -1


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def key_of(sort: int, base: float, race: float, fade: float) -> float:
    if sort == DESC:
        key = -(base * fade)
    elif sort == ASC:
        key = base / fade
    else:
        weight = base * fade
        key = race / weight if weight > 0 else np.inf
    return np.inf if math.isnan(key) else key


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def fade_of(queue: Queue, entries: Records, i: int, at: int) -> float:
    """Return by what the key of entry i of `entries` has faded at an instant."""
    parameters, bases = queue.parameters[0], queue.numbers[0].bases
    probed = 1 - (entries[i].order & 1)
    every = parameters.every[probed]
    if every == 0:
        return 1.0
    if parameters.by_age:
        own, others = (queue.right, queue.left) if probed == 0 else (queue.left, queue.right)
        since = own[entries[i].x - bases[1 - probed]].ts
        if not parameters.age_of_x:
            newest = _candidate(entries, i, at, others, bases[probed], queue.spans)
            if newest >= bases[probed]:
                since = others[newest - bases[probed]].ts
        return math.pow(parameters.fade, float((at - since) // every))
    if entries[i].stretch == WHOLE:
        return 1.0
    depth = parameters.depths[probed]
    if entries[i].stretch == REST:
        return math.pow(parameters.fade, float(depth))
    found = granularity(entries[i].stretch, at // every, parameters.rates[probed], depth)
    return math.pow(parameters.fade, float(found - 1))


@loop
def _set_key(queue: Queue, i: int, at: int) -> None:
    """Compute the key of an entry at an instant."""
    entries = queue.entries
    faded = fade_of(queue, entries, i, at)
    entries[i].key = key_of(queue.parameters[0].direction, entries[i].product, entries[i].race, faded)


@loop
def _recompute_keys(queue: Queue, at: int) -> None:
    """Recompute the keys of all entries for whose side a period has begun."""
    entries, numbers = queue.entries, queue.numbers[0]
    changed = False
    for probed in range(2):
        every = queue.parameters[0].every[probed]
        if every == 0 or at // every == numbers.periods[probed]:
            continue
        numbers.periods[probed] = at // every
        changed = True
        begun = at // every * every
        for place in range(numbers.waiting):
            i = queue.items[BEST, place]
            if 1 - (entries[i].order & 1) == probed:
                _set_key(queue, i, max(begun, entries[i].made))
    if changed:
        rebuild(queue, BEST, numbers.waiting)
        rebuild(queue, WORST, numbers.waiting)


@loop
def _leave(queue: Queue, i: int) -> None:
    numbers = queue.numbers[0]
    take(queue, i, numbers.waiting)
    numbers.waiting -= 1
    queue.free[numbers.free] = i
    numbers.free += 1


@loop
def _has_unknown_pairs(entries: Records, i: int, parameters: Records) -> bool:
    """Return whether nothing estimates the pairs of an entry: it looks up all partners, or those outside of zones."""
    stretch = entries[i].stretch
    return entries[i].stage != ONE_UNIT and (parameters[0].age_of_x != 0 or stretch in (WHOLE, REST))


@loop
def _count_lost(i: int, entries: Records, numbers: Records, parameters: Records) -> None:
    """Count the pairs of an entry that is dropped, as estimated."""
    if entries[i].stage != WAITS_LOOK_UP:
        numbers[0].pairs_lost += np.int64(entries[i].cost)
    elif _has_unknown_pairs(entries, i, parameters):
        numbers[0].look_ups_lost += 1
    else:
        numbers[0].pairs_lost += np.int64(entries[i].cost) - 1


@loop
def pairs_waiting(members: Int32s, entries: Records, parameters: Records) -> tuple[int, int]:
    """Return of entries that wait (their pairs as estimated, how many of them nothing estimates)."""
    lost = np.zeros(1, NUMBERS)
    for place in range(members.shape[0]):
        _count_lost(members[place], entries, lost, parameters)
    return lost[0].pairs_lost, lost[0].look_ups_lost


@loop
def expire(queue: Queue, at: int) -> None:
    """Drop the entries that have ended at an instant."""
    items, entries, numbers = queue.items, queue.entries, queue.numbers[0]
    while numbers.waiting and entries[items[EXPIRIES, 0]].ends <= at:
        numbers.units_expired += np.int64(entries[items[EXPIRIES, 0]].cost)
        _count_lost(items[EXPIRIES, 0], entries, queue.numbers, queue.parameters)
        _leave(queue, items[EXPIRIES, 0])
        numbers.expired += 1


@loop
def _shed(queue: Queue, at: int, out: Records, count: int) -> tuple[Records, int]:
    """Drop what is beyond the limit; return the results and their number."""
    items, entries, numbers, parameters = queue.items, queue.entries, queue.numbers[0], queue.parameters[0]
    least = np.nan
    while numbers.waiting > parameters.queue:
        least = entries[items[WORST, 0]].key
        numbers.units_shed += np.int64(entries[items[WORST, 0]].cost)
        _count_lost(items[WORST, 0], entries, queue.numbers, queue.parameters)
        _leave(queue, items[WORST, 0])
        numbers.shed += 1
    if parameters.records and not math.isnan(least):
        out = grown(out, count)
        count = append_row(LEAST_SHED, at, least, out, count)
    return out, count


@loop
def _ending(
    i: int, at: int, entries: Records, own: Records, own_base: int, others: Records, base: int, spans: Int64s
) -> int:
    """Return when entry i ends, by the last of its candidates; the end of x where it has none. Where zones leave some
    out, ends are in the order of arrival, and so the next one is the last to end."""
    ends = own[entries[i].x - own_base].exp
    if entries[i].stage == ONE_UNIT and entries[i].cursor < 0:
        return int(ends)
    found = _candidate(entries, i, at, others, base, spans)
    if found < 0:
        return int(ends)
    last = others[found - base].exp if entries[i].stage == ONE_UNIT else others[found - base].latest
    return int(min(ends, last))


@loop
def _enter(queue: Queue, fresh: Records, k: int, at: int) -> None:
    """Insert the k-th new entry."""
    entries, numbers = queue.entries, queue.numbers[0]
    numbers.free -= 1
    i = queue.free[numbers.free]
    entries[i] = fresh[k]
    side = entries[i].order & 1
    own, others = (queue.right, queue.left) if side == 1 else (queue.left, queue.right)
    own_base, base = numbers.bases[side], numbers.bases[1 - side]
    if queue.parameters[0].eager or entries[i].stage == ONE_UNIT:
        entries[i].ends = _ending(i, at, entries, own, own_base, others, base, queue.spans)
    _set_key(queue, i, at)
    put(queue, i, numbers.waiting)
    numbers.waiting += 1
    numbers.made_entries += 1


@compiled()
def _work(queue: Queue, i: int, at: int, out: Records, count: int) -> int:
    """Do one unit of entry i; return the number of results."""
    entries, numbers, spans = queue.entries, queue.numbers[0], queue.spans
    side = entries[i].order & 1
    own, others = (queue.right, queue.left) if side == 1 else (queue.left, queue.right)
    own_base, base = numbers.bases[side], numbers.bases[1 - side]
    numbers.units_done += 1
    entries[i].cost = max(1.0, entries[i].cost - 1.0)
    stage, unknown = entries[i].stage, _has_unknown_pairs(entries, i, queue.parameters)
    if stage == WAITS_LOOK_UP:
        numbers.look_ups += unknown
    else:
        numbers.pairs += 1
        numbers.look_up_pairs += unknown
        partner = _candidate(entries, i, at, others, base, spans)
        out[count].side, out[count].x, out[count].partner = side, entries[i].x, partner
        out[count].at, out[count].made, out[count].promising = at, entries[i].made, entries[i].promising
        out[count].product = entries[i].product
        if queue.parameters[0].records:
            out[count].drawn, out[count].since = entries[i].drawn, entries[i].since
            out[count].stretch = entries[i].stretch
            out[count].race, out[count].cost = entries[i].race, entries[i].whole_cost
        count += 1
        if stage == LOOKED_UP:
            entries[i].cursor = others[partner - base].previous
    entries[i].stage = max(stage, LOOKED_UP)
    following = -1 if stage == ONE_UNIT else _candidate(entries, i, at, others, base, spans)
    if following < 0:
        _leave(queue, i)
        numbers.done += 1
    else:
        entries[i].cursor = following
        entries[i].ends = min(own[entries[i].x - own_base].exp, others[following - base].latest)
        move_end(queue, i, numbers.waiting)
    return count


@loop
def _next_unit(queue: Queue) -> int:
    """Return the tick from which the next unit of a budget in time is there: slot number `units` behind `begin_at`."""
    numbers, parameters = queue.numbers[0], queue.parameters[0]
    whole, part = parameters.ticks // parameters.grant, parameters.ticks % parameters.grant
    units = numbers.units
    return int(numbers.begin_at + units * whole + (units * part + parameters.grant - 1) // parameters.grant)


@loop
def _skip_slots(queue: Queue, now: int) -> None:
    """Give up the units of all slots before the one in which `now` lies: nothing has waited for them."""
    numbers, parameters = queue.numbers[0], queue.parameters[0]
    if _next_unit(queue) > now:
        return
    numbers.begin_at, numbers.units = now // parameters.ticks * parameters.ticks, 0
    # The last slot of the interval that has begun by then.
    over = parameters.grant
    while over - numbers.units > 1:
        middle, low = (numbers.units + over) // 2, numbers.units
        numbers.units = middle
        if _next_unit(queue) > now:
            numbers.units, over = low, middle


@loop
def _count_unit(queue: Queue) -> None:
    numbers, parameters = queue.numbers[0], queue.parameters[0]
    numbers.units += 1
    if numbers.units == parameters.grant:
        numbers.begin_at += parameters.ticks
        numbers.units = 0


@loop
def run(
    queue: Queue,
    instants: Int64s,
    offsets: Int64s,
    paying: Int64s,
    position: int,
    until: int,
    fresh: Records,
    buckets: Int64s,
    priorities: Int64s,
    cursor: Int64s,
) -> tuple[Records, int, int]:
    """Go on from instant number `position` up to the tick `until`; return the results, how many, and the position
    reached, -1 where nothing is left.

    Args:
        instants: the ticks at which elements enter, ascending.
        offsets: of instant k, the new entries offsets[k] to before offsets[k + 1].
        paying: by instant, the elements that make entries.
        buckets, priorities, cursor: what `rate_next` needs to rate the new entries.
    """
    items, numbers, parameters = queue.items, queue.numbers[0], queue.parameters[0]
    out = np.empty(1024, RESULT)
    count = 0
    total = instants.shape[0]
    timed = parameters.budget == PER_TIME
    while True:
        limit = instants[position] if position < total else until
        # The units up to an instant are for what has waited before it.
        while timed and numbers.waiting:
            at = _next_unit(queue)
            if at > limit:
                break
            expire(queue, at)
            _recompute_keys(queue, at)
            if not numbers.waiting:
                break
            if count >= ENOUGH:
                return out, count, position
            out = grown(out, count)
            count = _work(queue, items[BEST, 0], at, out, count)
            _count_unit(queue)
            if parameters.records and not numbers.waiting:
                out = grown(out, count)
                count = append_row(EMPTIED, at, np.nan, out, count)
            out, count = append_threshold(queue, at, out, count)
        if position >= total:
            return out, count, -1
        if count >= ENOUGH:
            return out, count, position
        at = instants[position]
        expire(queue, at)
        _recompute_keys(queue, at)
        idle = numbers.waiting == 0
        if timed and idle:
            _skip_slots(queue, at)
        credit, before = parameters.grant * paying[position], numbers.units_done
        first, last = offsets[position], offsets[position + 1]
        at_once = idle and not timed and not parameters.records
        if at_once and units_at_once(queue, fresh, first, last, at, credit) <= credit:
            out, count = work_at_once(queue, fresh, first, last, at, out, count)
            position += 1
            continue
        for k in range(first, last):
            fresh[k].promising = rate_next(buckets[k], priorities, cursor)
            _enter(queue, fresh, k, at)
        while numbers.waiting:
            if timed:
                if _next_unit(queue) > at:
                    break
                _count_unit(queue)
            elif credit == 0:
                break
            credit -= 1
            out = grown(out, count)
            count = _work(queue, items[BEST, 0], at, out, count)
        if numbers.units_done > before:
            out, count = append_threshold(queue, at, out, count)
        out, count = _shed(queue, at, out, count)
        position += 1


@loop
def run_granted(queue: Queue, reached: int, grant: int, fresh: Records) -> tuple[Records, int, int]:
    """Take a round behind the tick `reached` as one instant in which `grant` units are done; return the results, how
    many, and the units that are left to go on with, 0 where the round is done."""
    items, entries, numbers = queue.items, queue.entries, queue.numbers[0]
    out = np.empty(1024, RESULT)
    count = 0
    expire(queue, reached + 1)
    _recompute_keys(queue, reached + 1)
    for k in range(fresh.shape[0]):
        _enter(queue, fresh, k, fresh[k].made)
    before = numbers.units_done
    while numbers.waiting and grant > 0:
        if count >= ENOUGH:
            return out, count, grant
        i = items[BEST, 0]
        out = grown(out, count)
        grant -= 1
        count = _work(queue, i, max(reached + 1, entries[i].made), out, count)
    if numbers.units_done > before:
        out, count = append_threshold(queue, reached + 1, out, count)
    out, count = _shed(queue, reached + 1, out, count)
    return out, count, 0
