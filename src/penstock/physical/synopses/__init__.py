"""Synopses: the state of operators. The registry finds the class of a stored synopsis by its name, and loads it then.

A new synopsis is a file in the folder of its family and a line below.
"""

from __future__ import annotations

import importlib

from penstock.physical.synopses.contract import Synopsis

SYNOPSES: dict[str, str] = {
    "MaterializedElements": "tables.materialized",
    "HashJoinIndex": "join_indexes.hash_index",
    "SortedRuns": "join_indexes.sorted_runs",
    "IntervalRuns": "join_indexes.interval_runs",
    "RowWindowBuffer": "windows.row_window",
    "JumpingWindowBuffer": "windows.jumping_window",
    "FifoQueue": "queues.expiration_queue",
    "CalendarQueue": "queues.expiration_queue",
    "ListQueue": "queues.expiration_queue",
    "PaneLog": "windows.pane_log",
    "Skyline": "tables.skyline",
    "KeyedTable": "tables.keyed_table",
    "OrderedBag": "tables.ordered_bags",
    "ExtremeBag": "tables.ordered_bags",
    "ObjectTable": "tables.objects",
    "HeldRuns": "tables.held_runs",
    "HeldTuples": "tables.held_tuples",
    "NumberedElements": "preferences.numbered_elements",
    "StreamSummary": "summaries.stream_summary",
    "ClusteredIndex": "promises.closing_index",
    "OrderedIndex": "promises.closing_index",
    "PunctuatedIndex": "promises.punctuated_index",
    "ElementCounts": "promises.element_counts",
    "HeldRows": "promises.held_rows",
    "WaitingEntries": "preferences.waiting_entries",
    "ResultChances": "preferences.result_chances",
}


def synopsis_class(name: str) -> type[Synopsis] | None:
    """Return the class of a stored synopsis, None for one that this version does not have."""
    module = SYNOPSES.get(name)
    if module is None:
        return None
    found: type[Synopsis] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return found
