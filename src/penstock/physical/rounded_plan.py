"""The spec of what SLIDE makes of results."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.physical.plan import Spec


@dataclass(frozen=True)
class RoundedSpec(Spec):
    """The elements with both ends put off to the next boundary align + k·slide."""

    slide: int
    align: int
