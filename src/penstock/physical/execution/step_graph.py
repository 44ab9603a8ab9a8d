"""The steps of one stage, or of one source's ingest, and the edges out of each.

The graph of a plan is that of its parts. What is computed for a part stays with it, so a plan that differs in one part
costs the work for that part, and one look at the steps of the others. Some operators read the state of their inputs in
place, such as windows of several lengths over one store; they are attached to these.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import Port, StageResult
from penstock.physical.operators import Operator
from penstock.physical.plan.plan import Channel, Plan, Step, channels_into, scans_of


@dataclass(frozen=True)
class StepGraph:
    """Steps of a stage and the edges out of each, computed once.

    Args:
        within: by step, the ports of its consumers in this stage.
        onward: by step, the channels of its rows to later stages.
        arriving: by channel of an earlier stage, the ports that read it.
        direct: by step, its consumers in this stage that have no state and no other input: rows pass through them as
            soon as these are produced.
        turns: the steps that run once in every round; the others process rows as soon as these are produced.
        borrowing: what reads steps of other parts, None in the graph of a whole plan.
    """

    steps: list[Step] = field(default_factory=list)
    within: dict[int, list[Port]] = field(default_factory=dict)
    onward: dict[int, dict[Channel, None]] = field(default_factory=dict)
    arriving: dict[Channel, list[Port]] = field(default_factory=dict)
    direct: dict[int, dict[int, Step]] = field(default_factory=dict)
    turns: list[Step] = field(default_factory=list)
    borrowing: StepGraph | None = None

    @staticmethod
    def of(plan: Plan, steps: Iterable[Step]) -> StepGraph:
        """Return the graph of some steps of a plan."""
        graph = StepGraph(list(steps))
        by_id = {step.id: step for step in graph.steps}
        graph.within.update({number: [] for number in by_id})
        borrowing = StepGraph() if plan.borrowed else graph
        for consumer in plan.steps:
            for channel in channels_into(consumer):
                if channel.step in by_id or channel.step in plan.borrowed:
                    place = borrowing if channel.step in plan.borrowed else graph
                    place.onward.setdefault(channel.step, {})[channel] = None
        for consumer in graph.steps:
            for port, edge in enumerate(consumer.inputs):
                place = borrowing if edge.step in plan.borrowed else graph
                if edge.exchange is not None:
                    place.arriving.setdefault(Channel(edge.step, edge.exchange), []).append((consumer.id, port))
                elif edge.step in by_id or edge.step in plan.borrowed:
                    place.within.setdefault(edge.step, []).append((consumer.id, port))
        for place in (graph, borrowing):
            for number, ports in place.within.items():
                found = (by_id[consumer] for consumer, _ in ports)
                place.direct[number] = {s.id: s for s in found if len(s.inputs) == 1 and s.spec.streams_batches}
        through = {consumer for place in (graph, borrowing) for direct in place.direct.values() for consumer in direct}
        graph.turns.extend(step for step in graph.steps if step.id not in through)
        return graph if borrowing is graph else replace(graph, borrowing=borrowing)

    @staticmethod
    def of_stage(plan: Plan, stage: int) -> StepGraph:
        """Return the graph of a stage."""
        return StepGraph._joined(plan, plan.pieces, stage, lambda piece: (s for s in piece.steps if s.stage == stage))

    @staticmethod
    def of_source(plan: Plan, source: str) -> StepGraph:
        """Return the graph of the steps of stage 0 that read one source."""
        return StepGraph._joined(plan, plan.pieces_reading(source), source, lambda piece: _reached(piece, source))

    @staticmethod
    def _joined(
        plan: Plan, pieces: Iterable[Plan], name: int | str, steps: Callable[[Plan], Iterable[Step]]
    ) -> StepGraph:
        """Return the graph of some steps of parts of `plan`; what is computed for each stays with it under `name`."""
        whole = StepGraph()
        borrowing: list[StepGraph] = []
        for piece in pieces:
            known: dict[int | str, StepGraph] = piece.__dict__.setdefault("_graphs", {})
            if name not in known:
                known[name] = StepGraph.of(piece, steps(piece))
            graph = known[name]
            whole.steps.extend(graph.steps)
            whole.within.update(graph.within)
            whole.onward.update(graph.onward)
            whole.arriving.update(graph.arriving)
            whole.direct.update(graph.direct)
            whole.turns.extend(graph.turns)
            if graph.borrowing is not None:
                borrowing.append(graph.borrowing)
        whole._borrow(borrowing)
        if plan.shared:
            whole.steps[:] = [plan.shared.get(step.id, step) for step in whole.steps]
            whole.turns[:] = [plan.shared.get(step.id, step) for step in whole.turns]
            for number, consumers in whole.direct.items():
                if not plan.shared.keys().isdisjoint(consumers):
                    whole.direct[number] = {n: plan.shared.get(n, step) for n, step in consumers.items()}
        return whole

    def _borrow(self, borrowing: Iterable[StepGraph]) -> None:
        """Add what parts read of the steps of earlier ones, also of steps in other stages, which send nothing here."""
        within: dict[int, list[Port]] = {}
        direct: dict[int, dict[int, Step]] = {}
        onward: dict[int, dict[Channel, None]] = {}
        arriving: dict[Channel, list[Port]] = {}
        for one in borrowing:
            for number, ports in one.within.items():
                within.setdefault(number, []).extend(ports)
                direct.setdefault(number, {}).update(one.direct[number])
            for number, channels in one.onward.items():
                onward.setdefault(number, {}).update(channels)
            for channel, ports in one.arriving.items():
                arriving.setdefault(channel, []).extend(ports)
        # The lists of the steps themselves stay with the parts that have these.
        self.within.update({n: [*self.within.get(n, ()), *ports] for n, ports in within.items()})
        self.direct.update({n: {**self.direct.get(n, {}), **steps} for n, steps in direct.items()})
        self.onward.update({n: {**self.onward.get(n, {}), **channels} for n, channels in onward.items()})
        self.arriving.update({c: [*self.arriving.get(c, ()), *ports] for c, ports in arriving.items()})

    def send(
        self, step: Step, made: list[Elements], inbox: dict[Port, list[Elements]], result: StageResult,
        but: Container[int] = (),
    ) -> None:  # fmt: skip
        """Route the output of `step` to its consumers, except those in `but`; answers are not handled here."""
        if not made:
            return
        for port in self.within[step.id]:
            if port[0] not in but:
                inbox.setdefault(port, []).extend(made)
        for channel in self.onward.get(step.id, ()):
            result.onward.setdefault(channel, []).extend(made)


def _reached(plan: Plan, source: str) -> list[Step]:
    """Return the steps of stage 0 that scan `source` or get rows of it."""
    reached = {scan.id for scan in scans_of(plan.steps, source) if scan.stage == 0}
    for step in plan.steps:
        borrowed = any(i.step in plan.borrowed for i in step.inputs) and source in step.sources
        if step.stage == 0 and (borrowed or any(i.step in reached for i in step.inputs)):
            reached.add(step.id)
    return [step for step in plan.steps if step.id in reached]


def read_in_place(step: Step) -> list[int]:
    """Return the steps whose state `step` reads in place."""
    return [edge.step for port, edge in enumerate(step.inputs) if step.spec.reads_port(port)]


def attach(steps: Sequence[Step], operators: Mapping[int, Operator]) -> None:
    """Attach the operators that read in place to what they read."""
    for step in steps:
        if step.spec.reads:
            operators[step.id].attach([operators[number] for number in read_in_place(step)])


def attach_again(
    readers: Sequence[Step], ended: Iterable[Step], before: Mapping[int, Operator], numbers: Mapping[int, int | None],
    operators: Mapping[int, Operator],
) -> set[int]:  # fmt: skip
    """Bring reading in place up to date with another version of a plan: operators that are dropped read nothing any
    more, and those that are new, or that read something new, are attached. The others stay as they are.

    Args:
        readers: the steps of the version that read in place.
        ended: steps of the version before; a number may be another step's in this one.
        before: the operators of the version before; steps that have failed have none.
        numbers: by step that is new, or that is planned anew, the number under which its operator was, None for a new
            operator.

    Returns:
        The steps that have gained or lost a reader.
    """
    kept = set(map(id, operators.values()))
    former = {step.id: step for step in ended if step.id in before}

    def was(step: Step) -> Step | None:
        """Return the step whose operator a step has."""
        number = numbers.get(step.id, step.id)
        return None if number is None else former.get(number, step)

    def stays(step: Step) -> bool:
        earlier = was(step)
        return earlier is not None and all(
            before.get(one) is operators[other]
            for one, other in zip(read_in_place(earlier), read_in_place(step), strict=True)
        )

    dropped = [step for step in former.values() if step.spec.reads and id(before[step.id]) not in kept]
    looked_at = [s for s in readers if s.id in numbers or not numbers.keys().isdisjoint(read_in_place(s))]
    attached = [step for step in looked_at if not stays(step)]
    for step in dropped:
        before[step.id].detach()
    for step in attached:
        operators[step.id].detach()
    attach(attached, operators)
    # What has lost a reader, by the number that it has now.
    losers = [*dropped, *(one for step in attached if (one := was(step)) is not None)]
    lost = {id(before[n]) for step in losers for n in read_in_place(step) if n in before}
    unsettled = {n for n, operator in operators.items() if id(operator) in lost}
    return unsettled | {n for step in attached for n in read_in_place(step)}


class JointTurns:
    """Which steps of a stage can run in one call: those whose operators have one joint key. They run when the first of
    them does, except those whose input is not complete then."""

    def __init__(self, graph: StepGraph, operators: Mapping[int, Operator]) -> None:
        alike: dict[tuple[type, Hashable], list[Step]] = {}
        for step in graph.turns:
            operator = operators[step.id]
            if (key := operator.joint_key()) is not None:
                alike.setdefault((type(operator), key), []).append(step)
        self._alike = {step.id: steps for steps in alike.values() if len(steps) > 1 for step in steps}
        self._within = {step.id: step for step in graph.steps} if self._alike else {}
        self._turns = {step.id for step in graph.turns} if self._alike else set()
        self._feeding = {number: self._turns_before(self._within[number]) for number in self._alike}

    def ready(self, first: Step, finished: Container[int]) -> list[Step]:
        """Return the steps to be run now that it is the turn of `first`. finished: those that have run."""
        alike = self._alike.get(first.id)
        if alike is None:
            return [first]
        waiting = (step for step in alike if step.id not in finished)
        return [step for step in waiting if all(n in finished for n in self._feeding[step.id])]

    def _turns_before(self, step: Step) -> set[int]:
        """Return the steps with a turn whose output reaches `step` in this stage, through none with a turn."""
        found: set[int] = set()
        for edge in step.inputs:
            if edge.exchange is None and edge.step in self._within:
                found |= {edge.step} if edge.step in self._turns else self._turns_before(self._within[edge.step])
        return found
