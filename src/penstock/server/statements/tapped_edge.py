"""The rows that pass over an edge of the plan, for who looks at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.control.entities.plan import EdgeRow
from penstock.control.entities.relations import entity
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import TappedPort
from penstock.physical.plan.plan import Step
from penstock.results.result_source import EndOfResults, ResultPart
from penstock.runtime.monitoring.taps import Tap
from penstock.types import BEGIN, END, TimeDomain

#: Before the columns of the rows: when a row comes and goes, and how often; negative: it is taken back.
_TIMES = ("ts", "until", "count")


def tapped(
    view: SystemView, id_: str, rows: int, seconds: float, begin: Callable[[TappedPort, int], Tap]
) -> TappedEdge:
    """Return the next rows of an edge. begin: taps it.

    Raises:
        PenstockError: P0201 for an id that is not that of a queue, P0711 where nothing runs.
    """
    found = entity(view, id_)
    if found is None or not isinstance(found.row, EdgeRow):
        hint = "SELECT id FROM penstock.queues lists them"
        raise PenstockError("P0201", f"there is no queue {id_[:200]}", hint=hint)
    edge = found.row
    sender = next(step for step in view.steps if step.id == edge.edge.step)
    queries = view.figures.run.plan.queries if view.figures.run.plan is not None else {}
    domains = {queries[name].domain for name in edge.to.queries if name in queries}
    domain = domains.pop() if len(domains) == 1 else None
    return TappedEdge(begin((edge.to_key, edge.port), rows), sender, domain, seconds)


class TappedEdge:
    """The rows of a tap, as a subscription that ends. Instants are texts; a row that never goes has none.

    Args:
        sender: the step that emits the rows.
        domain: of the instants; None where the queries that use the edge have several.
        seconds: after which it ends.
    """

    cursor = None

    def __init__(self, tap: Tap, sender: Step, domain: TimeDomain | None, seconds: float) -> None:
        self._tap = tap
        self._types = sender.types
        self._domain = domain
        self._end = time.monotonic() + seconds
        names = (
            sender.names if len(sender.names) == len(self._types) else [f"c{i + 1}" for i in range(len(self._types))]
        )
        times = [(_TIMES[0], pa.string()), (_TIMES[1], pa.string()), (_TIMES[2], pa.int64())]
        self._schema = pa.schema([*times, *zip(_apart(names), self._types, strict=True)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def next(self, seconds: float) -> ResultPart | None:
        left = self._end - time.monotonic()
        found = self._tap.next(max(0.0, min(seconds, left)))
        if found:
            table = pa.Table.from_batches([self._batch(part) for part in found])
            return ResultPart(table.combine_chunks().to_batches()[0], "")
        if left <= 0 or self._tap.ended:
            self._tap.close()
            raise EndOfResults
        return None

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        return self._tap.on_change(listener)

    def close(self) -> None:
        self._tap.close()

    def _batch(self, elements: Elements) -> pa.RecordBatch:
        columns = [c if c.type == t else c.cast(t) for c, t in zip(elements.columns, self._types, strict=True)]
        times = [self._shown(elements.ts.tolist()), self._shown(elements.exp.tolist()), pa.array(elements.signs)]
        return pa.RecordBatch.from_arrays([*times, *columns], schema=self._schema)

    def _shown(self, ticks: Sequence[int]) -> pa.Array:
        show = str if self._domain is None else self._domain.show
        return pa.array([None if tick in (BEGIN, END) else show(tick) for tick in ticks], pa.string())


def _apart(names: Sequence[str]) -> list[str]:
    """Return names of which no two are the same, nor one of those of the times."""
    known = set(_TIMES)
    found = []
    for name in names:
        distinct, number = name, 2
        while distinct in known:
            distinct, number = f"{name} {number}", number + 1
        known.add(distinct)
        found.append(distinct)
    return found
