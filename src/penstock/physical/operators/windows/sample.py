"""SAMPLE: stateless, because whether an element is drawn follows from the element alone (`expressions/draws.py`)."""

from __future__ import annotations

from penstock.expressions.draws import kept
from penstock.physical.elements import Elements
from penstock.physical.operators.contract import Operator
from penstock.physical.plan.windows import SampleSpec


class Sample(Operator):
    def __init__(self, spec: SampleSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        spec = self._spec
        chosen = elements.filter(kept(spec.percent, spec.seed, spec.name, elements.ts, elements.columns))
        return [chosen] if len(chosen) else []
