"""What a start means for a checkpoint: the beginning of a run, its continuation, or a change of its script.

A query is what it was when it has its name, its fingerprint and its sources: it goes on with its state, whatever
else has changed. Any other begins with this epoch: it sees what its sources give from here on. Contract: nothing is
written here; what follows from a decision is written by `launch.py`.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.nodes import Algebra, leaves
from penstock.algebra.optimizer import Planning, optimize
from penstock.algebra.query import Query
from penstock.algebra.scans import Scan, Source
from penstock.algebra.statistics import Statistics
from penstock.connectors.seals import damaged
from penstock.connectors.sources import is_rereadable
from penstock.errors import PenstockError
from penstock.physical.identity import query_fingerprint, source_fingerprint, step_keys
from penstock.physical.plan import Plan
from penstock.physical.planner import Generation, grains_of, plan_generations
from penstock.physical.strategies import Strategy
from penstock.redaction import redacted, redacted_text
from penstock.runtime.spark.epochs import (
    Epoch,
    QueryRecord,
    SourceRecord,
    delivered,
    epoch_numbers,
    is_committed,
    latest_epoch,
    offset_mark,
    read_epoch,
    statistics_as_json,
)
from penstock.runtime.spark.feed import Offset, highs_after
from penstock.runtime.spark.folder import Folder, round_name


class Kind(enum.Enum):
    """What a start is to its checkpoint."""

    FIRST = "first"
    SAME = "same"
    CHANGED = "changed"


@dataclass(frozen=True)
class Given:
    """What a start brings: its queries, as they were written; sources: those they read; rows: by MEMORY source, what
    tells its rows apart from others; statistics: what is known of the sources; frames: the sources that Spark reads;
    shards: how many are asked for, 0 for any; known: what `optimized` has found, by the fingerprint of a query."""

    queries: tuple[Query, ...]
    sources: Mapping[str, Source]
    rows: Mapping[str, str]
    statistics: Statistics
    strategy: Strategy
    drain: bool
    state_store: str
    frames: frozenset[str]
    shards: int
    backfill: bool = False
    known: dict[str, list[tuple[Planning, Algebra]]] = field(default_factory=dict, compare=False, repr=False)

    def optimized(self, query: Query, planning: Planning) -> Query:
        """`query`, one of these, as it is planned. A start asks for it several times over."""
        found = self.known.setdefault(query.root.fingerprint, [])
        root = next((root for p, root in found if p == planning), None)
        if root is None:
            root = optimize(query.root, planning=planning)
            found.append((planning, root))
        return replace(query, root=root)


@dataclass(frozen=True)
class Decision:
    """before: the epoch whose state goes on, None for none; fresh: queries that begin now; gone: those that ended;
    kept_sinks: queries whose result goes on; plan: of them all; notices: what the user must know."""

    kind: Kind
    before: Epoch | None
    epoch: Epoch
    plan: Plan
    fresh: tuple[str, ...]
    gone: tuple[str, ...]
    kept_sinks: frozenset[str]
    notices: tuple[str, ...]


def decide(given: Given, folder: Folder) -> Decision:
    """What this start is. Raises PenstockError P0602, P0605, P0606, P0607."""
    latest = latest_epoch(folder)
    if latest is not None and _same(given, latest):
        _settings_fit(given, latest)
        names = frozenset(latest.queries)
        return Decision(Kind.SAME, latest, latest, plan_of(given, latest), (), (), names, ())
    before = next((e for e in _epochs(folder) if is_committed(folder, e)), None)
    if before is None:
        _nothing_delivered(folder, latest)
        return _first(given)
    return _changed(given, folder, before, 1 + epoch_numbers(folder)[-1])


def _nothing_delivered(folder: Folder, latest: Epoch | None) -> None:
    """A second round is planned when the first is delivered. Raises PenstockError P0605 where nothing tells of it."""
    offset = folder.read_mark(offset_mark(latest.number)) if latest is not None else None
    if offset is not None and offset["round"] > 1:
        raise damaged(folder.root / "delivered.json", FileNotFoundError("it is gone"))


def _epochs(folder: Folder) -> Sequence[Epoch]:
    """The newest first."""
    return [read_epoch(folder, n) for n in reversed(epoch_numbers(folder))]


def _same(given: Given, epoch: Epoch) -> bool:
    """Whether the script says what it said when `epoch` began."""
    records = epoch.queries
    return (
        {q.name for q in given.queries} == set(records)
        and source_records(given, epoch, epoch.number + 1) == epoch.sources
        and all(_is_kept(q, given, epoch) and records[q.name].sink == sink_identity(q) for q in given.queries)
    )


def _is_kept(query: Query, given: Given, before: Epoch) -> bool:
    """Whether `query` is one of `before` and computes what it computed."""
    record = before.queries.get(query.name)
    if record is None or given.strategy.value != before.strategy:
        return False
    sources = source_records(given, before, before.number + 1)
    if any(sources[name].birth > before.number for name in _sources_of(query)):
        return False
    return fingerprint(query, given, before, record.birth) == record.fingerprint


def _sources_of(query: Query) -> set[str]:
    return {leaf.source.name for leaf in leaves(query.root) if isinstance(leaf, Scan)}


def fingerprint(query: Query, given: Given, epoch: Epoch, birth: int) -> str:
    """Of what a query computes, planned by itself with what was known and chosen at its birth."""
    return query_fingerprint(plan_generations([_generation([query], given, epoch, birth)], given.strategy), query.name)


def _generation(queries: Sequence[Query], given: Given, epoch: Epoch, birth: int) -> Generation:
    statistics = epoch.statistics_of(birth)
    planning = Strategy(epoch.strategy).planning(statistics)
    ready = [given.optimized(query, planning) for query in queries]
    return Generation(birth, ready, statistics, epoch.grains_of(birth))


def sink_identity(query: Query) -> str:
    """Of where the answer goes and of its columns; tells nothing of either."""
    columns = [*query.output_names, *map(str, query.root.schema.types), str(query.domain)]
    sink = replace(query.sink, options=redacted(query.sink.options))
    return hashlib.sha256(repr((sink, columns)).encode()).hexdigest()[:24]


def source_records(given: Given, before: Epoch | None, number: int) -> dict[str, SourceRecord]:
    """The sources as an epoch `number` after `before` has them."""
    found: dict[str, SourceRecord] = {}
    for name, source in given.sources.items():
        mine = source_fingerprint(source, given.rows.get(name, ""))
        known = before.sources.get(name) if before is not None else None
        birth = known.birth if known is not None and known.fingerprint == mine else number
        found[name] = SourceRecord(mine, birth, source.is_static)
    return found


def plan_of(given: Given, epoch: Epoch) -> Plan:
    """The plan of an epoch: every query as it was planned when it began."""
    births = sorted({record.birth for record in epoch.queries.values()})
    generations = [
        _generation([q for q in given.queries if epoch.queries[q.name].birth == b], given, epoch, b) for b in births
    ]
    return plan_generations(generations, given.strategy)


def _first(given: Given) -> Decision:
    epoch, plan = _epoch(given, None, 0, 0, given.shards, dict.fromkeys((q.name for q in given.queries), 0))
    names = tuple(q.name for q in given.queries)
    return Decision(Kind.FIRST, None, epoch, plan, names, (), frozenset(), ())


def _changed(given: Given, folder: Folder, before: Epoch, number: int) -> Decision:
    _can_change(given, folder, before)
    _settings_fit(given, before)
    kept = {q.name for q in given.queries if _is_kept(q, given, before)}
    births = {q.name: before.queries[q.name].birth if q.name in kept else number for q in given.queries}
    fresh = tuple(q.name for q in given.queries if q.name not in kept)
    gone = tuple(name for name in before.queries if name not in births)
    base = delivered(folder)["batch"] + 1
    epoch, plan = _epoch(given, before, number, base, before.shards, births)
    backfill = list(fresh) if given.backfill else []
    for name in backfill:
        can_backfill(next(q for q in given.queries if q.name == name))
    epoch = replace(epoch, offset=carried(folder, before, epoch, plan), backfill=backfill)
    sinks = {q.name: sink_identity(q) for q in given.queries}
    kept_sinks = frozenset(name for name in kept if before.queries[name].sink == sinks[name])
    notices = _notices(before, fresh, gone, backfill)
    return Decision(Kind.CHANGED, before, epoch, plan, fresh, gone, kept_sinks, notices)


def _epoch(
    given: Given, before: Epoch | None, number: int, base: int, shards: int, births: Mapping[str, int]
) -> tuple[Epoch, Plan]:
    """The epoch `number`, its offset left open, and its plan."""
    told = {str(b): before.statistics[str(b)] for b in set(births.values()) if before is not None and b != number}
    planning = given.strategy.planning(given.statistics)
    begun = [given.optimized(q, planning) for q in given.queries if births[q.name] == number]
    told[str(number)] = statistics_as_json(given.statistics, grains_of(begun, given.statistics, given.strategy))
    bare = {
        q.name: QueryRecord(
            "", births[q.name], sink_identity(q), redacted_text(q.text), [], q.domain.unit.name, q.domain.calendar
        )
        for q in given.queries
    }
    epoch = Epoch(
        number, base, bare, source_records(given, before, number), 0, shards, given.strategy.value, given.drain,
        given.state_store, told, frames=sorted(given.frames),
    )  # fmt: skip
    plan = plan_of(given, epoch)
    operators = _operators(plan)
    queries = {
        q.name: replace(
            bare[q.name],
            fingerprint=fingerprint(q, given, epoch, births[q.name]),
            operators=operators[q.name],
        )
        for q in given.queries
    }
    return replace(epoch, queries=queries, stages=plan.stages), plan


def _operators(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    keys = step_keys(plan)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in plan.queries}
    for step in plan.steps:
        told = {
            "key": keys[step.id],
            "stage": step.stage,
            "operator": step.spec.title,
            "inputs": [i.step for i in step.inputs],
        }
        for name in sorted(step.queries):
            found[name].append({"step": step.id, **told})
    return found


def _settings_fit(given: Given, before: Epoch) -> None:
    """Raises PenstockError P0606."""
    told = [
        ("shards", before.shards, given.shards or before.shards, f"SET shards = {before.shards}, or leave it out"),
        ("state_strategy", before.strategy, given.strategy.value, f"SET state_strategy = '{before.strategy}'"),
        ("state_store", before.state_store, given.state_store, f"SET state_store = '{before.state_store}'"),
        ("--drain", before.drain, given.drain, "start with --drain" if before.drain else "start without --drain"),
    ]
    for name, was, now, hint in told:
        if was != now:
            raise PenstockError(
                "P0606", f"the state in the checkpoint was made with {name} {_said(was)}, not {_said(now)}",
                hint=f"{hint}; or start afresh with a new --checkpoint",
            )  # fmt: skip


def _said(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _can_change(given: Given, folder: Folder, before: Epoch) -> None:
    """Raises PenstockError P0602 where the state does not lie in our hands."""
    reason = ""
    if before.frames or given.frames:
        reason = (
            f"Spark reads {', '.join(sorted({*before.frames, *given.frames}))} and knows the place only for one plan"
        )
    elif "spark" in (before.state_store, given.state_store):
        reason = "its state is in Spark's own store, which fits one plan only"
    if reason:
        raise other_script(folder, reason)


def other_script(folder: Folder, reason: str) -> PenstockError:
    return PenstockError(
        "P0602", f"the checkpoint {folder.root.parent} belongs to another script or version of it: {reason}",
        hint="give a new --checkpoint, or run the script that it was made with",
    )  # fmt: skip


def can_backfill(query: Query) -> None:
    """Raises PenstockError P0607 where the past of a source cannot be read."""
    clocked = [s.source.name for s in leaves(query.root) if isinstance(s, Scan) and s.source.system_time]
    if clocked:
        raise PenstockError(
            "P0607", f"query {query.name} cannot read its past: {clocked[0]} is of SYSTEM TIME, "
            "and when its elements came is not kept",
            hint="start without --backfill: the query begins from here on",
        )  # fmt: skip
    passing = [
        s.source.name for s in leaves(query.root)
        if isinstance(s, Scan) and not s.source.is_static and not is_rereadable(s.source)
    ]  # fmt: skip
    if passing:
        raise PenstockError(
            "P0607", f"query {query.name} cannot read its past: what has been read of {passing[0]} is not kept",
            hint="start without --backfill: the query begins from here on",
        )  # fmt: skip


def _notices(before: Epoch, fresh: Sequence[str], gone: Sequence[str], backfill: Sequence[str]) -> tuple[str, ...]:
    found = []
    for name in fresh:
        what = f"query {name} has changed" if name in before.queries else f"query {name} is new"
        if name in backfill:
            found.append(f"{what}: it reads its past first, then goes on with the others")
        else:
            found.append(
                f"warning: {what}: it starts afresh and sees only what its sources give from here on "
                "(--backfill lets it read their past first)"
            )
    return (*found, *(f"query {name} is no longer in the script: its state is dropped" for name in gone))


def carried(folder: Folder, before: Epoch, epoch: Epoch, plan: Plan) -> Offset:
    """The offset that `epoch` begins with: that of `before`, for the sources that it still has, and the beginning of
    the new ones. A round whose answers have not come to all sinks is done again as it was planned."""
    offset: Offset | None = folder.read_mark(offset_mark(before.number)) or before.offset
    if offset is None:
        raise damaged(folder.root / f"{offset_mark(before.number)}.json", FileNotFoundError("it is gone"))
    kept = {name for name in plan.sources if epoch.sources[name].birth <= before.number}
    if offset["round"] > delivered(folder)["round"]:
        return {**_only(offset, kept, plan), "before": _only(offset["before"], kept, plan)}
    highs = highs_after(offset, folder.read_seen(round_name(offset["round"])))
    return {**_only({**offset, "high": highs}, kept, plan), "again": True}


def _only(offset: Offset, kept: set[str], plan: Plan) -> Offset:
    """An offset of the sources `kept`, and of the others of `plan` at their beginning."""
    found: Offset = {
        **{k: v for k, v in offset.items() if k not in ("before", "tasks", "wall", "told")},
        "done": {name: offset["done"].get(name, 0) if name in kept else 0 for name in plan.sources},
        "high": {name: offset["high"].get(name) if name in kept else None for name in plan.sources},
        "ended": [name for name in offset["ended"] if name in kept],
    }
    if "logs" in offset:
        found["logs"] = {name: log for name, log in offset["logs"].items() if name in kept}
    if "wall" in offset:
        wall = offset["wall"]
        idle = {name for name, source in plan.sources.items() if source.idle is not None}
        found["wall"] = {
            "now": wall["now"],
            "heard": {name: wall["heard"].get(name, wall["now"]) if name in kept else wall["now"] for name in idle},
            "beats": {name: beat for name, beat in wall["beats"].items() if name in kept},
        }
    if "told" in offset:
        found["told"] = {name: tick for name, tick in offset["told"].items() if name in kept}
    return found
