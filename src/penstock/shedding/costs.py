"""What the drop of a tuple costs, and which tuples are redundant: walks along the list of a value."""

from __future__ import annotations

from penstock.shedding.compiled import loop
from penstock.shedding.layout import (
    BEGIN_,
    END_,
    EXPIRES,
    GONE_COSTS,
    HEAD,
    KNOWS,
    LEAST_BEGIN,
    LEAST_LENGTH,
    LOST_LEFT,
    LOST_RIGHT,
    NEVER,
    NEXT,
    ONE,
    PREVIOUS,
    REACH,
    STRETCH,
    TAIL,
    USES_DELTA,
    USES_RHO,
)


@loop
def is_redundant(entries, i):  # type: ignore[no-untyped-def]
    """Return whether the other tuples of the value cover the period of entry i."""
    covered = entries[i, BEGIN_]
    before = entries[i, PREVIOUS]
    if before >= 0 and entries[before, REACH] > covered:
        covered = entries[before, REACH]
    following = entries[i, NEXT]
    while covered < entries[i, END_]:
        if following < 0 or entries[following, BEGIN_] > covered:
            return False
        covered = max(covered, entries[following, END_])
        following = entries[following, NEXT]
    return True


@loop
def counts(begin, end, numbers, parameters):  # type: ignore[no-untyped-def]
    """Return whether a piece counts: it passes the predicate, or may yet be continued and pass."""
    if not parameters[KNOWS]:
        return True
    return end - begin >= parameters[LEAST_LENGTH] or end >= numbers[LEAST_BEGIN]


@loop
def cost_of(entries, stretches, numbers, parameters, i):  # type: ignore[no-untyped-def]
    """Return (δ⁺ + ρ⁻ of dropping entry i in parts of `ONE`, the number of pieces that count, the least end of a piece
    or the stretch that may yet be continued).
    """
    stretch = entries[i, STRETCH]
    first, last = stretches[stretch, HEAD], stretches[stretch, TAIL]
    begin, end = entries[first, BEGIN_], entries[last, REACH]
    pieces, keep, recheck = 0, 0, NEVER
    if end >= numbers[LEAST_BEGIN]:
        recheck = end
    open_piece = i != first
    piece_begin, piece_end = begin, begin
    if open_piece:
        piece_end = entries[entries[i, PREVIOUS], REACH]
    at_end = i == last
    following = entries[i, NEXT]
    while not at_end and not (open_piece and piece_end >= entries[i, END_]):
        if not open_piece:
            open_piece = True
            piece_begin, piece_end = entries[following, BEGIN_], entries[following, END_]
        elif entries[following, BEGIN_] <= piece_end:
            piece_end = max(piece_end, entries[following, END_])
        else:
            if counts(piece_begin, piece_end, numbers, parameters):
                pieces += 1
                keep += piece_end - piece_begin
                if piece_end >= numbers[LEAST_BEGIN]:
                    recheck = min(recheck, piece_end)
            piece_begin, piece_end = entries[following, BEGIN_], entries[following, END_]
        at_end = following == last
        following = entries[following, NEXT]
    if open_piece:
        if piece_end >= entries[i, END_]:
            piece_end = end
        if counts(piece_begin, piece_end, numbers, parameters):
            pieces += 1
            keep += piece_end - piece_begin
            if piece_end >= numbers[LEAST_BEGIN]:
                recheck = min(recheck, piece_end)
    cost = 0
    if parameters[USES_DELTA]:
        cost = max(0, pieces - 1) * ONE
        if parameters[GONE_COSTS] and pieces == 0:
            cost = ONE
    if parameters[USES_RHO]:
        length = end - begin
        taken = (length if counts(begin, end, numbers, parameters) else 0) - keep
        if parameters[KNOWS]:
            length += stretches[stretch, LOST_LEFT] + stretches[stretch, LOST_RIGHT]
        cost += int(float(taken) / float(length) * ONE)
    return cost, pieces, recheck


@loop
def ticks_lost(entries, i):  # type: ignore[no-untyped-def]
    """Return the ticks of entry i outside of its neighbours that stay in the window at least as long.

    What such a neighbour covers is missing only once that one is dropped, and is then counted with it.
    """
    begin, end = entries[i, BEGIN_], entries[i, END_]
    before, following = entries[i, PREVIOUS], entries[i, NEXT]
    if before >= 0 and entries[before, EXPIRES] >= entries[i, EXPIRES]:
        begin = max(begin, entries[before, END_])
    if following >= 0 and entries[following, EXPIRES] >= entries[i, EXPIRES] and entries[following, BEGIN_] < end:
        if entries[following, END_] >= end:
            end = entries[following, BEGIN_]
        elif begin < entries[following, BEGIN_]:
            return end - begin - (entries[following, END_] - entries[following, BEGIN_])
        else:
            begin = max(begin, entries[following, END_])
    return max(0, end - begin)
