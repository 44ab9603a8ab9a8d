"""Warn of what a statement will mean for statements that may follow it."""

from __future__ import annotations

from penstock.algebra.nodes.query import Start, StartMode
from penstock.control.drafting.draft import Draft
from penstock.control.drafting.versions import queried
from penstock.control.engine import Engine
from penstock.control.phases import Phase
from penstock.control.posted_rows import PostedRows
from penstock.errors import Position, ScriptWarning, as_name, log_internal
from penstock.language.commands import AlterQuery, Command, Pause


def foreseen(
    command: Command, draft: Draft, engine: Engine, posted: PostedRows, position: Position | None
) -> tuple[ScriptWarning, ...]:
    """Return the warnings for a command: PAUSE of a query whose RESUME cannot begin with what its windows need.

    Args:
        draft: the declarations before it.
        position: of the statement.
    """
    if position is None or not isinstance(command, AlterQuery) or command.action != Pause(False):
        return ()
    one = draft.stored.named(command.name)
    if one is None or one.query is None or one.query.phase not in (Phase.ANSWERING, Phase.SILENT):
        return ()
    try:
        query = queried(one, one.query.answer, draft.registry, posted)
        obstacles = () if query is None else engine.start_option(query, Start(StartMode.WARM)).obstacles
    except Exception as error:
        # It is paused all the same.
        log_internal(error, f"whether {one.name} can be resumed cannot be found out")
        return ()
    if not obstacles:
        return ()
    name = as_name(one.name)
    hint = (
        f"ALTER QUERY {name} PAUSE WITH STATE keeps its state up to date; RESUME START NOW begins with empty windows, "
        "START WARM WAIT when nothing is missing any more"
    )
    reason = "; ".join(obstacles).removeprefix(f"query {one.name}: ")
    return (ScriptWarning(f"RESUME of {one.name} will be refused: {reason}", position, hint),)
