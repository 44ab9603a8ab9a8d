"""Properties of operators that are computed once for each node: what stands above reads them again and again, and an
operator may stand below several."""

from __future__ import annotations

from typing import Any

_PROPERTIES = (
    "schema",
    "pattern",
    "keys",
    "domain",
    "is_stream",
    "boundedness",
    "source_names",
    "carries_ends",
    "arrives_in_order",
    "is_instantaneous",
    "is_windowed",
    "results_have_lives",
    "needs",
)


def compute_once(kind: type) -> None:
    """Let the class `kind` of operators compute the properties that it defines itself once for each node."""
    for name in _PROPERTIES:
        derived = kind.__dict__.get(name)
        if isinstance(derived, property) and not getattr(derived.fget, "__isabstractmethod__", False):
            setattr(kind, name, _cached(f"_{kind.__qualname__}.{name}", derived))


def _cached(attribute: str, derived: property) -> property:
    """Return the property `derived`, cached in the node under the name `attribute`."""

    def read(node: object) -> Any:
        if attribute not in node.__dict__:
            object.__setattr__(node, attribute, derived.__get__(node))
        return node.__dict__[attribute]

    return property(read, doc=derived.__doc__)
