"""Update patterns: how the content of a relation changes over time `[golab 3.3]` [semantics 5]."""

from __future__ import annotations

import enum
from collections.abc import Iterable


class Pattern(enum.IntEnum):
    """Update patterns, from the simplest to the most general; they determine the state structures."""

    MONOTONIC = 0
    """never loses a tuple"""
    WEAKEST = 1
    """tuples expire in the order of their arrival (WKS): FIFO"""
    WEAK = 2
    """the expiration is known on arrival, in any order (WK): calendar queue"""
    STRICT = 3
    """may be ended early by negative tuples (STR): hash"""

    @property
    def short(self) -> str:
        return {0: "MON", 1: "WKS", 2: "WK", 3: "STR"}[self.value]


def worst(patterns: Iterable[Pattern]) -> Pattern:
    """Return the most general of `patterns`; monotonic for none."""
    return max(patterns, default=Pattern.MONOTONIC)
