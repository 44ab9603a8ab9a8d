"""The columns of the arrays that hold waiting entries and the elements that they look up.

An entry takes `ENTRY_COLUMNS` integers, `RANK_COLUMNS` floats and two 32-bit places in each heap.
-1 stands for no element.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int64s: TypeAlias = npt.NDArray[np.int64]
Int32s: TypeAlias = npt.NDArray[np.int32]
Float64s: TypeAlias = npt.NDArray[np.float64]

# An entry: integers.
X = 0  # number of its element, on its side
ORDER = 1  # place of its element among all elements, times two, plus its side
LOW, HIGH = 2, 3  # numbers of the elements of the other side that it looks at: LOW <= number < HIGH
CURSOR = 4  # the next of its candidates, newest first; -1 for none
ENDS = 5  # it expires at this instant
STRETCH = 6  # of its zone: begin // length of granularity 1; WHOLE or REST for an entry without a zone
SPANS = 7  # of a rest entry, the zones that are not in it: offset << SPAN_BITS | number of them
STAGE = 8  # WAITS_LOOK_UP, LOOKED_UP, or ONE_UNIT
MADE = 9  # the instant at which it was made
PROMISING = 10  # IS_PROMISING where its priority was above the 0.9 quantile of those made before
ENTRY_COLUMNS = 11
# With inclusion records two more: its draw, and what its age by FADE .. PER counts from.
DRAWN, SINCE = 11, 12
RECORDED_COLUMNS = 13

WHOLE, REST = -(2**62), -(2**62) + 1
WAITS_LOOK_UP, LOOKED_UP, ONE_UNIT = 0, 1, 2
SPAN_BITS = 20
# UNRATED: it has no priority, as its work is done at once.
NOT_PROMISING, IS_PROMISING, UNRATED = 0, 1, 2

# An entry: floats.
KEY = 0  # least first
BASE = 1  # the product of its preferences; NaN where it comes last
RACE = 2  # WEIGHTED: its exponential draw times COST
COST = 3  # units that it takes as estimated: its look-up and the pairs; at least 1
RANK_COLUMNS = 4
# With inclusion records one more: COST when it was made.
WHOLE_COST = 4
RECORDED_RANKS = 5

# An element of a side. PREVIOUS: number of the next older element with an equal key, -1 for none; then the key's
# fingerprint.
# LATEST: the last end of it and all older ones of its chain.
TS, EXP, PREVIOUS, FIRST, SECOND, LATEST = 0, 1, 2, 3, 4, 5
ELEMENT_COLUMNS = 6

# Heaps.
BEST, WORST, EXPIRIES = 0, 1, 2
HEAPS = 3

# Single numbers that change.
WAITING = 0  # entries
FREE = 1  # length of the list of free rows
BEGIN_AT, UNITS = 2, 3  # PER interval: the processor is free at BEGIN_AT + UNITS / rate
PERIODS = 4  # by side, the period in which keys were made last
MADE_ENTRIES, DONE, EXPIRED, SHED = 6, 7, 8, 9  # entries
UNITS_DONE = 10
BASES = 11  # by side, the number of the element in its first row
USED_SPANS = 13
UNITS_EXPIRED, UNITS_SHED = 14, 15  # as estimated
PAIRS = 16  # examined; of a selection, elements
PAIRS_LOST = 17  # of entries that expired or were shed, as estimated
# Entries whose pairs nothing estimates, as a summary's zone does: looked up, pairs of these, and lost before that.
LOOK_UPS, LOOK_UP_PAIRS, LOOK_UPS_LOST = 18, 19, 20
NUMBERS = 21

# Parameters, which never change.
SORT = 0  # DESC, ASC or WEIGHTED
BUDGET = 1  # PER_TUPLE, PER_TIME or GRANTED
GRANT = 2  # units per element; the numerator of the units per tick
TICKS = 3  # the denominator of the units per tick
BY_AGE = 4  # keys fade by age in periods; else by granularity
AGE_OF_X = 5  # the age is that of x, whatever its candidates
QUEUE = 6  # entries that may wait
EAGER = 7  # entries expire with the last of their candidates also before they have looked them up
EVERY = 8  # by probed side, the length of a period, 0 where keys stay as they are
RATES, DEPTHS = 10, 12  # by probed side, those of its summary
RECORDS = 14  # results have inclusion records
PARAMETERS = 15

DESC, ASC, WEIGHTED = 0, 1, 2
PER_TUPLE, PER_TIME, GRANTED = 0, 1, 2

# A result.
R_SIDE, R_X, R_PARTNER, R_AT, R_MADE, R_PROMISING, R_DRAWN, R_SINCE, R_STRETCH = 0, 1, 2, 3, 4, 5, 6, 7, 8
RESULT_COLUMNS = 9

# With inclusion records, what stands in R_SIDE of a row that is no result. THRESHOLD: at the end of the work of an
# instant, the key of the first entry that waits, NaN where none does; LEAST_SHED: the least key of those dropped then;
# EMPTIED: of what had waited before the instant nothing waits any more.
THRESHOLD, LEAST_SHED, EMPTIED = -1, -2, -3

# A result: floats. Those behind the first are set where results have inclusion records.
V_BASE, V_RACE, V_COST, V_KEY = 0, 1, 2, 3
RESULT_VALUES = 4
