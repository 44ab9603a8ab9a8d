"""In which order a join of many windows probes them: cost model and heuristic of `[golab 5.3]`, as pure functions.

The join is pipelined: an element that arrives at input i is joined with the other windows one after the other, and no
intermediate result is kept. What an order costs is the number of tuples looked at per unit of time. Attribute values
are taken to be uniform and contained in each other (the values of the input with fewer distinct ones are among those
of the other), so a join on one attribute has |A|·|B| / max(v_A, v_B) results with min(v_A, v_B) distinct values.

Beyond the thesis, whose inputs all join on one attribute, inputs may be equal in several (*classes*), and further
conditions may bind some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

Order = tuple[int, ...]

#: Fast streams that are moved about: the orders tried grow as n to this power.
_FAST = 3

#: Steps of the cost model that one search may take, about a second. A step extends a combination of inputs by one, for
#: up to eight classes and conditions. Joins of ten inputs stay below it; of more, fewer orders are tried.
_STEPS = 100_000


@dataclass(frozen=True)
class JoinInput:
    """One window of the join. rate: λ, arrivals per unit of time; length: T, how long each counts; distinct: by class
    v, the distinct values in the window, None where the input has no part in the class; buckets: b of its hash table
    (1: the window is scanned), None for an index by whatever classes are known when it is probed."""

    rate: float
    length: float
    distinct: tuple[float | None, ...]
    buckets: float | None = 1.0

    @property
    def size(self) -> float:
        return self.rate * self.length


@dataclass(frozen=True)
class JoinGraph:
    """What is joined. conditions: further ones, as (the inputs it reads, the part of the combinations it keeps)."""

    members: tuple[JoinInput, ...]
    conditions: tuple[tuple[frozenset[int], float], ...] = ()


@dataclass(frozen=True)
class _Partial:
    """The state of the pipeline after some inputs: which, how many tuples, by class the distinct values among them."""

    inputs: frozenset[int]
    tuples: float
    distinct: tuple[float | None, ...]


def cost(graph: JoinGraph, order: Order) -> float:
    """Return the cost of the global order per unit of time: X1 + X2 + ... `[golab 5.3.1]`."""
    return sum(arrivals_cost(graph, i, tuple(j for j in order if j != i)) for i in order)


def probing_cost(graph: JoinGraph, orders: Sequence[Order]) -> float:
    """Return the cost as `cost` does, where the arrivals of input i probe the others in `orders[i]`."""
    return sum(arrivals_cost(graph, i, order) for i, order in enumerate(orders))


def arrivals_cost(graph: JoinGraph, i: int, order: Order) -> float:
    """Return X_i: tuples read per unit of time because elements arrive at input i and probe the rest in `order`."""
    partial = _start(graph, i, 1.0)
    looked_at = 0.0
    for j in order:
        looked_at += partial.tuples * _per_probe(graph, partial, j)
        partial = _extend(graph, partial, j)
    return graph.members[i].rate * looked_at


def result_size(graph: JoinGraph, inputs: Iterable[int]) -> float:
    """Return φ: the expected size of the join of the windows of `inputs`."""
    first, *others = inputs
    partial = _start(graph, first, graph.members[first].size)
    for j in others:
        partial = _extend(graph, partial, j)
    return partial.tuples


@lru_cache(maxsize=64)
def choose_order(graph: JoinGraph) -> Order:
    """Return the global order by the heuristic `[golab 5.3.2]`: the most selective joins first; also with the streams
    that are faster than the average moved up; the cheapest of these."""
    first = by_selectivity(graph)
    return min(dict.fromkeys(_candidates(graph, first)), key=lambda order: cost(graph, order))


def by_selectivity(graph: JoinGraph) -> Order:
    """Return the initial heuristic: the two windows whose join is smallest, then always the one that keeps the result
    smallest. Of equals the cheaper, then the one written first."""
    numbers = range(len(graph.members))
    pairs = [(i, j) for i in numbers for j in numbers if i != j]
    least = min(result_size(graph, sorted(pair)) for pair in pairs)
    starts = [pair for pair in pairs if result_size(graph, sorted(pair)) <= least * (1 + 1e-9)]
    return min((_grown(graph, pair) for pair in starts[: _affordable(graph)]), key=lambda order: cost(graph, order))


def _affordable(graph: JoinGraph) -> int:
    """Return how many orders may be tried and their costs compared."""
    inputs = len(graph.members)
    once = inputs * inputs * (1 + (len(graph.members[0].distinct) + len(graph.conditions)) // 8)
    return max(1, _STEPS // once)


def probing_order(graph: JoinGraph, order: Order, i: int) -> Order:
    """Return the order in which an element of input i probes the others: the global order; but an input that shares no
    class with those before it (every pair would be formed) is moved behind the first one that links it."""
    waiting = [j for j in order if j != i]
    classes = [_classes_of(member) for member in graph.members]
    bound = set(classes[i])
    chosen: list[int] = []
    while waiting:
        linked = next((j for j in waiting if not bound.isdisjoint(classes[j])), waiting[0])
        waiting.remove(linked)
        bound |= classes[linked]
        chosen.append(linked)
    return tuple(chosen)


def _classes_of(member: JoinInput) -> frozenset[int]:
    """Return the classes in which an input takes part."""
    return frozenset(number for number, distinct in enumerate(member.distinct) if distinct is not None)


def all_orders(graph: JoinGraph) -> Iterator[Order]:
    """Return every global order."""
    return permutations(range(len(graph.members)))


def _grown(graph: JoinGraph, start: Order) -> Order:
    order = list(start)
    partial = _start(graph, start[0], graph.members[start[0]].size)
    for j in start[1:]:
        partial = _extend(graph, partial, j)
    waiting = [j for j in range(len(graph.members)) if j not in start]
    while waiting:
        extended = min((_extend(graph, partial, j) for j in waiting), key=lambda extension: extension.tuples)
        (chosen,) = extended.inputs - partial.inputs
        waiting.remove(chosen)
        order.append(chosen)
        partial = extended
    return tuple(order)


def _candidates(graph: JoinGraph, first: Order) -> Iterator[Order]:
    mean = sum(m.rate for m in graph.members) / len(graph.members)
    fast = sorted((i for i in first if graph.members[i].rate > mean), key=lambda i: -graph.members[i].rate)[:_FAST]
    orders, most = [first], _affordable(graph)
    for i in fast:
        if len(orders) * len(first) > most:
            break
        orders += [_moved(order, i, position) for order in orders for position in range(order.index(i))]
    return iter(orders)


def _moved(order: Order, i: int, position: int) -> Order:
    others = [j for j in order if j != i]
    return (*others[:position], i, *others[position:])


def _start(graph: JoinGraph, i: int, tuples: float) -> _Partial:
    return _Partial(frozenset({i}), tuples * _kept(graph, frozenset(), i), graph.members[i].distinct)


def _extend(graph: JoinGraph, partial: _Partial, j: int) -> _Partial:
    member = graph.members[j]
    tuples = partial.tuples * member.size
    distinct: list[float | None] = []
    for have, own in zip(partial.distinct, member.distinct, strict=True):
        if have is not None and own is not None:
            tuples /= max(have, own, 1.0)
            distinct.append(min(have, own))
        else:
            distinct.append(have if own is None else own)
    tuples *= _kept(graph, partial.inputs, j)
    return _Partial(partial.inputs | {j}, tuples, tuple(distinct))


def _kept(graph: JoinGraph, inputs: frozenset[int], j: int) -> float:
    """Return the part of the combinations kept by the conditions that input j, coming last, makes decidable."""
    part = 1.0
    for reads, keeps in graph.conditions:
        if j in reads and reads <= inputs | {j}:
            part *= keeps
    return part


def _per_probe(graph: JoinGraph, partial: _Partial, j: int) -> float:
    """Return the tuples read by one probe of input j."""
    member = graph.members[j]
    if member.buckets is not None:
        return member.size / member.buckets
    matches = member.size
    for have, own in zip(partial.distinct, member.distinct, strict=True):
        if have is not None and own is not None:
            matches /= max(have, own, 1.0)
    return 1.0 + matches  # the look-up itself, and what it finds


def _linked(graph: JoinGraph, j: int, k: int) -> bool:
    pairs = zip(graph.members[j].distinct, graph.members[k].distinct, strict=True)
    return any(left is not None and right is not None for left, right in pairs)


def tree_cost(graph: JoinGraph, order: Order, shards: int) -> float:
    """Return the cost of a left-deep tree of binary joins in this order per unit of time, where every join with a class
    is divided among `shards`: each looks up its other side, and stores its results for the next."""
    total = 0.0
    left = _start(graph, order[0], graph.members[order[0]].size)
    rate = graph.members[order[0]].rate
    for j in order[1:]:
        member = graph.members[j]
        joined = _extend(graph, left, j)
        keyed = any(_linked(graph, j, k) for k in left.inputs)
        per_time = sum(1 / graph.members[k].length for k in joined.inputs)
        results = joined.tuples * per_time
        met = results / _kept(graph, left.inputs, j)
        # Every pair is read when it is found, and its result once more when it is stored.
        total += (rate + member.rate + met + results) / (shards if keyed else 1)
        left, rate = joined, results
    return total
