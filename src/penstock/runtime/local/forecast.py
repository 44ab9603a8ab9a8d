"""EXPLAIN of WITH PREFERENCE: the bytes of each summary by both methods, the units of work that a tuple requires, and
whether a budget grants them. All from the statistics of the sources, before the query runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from penstock.algebra.nodes.base import Algebra, operators
from penstock.algebra.nodes.preference_clause import BudgetKind
from penstock.algebra.nodes.preferences import PreferringJoin, PreferringLookUp, PreferringSelection
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.properties.cardinality import Estimate, agreeing, kept
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.expressions.nodes import Expression
from penstock.physical.planning.state_size.summary import size_text
from penstock.physical.synopses.summaries.declared import bytes_of
from penstock.storage.documents import Document
from penstock.types import TimeDomain

Preferring = PreferringJoin | PreferringLookUp | PreferringSelection


@dataclass(frozen=True)
class SummaryForecast:
    """A summary. zones: of all granularities in a shard, at most; sketch, exact: bytes in all shards when all
    granularities are full, at most, by COUNTSKETCH and by EXACT."""

    name: str
    method: str
    zones: int
    sketch: int
    exact: int

    @property
    def text(self) -> str:
        return (
            f"summary {self.name} by {self.method}: at most {self.zones:,} zones in a shard; at most "
            f"{size_text(self.sketch)} by COUNTSKETCH, {size_text(self.exact)} by EXACT"
        )


@dataclass(frozen=True)
class WorkForecast:
    """The work of a preference. tuples: a second, those that make entries; asked: units a second that these require;
    granted: units a second, None for AUTO."""

    budget: str
    tuples: float
    asked: float
    granted: float | None

    @property
    def units(self) -> float:
        """Return the units that a tuple requires; 0 without tuples."""
        return self.asked / self.tuples if self.tuples else 0.0

    @property
    def suffices(self) -> bool | None:
        """Return whether the budget grants, on average, the units that the tuples require; None for AUTO."""
        return None if self.granted is None else self.granted >= self.asked

    @property
    def text(self) -> str:
        required = f"about {self.units:.4g} units a tuple, {self.asked:.4g} a second"
        if self.granted is None:
            return f"work: {required}; AUTO grants what is measured to fit into target_latency"
        verdict = "suffices on average" if self.suffices else "does not suffice, so entries wait"
        return f"work: {required}; BUDGET {self.budget} grants {self.granted:.4g} a second: it {verdict}"


@dataclass(frozen=True)
class PreferenceForecast:
    """One preference of a query."""

    summaries: tuple[SummaryForecast, ...]
    work: WorkForecast

    @property
    def lines(self) -> list[str]:
        return [*(summary.text for summary in self.summaries), self.work.text]

    def as_json(self) -> Document:
        work = {**asdict(self.work), "units_a_tuple": self.work.units, "suffices": self.work.suffices}
        return {"summaries": [asdict(summary) for summary in self.summaries], "work": work}


def forecasts(root: Algebra, statistics: Statistics) -> list[PreferenceForecast]:
    """Return what is known of each preference of an optimized plan."""
    found = []
    for node in operators(root):
        if isinstance(node, PreferringJoin | PreferringLookUp | PreferringSelection):
            summaries = tuple(_summary(*one, node.domain, statistics) for one in _summaries(node))
            found.append(PreferenceForecast(summaries, _work(node, statistics)))
    return found


def _summaries(node: Preferring) -> Iterator[tuple[Algebra, SummaryDefinition, tuple[int, ...]]]:
    """Yield the summaries, each with its side and the positions of its columns there."""
    if isinstance(node, PreferringJoin):
        for side, summary, columns in zip(node.inputs[:2], node.summaries, node.summarised, strict=True):
            if summary is not None:
                yield side, summary, columns
        for side, ahead in zip(node.later, node.ahead, strict=True):
            yield side, ahead.summary, ahead.summarised
    elif node.summary is not None:
        yield node.inputs[0], node.summary, node.summarised


def _summary(
    side: Algebra, summary: SummaryDefinition, columns: tuple[int, ...], domain: TimeDomain | None, known: Statistics
) -> SummaryForecast:
    rows = estimate(side, known).decided()
    tick = 1.0 if domain is None else seconds(1, domain)
    distinct = max(1.0, math.prod(rows.distinct[column] for column in columns) / known.shards)
    predicted = bytes_of(summary, rows.rate * tick / known.shards, distinct)
    sketch, exact = predicted.sketch * known.shards, predicted.exact * known.shards
    return SummaryForecast(summary.name, summary.method.value, predicted.zones, sketch, exact)


def _work(node: Preferring, known: Statistics) -> WorkForecast:
    budget, granted = node.preference.budget, None
    tuples, asked = _asked(node, known, divided=False)
    if budget.kind is BudgetKind.PER_TUPLE:
        granted = budget.units * tuples
    elif budget.kind is BudgetKind.PER_TIME:
        interval = budget.ticks if node.domain is None else seconds(budget.ticks, node.domain)
        granted = budget.units / (interval * budget.joins)
    # Zones divide no work that the budget covers where nothing waits. A processor with a rate covers no instant.
    waits = granted is not None and (budget.kind is BudgetKind.PER_TIME or granted < asked)
    if waits or node.preference.records:
        tuples, asked = _asked(node, known, divided=True)
    return WorkForecast(budget.text, tuples, asked, granted)


def _asked(node: Preferring, known: Statistics, divided: bool) -> tuple[float, float]:
    """Return the tuples that make entries, and the units that they require, both a second. divided: by zones."""
    if not isinstance(node, PreferringJoin):
        side = _passing(estimate(node.inputs[0], known), node.filter)
        units = 1.0
        if isinstance(node, PreferringLookUp):
            table = estimate(node.right, known).decided()
            candidates = table.size * agreeing(side, table, node.equal)
            units = candidates if node.reads_partner else 1 + candidates
        return side.rate, side.rate * units
    sides = [_passing(estimate(one, known), c) for one, c in zip(node.inputs[:2], node.filters, strict=True)]
    alike = agreeing(sides[0], sides[1], node.equal)
    tuples = asked = 0.0
    for probed in (0, 1):
        rate, candidates = sides[1 - probed].rate, sides[probed].size * alike
        tuples += rate
        zones = _zones_of_probe(node, probed, candidates, known) if divided else 0.0
        asked += rate * (candidates if node.reads_partner(probed) else 1 + zones + candidates)
    return tuples, asked


def _zones_of_probe(node: PreferringJoin, probed: int, candidates: float, known: Statistics) -> float:
    """Return the zones in which one element that looks its `candidates` up in side `probed` finds one."""
    summary = node.summaries[probed]
    if summary is None:
        return 0.0
    held = _summary(node.inputs[probed], summary, node.summarised[probed], node.domain, known).zones
    return held * -math.expm1(-candidates / held)


def _passing(rows: Estimate, condition: Expression | None) -> Estimate:
    """Return what is expected of the rows that make entries."""
    rows = rows.decided()
    return rows if condition is None else replace(rows, rate=rows.rate * kept(condition, rows.distinct))
