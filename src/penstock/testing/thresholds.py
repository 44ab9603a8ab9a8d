"""The sizes at which algorithms switch, so that tests can make them small.

Operators defer work until it is worthwhile, cut runs of rows into stretches, and cut batches into pieces. Each limit is
a constant of its module, chosen by measurement and far larger than the input of a test. Answers may not depend on any
of them. This module lists all of them; a new constant of this kind belongs here, with values at which a few rows lie on
either side of it. Constants that compiled code reads (`numba` copies them when it compiles) cannot be changed and are
not in the list.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: Constant of `penstock.<module>` -> small values.
TABLE: Mapping[str, tuple[int, ...]] = {
    "physical.operators.aggregates.slide_recompute._STRETCH": (1, 2, 5),
    "physical.operators.aggregates.slide_recompute._WAVE": (1, 2, 5),
    "physical.operators.aggregates.shared_pane_sums.PIECE": (1, 2, 7),
    "physical.operators.aggregates.shared_pane_sums._MOST": (1, 3, 10),
    "physical.execution.answers._STRETCH": (1, 2),
    "physical.elements._SMALL": (1,),
    "physical.operators.aggregates.accumulators._SAMPLED": (1, 3),
    "physical.operators.aggregates.slide_incremental._FEWEST": (1, 2),
    "physical.operators.aggregates.slide_incremental._MOST": (1, 3, 10),
    "physical.operators.joins.join.PROBES_AT_ONCE": (1, 2, 5),
    "physical.operators.joins.value_join._FEW_ROWS": (0, 1, 3),
    "physical.operators.joins.partner_counts.PROBES_AT_ONCE": (1, 2, 5),
    "physical.operators.joins.multi_join.PAIRS_AT_ONCE": (1, 2, 5),
    "physical.operators.joins.nonretroactive.PROBES_AT_ONCE": (1, 2, 5),
    "physical.operators.joins.aggregate_lookup._AT_ONCE": (1, 2, 5),
    "physical.operators.preferences.operator.PAIRS_AT_ONCE": (1, 2, 5),
    "physical.synopses.preferences.numbered_elements._MANY": (0, 1_000),
    "physical.synopses.summaries.stream_summary.MOST_UNCOUNTED": (0, 1, 5),
    "physical.operators.joins.store_join._SMALLER": (0, 1_000),
    "physical.operators.joins.window_store._FEWEST_APART": (1, 3),
    "physical.operators.joins.store_join._MOST_AT_ONCE": (0, 5),
    "physical.operators.joins.store_join.FEW_ROWS": (0, 3),
    "physical.operators.updates.FEW_ROWS": (0, 3),
    "physical.operators.sequence.sequence_model.PIECE": (1, 2, 7),
    "physical.kernels.boundary_pieces.PIECE": (1, 2, 7),
    "physical.kernels.run_length._LONG": (2, 3),
    "physical.synopses.join_indexes.hash_index._FEWEST_NEGATIVE": (1, 3),
    "physical.synopses.join_indexes.hash_index._FOUND": (1, 3),
    "physical.synopses.join_indexes.hash_index._MERGED": (2, 3),
    "physical.synopses.queues.chunk_log.LARGEST": (1, 4),
    "physical.synopses.queues.chunk_log._MERGE_AT": (2, 3),
    "physical.synopses.windows.jumping_window._FEWEST_DEAD": (1, 3),
    "physical.synopses.tables.appendable_columns._SHORT": (1, 2, 5),
    "physical.synopses.queues.expiration_queue._LONG": (1, 4),
    "physical.synopses.queues.expiration_queue._MERGED": (2, 3),
    "physical.synopses.queues.expiration_queue._MOST_CHUNKS": (2, 3),
    "physical.synopses.queues.expiration_queue._WORTH": (1, 3),
    "physical.synopses.join_indexes.interval_runs._STRETCH": (1, 2, 5),
    "physical.synopses.join_indexes.sorted_runs._FEWEST_NEGATIVE": (1, 3),
    "physical.synopses.join_indexes.sorted_runs._MERGE_AT": (2, 3),
    "physical.synopses.windows.row_window._FEWEST_DEAD": (1, 3),
    "physical.synopses.tables.keyed_table._FEWEST_SLOTS": (1, 4),
    "runtime.live.content.FEW": (0, 2),
    "runtime.live.content.PARTS": (1, 2, 5),
    "runtime.live.history._FEWEST": (0, 2),
    "physical.elements._FEW": (0, 1, 3),
    "physical.execution.answers._FEW": (0, 1),
    "physical.kernels.compiled._FEW": (0, 2),
    "physical.operators.joins.window_store._MOST_IN_CHAINS": (0, 12),
    "physical.operators.sets.skyband.FEWEST": (0, 2),
    "physical.operators.streams.changes._FEW": (0, 1, 3),
}


def small(seed: int) -> dict[str, int]:
    """Return every constant with one of its small values, drawn by `seed`; a quarter of them keep their own."""
    draw = random.Random(seed)
    return {name: draw.choice(values) for name, values in TABLE.items() if draw.random() < 0.75}


@contextmanager
def lowered(values: Mapping[str, int]) -> Iterator[None]:
    """Set constants of the table to these values inside the context."""
    places = {name: _place(name) for name in values}
    before = {name: getattr(*place) for name, place in places.items()}
    try:
        for name, value in values.items():
            setattr(*places[name], value)
        yield
    finally:
        for name, value in before.items():
            setattr(*places[name], value)


def _place(name: str) -> tuple[object, str]:
    module, _, constant = name.rpartition(".")
    return importlib.import_module(f"penstock.{module}"), constant
