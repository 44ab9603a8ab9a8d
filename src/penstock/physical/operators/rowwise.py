"""Stateless operators: selection, projection, union, time windows, and the accumulator rows read by aggregates."""

from __future__ import annotations

import numpy as np

from penstock.expressions.evaluation.evaluate import evaluate_all, mask
from penstock.expressions.nodes import Column
from penstock.figures import ESTIMATE_WIDTH
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, concat
from penstock.physical.kernels.ticks import later, round_up
from penstock.physical.operators.aggregates.accumulators import pre_aggregate, pre_aggregate_where_it_pays, to_lanes
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.plan.aggregates import AccumulatorRowsSpec
from penstock.physical.plan.panes import PanesSpec
from penstock.physical.plan.rowwise import FilterSpec, ProjectSpec, WatchedSpec
from penstock.physical.plan.windows import TimeWindowSpec
from penstock.types import BEGIN, END


class Filter(Operator):
    def __init__(self, spec: FilterSpec) -> None:
        self._predicate = spec.predicate

    def process(self, port: int, elements: Elements) -> list[Elements]:
        kept = elements.filter(mask(self._predicate, elements.columns, len(elements)))
        return [kept] if len(kept) else []


class WatchedRows(Operator):
    """Pass elements on, count those that satisfy each condition, since the start of the process, and keep the widest of
    the widths of the rows that came last. A width that is no number has no part in that."""

    def __init__(self, spec: WatchedSpec) -> None:
        self._conditions = spec.conditions
        self._counts = dict.fromkeys((figure for figure, _ in spec.conditions), 0)
        self._widths = spec.widths
        self._widest = 0.0

    def process(self, port: int, elements: Elements) -> list[Elements]:
        for figure, condition in self._conditions:
            chosen = mask(condition, elements.columns, len(elements))
            signs = elements.signs[chosen]
            self._counts[figure] += int(signs[signs > 0].sum())
        came = elements.signs > 0 if self._widths else None
        if came is not None and came.any():
            found = evaluate_all(self._widths, elements.columns, len(elements))
            widths = np.concatenate([width.to_numpy(zero_copy_only=False)[came] for width in found]).astype(np.float64)
            self._widest = float(widths.max(initial=0.0, where=np.isfinite(widths)))
        return [elements]

    def figures(self) -> FigureValues:
        return {**self._counts, **({ESTIMATE_WIDTH: self._widest} if self._widths else {})}


class Projection(Operator):
    def __init__(self, spec: ProjectSpec) -> None:
        self._expressions = spec.expressions
        #: The columns that it passes on; it computes nothing where it has no others.
        self._kept = [e.index for e in spec.expressions if isinstance(e, Column)]
        self._chooses = len(self._kept) == len(spec.expressions)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if self._chooses:
            columns = elements.columns
            return [elements.with_columns([columns[kept] for kept in self._kept])]
        return [elements.with_columns(evaluate_all(self._expressions, elements.columns, len(elements)))]


class Passing(Operator):
    """Pass the elements of every port through unchanged."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [elements]


class Together(Operator):
    """Emit the elements of all ports in a round as one batch, so that they are copied once, before columns are
    added."""

    def __init__(self) -> None:
        self._parts: list[Elements] = []

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._parts.append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        parts, self._parts = self._parts, []
        return [concat(parts)] if parts else []


class TimeWindow(Operator):
    """Gives stream elements their validity [semantics 4.1]: SLIDE only rounds both ends up to a boundary."""

    def __init__(self, spec: TimeWindowSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        spec = self._spec
        ts = elements.ts
        # A stream element whose ts is the beginning of time (ISTREAM over static relations) keeps that ts.
        always = ts <= BEGIN
        exp = np.full(len(ts), END, np.int64) if spec.length is None else later(ts, spec.length)
        if spec.slide is not None:
            ts = round_up(ts, spec.slide, spec.align)
            if spec.length is not None:
                whole = spec.length % spec.slide == 0
                exp = later(ts, spec.length) if whole else round_up(exp, spec.slide, spec.align)
        if always.any():
            ts = np.where(always, elements.ts, ts)
        result = Elements(elements.columns, ts, exp, elements.sign)
        if spec.slide is not None and spec.length is not None and spec.length < spec.slide:
            result = result.filter(ts < exp)  # a length below the slide leaves gaps that no window covers
        return [result] if len(result) else []


class AccumulatorRows(Operator):
    """Turn rows into accumulator rows; with `pre_aggregate`, add up the rows of each pane (key, ts, exp) within a
    batch where that reduces their number."""

    def __init__(self, spec: AccumulatorRowsSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        parts = to_lanes(self._spec.plan, elements)
        return [pre_aggregate_where_it_pays(self._spec.plan, p) for p in parts] if self._spec.pre_aggregate else parts


class Panes(Operator):
    """Add up the accumulator rows of each pane within a batch."""

    def __init__(self, spec: PanesSpec) -> None:
        self._plan = spec.plan

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [pre_aggregate(self._plan, elements)]
