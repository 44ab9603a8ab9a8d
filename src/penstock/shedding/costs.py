"""What the drop of a tuple costs, and which tuples are redundant: walks along the list of a value."""

from __future__ import annotations

from penstock.arrays import Records
from penstock.shedding.compiled import loop
from penstock.shedding.layout import NEVER, ONE, State


@loop
def is_redundant(entries: Records, i: int) -> bool:
    """Return whether the other tuples of the value cover the period of entry i."""
    covered = entries[i].begin
    before = entries[i].previous
    if before >= 0 and entries[before].reach > covered:
        covered = entries[before].reach
    following = entries[i].next
    while covered < entries[i].end:
        if following < 0 or entries[following].begin > covered:
            return False
        covered = max(covered, entries[following].end)
        following = entries[following].next
    return True


@loop
def counts(state: State, begin: int, end: int) -> bool:
    """Return whether a piece counts: it passes the predicate, or may yet be continued and pass."""
    numbers, parameters = state.numbers[0], state.parameters[0]
    if not parameters.knows:
        return True
    return bool(end - begin >= parameters.least_length or end >= numbers.least_begin)


@loop
def cost_of(state: State, i: int) -> tuple[int, int, int]:
    """Return (δ⁺ + ρ⁻ of dropping entry i in parts of `ONE`, the number of pieces that count, the least end of a piece
    or the stretch that may yet be continued).
    """
    entries, stretches, numbers, parameters = state.entries, state.stretches, state.numbers[0], state.parameters[0]
    stretch = entries[i].stretch
    first, last = stretches[stretch].head, stretches[stretch].tail
    begin, end = entries[first].begin, entries[last].reach
    pieces, keep, recheck = 0, 0, NEVER
    if end >= numbers.least_begin:
        recheck = end
    open_piece = i != first
    piece_begin, piece_end = begin, begin
    if open_piece:
        piece_end = entries[entries[i].previous].reach
    at_end = i == last
    following = entries[i].next
    while not at_end and not (open_piece and piece_end >= entries[i].end):
        if not open_piece:
            open_piece = True
            piece_begin, piece_end = entries[following].begin, entries[following].end
        elif entries[following].begin <= piece_end:
            piece_end = max(piece_end, entries[following].end)
        else:
            if counts(state, piece_begin, piece_end):
                pieces += 1
                keep += piece_end - piece_begin
                if piece_end >= numbers.least_begin:
                    recheck = min(recheck, piece_end)
            piece_begin, piece_end = entries[following].begin, entries[following].end
        at_end = following == last
        following = entries[following].next
    if open_piece:
        if piece_end >= entries[i].end:
            piece_end = end
        if counts(state, piece_begin, piece_end):
            pieces += 1
            keep += piece_end - piece_begin
            if piece_end >= numbers.least_begin:
                recheck = min(recheck, piece_end)
    cost = 0
    if parameters.uses_delta:
        cost = max(0, pieces - 1) * ONE
        if parameters.gone_costs and pieces == 0:
            cost = ONE
    if parameters.uses_rho:
        length = end - begin
        taken = (length if counts(state, begin, end) else 0) - keep
        if parameters.knows:
            length += stretches[stretch].lost_left + stretches[stretch].lost_right
        cost += int(float(taken) / float(length) * ONE)
    return cost, pieces, int(recheck)


@loop
def ticks_lost(entries: Records, i: int) -> int:
    """Return the ticks of entry i outside of its neighbours that stay in the window at least as long.

    What such a neighbour covers is missing only once that one is dropped, and is then counted with it.
    """
    begin, end = entries[i].begin, entries[i].end
    before, following = entries[i].previous, entries[i].next
    if before >= 0 and entries[before].expires >= entries[i].expires:
        begin = max(begin, entries[before].end)
    if following >= 0 and entries[following].expires >= entries[i].expires and entries[following].begin < end:
        if entries[following].end >= end:
            end = entries[following].begin
        elif begin < entries[following].begin:
            return int(end - begin - (entries[following].end - entries[following].begin))
        else:
            begin = max(begin, entries[following].end)
    return int(max(0, end - begin))
