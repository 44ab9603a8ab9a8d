"""The compiled loop over the instants: entries expire, enter, are worked on in the order of their keys, and are shed.

Entering, expiring and a unit of work cost O(log of the entries that wait); keys that fade are recomputed all together,
once a period. A look-up follows the chain of the elements with the key of x, from the newest before x on.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from penstock.compilation import loop
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.preferences.heaps import move_end, put, rebuild, take
from penstock.physical.synopses.preferences.layout import (
    AGE_OF_X,
    ASC,
    BASE,
    BASES,
    BEGIN_AT,
    BEST,
    BUDGET,
    BY_AGE,
    COST,
    CURSOR,
    DEPTHS,
    DESC,
    DONE,
    DRAWN,
    EAGER,
    EMPTIED,
    ENDS,
    EVERY,
    EXP,
    EXPIRED,
    EXPIRIES,
    FREE,
    GRANT,
    HIGH,
    KEY,
    LATEST,
    LEAST_SHED,
    LOOK_UP_PAIRS,
    LOOK_UPS,
    LOOK_UPS_LOST,
    LOOKED_UP,
    LOW,
    MADE,
    MADE_ENTRIES,
    NUMBERS,
    ONE_UNIT,
    ORDER,
    PAIRS,
    PAIRS_LOST,
    PER_TIME,
    PERIODS,
    PREVIOUS,
    PROMISING,
    QUEUE,
    R_AT,
    R_DRAWN,
    R_MADE,
    R_PARTNER,
    R_PROMISING,
    R_SIDE,
    R_SINCE,
    R_STRETCH,
    R_X,
    RACE,
    RATES,
    RECORDS,
    REST,
    RESULT_COLUMNS,
    RESULT_VALUES,
    SHED,
    SINCE,
    SORT,
    SPAN_BITS,
    SPANS,
    STAGE,
    STRETCH,
    TICKS,
    TS,
    UNITS,
    UNITS_DONE,
    UNITS_EXPIRED,
    UNITS_SHED,
    V_BASE,
    V_COST,
    V_RACE,
    WAITING,
    WAITS_LOOK_UP,
    WHOLE,
    WHOLE_COST,
    WORST,
    X,
)
from penstock.physical.synopses.preferences.result_figures import rate_next
from penstock.physical.synopses.preferences.work_at_once import units_at_once, work_at_once
from penstock.physical.synopses.preferences.work_rows import append_row, append_threshold, grown

#: Results after which the loop returns to its caller: between two instants, of a granted round between two units.
ENOUGH = 1 << 17


@loop
def granularity(stretch, now, rate, depth):  # type: ignore[no-untyped-def]
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
def _candidate(entries, i, at, others, base, spans):  # type: ignore[no-untyped-def]
    """Return the next candidate of an entry that is alive at an instant, -1 for none."""
    number, low, high = entries[i, CURSOR], entries[i, LOW], entries[i, HIGH]
    if entries[i, STAGE] == ONE_UNIT:
        return number
    offset = entries[i, SPANS] >> SPAN_BITS
    count = entries[i, SPANS] & ((1 << SPAN_BITS) - 1)
    while number >= low and number >= base:
        row = number - base
        if others[row, LATEST] <= at:
            return -1
        if number < high and others[row, EXP] > at:
            inside = False
            for k in range(offset, offset + count):
                if spans[k, 0] <= number < spans[k, 1]:
                    inside = True
                    break
            if not inside:
                return number
        number = others[row, PREVIOUS]
    return -1


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def key_of(sort, base, race, fade):  # type: ignore[no-untyped-def]
    if sort == DESC:
        key = -(base * fade)
    elif sort == ASC:
        key = base / fade
    else:
        weight = base * fade
        key = race / weight if weight > 0 else np.inf
    return np.inf if math.isnan(key) else key


@nb.njit(cache=True, no_cfunc_wrapper=True, error_model="numpy")
def fade_of(entries, i, at, parameters, fade, own, own_base, others, base, spans):  # type: ignore[no-untyped-def]
    """Return by what the key of entry i has faded at an instant."""
    probed = 1 - (entries[i, ORDER] & 1)
    every = parameters[EVERY + probed]
    if every == 0:
        return 1.0
    if parameters[BY_AGE]:
        since = own[entries[i, X] - own_base, TS]
        if not parameters[AGE_OF_X]:
            newest = _candidate(entries, i, at, others, base, spans)
            if newest >= base:
                since = others[newest - base, TS]
        return math.pow(fade, float((at - since) // every))
    if entries[i, STRETCH] == WHOLE:
        return 1.0
    depth = parameters[DEPTHS + probed]
    if entries[i, STRETCH] == REST:
        return math.pow(fade, float(depth))
    found = granularity(entries[i, STRETCH], at // every, parameters[RATES + probed], depth)
    return math.pow(fade, float(found - 1))


@loop
def _recompute_keys(  # type: ignore[no-untyped-def]
    at,
    items,
    places,
    entries,
    ranks,
    numbers,
    parameters,
    fade,
    side0,
    side1,
    spans,
):
    """Recompute the keys of all entries for whose side a period has begun."""
    changed = False
    for probed in range(2):
        every = parameters[EVERY + probed]
        if every == 0 or at // every == numbers[PERIODS + probed]:
            continue
        numbers[PERIODS + probed] = at // every
        changed = True
        begun = at // every * every
        own, others = (side1, side0) if probed == 0 else (side0, side1)
        for place in range(numbers[WAITING]):
            i = items[BEST, place]
            if 1 - (entries[i, ORDER] & 1) == probed:
                faded = fade_of(
                    entries,
                    i,
                    max(begun, entries[i, MADE]),
                    parameters,
                    fade,
                    own,
                    numbers[BASES + 1 - probed],
                    others,
                    numbers[BASES + probed],
                    spans,
                )
                ranks[i, KEY] = key_of(parameters[SORT], ranks[i, BASE], ranks[i, RACE], faded)
    if changed:
        rebuild(BEST, numbers[WAITING], items, places, entries, ranks)
        rebuild(WORST, numbers[WAITING], items, places, entries, ranks)


@loop
def _leave(i, items, places, entries, ranks, free, numbers):  # type: ignore[no-untyped-def]
    take(i, numbers[WAITING], items, places, entries, ranks)
    numbers[WAITING] -= 1
    free[numbers[FREE]] = i
    numbers[FREE] += 1


@loop
def _has_unknown_pairs(entries, i, parameters):  # type: ignore[no-untyped-def]
    """Return whether nothing estimates the pairs of an entry: it looks up all partners, or those outside of zones."""
    stretch = entries[i, STRETCH]
    return entries[i, STAGE] != ONE_UNIT and (parameters[AGE_OF_X] != 0 or stretch in (WHOLE, REST))


@loop
def _count_lost(i, entries, ranks, numbers, parameters):  # type: ignore[no-untyped-def]
    """Count the pairs of an entry that is dropped, as estimated."""
    if entries[i, STAGE] != WAITS_LOOK_UP:
        numbers[PAIRS_LOST] += np.int64(ranks[i, COST])
    elif _has_unknown_pairs(entries, i, parameters):
        numbers[LOOK_UPS_LOST] += 1
    else:
        numbers[PAIRS_LOST] += np.int64(ranks[i, COST]) - 1


@loop
def pairs_waiting(members, entries, ranks, parameters):  # type: ignore[no-untyped-def]
    """Return of entries that wait (their pairs as estimated, how many of them nothing estimates)."""
    lost = np.zeros(NUMBERS, np.int64)
    for place in range(members.shape[0]):
        _count_lost(members[place], entries, ranks, lost, parameters)
    return lost[PAIRS_LOST], lost[LOOK_UPS_LOST]


@loop
def expire(at, items, places, entries, ranks, free, numbers, parameters):  # type: ignore[no-untyped-def]
    """Drop the entries that have ended at an instant."""
    while numbers[WAITING] and entries[items[EXPIRIES, 0], ENDS] <= at:
        numbers[UNITS_EXPIRED] += np.int64(ranks[items[EXPIRIES, 0], COST])
        _count_lost(items[EXPIRIES, 0], entries, ranks, numbers, parameters)
        _leave(items[EXPIRIES, 0], items, places, entries, ranks, free, numbers)
        numbers[EXPIRED] += 1


@loop
def _shed(  # type: ignore[no-untyped-def]
    at,
    items,
    places,
    entries,
    ranks,
    free,
    numbers,
    parameters,
    out,
    out_ranks,
    count,
):
    """Drop what is beyond the limit; return the results and their number."""
    least = np.nan
    while numbers[WAITING] > parameters[QUEUE]:
        least = ranks[items[WORST, 0], KEY]
        numbers[UNITS_SHED] += np.int64(ranks[items[WORST, 0], COST])
        _count_lost(items[WORST, 0], entries, ranks, numbers, parameters)
        _leave(items[WORST, 0], items, places, entries, ranks, free, numbers)
        numbers[SHED] += 1
    if parameters[RECORDS] and not math.isnan(least):
        out, out_ranks = grown(out, out_ranks, count)
        count = append_row(LEAST_SHED, at, least, out, out_ranks, count)
    return out, out_ranks, count


@loop
def _ending(i, at, entries, own, own_base, others, base, spans):  # type: ignore[no-untyped-def]
    """Return when entry i ends, by the last of its candidates; the end of x where it has none. Where zones leave some
    out, ends are in the order of arrival, and so the next one is the last to end."""
    ends = own[entries[i, X] - own_base, EXP]
    if entries[i, STAGE] == ONE_UNIT and entries[i, CURSOR] < 0:
        return ends
    found = _candidate(entries, i, at, others, base, spans)
    last = EXP if entries[i, STAGE] == ONE_UNIT else LATEST
    return ends if found < 0 else min(ends, others[found - base, last])


@loop
def _enter(  # type: ignore[no-untyped-def]
    fresh,
    fresh_ranks,
    k,
    at,
    items,
    places,
    entries,
    ranks,
    free,
    numbers,
    parameters,
    fade,
    side0,
    side1,
    spans,
):
    """Insert the k-th new entry."""
    numbers[FREE] -= 1
    i = free[numbers[FREE]]
    for column in range(entries.shape[1]):
        entries[i, column] = fresh[k, column]
    for column in range(ranks.shape[1]):
        ranks[i, column] = fresh_ranks[k, column]
    side = entries[i, ORDER] & 1
    own, others = (side1, side0) if side == 1 else (side0, side1)
    own_base, base = numbers[BASES + side], numbers[BASES + 1 - side]
    if parameters[EAGER] or entries[i, STAGE] == ONE_UNIT:
        entries[i, ENDS] = _ending(i, at, entries, own, own_base, others, base, spans)
    faded = fade_of(entries, i, at, parameters, fade, own, own_base, others, base, spans)
    ranks[i, KEY] = key_of(parameters[SORT], ranks[i, BASE], ranks[i, RACE], faded)
    put(i, numbers[WAITING], items, places, entries, ranks)
    numbers[WAITING] += 1
    numbers[MADE_ENTRIES] += 1


@compiled()
def _work(  # type: ignore[no-untyped-def]
    i,
    at,
    items,
    places,
    entries,
    ranks,
    free,
    numbers,
    parameters,
    side0,
    side1,
    spans,
    out,
    out_ranks,
    count,
):
    """Do one unit of entry i; return the number of results."""
    side = entries[i, ORDER] & 1
    own, others = (side1, side0) if side == 1 else (side0, side1)
    own_base, base = numbers[BASES + side], numbers[BASES + 1 - side]
    numbers[UNITS_DONE] += 1
    ranks[i, COST] = max(1.0, ranks[i, COST] - 1.0)
    stage, unknown = entries[i, STAGE], _has_unknown_pairs(entries, i, parameters)
    if stage == WAITS_LOOK_UP:
        numbers[LOOK_UPS] += unknown
    else:
        numbers[PAIRS] += 1
        numbers[LOOK_UP_PAIRS] += unknown
        partner = _candidate(entries, i, at, others, base, spans)
        out[count, R_SIDE], out[count, R_X], out[count, R_PARTNER] = side, entries[i, X], partner
        out[count, R_AT], out[count, R_MADE], out[count, R_PROMISING] = at, entries[i, MADE], entries[i, PROMISING]
        out_ranks[count, V_BASE] = ranks[i, BASE]
        if parameters[RECORDS]:
            out[count, R_DRAWN], out[count, R_SINCE] = entries[i, DRAWN], entries[i, SINCE]
            out[count, R_STRETCH] = entries[i, STRETCH]
            out_ranks[count, V_RACE], out_ranks[count, V_COST] = ranks[i, RACE], ranks[i, WHOLE_COST]
        count += 1
        if stage == LOOKED_UP:
            entries[i, CURSOR] = others[partner - base, PREVIOUS]
    entries[i, STAGE] = max(stage, LOOKED_UP)
    following = -1 if stage == ONE_UNIT else _candidate(entries, i, at, others, base, spans)
    if following < 0:
        _leave(i, items, places, entries, ranks, free, numbers)
        numbers[DONE] += 1
    else:
        entries[i, CURSOR] = following
        entries[i, ENDS] = min(own[entries[i, X] - own_base, EXP], others[following - base, LATEST])
        move_end(i, numbers[WAITING], items, places, entries, ranks)
    return count


@loop
def _next_unit(numbers, parameters):  # type: ignore[no-untyped-def]
    """Return the tick from which the next unit of a budget in time is there: slot number UNITS behind BEGIN_AT."""
    whole, part = parameters[TICKS] // parameters[GRANT], parameters[TICKS] % parameters[GRANT]
    units = numbers[UNITS]
    return numbers[BEGIN_AT] + units * whole + (units * part + parameters[GRANT] - 1) // parameters[GRANT]


@loop
def _skip_slots(numbers, parameters, now):  # type: ignore[no-untyped-def]
    """Give up the units of all slots before the one in which `now` lies: nothing has waited for them."""
    if _next_unit(numbers, parameters) > now:
        return
    numbers[BEGIN_AT], numbers[UNITS] = now // parameters[TICKS] * parameters[TICKS], 0
    # The last slot of the interval that has begun by then.
    over = parameters[GRANT]
    while over - numbers[UNITS] > 1:
        middle, low = (numbers[UNITS] + over) // 2, numbers[UNITS]
        numbers[UNITS] = middle
        if _next_unit(numbers, parameters) > now:
            numbers[UNITS], over = low, middle


@loop
def _count_unit(numbers, parameters):  # type: ignore[no-untyped-def]
    numbers[UNITS] += 1
    if numbers[UNITS] == parameters[GRANT]:
        numbers[BEGIN_AT] += parameters[TICKS]
        numbers[UNITS] = 0


@loop
def run(  # type: ignore[no-untyped-def]
    instants,
    offsets,
    paying,
    position,
    until,
    fresh,
    fresh_ranks,
    buckets,
    priorities,
    cursor,
    items,
    places,
    entries,
    ranks,
    free,
    numbers,
    parameters,
    fade,
    side0,
    side1,
    spans,
):
    """Go on from instant number `position` up to the tick `until`; return the results, their floats, how many, and the
    position reached, -1 where nothing is left.

    Args:
        instants: the ticks at which elements enter, ascending.
        offsets: of instant k, the new entries offsets[k] to before offsets[k + 1].
        paying: by instant, the elements that make entries.
        buckets, priorities, cursor: what `rate_next` needs to rate the new entries.
    """
    out = np.empty((1024, RESULT_COLUMNS), np.int64)
    out_ranks = np.empty((1024, RESULT_VALUES), np.float64)
    count = 0
    total = instants.shape[0]
    timed = parameters[BUDGET] == PER_TIME
    while True:
        limit = instants[position] if position < total else until
        # The units up to an instant are for what has waited before it.
        while timed and numbers[WAITING]:
            at = _next_unit(numbers, parameters)
            if at > limit:
                break
            expire(at, items, places, entries, ranks, free, numbers, parameters)
            _recompute_keys(at, items, places, entries, ranks, numbers, parameters, fade, side0, side1, spans)
            if not numbers[WAITING]:
                break
            if count >= ENOUGH:
                return out, out_ranks, count, position
            out, out_ranks = grown(out, out_ranks, count)
            count = _work(
                items[BEST, 0],
                at,
                items,
                places,
                entries,
                ranks,
                free,
                numbers,
                parameters,
                side0,
                side1,
                spans,
                out,
                out_ranks,
                count,
            )
            _count_unit(numbers, parameters)
            if parameters[RECORDS] and not numbers[WAITING]:
                out, out_ranks = grown(out, out_ranks, count)
                count = append_row(EMPTIED, at, np.nan, out, out_ranks, count)
            out, out_ranks, count = append_threshold(at, items, ranks, numbers, parameters, out, out_ranks, count)
        if position >= total:
            return out, out_ranks, count, -1
        if count >= ENOUGH:
            return out, out_ranks, count, position
        at = instants[position]
        expire(at, items, places, entries, ranks, free, numbers, parameters)
        _recompute_keys(at, items, places, entries, ranks, numbers, parameters, fade, side0, side1, spans)
        idle = numbers[WAITING] == 0
        if timed and idle:
            _skip_slots(numbers, parameters, at)
        credit, before = parameters[GRANT] * paying[position], numbers[UNITS_DONE]
        first, last = offsets[position], offsets[position + 1]
        at_once = idle and not timed and not parameters[RECORDS]
        if at_once and units_at_once(fresh, first, last, at, credit, side0, side1, numbers) <= credit:
            out, out_ranks, count = work_at_once(fresh, first, last, at, side0, side1, numbers, out, out_ranks, count)
            position += 1
            continue
        for k in range(first, last):
            fresh[k, PROMISING] = rate_next(buckets[k], priorities, cursor)
            _enter(
                fresh,
                fresh_ranks,
                k,
                at,
                items,
                places,
                entries,
                ranks,
                free,
                numbers,
                parameters,
                fade,
                side0,
                side1,
                spans,
            )
        while numbers[WAITING]:
            if timed:
                if _next_unit(numbers, parameters) > at:
                    break
                _count_unit(numbers, parameters)
            elif credit == 0:
                break
            credit -= 1
            out, out_ranks = grown(out, out_ranks, count)
            count = _work(
                items[BEST, 0],
                at,
                items,
                places,
                entries,
                ranks,
                free,
                numbers,
                parameters,
                side0,
                side1,
                spans,
                out,
                out_ranks,
                count,
            )
        if numbers[UNITS_DONE] > before:
            out, out_ranks, count = append_threshold(at, items, ranks, numbers, parameters, out, out_ranks, count)
        out, out_ranks, count = _shed(
            at, items, places, entries, ranks, free, numbers, parameters, out, out_ranks, count
        )
        position += 1


@loop
def run_granted(  # type: ignore[no-untyped-def]
    reached,
    grant,
    fresh,
    fresh_ranks,
    items,
    places,
    entries,
    ranks,
    free,
    numbers,
    parameters,
    fade,
    side0,
    side1,
    spans,
):
    """Take a round behind the tick `reached` as one instant in which `grant` units are done; return the results, the
    product of each, how many, and the units that are left to go on with, 0 where the round is done."""
    out = np.empty((1024, RESULT_COLUMNS), np.int64)
    out_ranks = np.empty((1024, RESULT_VALUES), np.float64)
    count = 0
    expire(reached + 1, items, places, entries, ranks, free, numbers, parameters)
    _recompute_keys(reached + 1, items, places, entries, ranks, numbers, parameters, fade, side0, side1, spans)
    for k in range(fresh.shape[0]):
        _enter(
            fresh,
            fresh_ranks,
            k,
            fresh[k, MADE],
            items,
            places,
            entries,
            ranks,
            free,
            numbers,
            parameters,
            fade,
            side0,
            side1,
            spans,
        )
    before = numbers[UNITS_DONE]
    while numbers[WAITING] and grant > 0:
        if count >= ENOUGH:
            return out, out_ranks, count, grant
        i = items[BEST, 0]
        out, out_ranks = grown(out, out_ranks, count)
        grant -= 1
        count = _work(
            i,
            max(reached + 1, entries[i, MADE]),
            items,
            places,
            entries,
            ranks,
            free,
            numbers,
            parameters,
            side0,
            side1,
            spans,
            out,
            out_ranks,
            count,
        )
    if numbers[UNITS_DONE] > before:
        out, out_ranks, count = append_threshold(reached + 1, items, ranks, numbers, parameters, out, out_ranks, count)
    out, out_ranks, count = _shed(
        reached + 1, items, places, entries, ranks, free, numbers, parameters, out, out_ranks, count
    )
    return out, out_ranks, count, 0
