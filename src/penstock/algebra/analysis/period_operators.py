"""Operators whose result follows periods, at instants of their own."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.coalesce import Coalesce
from penstock.algebra.nodes.internal import own_operators
from penstock.algebra.nodes.session_window import SessionWindow, ValidWindow
from penstock.algebra.nodes.until_next import UntilNext

#: Their names in messages.
_NAMES: Mapping[type[Algebra], str] = {
    Coalesce: "coalescing",
    SessionWindow: "a session window",
    ValidWindow: "[VALID]",
    UntilNext: "VALID UNTIL NEXT",
}


def period_operator(node: Algebra) -> str | None:
    """Return what the first such operator of the relation `node` is called, None for none: neither FREQUENCY, whose
    time is counted, nor RESTORE, which looks between boundaries, has a meaning over one."""
    return next((_NAMES[type(found)] for found in own_operators(node) if type(found) in _NAMES), None)
