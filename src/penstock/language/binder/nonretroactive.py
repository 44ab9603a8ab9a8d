"""NON RETROACTIVE relations in FROM: each joined with the one stream that its conditions name, before anything else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.algebra import Algebra, is_elementwise, is_nrr, unjoined
from penstock.algebra.nodes import common_domain
from penstock.expressions.nodes import Expression, columns_of, remap
from penstock.language.binder.context import Context
from penstock.language.binder.inputs import Input
from penstock.language.text import Span

_HINT = "declare it without NON RETROACTIVE to use it as any other relation"


@dataclass(frozen=True)
class Attached:
    """Members without NRRs, the conditions that are left over their columns, and where each of the old columns is."""

    members: tuple[Input, ...]
    conditions: list[Expression]
    place: list[int]


def refuse_unjoined(root: Algebra, span: Span, context: Context) -> None:
    """Raises Refused after P0340 for a query in which an NRR meets no stream."""
    for scan in unjoined(root):
        message = (
            f"{scan.source.name} is NON RETROACTIVE: it can only be joined with a stream or a time window over one"
        )
        context.fail("P0340", message, span, _HINT)


#: Joins two inputs on conditions over the columns of both, the right ones behind the left ones.
JoinTwo = Callable[[Algebra, Algebra, list[Expression]], Algebra]


def attach(members: Sequence[Input], conditions: list[Expression], join_two: JoinTwo, context: Context) -> Attached:
    """Every NRR among `members` joined with its stream. Raises Refused after P0340 or P0302."""
    owner = [i for i, member in enumerate(members) for _ in member.node.schema]
    columns = [[c for c, i in enumerate(owner) if i == number] for number in range(len(members))]
    read = {condition: {owner[c] for c in columns_of(condition)} for condition in conditions}
    hosts = _hosts(members, list(read.values()), context)
    groups = {i: [i] for i in range(len(members)) if i not in hosts}
    for nrr, host in hosts.items():
        groups[host].append(nrr)
    joined: list[Input] = []
    left = conditions
    for host, group in groups.items():
        node = members[host].node
        for number, nrr in enumerate(group[1:], 2):
            relation, seen = members[nrr].node, group[:number]
            context.guard(members[nrr].span, lambda: common_domain((node, relation)))  # noqa: B023
            inside = [c for i in seen for c in columns[i]]
            mine = [p for p in left if len(read[p]) > 1 and nrr in read[p] and read[p] <= set(seen)]
            left = [p for p in left if p not in mine]
            node = join_two(node, relation, [remap(p, inside.index) for p in mine])
        joined.append(replace(members[host], node=node))
    order = [c for group in groups.values() for i in group for c in columns[i]]
    place = [order.index(c) for c in range(len(owner))]
    return Attached(tuple(joined), [remap(p, lambda c: place[c]) for p in left], place)


def _hosts(members: Sequence[Input], touched: list[set[int]], context: Context) -> dict[int, int]:
    """The stream of each NRR: the only other member that its conditions lead to, or the only stream there is."""
    nrrs = {i for i, member in enumerate(members) if is_nrr(member.node)}
    streams = [i for i in range(len(members)) if i not in nrrs and is_elementwise(members[i].node)]
    found: dict[int, int] = {}
    for nrr in sorted(nrrs):
        met = {nrr}
        while grown := {i for group in touched if group & met & nrrs for i in group} - met:
            met |= grown
        named = sorted(met - nrrs) or streams
        if len(named) != 1 or named[0] not in streams:
            other = "none" if not named else "several inputs of FROM" if len(named) > 1 else "another relation"
            message = f"a NON RETROACTIVE relation is joined with one stream or time window over it, this with {other}"
            context.fail("P0340", message, members[nrr].span, _HINT)
        found[nrr] = named[0]
    return found
