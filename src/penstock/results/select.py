"""One-time queries over live contents: R(τ) by the law, at the instant up to which all sources that are read are
complete.

τ is the least heartbeat of the sources that the query reads, at one delivered batch. Only elements with timestamps up
to τ are read: those of later instants have not all come. A query over the whole of a stream reads what is retained,
and its answer says since when. The rows are those that `runtime/local/one_time.py` computes for bounded inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.algebra import Algebra
from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.scans import Source, declared_sources, over_sources
from penstock.algebra.properties.need import Need
from penstock.deep import deep
from penstock.errors import PenstockError
from penstock.physical.execution.progress import NOTHING
from penstock.physical.planning.strategies import Strategy
from penstock.results.live_state import LiveState, latest_tick
from penstock.runtime.local.one_time import OneTimeAnswer, answer_over, sources_of
from penstock.types import END, Field, Schema

#: Computes the answer of a query over inputs: in this thread, or in another process (`select_workers.py`).
Compute = Callable[[OneTimeQuery, Mapping[str, pa.Table]], OneTimeAnswer]


@dataclass(frozen=True)
class LiveAnswer:
    """The answer of a one-time query.

    Args:
        answer: its rows, and the instant τ.
        batch: the delivered batch at which everything was read.
        staleness: seconds since that was delivered.
        since: of streams that are not retained for ever and were read whole, the tick after which their elements are
            in the answer.
    """

    answer: OneTimeAnswer
    batch: int
    staleness: float
    since: Mapping[str, int] = field(default_factory=dict)


class LiveReader:
    """Answers the one-time queries of one session, which never goes back to an earlier batch.

    Args:
        states: returns what can be read at the last delivered batch.
        compute: computes answers.
        memory: bytes that the rows of one query may take (`snapshot_memory`).
        clock: seconds since 1970.
    """

    def __init__(
        self, states: Callable[[], LiveState], compute: Compute | None = None, memory: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._states = states
        self._compute = compute or _here
        self._memory = memory
        self._clock = clock
        self._seen: LiveState | None = None

    def answer(self, query: OneTimeQuery) -> LiveAnswer:
        """Return the answer of a query.

        Raises:
            PenstockError: P0711 and P0721 for what is not kept, P0724 for more than `snapshot_memory`, and any error
                of functions.
        """
        state = self._states()
        if self._seen is not None and self._seen.batch > state.batch:
            state = self._seen
        self._seen = state
        inputs = gather(query, state, self._memory)
        answer = self._compute(inputs.query, inputs.tables)
        shown = replace(answer, query=query, tick=inputs.tick)
        return LiveAnswer(shown, state.batch, max(0.0, self._clock() - state.delivered), inputs.since)


def _here(query: OneTimeQuery, inputs: Mapping[str, pa.Table]) -> OneTimeAnswer:
    return answer_over(query, inputs, Strategy.PATTERN)


@dataclass(frozen=True)
class LiveInputs:
    """A query over tables that hold what it reads. tick: the instant τ; since: as in `LiveAnswer`."""

    query: OneTimeQuery
    tables: Mapping[str, pa.Table]
    tick: int | None
    since: Mapping[str, int]


@deep
def gather(query: OneTimeQuery, state: LiveState, memory: int | None = None) -> LiveInputs:
    """Return what a query reads of a live system. Raises PenstockError P0711, P0721, P0724."""
    sources = sources_of(query)
    timed = {name: source for name, source in sources.items() if not source.is_static}
    known = {name: _heartbeat(source, state) for name, source in timed.items()}
    tick = _instant(query, latest_tick(known))
    tables: dict[str, pa.Table] = {}
    since: dict[str, int] = {}
    needs = query.root.needs
    for name, source in timed.items():
        need = needs.get(name, Need())
        if source.is_stream:
            tables[name] = _elements(source, state, need, tick, since)
        else:
            tables[name] = _content(query, source, state, need, tick)
        _check_memory(tables, memory)
    for name, source in sources.items():
        if source.is_static:
            rows = state.statics[name.lower()]() if name.lower() in state.statics else None
            tables[name] = rows if rows is not None else _content(query, source, state, Need(), tick)
    _check_memory(tables, memory)
    if tick >= END:
        tick = max((_last(tables[name]) for name in timed), default=NOTHING)
    if timed and tick == NOTHING:
        return LiveInputs(replace(query, root=_over(query, timed), as_of=None), tables, None, since)
    shown = tick if timed else query.as_of
    return LiveInputs(replace(query, root=_over(query, timed), as_of=shown), tables, shown, since)


def _heartbeat(source: Source, state: LiveState) -> int:
    kept = state.past if source.is_stream else state.contents
    found = kept.get(source.name.lower())
    if found is None:
        raise _not_kept(source)
    return found.heartbeat


def _not_kept(source: Source) -> PenstockError:
    if source.is_stream:
        message = f"no elements of {source.name} are kept for one-time queries"
        hint = f"ALTER STREAM {source.name} SET (retain '10 MINUTES') keeps them from now on"
    else:
        message, hint = f"the content of {source.name} is not kept", "a query over it keeps its content"
    return PenstockError("P0721", message, hint=hint)


def _instant(query: OneTimeQuery, known: int) -> int:
    if query.as_of is None:
        return known
    if query.as_of > known:
        show = query.domain.show
        until = f"up to {show(known)}" if known > NOTHING else "at no instant"
        raise PenstockError(
            "P0721", f"AS OF {show(query.as_of)}: the sources are complete {until}",
            hint="leave out AS OF, or ask again later",
        )  # fmt: skip
    return query.as_of


def _elements(source: Source, state: LiveState, need: Need, tick: int, since: dict[str, int]) -> pa.Table:
    """Return the elements of a stream that the query needs at `tick`."""
    past = state.past[source.name.lower()]
    after = None if need.ticks is None or need.rows or tick >= END else tick - need.ticks
    dropped = past.dropped
    if dropped is not None and after is not None and after < dropped:
        assert source.domain is not None and need.ticks is not None, "a stream has a time domain"
        length = source.domain.show_length(need.ticks)
        raise PenstockError(
            "P0721", f"elements of {source.name} are kept since {source.domain.show(dropped)}, {length} are needed",
            hint=f"ALTER STREAM {source.name} SET (retain ...) with a longer time, or a shorter window",
        )  # fmt: skip
    if dropped is not None and after is None:
        since[source.name] = dropped
    rows, ticks = past.elements(after, tick)
    order = pa.array(np.argsort(ticks.to_numpy(zero_copy_only=False), kind="stable"))
    return _stamped(source, rows.take(order), ticks.take(order))


def _content(query: OneTimeQuery, source: Source, state: LiveState, need: Need, tick: int) -> pa.Table:
    """Return the rows of a relation at `tick`."""
    found = state.contents.get(source.name.lower())
    if found is None:
        raise _not_kept(source)
    if need != Need() or source.non_retroactive:
        raise PenstockError(
            "P0721", f"{query.name} needs the past of {source.name}, and only its present content is kept",
            hint="run it as a continuous query",
        )  # fmt: skip
    rows = found.at(tick)
    if source.is_static:
        return pa.table(rows.columns, schema=_declared(source))
    # Rows that are there at the instant: they have been there before.
    stamp = tick if tick < END else found.last
    return _stamped(source, rows, pa.repeat(pa.scalar(stamp, pa.int64()), rows.num_rows))


def _declared(source: Source) -> pa.Schema:
    return pa.schema([pa.field(f.name, f.type) for f in source.columns])


def _stamped(source: Source, rows: pa.Table, ticks: pa.Array) -> pa.Table:
    assert source.domain is not None, "the source has time"
    read = _read_source(source)
    columns = [*rows.columns, ticks.cast(source.domain.type())]
    return pa.table(columns, schema=_declared(read))


def _last(table: pa.Table) -> int:
    ticks = table.column(table.num_columns - 1).cast(pa.int64())
    return int(ticks.to_numpy().max(initial=NOTHING))


def _over(query: OneTimeQuery, timed: Mapping[str, Source]) -> Algebra:
    """Return the plan of a query over the sources as they are read here."""

    read = {name: _read_source(source) for name, source in declared_sources(query.root).items() if name in timed}
    return over_sources(query.root, read)


def _read_source(source: Source) -> Source:
    """Return a source whose last column is the tick of its rows, which come in order."""
    assert source.domain is not None, "the source has time"
    own = source.columns.fields[:-1] if source.connector == "RESULTS" else source.columns.fields
    columns = Schema((*own, Field("tick of the element", source.domain.type())))
    return replace(
        source, columns=columns, connector="MEMORY", options=(), timestamp=len(columns) - 1, slack=0, operation=None,
        primary_key=(), system_time=False, idle=None, upserts=False, ahead=None,
    )  # fmt: skip


def _check_memory(tables: Mapping[str, pa.Table], memory: int | None) -> None:
    size = sum(table.nbytes for table in tables.values())
    if memory is not None and size > memory:
        raise PenstockError(
            "P0724", f"the rows that are read take {size:,} bytes, snapshot_memory is {memory:,}",
            hint="read a shorter window, fewer sources, or raise snapshot_memory",
        )  # fmt: skip
