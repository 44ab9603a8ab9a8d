"""Source predicates: the condition of the rows of a source that some query reads, so that readers can skip the others.

A selection that the optimizer has pushed down to a scan runs directly behind it in the ingest. Where all readers of a
source are such selections, a row that passes none of them affects no query, only the counts of the source and its
progress of time, for which the ingest accounts (`runtime/skipped_records.py`). The selections stay in the plan: they
decide row by row, and a plan with another condition has other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.expressions.nodes import Call, Expression, remap
from penstock.physical.plan.plan import Plan, Step, scanned_sources, scans_of

#: Number of conditions whose OR is kept for the next plan.
_BLOCK = 64


def source_predicates(steps: Sequence[Step]) -> dict[str, Expression]:
    """Return, by source, the condition of the rows that some step behind its scans passes, over the declared columns.
    Sources of which all rows are read are left out: those with a reader that is no selection; relations that lose rows,
    whose updates are identified by all of them; those with a primary key or a declared period, which reject rows."""
    conditions = {name: _of_source(steps, source) for name, source in scanned_sources(steps).items()}
    return {name: condition for name, condition in conditions.items() if condition is not None}


def source_predicate_of(plans: Iterable[Plan], source: str) -> Expression | None:
    """Return the condition of the rows of `source` that some of several plans reads; None for all rows."""
    conditions = [plan.source_predicates.get(source) for plan in plans if source in plan.sources]
    return None if None in conditions else either([c for c in conditions if c is not None])


def may_skip(source: Source) -> bool:
    """Return whether readers may skip rows of `source` that no query reads."""
    return not source.loses_rows and not source.primary_key and source.period is None


def _of_source(steps: Sequence[Step], source: Source) -> Expression | None:
    if not may_skip(source):
        return None
    scans = {scan.id: scan.spec for scan in scans_of(steps, source.name)}
    conditions: list[Expression] = []
    for step in steps:
        for edge in step.inputs:
            scan = scans.get(edge.step)
            if scan is None:
                continue
            condition = step.spec.condition
            if condition is None or edge.exchange is not None:
                return None
            conditions.append(remap(condition, scan.scanned_columns.__getitem__))
    return either(conditions)


def either(conditions: Iterable[Expression]) -> Expression | None:
    """Return the OR of all different `conditions`; None for none. Where one is added to many, most of it is the same
    objects as before.
    """
    different = list({condition.fingerprint: condition for condition in conditions}.values())
    if not different:
        return None
    blocks = [tuple(different[start : start + _BLOCK]) for start in range(0, len(different), _BLOCK)]
    return _balanced([_whole_block(block) if len(block) == _BLOCK else _balanced(block) for block in blocks])


@lru_cache(maxsize=64)
def _whole_block(conditions: tuple[Expression, ...]) -> Expression:
    return _balanced(conditions)


def _balanced(parts: Sequence[Expression]) -> Expression:
    """Return an OR of minimal depth: a thousand queries may read a source."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Call(pa.bool_(), "OR", (_balanced(parts[:middle]), _balanced(parts[middle:])))
