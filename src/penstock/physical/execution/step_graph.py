"""The steps of one stage, or of one source's ingest, and the edges out of each.

The graph of a plan is that of its parts. What is computed for a part stays with it, so a plan that differs in one part
costs the work for that part, and one look at the steps of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field

from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import Port, StageResult
from penstock.physical.plan.plan import Edge, Plan, Step, scans_of


@dataclass(frozen=True)
class StepGraph:
    """Steps of a stage and the edges out of each, computed once.

    Args:
        edges: by step, its consumers' ports, and whether they are in this stage.
        direct: by step, its consumers in this stage that have no state and no other input: rows pass through them as
            soon as these are produced.
        turns: the steps that run once in every round; the others process rows as soon as these are produced.
    """

    steps: list[Step] = field(default_factory=list)
    edges: dict[int, list[tuple[Port, Edge, bool]]] = field(default_factory=dict)
    direct: dict[int, dict[int, Step]] = field(default_factory=dict)
    turns: list[Step] = field(default_factory=list)

    @staticmethod
    def of(plan: Plan, steps: Iterable[Step]) -> StepGraph:
        """Return the graph of some steps of a plan."""
        graph = StepGraph(list(steps))
        by_id = {step.id: step for step in graph.steps}
        graph.edges.update({number: [] for number in by_id})
        for consumer in plan.steps:
            for port, edge in enumerate(consumer.inputs):
                if edge.step in by_id:
                    graph.edges[edge.step].append(((consumer.id, port), edge, consumer.id in by_id))
        for step in graph.steps:
            found = (by_id[port[0]] for port, edge, inside in graph.edges[step.id] if inside and edge.exchange is None)
            graph.direct[step.id] = {s.id: s for s in found if len(s.inputs) == 1 and s.spec.streams_batches}
        through = {consumer for direct in graph.direct.values() for consumer in direct}
        graph.turns.extend(step for step in graph.steps if step.id not in through)
        return graph

    @staticmethod
    def of_stage(plan: Plan, stage: int) -> StepGraph:
        """Return the graph of a stage."""
        return StepGraph._joined(plan.pieces, stage, lambda piece: (s for s in piece.steps if s.stage == stage))

    @staticmethod
    def of_source(plan: Plan, source: str) -> StepGraph:
        """Return the graph of the steps of stage 0 that read one source."""
        return StepGraph._joined(plan.pieces_reading(source), source, lambda piece: _reached(piece, source))

    @staticmethod
    def _joined(pieces: Iterable[Plan], name: int | str, steps: Callable[[Plan], Iterable[Step]]) -> StepGraph:
        """Return the graph of some steps of several plans; what is computed for each stays with it under `name`."""
        whole = StepGraph()
        for piece in pieces:
            known: dict[int | str, StepGraph] = piece.__dict__.setdefault("_graphs", {})
            if name not in known:
                known[name] = StepGraph.of(piece, steps(piece))
            graph = known[name]
            whole.steps.extend(graph.steps)
            whole.edges.update(graph.edges)
            whole.direct.update(graph.direct)
            whole.turns.extend(graph.turns)
        return whole

    def send(
        self, step: Step, made: list[Elements], inbox: dict[Port, list[Elements]], result: StageResult,
        but: Container[int] = (),
    ) -> None:  # fmt: skip
        """Route the output of `step` to its consumers, except those in `but`; answers are not handled here."""
        if not made:
            return
        for port, edge, inside in self.edges[step.id]:
            if port[0] in but:
                continue
            if inside and edge.exchange is None:
                inbox.setdefault(port, []).extend(made)
            elif edge.exchange is not None:
                result.onward.setdefault(port, []).extend(made)
                result.edges[port] = edge.exchange


def _reached(plan: Plan, source: str) -> list[Step]:
    """Return the steps of stage 0 that scan `source` or get rows of it."""
    reached = {scan.id for scan in scans_of(plan.steps, source) if scan.stage == 0}
    for step in plan.steps:
        if step.stage == 0 and any(i.step in reached for i in step.inputs):
            reached.add(step.id)
    return [step for step in plan.steps if step.id in reached]
