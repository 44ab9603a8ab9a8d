"""The records that hold waiting entries and the elements that they look up.

An entry takes an `ENTRY` and two 32-bit places in each heap. -1 stands for no element.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.arrays import Int32s, Int64s, Records, record_of

#: An entry. What stands behind `cost` is written down with inclusion records alone.
ENTRY = record_of(
    "x",  # number of its element, on its side
    "order",  # place of its element among all elements, times two, plus its side
    "low",  # numbers of the elements of the other side that it looks at: low <= number < high
    "high",
    "cursor",  # the next of its candidates, newest first; -1 for none
    "ends",  # it expires at this instant
    "stretch",  # of its zone: begin // length of granularity 1; WHOLE or REST for an entry without a zone
    "spans",  # of a rest entry, the zones that are not in it: offset << SPAN_BITS | number of them
    "stage",  # WAITS_LOOK_UP, LOOKED_UP, or ONE_UNIT
    "made",  # the instant at which it was made
    "promising",  # IS_PROMISING where its priority was above the 0.9 quantile of those made before
    "drawn",  # its draw, and what its age by FADE .. PER counts from
    "since",
    floats=(
        "key",  # least first
        "product",  # the product of its preferences; NaN where it comes last
        "race",  # WEIGHTED: its exponential draw times `cost`
        "cost",  # units that it takes as estimated: its look-up and the pairs; at least 1
        "whole_cost",  # `cost` when it was made
    ),
)
#: The fields of an entry with which a checkpoint has a column each, and those that it has with inclusion records alone.
SAVED = ("x", "order", "low", "high", "cursor", "ends", "stretch", "spans", "stage", "made", "promising")
SAVED_DRAWS = ("drawn", "since")
SAVED_RANKS = ("key", "product", "race", "cost")
SAVED_WHOLE_COST = ("whole_cost",)

WHOLE, REST = -(2**62), -(2**62) + 1
WAITS_LOOK_UP, LOOKED_UP, ONE_UNIT = 0, 1, 2
SPAN_BITS = 20
# UNRATED: it has no priority, as its work is done at once.
NOT_PROMISING, IS_PROMISING, UNRATED = 0, 1, 2

#: An element of a side. previous: number of the next older element with an equal key, -1 for none; first, second: the
#: key's fingerprint; latest: the last end of it and all older ones of its chain.
ELEMENT = record_of("ts", "exp", "previous", "first", "second", "latest")

# Heaps.
BEST, WORST, EXPIRIES = 0, 1, 2
HEAPS = 3

#: Single numbers that change. Those of a pair are by side.
NUMBERS = record_of(
    "waiting",  # entries
    "free",  # length of the list of free records
    "begin_at",  # PER interval: the processor is free at begin_at + units / rate
    "units",
    ("periods", 2),  # the period in which keys were made last
    "made_entries",
    "done",  # entries, as the next two
    "expired",
    "shed",
    "units_done",
    ("bases", 2),  # the number of the element in its first record
    "used_spans",
    "units_expired",  # as estimated
    "units_shed",
    "pairs",  # examined; of a selection, elements
    "pairs_lost",  # of entries that expired or were shed, as estimated
    # Entries whose pairs nothing estimates, as a summary's zone does: looked up, pairs of these, and lost before that.
    "look_ups",
    "look_up_pairs",
    "look_ups_lost",
)
#: What never changes. Those of a pair are by probed side.
PARAMETERS = record_of(
    "direction",  # DESC, ASC or WEIGHTED
    "budget",  # PER_TUPLE, PER_TIME or GRANTED
    "grant",  # units per element; the numerator of the units per tick
    "ticks",  # the denominator of the units per tick
    "by_age",  # keys fade by age in periods; else by granularity
    "age_of_x",  # the age is that of x, whatever its candidates
    "queue",  # entries that may wait
    "eager",  # entries expire with the last of their candidates also before they have looked them up
    ("every", 2),  # the length of a period, 0 where keys stay as they are
    ("rates", 2),  # those of its summary
    ("depths", 2),
    "records",  # results have inclusion records
    floats=("fade",),  # the factor a
)
DESC, ASC, WEIGHTED = 0, 1, 2
PER_TUPLE, PER_TIME, GRANTED = 0, 1, 2

#: A result. What stands behind `product` is set where results have inclusion records.
RESULT = record_of(
    "side",
    "x",
    "partner",
    "at",
    "made",
    "promising",
    "drawn",
    "since",
    "stretch",
    floats=("product", "race", "cost", "key"),
)

# With inclusion records, the `side` of a record that is no result. THRESHOLD: at the end of the work of an instant, the
# key of the first entry that waits, NaN where none does; LEAST_SHED: the least key of those dropped then; EMPTIED: of
# what had waited before the instant nothing waits any more.
THRESHOLD, LEAST_SHED, EMPTIED = -1, -2, -3


class Queue(NamedTuple):
    """The arrays of one queue, which compiled loops change in place.

    Args:
        items, places: of the heaps: their members in heap order, and the place of each entry in them.
        entries: of `ENTRY`; free: those that are free, of which `numbers` has the count.
        numbers, parameters: one record each, of `NUMBERS` and `PARAMETERS`.
        left, right: of `ELEMENT`, the elements of both sides from number `bases` on.
        spans: the number ranges [low, high) that rest entries leave out.
    """

    items: Int32s
    places: Int32s
    entries: Records
    free: Int32s
    numbers: Records
    parameters: Records
    left: Records
    right: Records
    spans: Int64s
