"""Immutable typed nodes with one traversal and a content fingerprint.

Expressions and algebra are trees of frozen dataclasses that derive from `Node`. The children of a node are
the `Node`s found in its fields (also inside tuples), in field order; everything else in a field is a plain value.
Equal trees have equal fingerprints, so that sharing between queries is a dictionary look-up (dask-expr's idea).
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

N = TypeVar("N", bound="Node")
D = TypeVar("D", bound="Deriving")
T = TypeVar("T")


class Deriving:
    """Base of immutable classes whose objects keep what functions decorated with `derived` compute of them.

    It is neither compared nor pickled, and goes with the object.
    """

    @cached_property
    def derivations(self) -> dict[object, object]:
        """Return the results by their functions."""
        return {}


class Derived(Generic[D, T]):
    """A function of one immutable object that is computed once for each object.

    What is computed of a node or of a plan belongs to the room that needs it, and lives as long as the object. Several
    threads may compute it at the same time; one result stays.
    """

    def __init__(self, compute: Callable[[D], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __call__(self, value: D) -> T:
        known = value.derivations
        if self in known:
            return cast(T, known[self])
        return cast(T, known.setdefault(self, self._compute(value)))

    def is_known(self, value: D) -> bool:
        """Return whether the result has been computed for `value`."""
        return self in value.derivations

    def note(self, value: D, result: T) -> None:
        """Take over the result for `value`, where it follows from another object."""
        value.derivations[self] = result


#: The decorator.
derived = Derived


@dataclasses.dataclass(frozen=True, eq=False)
class Node(Deriving):
    """Base of every tree in Penstock. Subclasses are `@dataclass(frozen=True, eq=False)`: equality is by fingerprint.

    A field declared with `metadata={"transparent": True}` is not part of the fingerprint (a position, a name for
    display only).
    """

    @cached_property
    def children(self) -> tuple[Node, ...]:
        found: list[Node] = []
        for name, _ in _fields(type(self)):
            _collect(getattr(self, name), found)
        return tuple(found)

    @cached_property
    def height(self) -> int:
        """Return the levels of the tree, 1 for a node without children."""
        return 1 + max((child.height for child in self.children), default=0)

    @cached_property
    def size(self) -> int:
        """Return the number of nodes of the tree, one with several parents as often as it occurs."""
        return 1 + sum(child.size for child in self.children)

    def with_children(self: N, children: tuple[Node, ...]) -> N:
        """Return the same node over other children, in the order of `children`; itself when they are the same
        objects."""
        if all(a is b for a, b in zip(self.children, children, strict=True)):
            return self
        rest = iter(children)
        changes = {f.name: _rebuild(getattr(self, f.name), rest) for f in dataclasses.fields(self) if f.init}
        return dataclasses.replace(self, **changes)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hex digest of the whole tree's content; equal for equal trees in every process."""
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=16)
        for name, counts in _fields(type(self)):
            if counts:
                digest.update(f"|{name}=".encode())
                digest.update(_token(getattr(self, name)).encode())
        return digest.hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def _fields(kind: type[Node]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a class of nodes, and whether each is part of the fingerprint."""
    known = _FIELDS.get(kind)
    if known is None:
        known = tuple((f.name, not f.metadata.get("transparent")) for f in dataclasses.fields(kind))
        _FIELDS[kind] = known
    return known


#: By class: `dataclasses.fields` would compute them again for every node.
_FIELDS: dict[type[Node], tuple[tuple[str, bool], ...]] = {}


def walk(node: Node) -> Iterator[Node]:
    """Yield every node of the tree, parents first, shared nodes as often as they occur."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if children := top.children:
            stack.extend(reversed(children))


def reached(start: N, below: Callable[[N], tuple[N, ...]]) -> Iterator[N]:
    """Yield `start` and what is reached through `below`, parents first, a node with several parents once."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        top = stack.pop()
        if id(top) not in seen:
            seen.add(id(top))
            yield top
            stack.extend(reversed(below(top)))


def walk_once(node: Node) -> Iterator[Node]:
    """Yield every node, parents first, one with several parents once: a plan may share what would be exponentially
    many nodes of a tree."""
    return reached(node, lambda one: one.children)


def transform_up(node: N, rule: Callable[[Node], Node], within: type[Node] | None = None) -> N:
    """Return the tree with `rule` applied to every node, children before parents; the node itself for no change. A node
    with several parents is visited once, and its result takes all of its places. within: visit only nodes of that
    class, and leave others with their inputs as they are."""
    return cast(N, _transformed(node, rule, within or Node, {}))


def transform_up_all(nodes: tuple[N, ...], rule: Callable[[Node], Node]) -> tuple[N, ...]:
    """Return each of `nodes` transformed as by `transform_up`; shared nodes are visited once, and shared by the
    results."""
    known: dict[int, Node] = {}
    return tuple(cast(N, _transformed(node, rule, Node, known)) for node in nodes)


def _transformed(node: Node, rule: Callable[[Node], Node], visit: type[Node], known: dict[int, Node]) -> Node:
    if not node.children:
        return rule(node)
    result = known.get(id(node))
    if result is None:
        children = tuple(_transformed(c, rule, visit, known) if isinstance(c, visit) else c for c in node.children)
        result = known[id(node)] = rule(node.with_children(children))
    return result


def transform_down(node: N, rule: Callable[[Node], Node], within: type[Node] | None = None) -> N:
    """Return the tree with `rule` applied to every node, parents before children; the children of the result are
    visited. A node with several parents is visited once, as by `transform_up`. within: as for `transform_up`."""
    return cast(N, _transformed_down(node, rule, within or Node, {}))


def _transformed_down(
    node: Node, rule: Callable[[Node], Node], visit: type[Node], known: dict[int, tuple[Node, Node]]
) -> Node:
    """known: by identity, a visited node and its result; the node is kept, so that its identity is not reused."""
    if id(node) not in known:
        changed = rule(node)
        below = (_transformed_down(c, rule, visit, known) if isinstance(c, visit) else c for c in changed.children)
        known[id(node)] = node, changed.with_children(tuple(below))
    return known[id(node)][1]


def _collect(value: object, found: list[Node]) -> None:
    if isinstance(value, Node):
        found.append(value)
    elif isinstance(value, tuple):
        for item in value:
            _collect(item, found)


def _rebuild(value: object, rest: Iterator[Node]) -> object:
    if isinstance(value, Node):
        return next(rest)
    if isinstance(value, tuple):
        items: list[Any] = [_rebuild(item, rest) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value


def _token(value: object) -> str:
    if isinstance(value, Node):
        return value.fingerprint
    if isinstance(value, tuple):
        return "(" + ",".join(_token(item) for item in value) + ")"
    # The type distinguishes 1, 1.0, True and '1'.
    return f"{type(value).__name__}:{value!r}"
