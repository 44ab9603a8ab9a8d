"""One-time queries over live contents: R(τ) by the law, at the instant up to which all sources that are read are
complete.

τ is the least heartbeat of the sources that the query reads, at one delivered batch. Only elements with timestamps up
to τ are read: those of later instants have not all come. A query over the whole of a stream reads what is retained,
and the answer's `since` is where that begins. The rows are those that `runtime/local/one_time.py` computes for bounded
inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.scans import Source, over_sources, scanned_columns, unchecked
from penstock.algebra.optimizer.rules.prune_columns import prune_columns
from penstock.algebra.properties.need import Need
from penstock.deep_trees import deep
from penstock.errors import Notice, PenstockError, as_name
from penstock.physical.execution.progress import NOTHING
from penstock.physical.plan.strategies import Strategy
from penstock.results.cancellation import Cancellation
from penstock.results.live_state import LiveContent, LivePast, LiveState, LiveUpdates, latest_tick
from penstock.results.source_rows import (
    RowsInMemory,
    SourceRows,
    content_source,
    declared_schema,
    read_source,
    stamped_rows,
    updates_source,
)
from penstock.runtime.local.one_time import OneTimeAnswer, answer_over, sources_of
from penstock.types import END

#: How rows of answers are kept for longer than a day, or more than 1 GB of them.
KEPT_LONGER = "INTO RESULTS (retain '7 days', max_bytes '4 GB') keeps more than a day or 1 GB, which is the default"
#: Computes the answer of a query over inputs: in this thread, or in another process (`select_workers.py`).
Compute = Callable[[OneTimeQuery, Mapping[str, SourceRows], Cancellation], OneTimeAnswer]


@dataclass(frozen=True)
class LiveAnswer:
    """The answer of a one-time query.

    Args:
        answer: its rows, and the instant τ.
        batch: the delivered batch at which everything was read.
        staleness: seconds since that was delivered, None where that is not known.
        since: of streams that are not retained for ever and were read whole, the tick after which their elements are
            in the answer.
        notices: what is to be known of it.
    """

    answer: OneTimeAnswer
    batch: int
    staleness: float | None
    since: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


class LiveReader:
    """Answers the one-time queries of one session, which never goes back to an earlier batch.

    Args:
        states: returns what can be read at the last delivered batch.
        compute: computes answers.
        memory: bytes that the rows of one query may take (`snapshot_memory`).
        clock: seconds since 1970.
        timeout: seconds that gathering the rows may take (`statement_timeout`); 0 for no limit.
    """

    def __init__(
        self,
        states: Callable[[], LiveState],
        compute: Compute | None = None,
        memory: int | None = None,
        clock: Callable[[], float] = time.time,
        timeout: float = 0,
    ) -> None:
        self._states = states
        self._compute = compute or _here
        self._memory = memory
        self._clock = clock
        self._timeout = timeout
        self._seen: LiveState | None = None

    def answer(self, query: OneTimeQuery, cancellation: Cancellation | None = None) -> LiveAnswer:
        """Return the answer of a query.

        Raises:
            PenstockError: P0711 and P0721 for what is not kept, P0724 for more than `snapshot_memory`, P0725 for one
                that takes too long, P0726 for one that is cancelled, and any error of functions.
        """
        state = self._states()
        if self._seen is not None and self._seen.batch > state.batch:
            state = self._seen
        self._seen = state
        cancellation, began = cancellation or Cancellation(), time.monotonic()

        def check() -> None:
            cancellation.check()
            if self._timeout and time.monotonic() - began > self._timeout:
                raise too_long(self._timeout)

        inputs = gather(query, state, self._memory, check)
        answer = self._compute(inputs.query, inputs.rows, cancellation)
        staleness = None if state.delivered is None else max(0.0, self._clock() - state.delivered)
        return LiveAnswer(replace(answer, query=query), state.batch, staleness, inputs.since, inputs.notices)


def _here(query: OneTimeQuery, inputs: Mapping[str, SourceRows], cancellation: Cancellation) -> OneTimeAnswer:
    return answer_over(query, {name: rows.table() for name, rows in inputs.items()}, Strategy.PATTERN)


@dataclass(frozen=True)
class LiveInputs:
    """A query over the rows that it reads. Its `as_of` is the instant τ, None where the rows determine it; since,
    notices: as in `LiveAnswer`."""

    query: OneTimeQuery
    rows: Mapping[str, SourceRows]
    since: Mapping[str, int]
    notices: tuple[Notice, ...] = ()


@deep
def gather(
    query: OneTimeQuery, state: LiveState, memory: int | None = None, check: Callable[[], None] = lambda: None
) -> LiveInputs:
    """Return what a query reads of a live system. Raises PenstockError P0711, P0721, P0724.

    Args:
        check: called now and then while this takes time; ends it by raising.
    """
    # What is not read need not be kept, and costs nothing.
    query = replace(query, root=prune_columns(query.root))
    sources = sources_of(query)
    complete = {name: _heartbeat(source, state) for name, source in sources.items()}
    timed = {name: tick for name, tick in complete.items() if not sources[name].is_static}
    tick = _instant(query, latest_tick(timed))
    reading = _Reading(query, state, tick, check)
    rows = {name: reading.rows(source) for name, source in sources.items()}
    in_memory = [one.rows.nbytes for one in rows.values() if isinstance(one, RowsInMemory)]
    if memory is not None and sum(in_memory) > memory:
        raise too_much_read(sum(in_memory), memory)
    # Where nothing more comes, and where nothing has come, the rows determine the instant.
    known = query.as_of if tick >= END or tick == NOTHING else tick
    notices = (*reading.notices, *_not_final(query, state, sources, tick))
    # What has been rejected of a stream is left out of its rows.
    root = over_sources(unchecked(query.root, state.past), reading.read)
    return LiveInputs(replace(query, root=root, as_of=known), rows, reading.since, notices)


def _not_final(query: OneTimeQuery, state: LiveState, sources: Mapping[str, Source], tick: int) -> list[Notice]:
    """Return the notice that rows after the instant have been read and are not in the answer; none with AS OF."""
    newest = max((state.newest[key] for name in sources if (key := name.lower()) in state.newest), default=NOTHING)
    if query.as_of is not None or newest <= tick:
        return []
    show = query.domain.show
    until = f"as of {show(tick)}" if tick > NOTHING else "empty: no instant is final yet"
    return [
        Notice(
            f"rows up to {show(newest)} have been read, and the answer is {until}",
            "an instant is final when rows of a later one have come, or its source is IDLE or has ended",
        )
    ]


def _heartbeat(source: Source, state: LiveState) -> int:
    """Return up to which tick a source is complete. Raises PenstockError P0721 for one that is not kept."""
    key = source.name.lower()
    found: LivePast | LiveUpdates | LiveContent | None = state.past.get(key) or state.updates.get(key)
    found = found or state.contents.get(key)
    if found is not None:
        return found.heartbeat
    if key in state.whole or _is_answer_stream(source):
        return END
    if source.connector == "RESULTS":
        message = f"query {source.name} has no answer that a SELECT could read"
        hint = "one that is HYDRATING has none yet, one that is PAUSED or FAILED none before it is resumed"
        hint = f"{hint}, and one INTO another place has it there"
    elif source.is_stream:
        message = f"no elements of {source.name} are kept for one-time queries"
        hint = f"ALTER STREAM {as_name(source.name)} SET (retain '10 MINUTES') keeps them from now on"
    else:
        message, hint = f"the content of {source.name} is not kept", "a query over it keeps its content"
    raise PenstockError("P0721", message, hint=hint)


def _is_answer_stream(source: Source) -> bool:
    """Return whether a source is the answer of a query that is a stream: a SELECT reads what is kept of it."""
    return source.connector == "RESULTS" and source.is_stream


def _instant(query: OneTimeQuery, known: int) -> int:
    if query.as_of is None:
        return known
    if query.as_of > known:
        show = query.domain.show
        until = f"up to {show(known)}" if known > NOTHING else "at no instant"
        raise PenstockError(
            "P0721",
            f"AS OF {show(query.as_of)}: the sources are complete {until}",
            hint="leave out AS OF, or ask again later",
        )
    return query.as_of


class _Reading:
    """What a query reads of its sources at an instant.

    check: as in `gather`; read: the declarations of sources whose rows are not as they are declared; since, notices: as
    in `LiveAnswer`.
    """

    def __init__(self, query: OneTimeQuery, state: LiveState, tick: int, check: Callable[[], None]) -> None:
        self._query, self._state, self._tick, self._check = query, state, tick, check
        self._needs = query.root.needs
        self._columns = scanned_columns(query.root)
        self.read: dict[str, Source] = {}
        self.since: dict[str, int] = {}
        self.notices: list[Notice] = []

    def rows(self, source: Source) -> SourceRows:
        """Return the rows of a source. Raises PenstockError P0711, P0721."""
        key, state = source.name.lower(), self._state
        need = self._needs.get(source.name, Need())
        if key in state.past:
            self.read[source.name] = read_source(source)
            return self._elements(source, state.past[key], need)
        if key in state.updates:
            self.read[source.name] = updates_source(source)
            back = None if need.rows else need.ticks
            return state.updates[key].updates(source, self._tick, back, self._query.as_of is None, self._check)
        if key in state.contents:
            return RowsInMemory(self._content(source, state.contents[key], need))
        if _is_answer_stream(source):
            self.read[source.name] = read_source(source)
            self.notices.append(
                Notice(
                    f"no rows of query {source.name} are kept here",
                    "one that is HYDRATING or WAITING has none yet, and one INTO another place has them there",
                )
            )
            return RowsInMemory(declared_schema(read_source(source)).empty_table())
        if self._tick == NOTHING and not source.is_static:
            return RowsInMemory(declared_schema(source).empty_table())
        return state.whole[key]

    def _elements(self, source: Source, past: LivePast, need: Need) -> SourceRows:
        """Return the elements of a stream that the query needs."""
        tick, columns = self._tick, self._columns[source.name]
        while True:
            dropped = past.dropped
            after = None if need.ticks is None or need.rows or tick >= END else tick - need.ticks
            since = None
            if dropped is not None:
                is_lost = tick <= dropped and not (after is None and _is_answer_stream(source))
                if is_lost or (after is not None and after < dropped):
                    raise _dropped(source, dropped, tick, need)
                if after is None:
                    since = after = dropped
            rows = past.elements(source, columns, after, tick)
            # Answers of queries may be removed while they are read.
            if past.dropped == dropped:
                break
        if since is not None:
            self.since[source.name] = since
            if _is_answer_stream(source):
                assert source.domain is not None, "a stream has a time domain"
                message = f"rows of query {source.name} up to {source.domain.show(since)} are no longer kept"
                self.notices.append(Notice(message, KEPT_LONGER))
        return rows

    def _content(self, source: Source, content: LiveContent, need: Need) -> pa.Table:
        """Return the rows of a relation."""
        if need != Need() or source.non_retroactive:
            raise PenstockError(
                "P0721",
                f"{self._query.name} needs the past of {source.name}, and only its present content is kept",
                hint="run it as a continuous query",
            )
        rows = content.at(self._tick)
        if source.is_static:
            return pa.table(rows.columns, schema=declared_schema(source))
        self.read[source.name] = content_source(source)
        # Rows that are there at the instant: they have been there before.
        stamp = self._tick if self._tick < END else content.last
        return stamped_rows(source, rows, pa.repeat(pa.scalar(stamp, pa.int64()), rows.num_rows))


def _dropped(source: Source, dropped: int, tick: int, need: Need) -> PenstockError:
    """Return the error for elements that are needed and are not kept any more."""
    assert source.domain is not None, "a stream has a time domain"
    show = source.domain.show
    if tick <= dropped:
        needed = f"{show(tick)} is before that"
    else:
        assert need.ticks is not None, "all that is kept was not enough"
        needed = f"{source.domain.show_length(need.ticks)} before {show(tick)} are needed"
    return PenstockError(
        "P0721",
        f"elements of {source.name} are kept since {show(dropped)}, {needed}",
        hint=f"ALTER STREAM {as_name(source.name)} SET (retain ...) with a longer time, or a shorter window",
    )


def too_long(timeout: float) -> PenstockError:
    """Return the error for a query that takes longer than so many seconds."""
    return PenstockError(
        "P0725",
        f"the query takes longer than {timeout:g} seconds",
        hint="read a shorter window, or raise statement_timeout",
    )


def too_much_read(size: int, memory: int) -> PenstockError:
    """Return the error for rows of so many bytes."""
    return PenstockError(
        "P0724",
        f"the rows that are read take {size:,} bytes, snapshot_memory is {memory:,}",
        hint="read a shorter window, fewer sources, or raise snapshot_memory",
    )
