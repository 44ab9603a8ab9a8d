"""Specs of what tells relations whose lives are known: DISTINCT that says its changes, and SLIDE over results.
A part of the physical plan (`plan.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.r2s import StreamKind
from penstock.physical.plan import Spec


@dataclass(frozen=True)
class DistinctChangesSpec(Spec):
    """ISTREAM, DSTREAM or (kind None) all changes of a DISTINCT whose input's expirations are known."""

    kind: StreamKind | None
    types: tuple[pa.DataType, ...]

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind.value if self.kind else "changes", "state": "δ*"}


@dataclass(frozen=True)
class RoundedSpec(Spec):
    """The elements with both ends put off to the next boundary align + k·slide."""

    slide: int
    align: int
