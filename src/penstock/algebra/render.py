"""A logical plan as a render tree: generic over all operators, by class name and `describe()`."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra, column_labels
from penstock.explain import RenderNode


def render(root: Algebra) -> RenderNode:
    """Return the plan under `root`. Equal subplans get one id; ids count from 0, parents before children."""
    return _render(root, {}, {})


def _render(node: Algebra, ids: dict[str, str], drawn: dict[str, RenderNode]) -> RenderNode:
    name = ids.setdefault(node.fingerprint, str(len(ids)))
    if name not in drawn:
        children = tuple(_render(child, ids, drawn) for child in node.inputs)
        parameters = tuple((key, text) for key, text in node.describe().items() if text)
        drawn[name] = RenderNode(type(node).__name__, parameters, _edge(node), children, name)
    return drawn[name]


def _edge(node: Algebra) -> tuple[tuple[str, str], ...]:
    """Return the properties of the edge from `node` to its parent."""
    domain = node.domain
    return (
        ("pattern", node.pattern.short),
        ("kind", "stream" if node.is_stream else "relation"),
        ("key", _keys(node)),
        ("time", "static" if domain is None else "TIMESTAMP" if domain.calendar else domain.unit.name),
    )


def _keys(node: Algebra) -> str:
    """Return the unique column sets, smallest first: `(src, proto)`; `()` for a relation of at most one row, `-` for
    none."""
    names = column_labels(node.schema)
    keys = sorted((tuple(sorted(key)) for key in node.keys), key=lambda key: (len(key), key))
    return " ".join("(" + ", ".join(names[i] for i in key) + ")" for key in keys) or "-"
