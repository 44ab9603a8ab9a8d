"""Source predicates: the condition of the rows of a source that some query reads, so that readers can skip the others.

A selection that the optimizer has pushed down to a scan runs directly behind it in the ingest. Where all readers of a
source are such selections, a row that passes none of them affects no query, only the counts of the source and its
progress of time, for which the ingest accounts (`runtime/skipped_records.py`). The selections stay in the plan: they
decide row by row, and a plan with another condition has other state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.expressions.nodes import Call, Expression, remap
from penstock.physical.plan.plan import Plan, Step, scanned_sources, scans_of

#: Of more conditions the OR is one of blocks, each of eight on average, and so on.
_BLOCK = 16
#: By the fingerprints of its conditions, the OR of a block.
_BLOCKS: dict[tuple[str, ...], Expression] = {}
#: By source and step, the conditions of the rows that are read; None for a source of which all rows are read.
Conditions = Mapping[str, Mapping[int, Expression] | None]


def source_predicates(steps: Sequence[Step]) -> dict[str, Expression]:
    """Return, by source, the condition of the rows that some step behind its scans passes, over the declared columns.
    Sources of which all rows are read are left out: those with a reader that is no selection; relations that lose rows,
    whose updates are identified by all of them; those with a primary key or a declared period, which reject rows."""
    return predicates_of(conditions_of(steps))


def conditions_of(steps: Sequence[Step]) -> dict[str, Mapping[int, Expression] | None]:
    """Return the conditions of each step behind the scans of `steps`, in order."""
    return {name: _of_source(steps, source) for name, source in scanned_sources(steps).items()}


def conditions_without(known: Conditions, steps: Mapping[int, Step], gone: Sequence[Step]) -> Conditions:
    """Return the conditions of those that stay of some steps.

    Args:
        known: of all.
        steps: those that stay, by their numbers.
        gone: the others.
    """
    if any(step.spec.scanned is not None for step in gone):
        return conditions_of([*steps.values()])
    numbers = {step.id for step in gone}
    found: dict[str, Mapping[int, Expression] | None] = {}
    for name, of_source in known.items():
        if of_source is None:
            scans = {scan.id: scan.spec.scanned for scan in scans_of([*steps.values()], name)}
            read = [scans[edge.step] for step in gone for edge in step.inputs if edge.step in scans]
            # Whether those that stay read all rows too.
            found[name] = _of_source([*steps.values()], read[0]) if read and read[0] is not None else None
        else:
            found[name] = (
                {n: of_source[n] for n in steps if n in of_source} if numbers & of_source.keys() else of_source
            )
    return found


def predicates_of(conditions: Conditions) -> dict[str, Expression]:
    """Return, by source, whether one of its conditions holds."""
    found = {name: either(of_source.values()) for name, of_source in conditions.items() if of_source}
    return {name: condition for name, condition in found.items() if condition is not None}


def source_predicate_of(plans: Iterable[Plan], source: str) -> Expression | None:
    """Return the condition of the rows of `source` that some of several plans reads; None for all rows."""
    conditions = [plan.source_predicates.get(source) for plan in plans if source in plan.sources]
    return None if None in conditions else either([c for c in conditions if c is not None])


def may_skip(source: Source) -> bool:
    """Return whether readers may skip rows of `source` that no query reads."""
    return not source.loses_rows and not source.primary_key and source.period is None


def _of_source(steps: Sequence[Step], source: Source) -> dict[int, Expression] | None:
    if not may_skip(source):
        return None
    scans = {scan.id: scan.spec for scan in scans_of(steps, source.name)}
    conditions: dict[int, Expression] = {}
    for step in steps:
        for edge in step.inputs:
            scan = scans.get(edge.step)
            if scan is None:
                continue
            condition = step.spec.condition
            if condition is None or edge.exchange is not None:
                return None
            conditions[step.id] = remap(condition, scan.scanned_columns.__getitem__)
    return conditions


def either(conditions: Iterable[Expression]) -> Expression | None:
    """Return the OR of all different `conditions`; None for none. Where one is added to many, or one of them goes, most
    of it is the same objects as before: where a block ends is a matter of its last condition.
    """
    different = {condition.fingerprint: condition for condition in conditions}
    if not different:
        return None
    while len(different) > _BLOCK:
        names = list(different)
        ends = [0]
        for place in [place for place, name in enumerate(names, 1) if name[-2:] < _END_OF_BLOCK]:
            # Each has two at least, so that there are fewer blocks than conditions.
            if place - ends[-1] > 1:
                ends.append(place)
        ends += [len(names)] if ends[-1] < len(names) else []
        blocks = [_block(tuple(names[start:end]), different) for start, end in pairwise(ends)]
        different = {block.fingerprint: block for block in blocks}
    return _balanced(list(different.values()))


#: The last digits of one fingerprint in 8 are below this.
_END_OF_BLOCK = "20"


def _block(names: tuple[str, ...], conditions: Mapping[str, Expression]) -> Expression:
    known = _BLOCKS.pop(names, None)
    if known is None:
        known = _balanced([conditions[name] for name in names])
    # The most recently used block is last; the first ones are dropped.
    _BLOCKS[names] = known
    while len(_BLOCKS) > _KEPT_BLOCKS:
        with suppress(StopIteration, KeyError):
            del _BLOCKS[next(iter(_BLOCKS))]
    return known


_KEPT_BLOCKS = 2048


def _balanced(parts: Sequence[Expression]) -> Expression:
    """Return an OR of minimal depth: a thousand queries may read a source."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Call(pa.bool_(), "OR", (_balanced(parts[:middle]), _balanced(parts[middle:])))
