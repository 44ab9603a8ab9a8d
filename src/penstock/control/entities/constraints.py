"""`penstock.constraints`: what streams promise, and how closely they keep to it where that is measured.

`suggested_promises`: the promises that follow from that for the queries there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.analysis.promise_candidates import StreamReference
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.promises import Clustered, ForeignKey, Ordered, Promise, Unique, Within
from penstock.control.entities.attributes import COUNT, REAL, TEXT, Attribute, ControlRelation, Origin
from penstock.control.entities.system import SystemView
from penstock.language.binder.statements.promises import promise_line
from penstock.language.scripts.proposals import Proposal, proposed_promises
from penstock.runtime.monitoring.constraints import (
    Histogram,
    MeasuredColumns,
    MeasuredK,
    MeasuredReference,
    StreamMeasures,
)

_TASKS = Origin.TASKS
#: k of this share of the elements is suggested.
_SHARE = 0.999


@dataclass(frozen=True)
class ConstraintRow:
    """A promise of a stream: one that is declared, or that is measured. in_ticks: k is a time."""

    view: SystemView
    source: Source
    promise: Promise
    in_ticks: bool
    measures: StreamMeasures | None

    @property
    def is_declared(self) -> bool:
        return bool(self.promise.name)

    @property
    def columns(self) -> str:
        return ", ".join(self.source.columns[c].name for c in self.promise.columns)

    @property
    def kind(self) -> str:
        descends = isinstance(self.promise, Ordered) and self.promise.descending
        return self.promise.WORDS + (" DESC" if descends else "")

    @property
    def k(self) -> int | None:
        """Return the declared k; of UNIQUE 0."""
        if not self.is_declared:
            return None
        within = _within(self.promise)
        return within.rows if within.ticks is None else within.ticks

    @property
    def parent(self) -> str | None:
        """Return the stream and the columns to which a FOREIGN KEY refers; None for another promise."""
        if not isinstance(self.promise, ForeignKey):
            return None
        parent = self.view.registry.bound.sources[self.promise.parent.lower()]
        return f"{parent.name} ({', '.join(parent.columns[c].name for c in self.promise.parent_columns)})"

    @property
    def found(self) -> MeasuredColumns | MeasuredReference | None:
        return None if self.measures is None else found_of(self.source.name, self.promise, self.measures)

    @property
    def measured(self) -> MeasuredK | None:
        """Return k of the elements of the sample; None where it is not measured."""
        return None if self.found is None else measured_of(self.promise, self.in_ticks, self.found)

    @property
    def drift(self) -> int | None:
        """Return by how much k of the last hour is above that since the start; below it where it is negative."""
        hour, whole = (self.k_of(_SHARE, is_hour) for is_hour in (True, False))
        return None if hour is None or whole is None else hour - whole

    def k_of(self, share: float | None, hour: bool) -> int | None:
        """Return the k to which a share of the elements keeps; None for all of them."""
        found = self._histogram(hour)
        if found is None or not found.elements or isinstance(self.promise, Unique):
            return None
        return found.highest if share is None else found.quantile(share)

    def share(self, hour: bool) -> float | None:
        """Return which share of the elements keeps to the declared k, else to that of 99.9 percent since the start."""
        found, k = self._histogram(hour), 0 if isinstance(self.promise, Unique) else self.k
        if found is None or not found.elements:
            return None
        limit = self.k_of(_SHARE, hour=False) if k is None else k
        return None if limit is None else found.within(limit) / found.elements

    @property
    def breaches(self) -> int | None:
        """Return how many elements of the sample break what is declared."""
        found = self._histogram(hour=False)
        if found is None or self.k is None:
            return None
        return found.elements - found.within(self.k)

    @property
    def elements(self) -> int | None:
        return None if self.measured is None else self.measured.whole.elements

    def _histogram(self, hour: bool) -> Histogram | None:
        one = self.measured
        if one is None:
            return None
        return one.last_hour(self.view.now) if hour else one.whole


def found_of(stream: str, promise: Promise, measures: StreamMeasures) -> MeasuredColumns | MeasuredReference | None:
    """Return what is measured of the columns of a promise of a stream, of a FOREIGN KEY also of its parent's."""
    if isinstance(promise, ForeignKey):
        key = StreamReference(stream, promise.columns, promise.parent, promise.parent_columns)
        return measures.references.get(key)
    return measures.by_columns.get(promise.columns)


def measured_of(promise: Promise, in_ticks: bool, found: MeasuredColumns | MeasuredReference) -> MeasuredK | None:
    """Return what is measured of a promise on columns; None of one that is not."""
    if isinstance(found, MeasuredReference):
        return found.ticks if in_ticks else found.rows
    if isinstance(promise, Unique):
        return found.repeated
    if isinstance(promise, Clustered):
        return found.clustered_ticks if in_ticks else found.clustered_rows
    if isinstance(promise, Ordered) and promise.descending:
        return found.descending_ticks if in_ticks else found.descending_rows
    if isinstance(promise, Ordered):
        return found.ordered_ticks if in_ticks else found.ordered_rows
    return None


def _rows(view: SystemView) -> Iterable[ConstraintRow]:
    for source in view.registry.bound.sources.values():
        measures = view.figures.run.constraints.get(source.name)
        listed: set[tuple[Promise, bool]] = set()
        for promise in source.promises:
            in_ticks = _within(promise).ticks is not None
            listed.add((_without_k(promise), in_ticks))
            yield ConstraintRow(view, source, promise, in_ticks, measures)
        # Of a stream to which others refer more is seen than is needed.
        for promise in () if measures is None or not source.is_observed else _measurable(measures):
            for in_ticks in (False,) if isinstance(promise, Unique) else (False, True):
                row = ConstraintRow(view, source, promise, in_ticks, measures)
                if (_without_k(promise), in_ticks) not in listed and row.measured is not None:
                    yield row


def _measurable(measures: StreamMeasures) -> Iterator[Promise]:
    for columns in measures.by_columns:
        yield from (Unique(columns), Clustered(columns), Ordered(columns), Ordered(columns, True))
    for one in measures.references:
        yield ForeignKey(one.columns, one.parent, one.parent_columns)


def _within(promise: Promise) -> Within:
    return promise.within if isinstance(promise, ForeignKey | Clustered | Ordered) else Within()


def _without_k(promise: Promise) -> Promise:
    return replace(promise, within=Within()) if isinstance(promise, ForeignKey | Clustered | Ordered) else promise


def _quantiles(hour: bool) -> tuple[Attribute[ConstraintRow], ...]:
    """Return the attributes of one length of time."""
    prefix, over = ("hour_", "over the last hour") if hour else ("", "since the start")
    return (
        Attribute(
            f"{prefix}k_max",
            COUNT,
            f"the k to which all elements of the sample keep, {over}",
            lambda row: row.k_of(None, hour),
            _TASKS,
        ),
        Attribute(
            f"{prefix}k_p99",
            COUNT,
            f"the k to which 99 percent of them keep, {over}",
            lambda row: row.k_of(0.99, hour),
            _TASKS,
        ),
        Attribute(
            f"{prefix}k_p999",
            COUNT,
            f"the k to which 99.9 percent of them keep, {over}",
            lambda row: row.k_of(_SHARE, hour),
            _TASKS,
        ),
        Attribute(
            f"{prefix}share",
            REAL,
            f"the share of them that keeps to the declared k, else to that of 99.9 percent since the start; {over}",
            lambda row: row.share(hour),
            _TASKS,
        ),
    )


CONSTRAINTS: ControlRelation[ConstraintRow] = ControlRelation(
    "constraints",
    "What streams promise, and how closely they keep to it, and would to other promises, where that is measured"
    " ([promises.md](promises.md#monitors)).",
    (
        Attribute("name", TEXT, "the name of a declared promise; NULL for one that is only measured",
                  lambda row: row.promise.name or None),
        Attribute("stream", TEXT, "its stream", lambda row: row.source.name),
        Attribute("kind", TEXT, "UNIQUE, FOREIGN KEY, CLUSTERED BY, ORDERED BY", lambda row: row.kind),
        Attribute("columns", TEXT, "its columns", lambda row: row.columns),
        Attribute("parent", TEXT, "of a FOREIGN KEY, the stream and the columns to which it refers",
                  lambda row: row.parent),
        Attribute("mode", TEXT, "ASSERTED, CHECKED or OBSERVED, of a declared one",
                  lambda row: row.promise.mode.value if row.is_declared else None),
        Attribute("k_declared", COUNT, "the declared k", lambda row: row.k),
        Attribute("unit", TEXT, "what k is counted in: ROWS, or TICKS of the stream's time",
                  lambda row: "TICKS" if row.in_ticks else "ROWS"),
        *_quantiles(hour=False),
        *_quantiles(hour=True),
        Attribute("drift", COUNT, "`hour_k_p999` less `k_p999`: above 0 where the stream keeps to less than before",
                  lambda row: row.drift, _TASKS),
        Attribute("sample_share", REAL, "the share of the values that is in the sample",
                  lambda row: None if row.found is None else row.found.share, _TASKS),
        Attribute("elements", COUNT, "the elements of the sample", lambda row: row.elements, _TASKS, "rows"),
        Attribute("breaches", COUNT, "those that break the declared promise: there are at least so many",
                  lambda row: row.breaches, _TASKS, "rows"),
    ),
    _rows,
)  # fmt: skip


# --- what follows for the queries


def suggested_promises(view: SystemView, streams: Sequence[str]) -> list[tuple[str, str]]:
    """Return promises that streams keep, as measured, and that would end state of queries: the name of the stream, and
    the statement that adds it, with k of 99.9 percent, and how many rows of state it saves by estimate.

    Args:
        streams: in lower case.
    """
    catalog = view.registry.bound
    saved: dict[tuple[str, str], int] = {}
    drifts: dict[tuple[str, str], str] = {}
    for listed in view.listed:
        for proposal in (
            () if listed.bound is None else proposed_promises(listed.bound, catalog, view.settings, descending=True)
        ):
            for name, promise, drift in _kept(view, proposal):
                if name in streams:
                    line = promise_line(catalog.sources[name], promise, catalog)
                    key = catalog.sources[name].name, line
                    saved[key] = saved.get(key, 0) + _saved(view, proposal, name, promise)
                    drifts[key] = drift
    return [(key[0], f"{key[1]} -- saves about {rows:,} rows{drifts[key]}") for key, rows in saved.items() if rows > 0]


def _kept(view: SystemView, proposal: Proposal) -> Iterator[tuple[str, Promise, str]]:
    """Yield the promises of a proposal, if all are measured and kept, with the k that is measured, and how it drifts,
    as text."""
    found = []
    for name, promise in proposal.promised:
        source = view.registry.bound.sources[name]
        measures = view.figures.run.constraints.get(source.name)
        of_columns = None if measures is None else found_of(source.name, promise, measures)
        measured = None if of_columns is None else measured_of(promise, False, of_columns)
        if measured is None or not measured.whole.elements or (isinstance(promise, Unique) and measured.whole.highest):
            return
        if isinstance(promise, ForeignKey | Clustered | Ordered):
            k = measured.whole.quantile(_SHARE)
            counts = view.figures.run.constraints.get(
                promise.parent if isinstance(promise, ForeignKey) else source.name
            )
            if k is None or counts is None or 2 * k > counts.elements:
                return  # it grows with the stream
            promise = replace(promise, within=Within(k))
        found.append((name, promise, _drift(measured, view.now)))
    yield from found


def _drift(measured: MeasuredK, now: float) -> str:
    """Return how k of the last hour differs from that since the start; empty where it does not."""
    hour, whole = measured.last_hour(now).quantile(_SHARE), measured.whole.quantile(_SHARE)
    return "" if hour is None or hour == whole else f"; WITHIN {hour} ROWS in the last hour"


def _saved(view: SystemView, proposal: Proposal, name: str, promise: Promise) -> int:
    """Return how many rows of state a promise would have saved by estimate: what is kept now for ever, without what is
    open by it."""
    run = view.figures.run.constraints
    measures = run[view.registry.bound.sources[name].name]
    held = 0
    for stream in proposal.of_streams:
        metrics = view.figures.metrics.sources.get(stream)
        # What is measured is what came since then, up to the heartbeat.
        counted = run[stream].elements if stream in run else 0
        held += max(counted, 0 if metrics is None else metrics.rows)
    if not proposal.of_streams:
        of_columns = measures.by_columns[promise.columns]
        held = round(of_columns.values / of_columns.share)
    return held - max(1, _within(promise).rows or 0)
