"""`penstock.approximations`: what is not exact in the answers of queries, and what is known of the error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.frequent import Frequent
from penstock.algebra.nodes.shed import Shed
from penstock.control.entities.attributes import COUNT, REAL, TEXT, Attribute, ControlRelation, Origin, unmeasured
from penstock.control.entities.queries import QUERIES, QueryRow
from penstock.control.entities.system import SystemView
from penstock.runtime.watching.metrics import SheddingMetrics


@dataclass(frozen=True)
class ApproximationRow:
    """Something that makes the answer of a query approximate. What was not measured yet is None.

    Args:
        shedding: the figures of a budget.
        missed: of FREQUENT, the share of all counts that an item in no list can have.
    """

    query: QueryRow
    technique: str
    reason: str
    shedding: SheddingMetrics | None = None
    missed: float | None = None

    @property
    def rate(self) -> float | None:
        """Return the share of tuples that were kept."""
        found = self.shedding
        return None if found is None or not found.arrived else 1 - found.shed / found.arrived

    @property
    def missing(self) -> float | None:
        return None if self.shedding is None else 1 - self.shedding.coverage_at_least

    def error(self, of: str) -> float | None:
        """Return 1 less a bound of the accuracy."""
        accuracy: float | None = None if self.shedding is None else getattr(self.shedding, of)
        return None if accuracy is None else 1 - accuracy

    @property
    def most(self) -> float | None:
        return self.error("accuracy_low") if self.missed is None else self.missed


def _rows(view: SystemView) -> Iterable[ApproximationRow]:
    queries = (QueryRow(view, one) for one in view.listed)
    return [row for query in queries for row in {(r.technique, r.reason): r for r in _of_query(query)}.values()]


def _of_query(query: QueryRow) -> Iterator[ApproximationRow]:
    root = None if query.listed.bound is None else query.listed.bound.root
    for node in () if root is None else operators(root):
        if isinstance(node, Shed):
            kind = "bytes" if node.in_bytes else "tuples"
            reason = f"memory: at most {node.budget:,} {kind} are held"
            yield ApproximationRow(query, f"shed {node.policy}", reason, query.shedding)
        elif isinstance(node, Aggregate):
            for call, accuracy in node.approximations.items():
                yield ApproximationRow(query, call, accuracy.text)
        elif isinstance(node, Frequent):
            found = None if query.metrics is None else query.metrics.frequent
            reason = f"{node.k} items of each pane are kept, with certain bounds"
            yield ApproximationRow(
                query, f"FREQUENT {node.k}", reason, missed=None if found is None else found.missed_share
            )


APPROXIMATIONS: ControlRelation[ApproximationRow] = ControlRelation(
    "approximations",
    "Budgets beyond which queries shed, approximate aggregates and FREQUENT items, and what is known of their errors.",
    (
        Attribute("query", TEXT, "the name of the query", lambda row: row.query.name),
        Attribute("entity", TEXT, "the id of its entity", lambda row: QUERIES.id_of(row.query)),
        Attribute("technique", TEXT, "`shed` and the policy, the call of an approximate aggregate, or FREQUENT",
                  lambda row: row.technique),
        Attribute("rate", REAL, "share of the tuples that were kept since the beginning", lambda row: row.rate,
                  Origin.TASKS),
        unmeasured("from_tick", COUNT, "the first instant of an answer that is not exact"),
        unmeasured("until_tick", COUNT, "the last one"),
        unmeasured("fp", REAL, "share of what is answered that the exact answer lacks"),
        Attribute("fn", REAL, "share of the covered time that is missing at the most, before the predicate: certain; 0"
                  " where the answer lacks nothing", lambda row: row.missing, Origin.TASKS),
        Attribute("error_low", REAL, "1 less the accuracy, as estimated: where its interval of 95 % begins",
                  lambda row: row.error("accuracy_high"), Origin.TASKS),
        Attribute("error_high", REAL, "where it ends; of FREQUENT the share of the counts in the window that an item in"
                  " no list can have, certain", lambda row: row.most, Origin.TASKS),
        Attribute("reason", TEXT, "why, and for an approximate aggregate its error", lambda row: row.reason),
    ),
    _rows,
)  # fmt: skip
