"""Penstock: a data stream management system on Apache Spark. Continuous queries in CQL over streams and relations."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.expressions.calls.user_functions import aggregate, function
    from penstock.session import Session
    from penstock.settings import Settings

__version__ = "0.1.0"
__all__ = ["PenstockError", "Session", "Settings", "aggregate", "function"]

_PLACES = {
    "PenstockError": "penstock.errors",
    "Session": "penstock.session",
    "Settings": "penstock.settings",
    "aggregate": "penstock.expressions.calls.user_functions",
    "function": "penstock.expressions.calls.user_functions",
}


def __getattr__(name: str) -> Any:
    # Imported on first use: the search for a Java imports this package before anything else is installed.
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
