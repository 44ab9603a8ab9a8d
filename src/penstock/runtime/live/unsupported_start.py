"""Which way to begin a query no engine carries out."""

from __future__ import annotations

from penstock.algebra.nodes.query import Start
from penstock.errors import PenstockError


def check_start(query: str, start: Start) -> None:
    """Raise PenstockError P0901 for START WARM WAIT: no query runs silently until what it needs has come."""
    if start.wait:
        raise PenstockError(
            "P0901", f"query {query}: START WARM WAIT is not supported yet",
            hint="START WARM, which is refused where the past is not kept",
        )  # fmt: skip
