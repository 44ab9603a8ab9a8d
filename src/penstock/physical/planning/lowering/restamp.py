"""Windows as columns, as the operators that they are made of."""

from __future__ import annotations

from penstock.algebra import Restamp
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower


@lower.register
def _restamped(node: Restamp, builder: Builder) -> Lowered:
    return builder.lower(node.emitted)
