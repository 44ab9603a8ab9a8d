"""A plan put together of parts: the plans of the queries that began in one epoch each.

A change of a job replaces, adds and removes parts, and everything else of its plan stays as it is; what parts have in
common is in one of them (`sharing.py`). A worker puts the same plan together of the parts that it has and those that
are new. Nothing here is more than one look at each part: a job may have thousands.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import pyarrow as pa

from penstock.algebra.analysis.promise_candidates import (
    StreamReference,
    columns_of_state,
    has_order,
    references_of_state,
)
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.promises import ForeignKey, PromiseMode
from penstock.expressions.nodes import Expression, Literal
from penstock.physical.plan.plan import Plan, Step
from penstock.physical.planning.source_predicate import either, may_skip


def joined(
    parts: Sequence[Plan],
    keys: Mapping[int, str] | None = None,
    outline: Plan | None = None,
    shared: Mapping[int, Step] | None = None,
) -> Plan:
    """Return the plan of all `parts`, which have no step numbers and no queries in common. A part comes behind those of
    which it borrows steps.

    Args:
        keys: of the states whose keys differ from those in the parts, by the numbers of their steps.
        outline: what `outlined` returns for them, where it is known.
        shared: the steps that several parts need, by their numbers, with the queries of all, where they are known.
    """
    if shared is None:
        shared = _with_all_queries(parts)
    # Dictionaries are united without a look at each step.
    by_id: dict[int, Step] = {}
    for part in parts:
        by_id.update(part.by_id)
    for number in by_id.keys() & shared.keys():
        by_id[number] = shared[number]
    return replace(
        outline or outlined(parts),
        parts=tuple(parts),
        keys=keys or None,
        steps=tuple(by_id.values()),
        source_predicates=_predicates(parts),
        shared=shared,
        known_steps=by_id,
    )


def outlined(parts: Iterable[Plan], before: Plan | None = None) -> Plan:
    """Return the queries and the inputs of all `parts`, as a plan without steps. before: that of parts before them."""
    plan = Plan((), {}, {})
    if before is not None:
        plan = Plan((), dict(before.queries), dict(before.sources), dict(before.statics), dict(before.periods))
    for part in parts:
        plan.queries.update(part.queries)
        plan.sources.update(part.sources)
        plan.statics.update(part.statics)
        plan.periods.update(part.periods)
    return plan


@dataclass(frozen=True)
class PartRest:
    """What is left of a part, without what another one has that had more queries.

    Args:
        gone: the numbers of the steps that it does not have.
        users: by those that are the same but for it, the queries that do not need them any more.
        others: the other steps that are not in both.
        places: by number of a step in `users` and `others`, its place.
        gone_queries: those that it does not have.
        borrowed: by the numbers of the steps that both borrow, the queries that do not need them any more.
        keys: of the states of those of its steps whose keys differ.
        outline: the part without steps, queries, keys, and the entries of each query.
    """

    gone: tuple[int, ...]
    users: Mapping[int, frozenset[str]]
    others: tuple[Step, ...]
    places: Mapping[int, int]
    gone_queries: tuple[str, ...]
    borrowed: Mapping[int, frozenset[str]]
    keys: Mapping[int, str] | None
    outline: Plan

    def beside(self, base: Plan) -> Plan:
        """Return the part. base: the other one, whose steps and queries it has."""
        changed = {step.id: step for step in self.others}
        for number, users in self.users.items():
            step = base.step(number)
            changed[number] = replace(step, queries=step.queries - users)
        out = {*self.gone, *changed}
        steps = [step for step in base.steps if step.id not in out]
        for number, place in sorted(self.places.items(), key=itemgetter(1)):
            steps.insert(place, changed[number])
        gone = set(self.gone_queries)
        keys = None
        if self.keys is not None:
            former = base.keys or {}
            keys = {step.id: self.keys.get(step.id) or former[step.id] for step in steps}
        return replace(
            self.outline,
            steps=tuple(steps),
            keys=keys,
            queries={name: query for name, query in base.queries.items() if name not in gone},
            periods={name: some for name, some in base.periods.items() if name not in gone},
            borrowed={**self.outline.borrowed, **{n: base.borrowed[n] - users for n, users in self.borrowed.items()}},
        )


def rest_of(part: Plan, base: Plan) -> PartRest | None:
    """Return how a part is made of another one that had more queries; None where it has less than half of that, or
    something else."""
    by_id, known = part.by_id, base.by_id
    gone = base.queries.keys() - part.queries.keys()
    differ = {number: step for number, step in by_id.items() if known.get(number) is not step}
    if 2 * (len(by_id) - len(differ) + len(part.queries)) <= len(known) + len(base.queries):
        return None
    users: dict[int, frozenset[str]] = {}
    others: list[Step] = []
    for number, step in differ.items():
        former = known.get(number)
        if former is not None and step == replace(former, queries=step.queries) and former.queries >= step.queries:
            users[number] = former.queries - step.queries
        else:
            others.append(step)
    places = {number: place for place, number in enumerate(by_id) if number in differ} if differ else {}
    newly = {n: names for n, names in part.borrowed.items() if n not in base.borrowed}
    borrowed = {n: base.borrowed[n] - names for n, names in part.borrowed.items() if n not in newly}
    keys = None
    if part.keys is not None:
        former_keys = base.keys or {}
        keys = {number: key for number, key in part.keys.items() if former_keys.get(number) != key}
    outline = replace(part, steps=(), queries={}, periods={}, borrowed=newly, keys=None, alone=None)
    lost = tuple(number for number in known if number not in by_id)
    rest = PartRest(lost, users, tuple(others), places, tuple(gone), borrowed, keys, outline)
    made = rest.beside(base)
    is_same = made == part and [*made.by_id] == [*by_id] and [*made.queries] == [*part.queries]
    return rest if is_same and (made.keys, made.borrowed) == (part.keys, part.borrowed) else None


def changed_steps(before: Plan, after: Plan) -> set[int]:
    """Return the numbers of all steps in which two versions of a plan differ: those that one of them lacks, whose state
    lies elsewhere, or that other queries need. What both have in common is not looked into."""
    former, present = ({id(part): part for part in plan.pieces} for plan in (before, after))
    found = {step.id for place in former.keys() - present.keys() for step in former[place].steps}
    found |= {step.id for place in present.keys() - former.keys() for step in present[place].steps}
    keys, keys_now = before.keys or {}, after.keys or {}
    found |= {n for n in keys.keys() | keys_now.keys() if keys.get(n) != keys_now.get(n)}
    for number in before.shared.keys() | after.shared.keys():
        was, now = before.shared.get(number), after.shared.get(number)
        if was is None or now is None or was.queries != now.queries:
            found.add(number)
    return found


def _with_all_queries(parts: Sequence[Plan]) -> dict[int, Step]:
    """Return the steps that several parts need, by their numbers, with the queries of all of them."""
    users: dict[int, set[str]] = {}
    for part in parts:
        for number, queries in part.borrowed.items():
            users.setdefault(number, set()).update(queries)
    if not users:
        return {}
    found: dict[int, Step] = {}
    for part in parts:
        # The smaller one of both is looked through.
        for number in part.by_id.keys() & users.keys():
            step = part.by_id[number]
            found[number] = replace(step, queries=step.queries.union(users[number]))
    return found


def _predicates(parts: Sequence[Plan]) -> dict[str, Expression]:
    """Return, by source, the condition of the rows that some part reads; of sources without one all rows are read."""
    conditions: dict[str, list[Expression] | None] = {}
    for part in parts:
        for source in part.sources:
            condition = part.source_predicates.get(source)
            of_source = conditions.setdefault(source, [])
            if condition is None:
                conditions[source] = None
            elif of_source is not None:
                of_source.append(condition)
    either_of = {source: either(of_source) for source, of_source in conditions.items() if of_source}
    return {source: condition for source, condition in either_of.items() if condition is not None}


def with_standing(plan: Plan, sources: Iterable[Source]) -> Plan:
    """Return `plan` with `sources` among its inputs, also those that no query reads: of these a reader skips all rows,
    and the plan knows their progress.
    """
    unread = {source.name: source for source in sources if source.name not in plan.sources}
    nothing = {name: Literal(pa.bool_(), False) for name, source in unread.items() if may_skip(source)}
    predicates = plan.source_predicates | nothing
    return replace(plan, sources=plan.sources | unread, source_predicates=predicates, known_steps=plan.by_id)


def as_declared(plan: Plan, declared: Mapping[str, Source]) -> Plan:
    """Return a plan whose streams are retained and measured as their present declarations say; standing queries may
    have been planned with earlier ones."""
    present = {name: declared[name] for name in plan.sources if name in declared}
    references = _references(present, plan)
    sources = {
        name: _with_declared(source, declared[name], plan, references) if name in declared else source
        for name, source in plan.sources.items()
    }
    return replace(plan, sources=sources, known_steps=plan.by_id)


def _with_declared(source: Source, declared: Source, plan: Plan, references: Collection[StreamReference]) -> Source:
    own = _observed_columns(declared, plan) if declared.is_observed else ()
    referred = [one.columns for one in references if one.stream == source.name]
    referred += [one.parent_columns for one in references if one.parent == source.name]
    return replace(
        source,
        retain=declared.retain,
        retain_columns=declared.retain_columns,
        promises=declared.promises,
        observe=declared.observe,
        observed=tuple(dict.fromkeys((*own, *referred))),
    )


def observed_references(plan: Plan) -> tuple[StreamReference, ...]:
    """Return the references that are measured, of a plan `as_declared`."""
    return _references(plan.sources, plan)


def _references(sources: Mapping[str, Source], plan: Plan) -> tuple[StreamReference, ...]:
    """Return the references that are measured: those that streams promise, and where all promises of a stream are
    measured those by which queries join it."""
    found = [
        StreamReference(source.name, one.columns, one.parent, one.parent_columns)
        for source in sources.values()
        if source.is_stream
        for one in source.promises
        if isinstance(one, ForeignKey) and (source.observe or one.mode is PromiseMode.OBSERVED)
    ]
    if any(source.observe for source in sources.values()):
        for query in plan.queries.values():
            found += references_of_state(query.root)

    def types(stream: str, columns: Sequence[int]) -> list[pa.DataType]:
        return [sources[stream].columns[c].type for c in columns]

    return tuple(
        one
        for one in dict.fromkeys(found)
        if one.stream in sources
        and one.parent in sources
        and sources[one.stream].is_observed
        # Values of other types have other hashes.
        and types(one.stream, one.columns) == types(one.parent, one.parent_columns)
    )


def _observed_columns(source: Source, plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return the columns of a stream for which promises are measured: those of its promises, and where all are observed
    those by which queries join and group."""
    found = [one.columns for one in source.promises if source.observe or one.mode is PromiseMode.OBSERVED]
    if source.observe:
        for query in plan.queries.values():
            found += [one.columns for one in columns_of_state(query.root) if one.stream == source.name]
    single = [(column,) for columns in found for column in columns if has_order(source.columns[column].type)]
    return tuple(dict.fromkeys((*found, *single)))
