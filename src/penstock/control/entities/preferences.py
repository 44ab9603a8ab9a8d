"""`penstock.preferences`: how much of their work queries WITH PREFERENCE do, and how late; `penstock.summaries`: the
summaries of streams, who reads them, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock import figures
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.preference_clause import Preference
from penstock.algebra.nodes.preferences import PreferringJoin, PreferringLookUp, PreferringSelection, summaries_read
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.control.entities.attributes import COUNT, REAL, TEXT, Attribute, ControlRelation, Origin, measured
from penstock.control.entities.queries import QUERIES, QueryRow
from penstock.control.entities.sources import binding_attributes
from penstock.control.entities.system import SystemView
from penstock.language.catalog import UnboundDeclaration
from penstock.runtime.monitoring.preference_metrics import PreferenceMetrics

_TASKS = Origin.TASKS


@dataclass(frozen=True)
class PreferenceRow:
    """A query with a preference; a query that has several in views has a row for each of them."""

    query: QueryRow
    preference: Preference

    @property
    def fade(self) -> float:
        return float(self.preference.fade)

    @property
    def metrics(self) -> PreferenceMetrics | None:
        """Return what was measured of the query; None before anything was."""
        return None if self.query.metrics is None else self.query.metrics.preference


def _preferences(view: SystemView) -> Iterable[PreferenceRow]:
    found = []
    for listed in view.listed:
        root = None if listed.bound is None else listed.bound.root
        for node in () if root is None else operators(root):
            if isinstance(node, PreferringJoin | PreferringLookUp | PreferringSelection):
                found.append(PreferenceRow(QueryRow(view, listed), node.preference))
    return found


#: The columns that are figures, in their order.
_FIGURES = (
    figures.DONE_SHARE,
    figures.UNITS_ASKED,
    figures.UNITS_DONE,
    figures.UNITS_WAITING,
    figures.UNITS_EXPIRED,
    figures.UNITS_SHED,
    figures.ENTRIES_WAITING,
    figures.PREFERENCE_RESULTS,
    figures.RESULTS_PER_ROW,
    figures.COMPLETENESS,
    figures.PROMISING_DELAY,
    figures.PROMISING_DELAY_HIGH,
    figures.OTHER_DELAY,
    figures.OTHER_DELAY_HIGH,
    figures.AGE_DIFFERENCE,
)


def _metrics(row: PreferenceRow) -> PreferenceMetrics | None:
    return row.metrics


PREFERENCES: ControlRelation[PreferenceRow] = ControlRelation(
    "preferences",
    "The queries WITH PREFERENCE under a budget: how much of their work is done, how late, and what is missing.",
    (
        Attribute("query", TEXT, "the name of the query", lambda row: row.query.name),
        Attribute("entity", TEXT, "the id of its entity", lambda row: QUERIES.id_of(row.query)),
        Attribute("direction", TEXT, "DESC, ASC or WEIGHTED", lambda row: row.preference.order.value),
        Attribute("budget", TEXT, "what grants units of work", lambda row: row.preference.budget.text),
        Attribute("fade", REAL, "the factor by which age counts; 1 where it does not", lambda row: row.fade),
        Attribute("queue", COUNT, "entries that may wait in a shard", lambda row: row.preference.queue, unit="entries"),
        *(measured(figure, _metrics) for figure in _FIGURES),
    ),
    _preferences,
)


@dataclass(frozen=True)
class SummaryRow:
    """A summary of a stream.

    Args:
        definition: None for one that cannot be bound.
        readers: names of the queries that read it.
    """

    view: SystemView
    name: str
    definition: SummaryDefinition | None
    readers: tuple[str, ...]
    unbound: UnboundDeclaration | None = None

    def held(self, name: str) -> int | None:
        """Return a figure of its synopses in all shards; None where none of them was measured."""
        keys, found = self.view.figures.run.keys, []
        parts = {
            (keys[step.id], part)
            for step in self.view.steps
            for part, definition in step.spec.summary_parts.items()
            if definition == self.definition
        }
        for (key, _, part), size in self.view.figures.run.synopses.items():
            if (key, part) in parts:
                found.append(int(getattr(size, name)))
        return sum(found) if found else None


def _summaries(view: SystemView) -> Iterable[SummaryRow]:
    rows = []
    for summary in view.registry.bound.summaries.values():
        readers = [
            one.stored.name
            for one in view.listed
            if one.bound is not None and summary.definition in summaries_read(one.bound.root)
        ]
        rows.append(SummaryRow(view, summary.name, summary.definition, tuple(sorted(readers))))
    lost = (one for one in view.registry.bound.unbound.values() if one.kind == "SUMMARY")
    return [*rows, *(SummaryRow(view, one.name, None, (), one) for one in lost)]


def _defined(
    name: str, type_: pa.DataType, help_: str, read: Callable[[SummaryDefinition], object], unit: str = ""
) -> Attribute[SummaryRow]:
    """Return an attribute of the definition of a summary."""
    return Attribute(
        name, type_, help_, lambda row: None if row.definition is None else read(row.definition), unit=unit
    )


def _unbound_summary(row: SummaryRow) -> UnboundDeclaration | None:
    return row.unbound


SUMMARIES: ControlRelation[SummaryRow] = ControlRelation(
    "summaries",
    "The summaries of streams. One that no query under a budget reads is not kept.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.name),
        _defined("stream", TEXT, "the stream or view whose values it counts", lambda one: one.stream),
        _defined("columns", TEXT, "the columns", lambda one: ", ".join(one.columns)),
        _defined("method", TEXT, "COUNTSKETCH or EXACT", lambda one: one.method.value),
        _defined("granularity", COUNT, "length of its finest stretch", lambda one: one.granularity, "ticks"),
        _defined("rate", COUNT, "zones of a granularity that become one of the next", lambda one: one.rate),
        _defined("depth", COUNT, "its granularities", lambda one: one.depth),
        _defined("span", COUNT, "how much of the past its zones cover", lambda one: one.span, "ticks"),
        Attribute("readers", COUNT, "how many queries read it", lambda row: len(row.readers)),
        Attribute("queries", TEXT, "their names", lambda row: ", ".join(row.readers)),
        Attribute(
            "rows",
            COUNT,
            "rows in its zones, once for each query that reads it",
            lambda row: row.held("rows"),
            _TASKS,
            "rows",
        ),
        Attribute("bytes", COUNT, "bytes of its zones, alike", lambda row: row.held("bytes"), _TASKS, "bytes"),
        *binding_attributes(_unbound_summary),
    ),
    _summaries,
)
