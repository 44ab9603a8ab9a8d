"""Panes shared by windows: aggregates that differ in their windows alone are fed from one stream of panes.

Let g divide the length and the slide of a window. Rounding up to a multiple of g first changes nothing that rounding up
to a boundary of the window leaves: ⌈⌈x⌉g⌉s = ⌈x⌉s. So rows that agree in group and ⌈ts⌉g can be added up once for all
such windows, next to the readers, and travel once. How windows are put together is a matter of cost alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.algebra import Aggregate, Algebra, Project, Select, Window
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.windows import WindowKind
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates

#: The cost of sending a row to another stage, in rows that a stateless operator reads.
EXCHANGE = 3.0


@dataclass(frozen=True)
class _Paned:
    """An aggregate over a window that slides. grain: the largest that its window allows; rate, groups: elements per
    tick, and values of its group, as estimated."""

    name: str
    key: str
    grain: int
    rate: float
    groups: float

    def panes(self, grain: int) -> float:
        """Return the lane rows per tick when rows are aggregated by (group, ⌈ts⌉grain)."""
        return self.groups * -math.expm1(-self.rate * grain / self.groups) / grain

    @property
    def alone(self) -> float:
        return self.rate + EXCHANGE * self.panes(self.grain)


@dataclass
class _Cluster:
    """Aggregates fed from panes of one grain."""

    grain: int
    members: list[_Paned]

    @property
    def cost(self) -> float:
        """Return the cost: every row is read once, every pane travels, and each member reads it."""
        first = self.members[0]
        if len(self.members) == 1:
            return first.alone
        return first.rate + (EXCHANGE + len(self.members)) * first.panes(self.grain)

    def with_(self, other: _Paned) -> _Cluster:
        return _Cluster(math.gcd(self.grain, other.grain), [*self.members, other])


def shared_grains(
    roots: Iterable[Algebra], statistics: Statistics, live: bool = False, standing: Iterable[Mapping[str, int]] = ()
) -> dict[str, int]:
    """Return, by `pane_key` of an aggregate, the grain of the panes that it shares with others.

    Args:
        live: others may come later. So each aggregate is fed from panes, of a grain that others have if it divides
            length and slide [golab 8.3, SS1], else of its own; the grain of others never changes.
        standing: what queries that run were planned to share.
    """
    kinds: dict[str, dict[str, _Paned]] = {}
    for root in roots:
        for node in operators(root):
            if isinstance(node, Aggregate) and (window := paned_window(node)) is not None:
                alike = f"{over_panes(node, 1).fingerprint} {window.align}"
                kinds.setdefault(alike, {})[node.fingerprint] = _paned(node, window, statistics)
    grains: dict[str, int] = {}
    for alike, kind in kinds.items():
        clusters = [c for c in _clusters(list(kind.values())) if live or len(c.members) > 1]
        there = _standing_grains(alike, standing) if live else set()
        chosen = {c.grain: max((g for g in there if c.grain % g == 0), default=c.grain) for c in clusters}
        grains.update({m.key: chosen[c.grain] for c in clusters for m in c.members})
        if live:
            used = sorted(set(chosen.values()))
            grains.update({_standing_name(alike, number): grain for number, grain in enumerate(used)})
    return grains


def _standing_name(alike: str, number: int) -> str:
    """Return the name, among the choices of a plan, of one of the grains that its aggregates of a kind have."""
    return f"grain {number} {alike}"


def _standing_grains(alike: str, standing: Iterable[Mapping[str, int]]) -> set[int]:
    """Return the grains of the panes of a kind that there are."""
    found: set[int] = set()
    for choices in standing:
        number = 0
        while (grain := choices.get(_standing_name(alike, number))) is not None:
            found.add(grain)
            number += 1
    return found


def pane_key(node: Aggregate) -> str:
    """Return the key of an aggregate, independent of the names of its columns."""
    return replace(node, names=tuple(f"a{i}" for i in range(len(node.names)))).fingerprint


def paned_window(node: Aggregate) -> Window | None:
    """Return the window in time with SLIDE that `node` is over, if there are only selections and projections between. A
    stream of static relations alone has no time, and arrives whole at the first instant."""
    below = node.input
    while isinstance(below, Select | Project):
        below = below.input
    if not isinstance(below, Window) or below.slide is None or below.domain is None:
        return None
    return None if has_user_aggregates(node) else below


def over_panes(node: Aggregate, grain: int) -> Aggregate:
    """Return `node` over a window that is panes of `grain` ticks; the same for all aggregates that may share them."""

    def below(operator: Algebra) -> Algebra:
        if isinstance(operator, Window):
            return replace(operator, kind=WindowKind.RANGE, length=grain, slide=grain, align=operator.align)
        assert isinstance(operator, Select | Project)
        return replace(operator, input=below(operator.input))

    return replace(node, input=below(node.input), names=tuple(f"a{i}" for i in range(len(node.names))))


def _paned(node: Aggregate, window: Window, statistics: Statistics) -> _Paned:
    assert window.slide is not None and window.domain is not None
    below = estimate(node.input, statistics)
    groups = math.prod(below.distinct[column] for column in node.group)
    rate = below.rate * seconds(1, window.domain)
    return _Paned(node.fingerprint, pane_key(node), math.gcd(window.slide, window.lifetime or 0), rate, groups)


def _clusters(kind: list[_Paned]) -> list[_Cluster]:
    """Return the clusters of aggregates that share panes: the coarsest first, each where it adds least to the cost."""
    clusters: list[_Cluster] = []
    for member in sorted(kind, key=lambda p: (-p.grain, p.name)):
        best, saved = None, 0.0
        for i, cluster in enumerate(clusters):
            gain = cluster.cost + member.alone - cluster.with_(member).cost
            if gain > saved:
                best, saved = i, gain
        if best is None:
            clusters.append(_Cluster(member.grain, [member]))
        else:
            clusters[best] = clusters[best].with_(member)
    return clusters
