"""Penstock: a data stream management system on Apache Spark. Continuous queries in CQL over streams and relations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.expressions.user import aggregate, function

__version__ = "0.1.0"
__all__ = ["aggregate", "function"]


def __getattr__(name: str) -> Any:
    # Loaded when asked for: what looks for a Java imports this package before anything else is installed.
    if name in __all__:
        from penstock.expressions import user

        return getattr(user, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
