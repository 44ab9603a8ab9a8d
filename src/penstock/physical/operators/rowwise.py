"""Stateless operators: selection, projection, union, time windows, and the rows that aggregates are fed."""

from __future__ import annotations

import numpy as np

from penstock.expressions.evaluate import evaluate_all, mask
from penstock.physical.elements import Elements, concat, round_up
from penstock.physical.lanes import pre_aggregate, pre_aggregate_where_it_pays, to_lanes
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.pane_plan import PanesSpec
from penstock.physical.plan import FilterSpec, LanesSpec, ProjectSpec, WindowSpec
from penstock.types import BEGIN, END


class Filter(Operator):
    def __init__(self, spec: FilterSpec) -> None:
        self._predicate = spec.predicate

    def process(self, port: int, elements: Elements) -> list[Elements]:
        kept = elements.filter(mask(self._predicate, elements.columns, len(elements)))
        return [kept] if len(kept) else []


class Projection(Operator):
    def __init__(self, spec: ProjectSpec) -> None:
        self._expressions = spec.expressions

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [elements.with_columns(evaluate_all(self._expressions, elements.columns, len(elements)))]


class Passing(Operator):
    """Hands on what comes at any port."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [elements]


class Together(Operator):
    """Hands on what comes at any port in a round as one batch: copied once, before it is made wider."""

    def __init__(self) -> None:
        self._parts: list[Elements] = []

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._parts.append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        parts, self._parts = self._parts, []
        return [concat(parts)] if parts else []


class TimeWindow(Operator):
    """Gives stream elements their validity (LANGUAGE 4.1): rounding both ends up to a boundary is all that SLIDE is."""

    def __init__(self, spec: WindowSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        spec = self._spec
        ts = elements.ts
        # A stream element from the beginning of time (ISTREAM over static relations) keeps it.
        always = ts <= BEGIN
        exp = np.full(len(ts), END, np.int64) if spec.length is None else ts + spec.length
        if spec.slide is not None:
            ts = round_up(ts, spec.slide, spec.align)
            if spec.length is not None:
                whole = spec.length % spec.slide == 0
                exp = ts + spec.length if whole else round_up(exp, spec.slide, spec.align)
        if always.any():
            ts = np.where(always, elements.ts, ts)
        result = Elements(elements.columns, ts, exp, elements.sign)
        if spec.slide is not None and spec.length is not None and spec.length < spec.slide:
            result = result.filter(ts < exp)  # T < s leaves gaps
        return [result] if len(result) else []


class Lanes(Operator):
    """Rows into lane rows; with `pre_aggregate`, one per pane (key, ts, exp) of each batch, where that leaves fewer."""

    def __init__(self, spec: LanesSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        lanes = to_lanes(self._spec.plan, elements)
        return [pre_aggregate_where_it_pays(self._spec.plan, lanes) if self._spec.pre_aggregate else lanes]


class Panes(Operator):
    """Lane rows of one pane into one, of each batch."""

    def __init__(self, spec: PanesSpec) -> None:
        self._plan = spec.plan

    def process(self, port: int, elements: Elements) -> list[Elements]:
        return [pre_aggregate(self._plan, elements)]
