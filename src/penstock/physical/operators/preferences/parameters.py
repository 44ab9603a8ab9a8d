"""The parameters of a queue, of a preference."""

from __future__ import annotations

import numpy as np

from penstock.algebra.nodes.preference_clause import BudgetKind, Preference, PreferenceOrder
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.arrays import Records
from penstock.physical.synopses.preferences import layout

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
) -> Records:
    """Return the parameters of the queue of one of `shards`. summaries: by probed side; age_of_x: an entry is as old
    as its element, whatever it looks up."""
    found = np.zeros(1, layout.PARAMETERS)
    budget = preference.budget
    found["direction"], found["budget"] = _SORTS[preference.order], _BUDGETS[budget.kind]
    found["grant"], found["ticks"] = budget.units, 1
    if budget.kind is BudgetKind.PER_TIME:
        found["grant"], found["ticks"] = budget.rate(shards).as_integer_ratio()
    found["by_age"], found["age_of_x"] = preference.per is not None, age_of_x
    found["queue"], found["records"], found["fade"] = preference.queue, preference.records, float(preference.fade)
    found["eager"] = budget.kind is not BudgetKind.AUTO
    for side, summary in enumerate(summaries):
        if summary is not None:
            found["rates"][0, side], found["depths"][0, side] = summary.rate, summary.depth
        if preference.fades and preference.per is not None:
            found["every"][0, side] = preference.per
        elif preference.fades and summary is not None:
            found["every"][0, side] = summary.granularity
    return found
