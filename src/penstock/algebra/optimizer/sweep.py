"""Rules that look at one node, applied to every node of a plan in one walk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.algebra.nodes.base import Algebra, operators
from penstock.algebra.optimizer.rules import Rule

#: Changes that rules may make in one walk, for each operator of the plan, and beside these. A change may be needed
#: again for every operator below a node; more means that two rules undo each other.
CHANGES_PER_OPERATOR, MORE_CHANGES = 400, 4_000

#: Called with a rule, the whole plan before it and the whole plan after it.
Note = Callable[[Rule, Algebra, Algebra], None]


class Sweep:
    """One walk that applies rules of kind LOCAL, inputs first, to each node until none of them changes it.

    The result of a rule depends on the node and its inputs. So a node that no rule changes over inputs that no rule
    changes stays as it is, and is not visited again; a node with several parents is visited once. In a chain of views
    each selection meets one projection, merged from all below it, and passes that in one step.
    """

    def __init__(self, rules: tuple[Rule, ...], note: Note | None = None) -> None:
        self.exhausted = False
        self._rules = [(rule, rule.rewrite) for rule in rules]
        self._note = note
        self._left = 0
        #: By identity, a visited node and its result; the node is kept, so that its identity is not reused.
        self._known: dict[int, tuple[Algebra, Algebra]] = {}
        #: Functions that return the whole plan with another node in the place of the visited one.
        self._insertions: list[Callable[[Algebra], Algebra]] = []

    def settled(self, root: Algebra) -> Algebra:
        """Return the plan with all rules applied; `exhausted` is true if the walk ended before they were."""
        self._left = MORE_CHANGES + CHANGES_PER_OPERATOR * sum(1 for _ in operators(root))
        return self._visit(root)

    def _visit(self, node: Algebra) -> Algebra:
        known = self._known.get(id(node))
        if known is not None:
            return known[1]
        original = node
        while True:
            node = self._over_settled(node)
            changed = self._changed(node)
            if changed is None:
                break
            node = changed
        self._known[id(original)] = original, node
        self._known[id(node)] = node, node
        return node

    def _over_settled(self, node: Algebra) -> Algebra:
        """Return `node` with its inputs settled."""
        for number, child in enumerate(node.children):
            if isinstance(child, Algebra):
                with self._inside(node, number):
                    settled = self._visit(child)
                node = _with_child(node, number, settled)
        return node

    def _changed(self, node: Algebra) -> Algebra | None:
        """Return the result of the first rule that changes `node`; None if none does."""
        if self._left <= 0:
            self.exhausted = True
            return None
        for rule, rewrite in self._rules:
            changed = rewrite(node)
            if changed is not node and changed != node:
                self._left -= 1
                if self._note is not None:
                    self._note(rule, self._whole(node), self._whole(changed))
                return changed
        return None

    @contextmanager
    def _inside(self, node: Algebra, number: int) -> Iterator[None]:
        self._insertions.append(lambda child: _with_child(node, number, child))
        try:
            yield
        finally:
            self._insertions.pop()

    def _whole(self, node: Algebra) -> Algebra:
        for insert in reversed(self._insertions):
            node = insert(node)
        return node


def _with_child(node: Algebra, number: int, child: Algebra) -> Algebra:
    if node.children[number] is child:
        return node
    children = list(node.children)
    children[number] = child
    return node.with_children(tuple(children))
