"""The steps of one stage, or of one source's ingest, and the edges out of each.

The graph of a plan is that of its parts. What is computed for a part stays with it, and the graph of a plan that has
more parts than the one before is grown from the one before: the steps that stay are copied, not looked at. Some
operators read the state of their inputs in place, such as windows of several lengths over one store; they are attached
to these.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from types import MappingProxyType
from weakref import WeakValueDictionary

from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import Port, StageResult
from penstock.physical.execution.meter import Meter
from penstock.physical.operators import Operator, Tables, make_operator
from penstock.physical.operators.base.contract import RunPlan
from penstock.physical.operators.failed import FailedOperator
from penstock.physical.plan.plan import Channel, Plan, Step, channels_into, scans_of
from penstock.tree import derived

#: Returns a fresh operator of a step.
MakeOperator = Callable[[Step], Operator]


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
        reading: by step whose state others read in place, these.
        borrowing: what reads steps of other parts, None in the graph of a whole plan.
        pieces, shared: of the graph of a whole plan, the parts and the shared steps that it is made of.
    """

    steps: list[Step] = field(default_factory=list)
    within: dict[int, list[Port]] = field(default_factory=dict)
    onward: dict[int, dict[Channel, None]] = field(default_factory=dict)
    arriving: dict[Channel, list[Port]] = field(default_factory=dict)
    direct: dict[int, dict[int, Step]] = field(default_factory=dict)
    turns: list[Step] = field(default_factory=list)
    reading: dict[int, list[Step]] = field(default_factory=dict)
    borrowing: StepGraph | None = None
    pieces: tuple[Plan, ...] = ()
    shared: Mapping[int, Step] = field(default_factory=dict)

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
        for step in graph.steps:
            for number in read_in_place(step) if step.spec.reads else ():
                graph.reading.setdefault(number, []).append(step)
        return graph if borrowing is graph else replace(graph, borrowing=borrowing)

    @staticmethod
    def of_stage(plan: Plan, stage: int, before: StepGraph | None = None) -> StepGraph:
        """Return the graph of a stage. before: that of the stage in the version before."""
        return _joined(plan, plan.pieces, stage, lambda piece: (s for s in piece.steps if s.stage == stage), before)

    @staticmethod
    def of_source(plan: Plan, source: str, before: StepGraph | None = None) -> StepGraph:
        """Return the graph of the steps of stage 0 that read one source. before: that of the version before."""
        pieces = plan.pieces_reading(source)
        return _joined(plan, pieces, source, lambda piece: _reached(piece, source), before)

    def _grows_to(self, pieces: tuple[Plan, ...], shared: Mapping[int, Step]) -> bool:
        """Return whether this is the graph of the first of these parts, no step of which has ceased to be shared."""
        known = self.pieces
        is_first = 0 < len(known) <= len(pieces) and all(map(is_, known, pieces))
        return is_first and self.shared.keys() <= shared.keys()

    def _copy(self) -> StepGraph:
        return StepGraph(
            self.steps.copy(),
            self.within.copy(),
            self.onward.copy(),
            self.arriving.copy(),
            self.direct.copy(),
            self.turns.copy(),
            self.reading.copy(),
        )

    def _add(self, graphs: Sequence[StepGraph]) -> None:
        """Add the graphs of parts behind those that it has."""
        for graph in graphs:
            self.steps.extend(graph.steps)
            self.within.update(graph.within)
            self.onward.update(graph.onward)
            self.arriving.update(graph.arriving)
            self.direct.update(graph.direct)
            self.turns.extend(graph.turns)
            for number, steps in graph.reading.items():
                # The lists stay with the parts and with the graphs of other versions.
                self.reading[number] = [*self.reading.get(number, ()), *steps]
        self._borrow([graph.borrowing for graph in graphs if graph.borrowing is not None])

    def _exchange(self, shared: Mapping[int, Step]) -> None:
        """Put steps in the place of those with their numbers."""
        if not shared or self.within.keys().isdisjoint(shared):
            return
        self.steps[:] = [shared.get(step.id, step) for step in self.steps]
        self.turns[:] = [shared.get(step.id, step) for step in self.turns]
        for step in shared.values():
            for number in {edge.step for edge in step.inputs}:
                if step.id in self.direct.get(number, ()):
                    self.direct[number] = {**self.direct[number], step.id: step}

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
        self,
        step: Step,
        made: list[Elements],
        inbox: dict[Port, list[Elements]],
        result: StageResult,
        but: Container[int] = (),
    ) -> None:
        """Route the output of `step` to its consumers, except those in `but`; answers are not handled here."""
        if not made:
            return
        for port in self.within[step.id]:
            if port[0] not in but:
                inbox.setdefault(port, []).extend(made)
        for channel in self.onward.get(step.id, ()):
            result.onward.setdefault(channel, []).extend(made)


@derived
def _joined_graphs(plan: Plan) -> WeakValueDictionary[int | str, StepGraph]:
    """Return the graphs of a whole plan that are in use, by the stage or the source."""
    return WeakValueDictionary()


@derived
def _graphs(part: Plan) -> dict[int | str, StepGraph]:
    """Return the graphs of a part so far, by the stage or the source."""
    return {}


def _joined(
    plan: Plan,
    pieces: tuple[Plan, ...],
    name: int | str,
    steps: Callable[[Plan], Iterable[Step]],
    before: StepGraph | None,
) -> StepGraph:
    """Return the graph of some steps of parts of `plan`; what is computed for each part stays with it under `name`; the
    graph of the plan stays while it is in use, since all shards have the same."""
    made = _joined_graphs(plan)
    whole = made.get(name)
    if whole is not None:
        return whole
    shared = plan.shared
    if before is not None and before._grows_to(pieces, shared):
        grown, new = before._copy(), pieces[len(before.pieces) :]
        was = before.shared
        exchanged: Mapping[int, Step] = {number: step for number, step in shared.items() if was.get(number) is not step}
    else:
        grown, new, exchanged = StepGraph(), pieces, shared
    graphs: list[StepGraph] = []
    for piece in new:
        known = _graphs(piece)
        if name not in known:
            known[name] = StepGraph.of(piece, steps(piece))
        graphs.append(known[name])
    grown._add(graphs)
    grown._exchange(exchanged)
    made[name] = whole = replace(grown, pieces=pieces, shared=shared)
    return whole


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


def made_operators(
    steps: Sequence[Step],
    make: MakeOperator,
    meter: Meter | None = None,
    kept: Mapping[int, Operator] = MappingProxyType({}),
    isolated: bool = False,
) -> dict[int, Operator]:
    """Return the operators of steps by their numbers. kept: operators that are there already, of steps that read
    nothing in place; isolated: as of `attach`."""
    made = {step.id: kept.get(step.id) or make(step) for step in steps}
    attach(steps, made, isolated)
    if meter is None:
        return made
    # Readers perform the work of scans.
    scans = {step.id for step in steps if step.spec.scanned is not None}
    return {i: operator if i in scans else meter.watch(i, operator) for i, operator in made.items()}


def operator_maker(tables: Tables, shards: int, run_plan: RunPlan, isolated: bool) -> MakeOperator:
    """Return what makes the operator of a step. run_plan: as of `make_operator`; isolated: one that cannot be made is
    replaced by one that fails when it is to work."""

    def make(step: Step) -> Operator:
        try:
            return make_operator(step.spec, tables, shards, run_plan)
        except Exception as error:
            if not isolated:
                raise
            return FailedOperator(error)

    return make


def attach(steps: Sequence[Step], operators: dict[int, Operator], isolated: bool = False) -> None:
    """Attach the operators that read in place to what they read. isolated: one that cannot be attached is replaced by
    one that fails when it is to work."""
    for step in steps:
        if not step.spec.reads:
            continue
        read = [operators[number] for number in read_in_place(step)]
        try:
            operators[step.id].attach(read)
        except Exception as error:
            if not isolated:
                raise
            causes = [one.error for one in read if isinstance(one, FailedOperator)]
            operators[step.id] = FailedOperator(next(iter(causes), error))


def attach_again(
    new: Iterable[Step],
    reading: Mapping[int, Sequence[Step]],
    ended: Iterable[Step],
    before: Mapping[int, Operator],
    numbers: Mapping[int, int | None],
    operators: dict[int, Operator],
    isolated: bool = False,
) -> set[int]:
    """Bring reading in place up to date with another version of a plan: operators that are dropped read nothing any
    more, and those that are new, or that read something new, are attached. The others stay as they are.

    Args:
        new: the steps of the version that are new, or planned anew.
        reading: by step whose state is read in place, the steps that do.
        ended: steps of the version before; a number may be another step's in this one.
        before: the operators of the version before; steps that have failed have none.
        numbers: by step that is new, or that is planned anew, the number under which its operator was, None for a new
            operator.
        isolated: as of `attach`.

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
    looked_at = {step.id: step for step in new if step.spec.reads}
    looked_at |= {step.id: step for number in numbers for step in reading.get(number, ())}
    attached = [step for step in looked_at.values() if not stays(step)]
    for step in dropped:
        before[step.id].detach()
    for step in attached:
        operators[step.id].detach()
    attach(attached, operators, isolated)
    # What has lost a reader, by the number that it has now.
    losers = [*dropped, *(one for step in attached if (one := was(step)) is not None)]
    lost = {id(before[n]) for step in losers for n in read_in_place(step) if n in before}
    unsettled = {n for n, operator in operators.items() if id(operator) in lost} if lost else set()
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
