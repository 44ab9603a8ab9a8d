"""The columns of the arrays that hold the tuples of one budget, and of those beside them.

All state is in int64 arrays, a row per entry, stretch or value, so that compiled loops keep it and a checkpoint writes
it. Entries of one value are a list in the order (begin, longest first, arrival); a *stretch* is a maximal part of that
list whose periods overlap or touch. -1 stands for no entry and no stretch.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
Float64s: TypeAlias = npt.NDArray[np.float64]

# An entry: a tuple that is held.
SLOT = 0  # the value, a number that the caller chooses
BEGIN_, END_ = 1, 2  # its period [begin, end)
EXPIRES = 3  # when it leaves the window, on the clock of the window
NUMBER = 4  # of its arrival
PREVIOUS, NEXT = 5, 6  # in the list of its value
STRETCH = 7
REACH = 8  # the largest end in the list up to here
REACHED_BY = 9  # the first entry of the list that has this end
RANK = 10  # a hash of the value, 63 bits
TIE = 11  # a seeded hash of the tuple, 63 bits
WEIGHT = 12  # what it counts in the budget
INNER = 13  # 1, or 0 for the two ends of its stretch
ENTRY_COLUMNS = 14

# A stretch.
HEAD, TAIL = 0, 1  # its first and last entry in the list
SIZE = 2  # number of entries
LOST_LEFT, LOST_RIGHT = 3, 4  # ticks dropped at its ends
LEFT, RIGHT = 5, 6  # its ends: the longest that begins first, the longest that ends last
COST, CANDIDATE = 7, 8  # the cheapest drop whose cost stands
GROWING_COST, GROWING = 9, 10  # the right end that may yet be continued, without the charge for that
RECHECK = 11  # costs change when the least begin that is still possible passes this tick
STRETCH_COLUMNS = 12

# A value.
LAST = 0  # the last entry of its list
COUNT = 1  # number of entries
LAST_END = 2  # the largest end that arrived since the value was last empty
VALUE_RANK = 3
VALUE_COLUMNS = 4

# The heaps.
COSTS, GROWINGS, REDUNDANTS, RECHECKS, EXPIRIES, SAMPLED = 0, 1, 2, 3, 4, 5
HEAPS = 6
KEYS = HEAPS  # row KEYS + h of the members has what heap h is ordered by first, beside each member

# Single numbers.
HELD = 0  # weight of all entries
BUDGET = 1
ARRIVALS, CONTINUED = 2, 3  # arrivals that became entries, and those of them that continued a stretch
LEAST_BEGIN = 4  # no later arrival begins before this tick
THRESHOLD = 5  # values of at least this rank are refused
SAMPLE_HELD = 6  # weight of the sample
SAMPLE_BELOW = 7  # values are in the sample whose hash is below this; 0 before shedding begins
FREE_ENTRIES, FREE_STRETCHES = 8, 9  # length of the lists of free rows
COVERED = 10  # ticks of all stretches together
EXTRANEOUS, VANISHED = 11, 12  # stretches that drops have cut off others, and that went with their last tuple
# Whether candidates are looked after: not before the first drop, which finds all of them. It is the last number, since
# a checkpoint leaves it out.
SEEKS = 13
NUMBERS = 14

# The parameters of a machine, which never change.
UNIT = 0  # what is dropped at once
TIES = 1  # how candidates of one cost are ordered
USES_DELTA, USES_RHO, GONE_COSTS, KNOWS = 2, 3, 4, 5
SPARES_ARRIVING = 6  # whether the arriving tuple is no candidate
SCANS = 7  # whether the cheapest tuple of a stretch may be any of it
LEAST_LENGTH = 8  # the constant of LENGTH >= constant, 0 for none
ORDERED = 9  # whether begins come in order
COMPACT = 10  # whether equal tuples are one entry
SEED = 11
SAMPLE = 12  # SAMPLE_BELOW at the start of shedding
PARAMETERS = 13

# A drop.
DROPPED, DROPPED_AT, DROPPED_LOST, DROPPED_EXPIRES, DROPPED_BEGIN, DROPPED_END, DROPPED_SLOT = 0, 1, 2, 3, 4, 5, 6
DROPPED_WEIGHT = 7  # what it counted in the budget
DROP_COLUMNS = 8

#: Costs are whole numbers of this part, so that adding a charge to all of them keeps their order.
ONE = 1 << 40
NEVER = np.int64(2**63 - 1)
ALWAYS = np.int64(-(2**63))
