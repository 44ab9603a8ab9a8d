"""Which ways to begin a query has, and how far back its sources must be read for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import reach
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError, counted
from penstock.physical.execution.executor import needed_columns
from penstock.physical.execution.progress import NOTHING, SourceProgress, query_heartbeat, timed_sources
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import plan_queries
from penstock.physical.planning.state_size.summary import size_text
from penstock.runtime.spark.catching_up.past_input import KnownPast, PastStart
from penstock.runtime.spark.input.offset import Offset
from penstock.storage import storage
from penstock.storage.documents import Document, Json

#: What `start_options` looks at; AT is possible where WARM is, also at times that lie ahead.
WAYS = (StartMode.NOW, StartMode.WARM, StartMode.BEGINNING)


def earliest(plan: Plan, starts: Mapping[str, Start], offset: Offset) -> int | None:
    """Return a tick so that no element up to it determines what any of the queries emits; None where every element may.

    Args:
        plan: of the queries.
        offset: up to which their sources have been read.
    """
    bounds = [bound_of(plan.queries[name], start, offset) for name, start in starts.items()]
    known = [bound for bound in bounds if bound is not None]
    return min(known, default=None) if len(known) == len(bounds) else None


def bound_of(query: Query, start: Start, offset: Offset) -> int | None:
    """Return the same of one query."""
    if start.mode is StartMode.BEGINNING:
        return None
    back = reach(query.root.needs)
    tick = heartbeat_at(query, offset)
    if back is None or tick == NOTHING:
        return None
    return (tick if start.at is None else min(tick, start.at)) - back


def heartbeat_at(query: Query, offset: Offset) -> int:
    """Return the heartbeat of a query whose sources have been read up to `offset`, or an earlier one."""
    sources = timed_sources(query.root)
    return query_heartbeat(query.root, sources, {name: progress_at(name, offset) for name in sources}, drain=False)


def progress_at(source: str, offset: Offset) -> SourceProgress:
    """Return the progress of a source that has been read up to `offset`, as if it had not ended."""
    wall = offset.wall.beats if offset.wall is not None else {}
    beat = max(wall.get(source, NOTHING), offset.reported.get(source, NOTHING))
    return SourceProgress(None, offset.high.get(source), beat=beat)


def not_kept(starts: Mapping[str, Start], plan: Plan, missing: Mapping[str, Source]) -> PenstockError:
    """Return the error for queries that begin with a past of which sources keep too little."""
    queries = sorted(name for name in starts if missing.keys() & timed_sources(plan.queries[name].root).keys())
    names = ", ".join(sorted(missing))
    if all(starts[name].mode is StartMode.BEGINNING for name in queries):
        clocked = [source.name for source in missing.values() if source.system_time]
        reason = f"what has been read of {names} is not kept"
        if clocked:
            reason = f"{clocked[0]} is of SYSTEM TIME, and when its elements came is not kept"
        return PenstockError(
            "P0607", f"query {', '.join(queries)} cannot read its past: {reason}",
            hint="start without --backfill: the query begins from here on",
        )  # fmt: skip
    mode = ", ".join(sorted({starts[name].mode.value for name in queries}))
    helps = [what_helps(plan.queries[name], source) for name in queries for source in missing.values()]
    return PenstockError(
        "P0703", f"query {', '.join(queries)}: START {mode} needs elements of {names} that are no longer kept",
        hint=f"start it NOW; another time: {'; '.join(dict.fromkeys(helps))}",
    )  # fmt: skip


def is_posted(source: Source) -> bool:
    """Return whether a source is a relation whose rows are posted, and stay where they are."""
    return not source.is_stream and open_source(source).keeps_relations


def has_content(known: KnownPast, relation: Source) -> bool:
    """Return whether the content of an updated relation can be read again in a run that has read `known`."""
    if not is_posted(relation):
        return known.start(relation, None, range(len(relation.columns))) is not None
    if relation.idle is None and not relation.system_time:
        return True
    unrecorded = known.paths(relation.name).keys() - known.recorded_paths(relation.name).keys()
    # Which rows were late is not known of those. Their instants are not known either, but are in the past.
    return not unrecorded or (relation.idle is None and known.clock_before(relation.name) is not None)


def content_not_kept(query: str, relations: Iterable[str]) -> PenstockError:
    """Return the error for a query over relations whose content cannot be read."""
    names = ", ".join(sorted(relations))
    return PenstockError(
        "P0703", f"query {query} begins with the content of {names}, whose updates cannot be read again",
        hint=f"declare {names} again, together with the query; relations FROM FILES, DELTA, KAFKA, or HTTP and MEMORY "
        "at a server can be read again",
    )  # fmt: skip


def what_helps(query: Query, source: Source) -> str:
    """Return what would have kept the past of `source` that `query` needs."""
    back = reach(query.root.needs)
    if not source.is_stream:
        return f"the updates of {source.name} have to stay readable"
    if back is None or source.domain is None:
        return f"{source.name} has to stay readable from its beginning, since the query needs all of it"
    return f"CREATE STREAM {source.name} ... RETAIN {source.domain.show_length(max(back, 1))} or longer"


@dataclass(frozen=True)
class PastRead:
    """What is read of a source when a query begins.

    Args:
        provider: from where.
        bytes: how many.
        rows: how many, None where it is not known.
    """

    provider: str
    bytes: int
    rows: int | None = None

    def __str__(self) -> str:
        rows = "" if self.rows is None else f"{counted(self.rows, 'row')}, "
        return f"{self.provider} ({rows}{size_text(self.bytes)})"


@dataclass(frozen=True)
class StartOption:
    """A way to begin a query.

    Args:
        start: the way.
        reads: by source, what is read of its past.
        obstacles: why it is not possible, and what would help; none where it is.
        filled: after how much time the answer is that of WARM, for NOW where it is not at once.
    """

    start: Start
    reads: Mapping[str, PastRead]
    obstacles: tuple[str, ...] = ()
    filled: str = ""

    def as_json(self) -> Document:
        """Return the option as a document."""
        reads: list[Json] = [
            {"source": source, "from": read.provider, "rows": read.rows, "bytes": read.bytes}
            for source, read in self.reads.items()
        ]
        return {
            "start": self.start.mode.value, "possible": not self.obstacles, "obstacles": list(self.obstacles),
            "reads": reads, "warm_after": self.filled or None,
        }  # fmt: skip

    def __str__(self) -> str:
        mode = self.start.mode.value
        if self.obstacles:
            return f"{mode}: no; {'; '.join(self.obstacles)}"
        filled = f"; answers as WARM after {self.filled}" if self.filled else ""
        return f"{mode}: yes{filled}{''.join(f'; {source}: {read}' for source, read in self.reads.items())}"


def start_options(query: Query, known: KnownPast) -> list[StartOption]:
    """Return which modes of START `query` could have in a run that has read `known`."""
    return [start_option(query, Start(mode), known) for mode in WAYS]


def start_option(query: Query, start: Start, known: KnownPast) -> StartOption:
    """Return whether `query` could begin with `start` in a run that has read `known`, and what it would read."""
    if start.mode is StartMode.NOW:
        return _option_now(query, known)
    obstacles: list[str] = []
    plan = plan_queries([query])
    bound = bound_of(query, start, known.offset)
    reads: dict[str, PastRead] = {}
    for name, source in timed_sources(query.root).items():
        past = known.start(source, bound, needed_columns(plan, name))
        if past is not None:
            provider = "its retained elements" if past.retained is not None else "the source, read again"
            reads[name] = _read(provider, known, name, past, bound)
        elif start.mode is StartMode.BEGINNING:
            obstacles.append(f"{name} cannot be read again from its beginning")
        else:
            obstacles.append(what_helps(query, source))
    return StartOption(start, reads, tuple(obstacles))


def _option_now(query: Query, known: KnownPast) -> StartOption:
    """Return whether `query` can begin NOW: relations begin with their content."""
    reads: dict[str, PastRead] = {}
    obstacles: list[str] = []
    sources = timed_sources(query.root)
    for name, source in sources.items():
        if source.is_stream:
            continue
        if not has_content(known, source):
            obstacles.append(f"the updates of {name} cannot be read again")
        elif is_posted(source):
            size = sum(storage().size(Path(path)) for path in known.paths(name))
            reads[name] = PastRead("its content, from the posted rows", size)
        else:
            past = known.start(source, None, range(len(source.columns)))
            assert past is not None, "it has a content"
            reads[name] = _read("its content, from its updates", known, name, past, None)
    back, domain = reach(query.root.needs), query.root.domain
    fills = back is not None and back > 0 and any(source.is_stream for source in sources.values())
    filled = domain.show_length(back) if fills and back is not None and domain is not None else ""
    return StartOption(Start(), reads, tuple(obstacles), filled)


def _read(provider: str, known: KnownPast, source: str, past: PastStart, bound: int | None) -> PastRead:
    """Return what is read of a source from `past` on; of a retained stream elements after the tick `bound`."""
    if past.retained is not None:
        files = [file for file in past.retained.files() if bound is None or file.high > bound]
        return PastRead(provider, sum(map(past.retained.size, files)))
    splits = [*past.splits, *(split for task in known.tasks(source)[past.task :] for split in task.splits)]
    rows = [split.rows for split in splits]
    counts = [count for count in rows if count is not None]
    return PastRead(provider, sum(split.bytes for split in splits), sum(counts) if len(counts) == len(rows) else None)


def text_of(options: Iterable[StartOption]) -> str:
    """Return the options as EXPLAIN START shows them, one a line."""
    return "\n".join(map(str, options))
