"""SAMPLE: stateless, because whether an element is drawn follows from the element alone (`expressions/draws.py`)."""

from __future__ import annotations

import numpy as np

from penstock.expressions.draws import draws, limit, universe
from penstock.expressions.sampling.inclusion import independent
from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Operator
from penstock.physical.plan.windows import SampleSpec


class Sample(Operator):
    def __init__(self, spec: SampleSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        spec = self._spec
        everything = spec.percent >= 100
        if everything and not spec.records:
            return [elements]
        if spec.by:
            drawn = universe(spec.seed, [elements.columns[i] for i in spec.by], len(elements))
        else:
            drawn = draws(spec.seed, spec.name, elements.ts, elements.columns)
        mask = np.ones(len(drawn), np.bool_) if everything else drawn < limit(spec.percent)
        chosen = elements.filter(mask)
        if not len(chosen):
            return []
        if spec.records:
            records = independent(float(spec.percent / 100), drawn[mask].view(np.int64))
            chosen = chosen.with_columns([*chosen.columns, records])
        return [chosen]
