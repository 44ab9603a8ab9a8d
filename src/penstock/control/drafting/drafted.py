"""What is drafted for a request, and what drafting reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from penstock.connectors.overview.targets import ResultPlaces
from penstock.control.command_log import CommandLog
from penstock.control.drafting.contents import BoundStatement
from penstock.control.drafting.draft import Draft
from penstock.control.drafting.versions import part_of_version
from penstock.control.engine import Activity, Engine, NextVersion, StandingQuery
from penstock.control.entities.system import LoggedCommand
from penstock.control.heartbeats import check_heartbeat, complete_to
from penstock.control.outcomes import Principal
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry, default_sink, settings_of
from penstock.control.stored_catalog import StoredCatalog
from penstock.errors import Position
from penstock.language.commands import (
    AdvanceStream,
    Cancel,
    ChangeSetting,
    Command,
    Describe,
    ExplainCommand,
    ExportCommand,
    InsertRows,
    SelectOnce,
    ShowCommand,
    Subscribe,
    Unchanged,
)

#: Checks a command and who posts it before it is accepted; raises PenstockError for what is not allowed.
Policy: TypeAlias = Callable[[Command, Principal], None]
#: Commands that leave everything as it is; they have no number and do not enter the log.
_READS = (Cancel, ChangeSetting, Describe, ExplainCommand, ExportCommand, SelectOnce, ShowCommand, Subscribe, Unchanged)


def changes(command: Command) -> bool:
    """Return whether a command changes something of the system."""
    return not isinstance(command, _READS)


@dataclass
class Drafted:
    """A transaction that has been drafted.

    Args:
        texts: of its commands, as the log keeps them.
        bound: the statements of a script, or of the difference to one.
        rolled_back: it is checked, and changes nothing.
    """

    draft: Draft
    texts: list[str] = field(default_factory=list)
    bound: Sequence[BoundStatement] = ()
    rolled_back: bool = False

    @staticmethod
    def of_statements(draft: Draft, bound: Sequence[BoundStatement], rolled_back: bool) -> Drafted:
        """Return the transaction of some statements."""
        drafted = Drafted(draft, [], bound, rolled_back)
        drafted.texts += [one.text for one in drafted.changing]
        return drafted

    @cached_property
    def changing(self) -> list[BoundStatement]:
        """Return the statements that change something."""
        return [one for one in self.bound if changes(one.command)]

    @property
    def position(self) -> Position | None:
        """Return the place of its statement; None where it has several: none is known to be the wrong one."""
        changing = self.changing
        return changing[0].position if len(changing) == 1 else None


@dataclass(frozen=True)
class DraftContext:
    """What drafting reads.

    Args:
        ahead: returns the declarations after all that was accepted.
        is_idle: returns whether all of that has been applied.
        settings: of the whole system at the start, as written.
        policy: checks each command; None allows all.
        commands: returns those of the log, for control relations.
    """

    engine: Engine
    log: CommandLog
    posted: PostedRows
    ahead: Callable[[], Registry]
    is_idle: Callable[[], bool]
    settings: Mapping[str, str]
    policy: Policy | None
    commands: Callable[[], Sequence[LoggedCommand]]
    results: ResultPlaces = field(default_factory=ResultPlaces)

    def draft(self, session: Mapping[str, str]) -> Draft:
        """Return a draft on what was accepted. session: settings, as written."""
        registry = self.ahead()
        return Draft.on(registry, self.settings_with(registry.stored, session), default_sink())

    def settings_with(self, stored: StoredCatalog, session: Mapping[str, str]) -> dict[str, str]:
        """Return the settings in force in a session, as written."""
        return {**self.settings, **stored.settings, **session}

    def allow(self, command: Command, who: Principal) -> None:
        """Raise PenstockError for a command that is not allowed."""
        if self.policy is not None:
            self.policy(command, who)

    def check(self, draft: Draft, before: Registry) -> None:
        """Raise PenstockError for what the engine cannot do. A query, or a change of one, that begins with last rows
        which are still to come waits for them.

        before: the declarations before the transaction.
        """
        part = self.part(draft)
        known = {each.id for _, query in before.stored.queries for each in query.computations}
        waiting = [one.place for one in part.queries.values() if one.computation not in known and self._waits(one)]
        for place in waiting:
            draft.have_wait(place)
        self.engine.check(self.part(draft) if waiting else part)

    def check_heartbeats(self, drafted: Drafted) -> None:
        """Raise PenstockError P0380 for a heartbeat of a transaction that is too far ahead for sure."""
        commands = [one.command for one in drafted.changing]
        inserted = {one.source.lower() for one in commands if isinstance(one, InsertRows)}
        for one in commands:
            if isinstance(one, AdvanceStream) and one.source.lower() not in inserted and self.is_idle():
                stored, source = drafted.draft.stored.named(one.source), drafted.draft.bound.sources[one.source.lower()]
                # One that the transaction declares has no rows yet, whatever had its name before.
                if stored is not None and stored.id in self.ahead().stored.objects:
                    check_heartbeat(source, one.tick, complete_to(self.engine, self.posted, source, stored.id))

    def part(self, draft: Draft) -> NextVersion:
        """Return what a draft changes of the version that runs."""
        settings = settings_of(self.settings_with(draft.stored, {}))
        return part_of_version(
            draft.stored, draft.bound, self.log.next_number, settings, self.posted, draft.change, draft.touched
        )

    def _waits(self, one: StandingQuery) -> bool:
        """Return whether a query that begins has to wait for rows."""
        if one.query is None or one.activity is not Activity.RUNNING or not one.start.wait:
            return False
        awaited = self.engine.awaited(one.query)
        return awaited is not None and bool(awaited.rows)
