"""Windows behind the exchange: rows of one stream travel once, whatever the lengths of the windows over them.

A window in time without SLIDE only sets the instant until which a row is valid. Operators between it and the exchange
(selections, projections, look-ups of static relations) do not read that, so the rows can be sent without it and get
their ends where they arrive: the same rows in the same order, with the same ends. All windows over them then read one
channel [cidr 3.2]. Nothing is lost, since no rows of such a window are added up before they are sent; rows of a window
that slides are (*panes*), and share these where that costs less (`lowering/panes.py`).

Where windows of one length read a stream they stay in the ingest. In a run whose queries come and go others may come,
so there all of these windows are behind the exchange. Which are is a choice of a birth, as panes and stores are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from penstock.algebra import Algebra, Project, Select, Window
from penstock.algebra.nodes.base import operators
from penstock.physical.plan.plan import Edge, Step


def late_windows(roots: Iterable[Algebra], always: bool) -> dict[str, int]:
    """Return the names of the streams whose windows are behind the exchange, each with the number of these windows.

    Args:
        always: also those of one window, since others may come.
    """
    lengths: dict[str, set[int | None]] = {}
    for root in roots:
        for node in operators(root):
            if isinstance(node, Window) and node.slide is None:
                lengths.setdefault(_name(node), set()).add(node.lifetime)
    return {name: len(found) for name, found in lengths.items() if always or len(found) > 1}


def windows_behind(
    steps: Sequence[Step], nodes: Sequence[Algebra], chosen: Collection[str]
) -> tuple[list[Step], list[Algebra]]:
    """Return `steps` with the windows over streams of `chosen` names behind the exchange, and what each step computes.

    Args:
        steps: inputs before consumers, numbered one after the other.
        nodes: by place, what they compute.
    """
    if not any(isinstance(node, Window) and node.slide is None and _name(node) in chosen for node in nodes):
        return list(steps), list(nodes)
    moving = _Moving(steps, nodes, chosen)
    for step in steps:
        moving.take(step)
    return moving.result()


def _name(window: Window) -> str:
    """Return the name of the stream below a window among the choices of a plan (`Generation.grains`)."""
    return f"rows {window.input.fingerprint}"


@dataclass
class _Moving:
    """Steps on their way to a plan; new ones have the numbers behind those of `steps`."""

    steps: Sequence[Step]
    nodes: Sequence[Algebra]
    chosen: Collection[str]
    found: list[tuple[Step, Algebra]] = field(default_factory=list)
    #: By number, a step with what it computes.
    _known: dict[int, tuple[Step, Algebra]] = field(init=False)
    #: By what a step does to which rows in which stage, its number.
    _made: dict[object, int] = field(default_factory=dict)
    #: By the number of a step that does what a new one does, that of the other.
    _same: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = {step.id: (step, node) for step, node in zip(self.steps, self.nodes, strict=True)}
        self._next = self.steps[-1].id + 1

    def take(self, step: Step) -> None:
        """Go through a step: its inputs over an exchange come without their windows, which are applied in its stage."""
        inputs = tuple(
            self._late(replace(edge, step=self._same.get(edge.step, edge.step)), step) for edge in step.inputs
        )
        if inputs != step.inputs:
            step = replace(step, inputs=inputs)
        made = self._made.get(_does(step)) if step.spec.keeps_times else None
        if made is None:
            self._add(step, self._known[step.id][1])
        else:
            self._same[step.id] = made

    def result(self) -> tuple[list[Step], list[Algebra]]:
        """Return the steps that some query needs, numbered one after the other, and what each computes."""
        needed: set[int] = set()
        for step, _ in reversed(self.found):
            if step.spec.answered is not None or step.id in needed:
                needed |= {step.id, *(edge.step for edge in step.inputs)}
        kept = [(step, node) for step, node in self.found if step.id in needed]
        numbers = {step.id: self.steps[0].id + place for place, (step, _) in enumerate(kept)}
        steps = [
            replace(step, id=numbers[step.id], inputs=tuple(replace(e, step=numbers[e.step]) for e in step.inputs))
            for step, _ in kept
        ]
        return steps, [node for _, node in kept]

    def _late(self, edge: Edge, consumer: Step) -> Edge:
        step, node = self._known[edge.step]
        if edge.exchange is None or step.stage:
            return edge
        window = self._window(step)
        if window is None:
            return edge
        sent = Edge(self._without_window(step), edge.exchange)
        if consumer.spec.keeps_rows:
            return sent  # it looks at timestamps alone
        ended = replace(step, spec=window.spec, inputs=(sent,), stage=consumer.stage)
        return Edge(self._new(ended, node))

    def _window(self, step: Step) -> Step | None:
        """Return the window from which the ends of the rows of a step of the ingest come, if it can be put off."""
        while step.spec.keeps_times:
            (edge,) = step.inputs
            step = self._known[edge.step][0]
        node = self._known[step.id][1]
        is_window = step.spec.sets_ends_alone and isinstance(node, Window)
        return step if is_window and isinstance(node, Window) and _name(node) in self.chosen else None

    def _without_window(self, step: Step) -> int:
        """Return the number of the step that does the same as `step` without the window below it."""
        (edge,) = step.inputs
        if step.spec.sets_ends_alone:
            return edge.step
        node = self._known[step.id][1]
        below = self._without_window(self._known[edge.step][0])
        pattern = self._known[below][1].pattern.short
        return self._new(replace(step, inputs=(Edge(below),), pattern=pattern), _windowless(node))

    def _new(self, step: Step, node: Algebra) -> int:
        """Return the number of a step like `step`, which is added unless it is there."""
        does = _does(step)
        if does not in self._made:
            self._add(replace(step, id=self._next), node)
            self._next += 1
        return self._made[does]

    def _add(self, step: Step, node: Algebra) -> None:
        self.found.append((step, node))
        self._known[step.id] = step, node
        if step.spec.keeps_times or step.spec.sets_ends_alone:
            self._made.setdefault(_does(step), step.id)


def _does(step: Step) -> object:
    return type(step.spec), step.spec, step.inputs, step.stage


def _windowless(node: Algebra) -> Algebra:
    """Return selections and projections of a window as those of the stream below it; others stay what they are."""
    if isinstance(node, Window):
        return node.input
    return replace(node, input=_windowless(node.input)) if isinstance(node, Select | Project) else node
