"""Whether what a relation holds at one time stays within bounds, however long its streams go on, and what bounds it.

Contract: `content(node)` is derived from the plan alone, as the update pattern is. A relation is *bounded* when time
windows, counts of rows or a LIMIT bound it (given streams of a steady rate); bounded by *keys* when it has one row, or
so many, for every value of some columns: then it is as bounded as these values are; else *unbounded*, and the source to
blame is named. An operator without an entry here holds what its inputs hold together.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra, column_labels
from penstock.algebra.nodes.first_rows import TopK
from penstock.algebra.nodes.internal import Internal
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.scans import RelationScan, Scan, StreamScan
from penstock.algebra.nodes.semi_and_outer_joins import SemiJoin
from penstock.algebra.nodes.set_operations import Except, Intersect
from penstock.algebra.nodes.windows import RowWindow, Window, WindowKind
from penstock.algebra.optimizer.statistics import seconds
from penstock.tree import walk


class Grade(enum.IntEnum):
    """How far something is bounded; the larger, the less."""

    FIXED = 0
    BOUNDED = 1
    KEYS = 2
    UNBOUNDED = 3


@dataclass(frozen=True)
class Boundedness:
    """by: what bounds it, or why nothing does, as people read it; hint: what would bound it; source: the source to look
    for in the script where it is not bounded; length: seconds after which everything in it has gone, if that is
    known."""

    grade: Grade
    by: str
    hint: str = ""
    source: str = ""
    length: float | None = 0.0


@singledispatch
def content(node: Algebra) -> Boundedness:
    """What bounds the relation `node`. Of a stream: what bounds its elements if all of them were kept."""
    return together(content(child) for child in node.inputs)


def together(found: Iterable[Boundedness]) -> Boundedness:
    """What bounds several relations that are held at once."""
    each = list(found)
    if not each:
        return Boundedness(Grade.FIXED, "one row")
    grade = max(one.grade for one in each)
    least = [one for one in each if one.grade is grade]
    texts = list(dict.fromkeys(one.by for one in least))
    lengths = [one.length for one in each]
    length = None if any(one is None for one in lengths) else max(one for one in lengths if one is not None)
    return Boundedness(grade, " and ".join(texts), least[0].hint, least[0].source, length)


def by_keys(node: Algebra, columns: tuple[int, ...], below: Boundedness, what: str) -> Boundedness:
    """One row, or a few, for every value of `columns` of `node`: bounded by what is below, else by these
    values."""
    if not columns:
        return Boundedness(Grade.FIXED, f"one {what.removesuffix('s')}")
    if below.grade <= Grade.KEYS:
        return below
    names = ", ".join(column_labels(node.schema)[i] for i in columns)
    hint = f"{what} never end over {below.by}; {below.hint}" if below.hint else ""
    return Boundedness(Grade.KEYS, f"the number of {what} ({names})", hint, below.source, None)


@content.register
def _stream(node: StreamScan) -> Boundedness:
    name = node.source.name
    return Boundedness(Grade.UNBOUNDED, f"all of {name}", _give_window(name), name, None)


def _give_window(name: str) -> str:
    return f"give {name} a window, such as [RANGE 1 HOUR] or [ROWS 1000]"


@content.register
def _relation(node: RelationScan) -> Boundedness:
    source = node.source
    if source.is_static:
        return Boundedness(Grade.FIXED, f"{source.name}, which is static")
    if source.primary_key:
        names = ", ".join(source.columns[i].name for i in source.primary_key)
        return Boundedness(
            Grade.KEYS, f"the values of the primary key of {source.name} ({names})", "", source.name, None
        )
    if source.loses_rows:
        return Boundedness(Grade.KEYS, f"the rows of {source.name} that are not deleted", "", source.name, None)
    hint = f"declare {source.name} with a PRIMARY KEY, or with OPERATION BY and deletions"
    return Boundedness(
        Grade.UNBOUNDED, f"all rows of {source.name}, which has no key and never loses one", hint, source.name, None
    )


@content.register
def _window(node: Window) -> Boundedness:
    if node.kind is WindowKind.UNBOUNDED:
        return _endless(node)
    assert node.lifetime is not None
    ticks = node.lifetime + (node.slide or 0)
    return Boundedness(Grade.BOUNDED, f"{node.describe()['window']} of {_names(node)}", length=_seconds(node, ticks))


def _endless(node: Window | RowWindow) -> Boundedness:
    names = _names(node)
    name = names.split(", ")[0]
    return Boundedness(Grade.UNBOUNDED, f"the window UNBOUNDED of {names}", _give_window(name), name, None)


def _seconds(node: Algebra, ticks: int) -> float:
    return seconds(ticks, node.domain) if node.domain is not None else 0.0


@content.register
def _row_window(node: RowWindow) -> Boundedness:
    text = f"{node.describe()['window']} of {_names(node)}"
    if node.rows is None and node.length is None:
        return _endless(node)
    if node.length is not None:
        return Boundedness(Grade.BOUNDED, text, length=_seconds(node, node.length + (node.slide or 0)))
    if not node.partition:
        return Boundedness(Grade.BOUNDED, text, length=None)
    labels = column_labels(node.schema)
    names = ", ".join(labels[i] for i in node.partition)
    return Boundedness(
        Grade.KEYS, f"{text}, by the number of partitions ({names})", "", _names(node).split(", ")[0], None
    )


def _names(node: Algebra) -> str:
    """Return the sources that a window stands on."""
    found = (leaf.source.name for leaf in walk(node) if isinstance(leaf, Scan))
    return ", ".join(dict.fromkeys(found))


@content.register
def _distinct(node: Distinct) -> Boundedness:
    return by_keys(node, tuple(range(len(node.schema))), content(node.input), "different rows")


@content.register
def _aggregate(node: Aggregate) -> Boundedness:
    return by_keys(node.input, node.group, content(node.input), "groups")


@content.register
def _top(node: TopK) -> Boundedness:
    return Boundedness(Grade.BOUNDED, f"LIMIT {node.limit}", length=content(node.input).length)


@content.register
def _except(node: Except) -> Boundedness:
    return content(node.left)


@content.register
def _intersect(node: Intersect) -> Boundedness:
    return min((content(node.left), content(node.right)), key=lambda found: found.grade)


@content.register
def _semi(node: SemiJoin) -> Boundedness:
    return content(node.left)


@content.register
def _nrr(node: NRRJoin) -> Boundedness:
    return content(node.left)


@content.register
def _internal(node: Internal) -> Boundedness:
    names = _names(node)
    hint = "read it as a stream, or without INTERNAL"
    return Boundedness(Grade.UNBOUNDED, f"all results of INTERNAL windows of {names}", hint, names.split(", ")[0], None)
