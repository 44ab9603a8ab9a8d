"""Decide where queries that begin in a running job read the past of their sources, which of them share steps, and which
messages about it users get.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.errors import PenstockError
from penstock.physical.execution.progress import timed_sources
from penstock.runtime.spark.checkpoint.epochs import Epoch


class PastProvider(enum.Enum):
    """What provides the past of a query's sources."""

    #: The query needs none.
    NONE = "none"
    #: What the run has read of the sources, as far as it can be read again (`hydration/`).
    SOURCES = "sources"
    #: The updates that the run has read of relations: they begin with their content, while streams are cut off.
    CONTENTS = "contents"


@dataclass(frozen=True)
class ReadAhead:
    """With what queries have read their past that begin with a later change.

    Args:
        number: of the folder in which they did.
        births: of the queries.
        statistics: by birth, as an epoch records them.
    """

    number: int
    births: Mapping[str, int]
    statistics: Mapping[str, Any]

    def fits(self, births: Mapping[str, int]) -> bool:
        """Return whether other births would separate the same queries from each other."""
        least, own = min(births.values(), default=0), min(self.births.values(), default=0)
        return {n: b - least for n, b in births.items()} == {n: b - own for n, b in self.births.items()}


def past_provider(query: Query, start: Start, read: Collection[str]) -> PastProvider:
    """Return what provides the past that `query` needs to begin with `start`.

    Args:
        read: the sources of which anything may have been read; the others begin with the query.
    """
    known = [source for name, source in timed_sources(query.root).items() if name in read]
    if start.mode is StartMode.NOW:
        return PastProvider.CONTENTS if any(not source.is_stream for source in known) else PastProvider.NONE
    return PastProvider.SOURCES if known else PastProvider.NONE


def past_providers(
    queries: Iterable[Query], starts: Mapping[str, Start], read: Collection[str]
) -> dict[str, PastProvider]:
    """Return the same of several queries, by name. starts: those that are not NOW."""
    return {query.name: past_provider(query, starts.get(query.name, Start()), read) for query in queries}


def group_key(query: Query) -> tuple[str, ...]:
    """Return what queries have in common that begin NOW at one instant: their timed sources, which determine τ0."""
    return tuple(sorted(timed_sources(query.root)))


def new_births(queries: Iterable[Query], providers: Mapping[str, PastProvider], first: int) -> dict[str, int]:
    """Return the births of new queries, numbers from `first` on: those with different pasts share no steps.

    Args:
        queries: all of the job, in order.
        providers: of the new ones.
    """
    groups: dict[tuple[str, ...], int] = {}
    births: dict[str, int] = {}
    for query in queries:
        if (provider := providers.get(query.name)) is not None:
            key = (provider.value, *(group_key(query) if provider is PastProvider.CONTENTS else ()))
            births[query.name] = groups.setdefault(key, first + len(groups))
    return births


def notices_of_change(
    before: Epoch,
    new_queries: Sequence[str],
    ended_queries: Sequence[str],
    backfill: Sequence[str],
    requested: Collection[str],
) -> tuple[str, ...]:
    """Return the messages about a change. requested: queries whose start the user has chosen."""
    notices = []
    for name in new_queries:
        change = f"query {name} has changed" if name in before.queries else f"query {name} is new"
        if name in backfill:
            notices.append(f"{change}: it reads its past first, then goes on with the others")
        elif name in requested:
            notices.append(f"{change}: it sees what its sources give from here on")
        else:
            notices.append(
                f"warning: {change}: it starts afresh and sees only what its sources give from here on "
                "(--backfill lets it read their past first)"
            )
    return (*notices, *(f"query {name} is no longer in the script: its state is dropped" for name in ended_queries))


def check_settings(before: Epoch, shards: int, strategy: str, state_store: str, drain: bool) -> None:
    """Check that the settings of a start are those of the checkpoint. Raises PenstockError P0606.

    shards: as configured, 0 for any.
    """
    settings = [
        ("shards", before.shards, shards or before.shards, f"SET shards = {before.shards}, or leave it out"),
        ("state_strategy", before.strategy, strategy, f"SET state_strategy = '{before.strategy}'"),
        ("state_store", before.state_store, state_store, f"SET state_store = '{before.state_store}'"),
        ("--drain", before.drain, drain, "start with --drain" if before.drain else "start without --drain"),
    ]
    for name, stored, requested, hint in settings:
        if stored != requested:
            raise PenstockError(
                "P0606",
                f"the state in the checkpoint was made with {name} {_setting_text(stored)}, "
                f"not {_setting_text(requested)}",
                hint=f"{hint}; or start afresh with a new --checkpoint",
            )


def _setting_text(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
