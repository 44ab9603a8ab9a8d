"""The neutral render tree, and walks over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

Pairs = tuple[tuple[str, str], ...]
Figures = tuple[tuple[str, int | float], ...]


@dataclass(frozen=True)
class RenderNode:
    """A node of a plan, drawn with its inputs below it.

    label: its kind; parameters: name -> text, its work; edge: name -> text, properties of its output to its parent
    (pattern, key, stage, ...); children: its inputs; id: equal for nodes that are one node; measured: name -> figure,
    measurements of its run.
    """

    label: str
    parameters: Pairs
    edge: Pairs
    children: tuple[RenderNode, ...]
    id: str
    measured: Figures = ()


def reached(tree: RenderNode, seen: set[str]) -> Iterator[RenderNode]:
    """Yield every node as often as it is drawn in text: the inputs of a node that was drawn before are left out."""
    yield tree
    if tree.id not in seen:
        seen.add(tree.id)
        for child in tree.children:
            yield from reached(child, seen)


def once(tree: RenderNode) -> Iterator[RenderNode]:
    """Yield every node once, parents first."""
    yield from {node.id: node for node in reached(tree, set())}.values()
