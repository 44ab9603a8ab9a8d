"""A one-time query as the binder returns it: a relation, the instant at which it is read, and the order of its rows."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.first_rows import SortKey, TopK
from penstock.algebra.nodes.query import distinct_names
from penstock.algebra.nodes.rowwise import Project
from penstock.expressions.nodes import Column
from penstock.types import CALENDAR, TimeDomain


@dataclass(frozen=True)
class OneTimeQuery:
    """A query that is answered once, by the rows of its relation R at one instant.

    Args:
        root: the relation R; its columns from `width` on only serve `order`.
        order: the order of the answer's rows; empty for an answer without an order.
        limit, offset: number of rows of the answer (None: all that follow), and of rows skipped before them.
        as_of: the instant, in ticks; None is the last one.
        text: the statement as written.
    """

    name: str
    root: Algebra
    width: int
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    as_of: int | None = None
    text: str = ""

    @property
    def domain(self) -> TimeDomain:
        """Return the query's time domain; one over static relations alone has calendar time."""
        return self.root.domain or CALENDAR

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the column names of the answer; a repeated name gets a number as a suffix (`a_1`)."""
        return distinct_names((), self.root.schema.names[: self.width])

    @property
    def output_schema(self) -> pa.Schema:
        """Return the columns of the answer, by `output_names`."""
        return pa.schema(list(zip(self.output_names, self.root.schema.types[: self.width], strict=True)))


def ordered(name: str, root: Algebra, as_of: int | None, text: str) -> OneTimeQuery:
    """Return the one-time query over a relation whose last step is ORDER BY, LIMIT or OFFSET: at one instant the first
    rows need not be kept up to date, so that step becomes the order of the answer.
    """
    first = root.input if isinstance(root, Project) and _only_drops_columns(root) else root
    if not isinstance(first, TopK) or first.partition:
        return OneTimeQuery(name, root, len(root.schema), as_of=as_of, text=text)
    width = len(root.schema)
    return OneTimeQuery(name, first.input, width, first.total_order, first.limit, first.offset, as_of, text)


def _only_drops_columns(node: Project) -> bool:
    """Return whether a projection keeps the first columns of its input, under their names."""
    width = len(node.expressions)
    same = all(isinstance(e, Column) and e.index == i for i, e in enumerate(node.expressions))
    return same and node.schema.names == node.input.schema.names[:width]
