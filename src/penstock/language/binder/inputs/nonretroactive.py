"""NON RETROACTIVE relations in FROM: each is joined with the streams that its conditions name, before all
other joins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.algebra import Algebra, Join, NRRJoin, RelationScan, is_nrr, unjoined
from penstock.algebra.nodes.base import common_domain
from penstock.expressions.nodes import Expression, columns_of, remap
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput
from penstock.language.text import TextSpan
from penstock.tree import Node, transform_up, walk

_HINT = "join it with the streams before they are grouped, or declare it without NON RETROACTIVE"


@dataclass(frozen=True)
class JoinedMembers:
    """Members without NRRs, the remaining conditions over their columns, and the new position of each of the old
    columns.
    """

    members: tuple[FromInput, ...]
    conditions: list[Expression]
    positions: list[int]


def refuse_unjoined(root: Algebra, span: TextSpan, context: Context) -> None:
    """Raise BindingFailed after P0340 for a query in which an NRR is joined with no stream."""
    for scan in unjoined(root):
        message = f"{scan.source.name} is NON RETROACTIVE: it can only be joined with streams or windows over them"
        context.fail("P0340", message, span, _HINT)


def contents_of_unjoined(root: Algebra) -> Algebra:
    """Return a query that is answered once, with each NRR that is joined with no stream read as any relation: there is
    nothing that its updates could leave as it was. One that is also joined with a stream stays as it is."""
    alone = {scan.fingerprint for scan in unjoined(root)}
    joined = {scan.fingerprint for node in walk(root) if isinstance(node, NRRJoin) for scan in walk(node.right)}
    if not alone - joined:
        return root

    def as_relation(node: Node) -> Node:
        if not isinstance(node, RelationScan) or node.fingerprint not in alone - joined:
            return node
        return replace(node, source=replace(node.source, non_retroactive=False))

    return transform_up(root, as_relation)


#: Joins two inputs on conditions over the columns of the left followed by those of the right.
JoinTwo = Callable[[Algebra, Algebra, list[Expression], type[Join] | type[NRRJoin]], Algebra]


def attach(
    members: Sequence[FromInput], conditions: list[Expression], join_two: JoinTwo, context: Context
) -> JoinedMembers:
    """Return every NRR among `members` joined with its streams. Raises BindingFailed after P0340 or P0302."""
    owner = [i for i, member in enumerate(members) for _ in member.node.schema]
    columns = [[c for c, i in enumerate(owner) if i == number] for number in range(len(members))]
    read = {condition: {owner[c] for c in columns_of(condition)} for condition in conditions}
    groups = _groups(len(members), _hosts(members, list(read.values()), context))
    joined: list[FromInput] = []
    left = conditions
    for first, *others in groups:
        node = members[first].node
        for number, other in enumerate(others, 1):
            more, seen = members[other].node, [first, *others[:number]]
            context.guard(members[other].span, lambda: common_domain((node, more)))  # noqa: B023
            inside = [c for i in seen for c in columns[i]]
            mine = [p for p in left if len(read[p]) > 1 and other in read[p] and read[p] <= set(seen)]
            left = [p for p in left if p not in mine]
            kind = NRRJoin if is_nrr(more) else Join
            node = join_two(node, more, [remap(p, inside.index) for p in mine], kind)
        joined.append(replace(members[first], node=node))
    order = [c for group in groups for i in group for c in columns[i]]
    positions = [order.index(c) for c in range(len(owner))]
    return JoinedMembers(tuple(joined), [remap(p, lambda c: positions[c]) for p in left], positions)


def _groups(count: int, hosts: dict[int, list[int]]) -> list[list[int]]:
    """Return the members that are joined before all others: each NRR after its streams, which may be those of others
    too.
    """
    groups = [{i} for i in range(count) if i not in hosts]
    for joined in hosts.values():
        met = [group for group in groups if group & set(joined)]
        groups = [group for group in groups if group not in met] + [set().union(*met)]
    attached = [[*sorted(group), *(nrr for nrr, joined in hosts.items() if joined[0] in group)] for group in groups]
    return sorted(attached)


def _hosts(members: Sequence[FromInput], touched: list[set[int]], context: Context) -> dict[int, list[int]]:
    """Return the streams of each NRR: the other members that its conditions reach, or the only stream there is."""
    nrrs = {i for i, member in enumerate(members) if is_nrr(member.node)}
    streams = [i for i in range(len(members)) if i not in nrrs and members[i].node.is_elementwise]
    hosts: dict[int, list[int]] = {}
    for nrr in sorted(nrrs):
        met = {nrr}
        while grown := {i for group in touched if group & met & nrrs for i in group} - met:
            met |= grown
        named = sorted(met - nrrs)
        if not named and len(streams) == 1:
            named = streams
        if not named or not set(named) <= set(streams):
            other = "several streams, and no condition names one" if not named and streams else "none"
            if named:
                other = "rows that are not single elements of streams: a group, or a row that may change"
            message = f"a NON RETROACTIVE relation is joined with stream elements; here it is joined with {other}"
            context.fail("P0340", message, members[nrr].span, _HINT)
        hosts[nrr] = named
    return hosts
