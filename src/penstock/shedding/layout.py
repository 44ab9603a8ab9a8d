"""The records that hold the tuples of one budget, and what is beside them.

All state is in arrays, a record per entry, stretch or value, so that compiled loops keep it and a checkpoint writes it.
Entries of one value are a list in the order (begin, longest first, arrival); a *stretch* is a maximal part of that list
whose periods overlap or touch. -1 stands for no entry and no stretch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from penstock.arrays import Int64s, Records, record_of

#: A tuple that is held.
ENTRY = record_of(
    "slot",  # the value, a number that the caller chooses
    "begin",  # its period [begin, end)
    "end",
    "expires",  # when it leaves the window, on the clock of the window
    "number",  # of its arrival
    "previous",  # in the list of its value
    "next",
    "stretch",
    "reach",  # the largest end in the list up to here
    "reached_by",  # the first entry of the list that has this end
    "rank",  # a hash of the value, 63 bits
    "tie",  # a seeded hash of the tuple, 63 bits
    "weight",  # what it counts in the budget
    "inner",  # 1, or 0 for the two ends of its stretch
)
STRETCH = record_of(
    "head",  # its first and last entry in the list
    "tail",
    "count",  # number of entries
    "lost_left",  # ticks dropped at its ends
    "lost_right",
    "left",  # its ends: the longest that begins first, the longest that ends last
    "right",
    "cost",  # the cheapest drop whose cost stands
    "candidate",
    "growing_cost",  # the right end that may yet be continued, without the charge for that
    "growing",
    "recheck",  # costs change when the least begin that is still possible passes this tick
)
VALUE = record_of(
    "last",  # the last entry of its list
    "count",  # number of entries
    "last_end",  # the largest end that arrived since the value was last empty
    "rank",
)
#: The single numbers.
NUMBERS = record_of(
    "held",  # weight of all entries
    "budget",
    "arrivals",  # arrivals that became entries, and those of them that continued a stretch
    "continued",
    "least_begin",  # no later arrival begins before this tick
    "threshold",  # values of at least this rank are refused
    "sample_held",  # weight of the sample
    "sample_below",  # values are in the sample whose hash is below this; 0 before shedding begins
    "free_entries",  # length of the lists of free records
    "free_stretches",
    "covered",  # ticks of all stretches together
    "extraneous",  # stretches that drops have cut off others, and that went with their last tuple
    "vanished",
    # Whether candidates are looked after: not before the first drop, which finds all of them. It is the last number,
    # since a checkpoint leaves it out.
    "seeks",
)
#: What never changes.
PARAMETERS = record_of(
    "unit",  # what is dropped at once
    "ties",  # how candidates of one cost are ordered
    "uses_delta",
    "uses_rho",
    "gone_costs",
    "knows",
    "spares_arriving",  # whether the arriving tuple is no candidate
    "scans",  # whether the cheapest tuple of a stretch may be any of it
    "least_length",  # the constant of LENGTH >= constant, 0 for none
    "ordered",  # whether begins come in order
    "compact",  # whether equal tuples are one entry
    "seed",
    "sample",  # `sample_below` at the start of shedding
)
#: A tuple that was dropped. number: of its arrival; at: when; lost: ticks; weight: what it counted in the budget.
DROP = record_of("number", "at", "lost", "expires", "begin", "end", "slot", "weight")

# The heaps.
COSTS, GROWINGS, REDUNDANTS, RECHECKS, EXPIRIES, SAMPLED = 0, 1, 2, 3, 4, 5
HEAPS = 6
KEYS = HEAPS  # row KEYS + h of the members has what heap h is ordered by first, beside each member


class State(NamedTuple):
    """The arrays of one budget, which compiled loops change in place.

    Args:
        items, places, sizes: of the heaps, as `heaps.py` says.
        entries, stretches, values: of `ENTRY`, `STRETCH`, `VALUE`.
        numbers, parameters: one record each, of `NUMBERS` and `PARAMETERS`.
        free_entries, free_stretches: the free records, of which `numbers` has the count.
    """

    items: Int64s
    places: Int64s
    sizes: Int64s
    entries: Records
    stretches: Records
    values: Records
    numbers: Records
    parameters: Records
    free_entries: Int64s
    free_stretches: Int64s


#: Costs are whole numbers of this part, so that adding a charge to all of them keeps their order.
ONE = 1 << 40
NEVER = np.int64(2**63 - 1)
ALWAYS = np.int64(-(2**63))
