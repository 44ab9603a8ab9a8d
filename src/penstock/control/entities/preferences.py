"""`penstock.preferences`: how much of their work queries WITH PREFERENCE do, and how late; `penstock.summaries`: the
summaries of streams, who reads them, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.preference_clause import Preference
from penstock.algebra.nodes.preferences import PreferringJoin, PreferringLookUp, PreferringSelection, summaries_read
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.control.entities.attributes import COUNT, REAL, TEXT, Attribute, ControlRelation, Origin
from penstock.control.entities.queries import QUERIES, QueryRow
from penstock.control.entities.sources import binding_attributes
from penstock.control.entities.system import SystemView
from penstock.language.catalog import UnboundDeclaration

_TASKS = Origin.TASKS


@dataclass(frozen=True)
class PreferenceRow:
    """A query with a preference; a query that has several in views has a row for each of them."""

    query: QueryRow
    preference: Preference

    @property
    def fade(self) -> float:
        return float(self.preference.fade)

    def measured(self, name: str) -> float | None:
        """Return a figure of the query; None before any."""
        found = None if self.query.metrics is None else self.query.metrics.preference
        value: float | None = None if found is None else getattr(found, name)
        return value

    def count(self, name: str) -> int | None:
        value = self.measured(name)
        return None if value is None else int(value)


def _preferences(view: SystemView) -> Iterable[PreferenceRow]:
    found = []
    for listed in view.listed:
        root = None if listed.bound is None else listed.bound.root
        for node in () if root is None else operators(root):
            if isinstance(node, PreferringJoin | PreferringLookUp | PreferringSelection):
                found.append(PreferenceRow(QueryRow(view, listed), node.preference))
    return found


def _ratio(name: str, help_: str) -> Attribute[PreferenceRow]:
    return Attribute(name, REAL, help_, lambda row: row.measured(name), _TASKS)


def _seconds(name: str, help_: str) -> Attribute[PreferenceRow]:
    return Attribute(name, REAL, help_, lambda row: row.measured(name), _TASKS, "seconds")


def _units(name: str, help_: str) -> Attribute[PreferenceRow]:
    return Attribute(name, COUNT, help_, lambda row: row.count(name), _TASKS, "units of work")


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
        _ratio("share", "units done of those asked"),
        _units("units_asked", "units of work so far; estimated where entries wait"),
        _units("units_done", "of them those that were done"),
        _units("units_waiting", "of them those that wait"),
        _units("units_expired", "of them those that expired before they were done"),
        _units("units_shed", "of them those dropped beyond the queue"),
        Attribute(
            "entries_waiting", COUNT, "entries that wait", lambda row: row.count("entries_waiting"), _TASKS, "entries"
        ),
        Attribute("results", COUNT, "its results so far", lambda row: row.count("results"), _TASKS, "rows"),
        _ratio("results_per_row", "results for each row of its inputs"),
        _ratio("completeness", "part of all pairs that was examined, as estimated"),
        _seconds("promising_delay", "delay of promising results, the median"),
        _seconds("promising_delay_high", "delay that 95 % of them do not exceed"),
        _seconds("other_delay", "delay of the other results, the median"),
        _seconds("other_delay_high", "delay that 95 % of them do not exceed"),
        _seconds("age_difference", "mean distance in time of the two rows of a result"),
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
