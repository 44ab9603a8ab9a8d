"""The parameters of a queue, of a preference."""

from __future__ import annotations

import numpy as np

from penstock.algebra.nodes.preference_clause import BudgetKind, Preference, PreferenceOrder
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.physical.synopses.preferences import layout
from penstock.physical.synopses.preferences.layout import Int64s

_SORTS = {
    PreferenceOrder.DESC: layout.DESC,
    PreferenceOrder.ASC: layout.ASC,
    PreferenceOrder.WEIGHTED: layout.WEIGHTED,
}
_BUDGETS = {
    BudgetKind.PER_TUPLE: layout.PER_TUPLE,
    BudgetKind.PER_TIME: layout.PER_TIME,
    BudgetKind.AUTO: layout.GRANTED,
}


def queue_parameters(
    preference: Preference,
    shards: int,
    summaries: tuple[SummaryDefinition | None, SummaryDefinition | None],
    age_of_x: bool,
) -> Int64s:
    """Return the parameters of the queue of one of `shards`. summaries: by probed side; age_of_x: an entry is as old
    as its element, whatever it looks up."""
    found = np.zeros(layout.PARAMETERS, np.int64)
    budget = preference.budget
    found[layout.SORT], found[layout.BUDGET] = _SORTS[preference.order], _BUDGETS[budget.kind]
    found[layout.GRANT], found[layout.TICKS] = budget.units, 1
    if budget.kind is BudgetKind.PER_TIME:
        found[layout.GRANT], found[layout.TICKS] = budget.rate(shards).as_integer_ratio()
    found[layout.BY_AGE], found[layout.AGE_OF_X] = preference.per is not None, age_of_x
    found[layout.QUEUE], found[layout.RECORDS] = preference.queue, preference.records
    found[layout.EAGER] = budget.kind is not BudgetKind.AUTO
    for side, summary in enumerate(summaries):
        if summary is not None:
            found[layout.RATES + side], found[layout.DEPTHS + side] = summary.rate, summary.depth
        if preference.fades and preference.per is not None:
            found[layout.EVERY + side] = preference.per
        elif preference.fades and summary is not None:
            found[layout.EVERY + side] = summary.granularity
    return found
