"""What queries that begin need of the past, in which ways they can begin, and the errors of those that need what is not
kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import EVERYTHING, Needs, most_rows
from penstock.errors import PenstockError, counted
from penstock.physical.planning.state_size.summary import size_text
from penstock.storage.documents import Document, Json

#: Why elements of a source count for ever of which a query needs the last ones alone.
ALL_OF_ANOTHER = "the query needs all of another source, and time begins with the first element of any"


def not_kept(query: Query, start: Start, missing: Iterable[str]) -> PenstockError:
    """Return the error for a query that needs more of the past of some sources than they have."""
    names = ", ".join(sorted(missing))
    return PenstockError(
        "P0703",
        f"query {query.name}: START {start.words} needs elements of {names} that are no longer kept",
        hint=f"START NOW begins without them, START WARM WAIT when they do not count any more; or keep more of {names}",
    )


def never_full(query: Query, lost: Collection[str]) -> PenstockError:
    """Return the error for WARM WAIT of a query of which no instant is known at which nothing is missing.

    Args:
        lost: sources of which elements are gone.
    """
    needs = query.root.needs
    endless = sorted(name for name in needs.keys() & set(lost) if needs[name].ticks is None or needs[name].rows)
    names = ", ".join(endless or sorted(lost))
    counts = [None if needs[name].ticks is None else most_rows(needs[name]) for name in endless]
    if counts and None not in counts:
        rows = counted(max(count for count in counts if count is not None), "row")
        return PenstockError(
            "P0703",
            f"query {query.name}: START WARM WAIT needs the last {rows} of {names}, of which fewer are kept",
            hint=f"start it NOW; another time: {names} with a RETAIN in which the last {rows} are",
        )
    lasts = [last for name in endless for last in needs[name].rows if needs[name].ticks is not None]
    reason, others = (
        "the query needs more of them than the last ones by a length of time",
        "windows of a length of time",
    )
    if not endless and any(need.ticks is None for need in needs.values()):
        reason = ALL_OF_ANOTHER
    elif any(last.multiple > 1 for last in lasts):
        reason = "the query counts arrivals from the first one on"
    elif any(last.partition for last in lasts):
        reason = (
            "of PARTITION BY no number of rows shows that nothing is missing: a partition may have rows among those "
            "that are gone alone"
        )
        others = "a window [ROWS n] of all rows, for whose rows it waits"
    return PenstockError(
        "P0703",
        f"query {query.name}: START WARM WAIT would wait for ever: elements of {names} are gone, and {reason}",
        hint=f"start it NOW; another time: keep all of {names} (RETAIN, declared with it), or have {others}",
    )


def needs_of_start(query: Query, sources: Mapping[str, Source], start: Start, begin: int) -> tuple[Needs, int]:
    """Return what a query that begins at the heartbeat `begin` needs, and at which instant it needs it."""
    if start.mode is StartMode.NOW:
        return {}, begin  # of a relation its content
    if start.mode is StartMode.BEGINNING:
        return dict.fromkeys(sources, EVERYTHING), begin
    return query.root.needs, begin if start.at is None else start.at


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
        since: the instant for which WARM WAIT waits, where that lies ahead.
        missing: the rows for which it waits.
    """

    start: Start
    reads: Mapping[str, PastRead]
    obstacles: tuple[str, ...] = ()
    filled: str = ""
    since: str = ""
    missing: str = ""

    def as_json(self) -> Document:
        """Return the option as a document."""
        reads: list[Json] = [
            {"source": source, "from": read.provider, "rows": read.rows, "bytes": read.bytes}
            for source, read in self.reads.items()
        ]
        return {
            "start": self.start.words,
            "possible": not self.obstacles,
            "obstacles": list(self.obstacles),
            "reads": reads,
            "warm_after": self.filled or None,
            "since": self.since or None,
            "awaits": self.missing or None,
        }

    def __str__(self) -> str:
        mode = self.start.words
        if self.obstacles:
            return f"{mode}: no; {'; '.join(self.obstacles)}"
        filled = f"; answers as WARM after {self.filled}" if self.filled else ""
        filled += f"; answers from {self.since} on" if self.since else ""
        filled += f"; answers with {self.missing}" if self.missing else ""
        return f"{mode}: yes{filled}{''.join(f'; {source}: {read}' for source, read in self.reads.items())}"


def starts_by(option: Callable[[Start], StartOption]) -> list[StartOption]:
    """Return what `option` returns for NOW, WARM and BEGINNING, and for WARM WAIT where WARM is not possible."""
    warm = option(Start(StartMode.WARM))
    waiting = [option(Start(StartMode.WARM, wait=True))] if warm.obstacles else []
    return [option(Start(StartMode.NOW)), warm, *waiting, option(Start(StartMode.BEGINNING))]


def starts_text(options: Iterable[StartOption]) -> str:
    """Return the options as EXPLAIN START shows them, one a line."""
    return "\n".join(map(str, options))
