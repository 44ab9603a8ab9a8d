"""Positions of rows that were posted, and waiting until they have been read.

A position is written `<number of the source>.<number of its last post>`, several with commas. Posts of a source are
read in the order of their numbers, so where one has been read, all before it have been read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from penstock.control.live.control import Control
from penstock.control.outcomes import CommandOutcome, CommandState
from penstock.errors import PenstockError
from penstock.language.commands import AdvanceStream, DeleteRows, InsertRows, PunctuateStream, UpdateRows
from penstock.results.cancellation import Cancellation

_ONE = re.compile(r"(\d{1,12})\.(\d{1,12})", re.ASCII)
#: Sources that one position names at most.
_MOST = 1_000
#: Seconds between two looks.
_LOOK = 0.02


def position_text(positions: Mapping[int, int]) -> str | None:
    """Return a position as it is written, of the last post by source; None for none."""
    return ",".join(f"{source}.{post}" for source, post in sorted(positions.items())) or None


def position_of(control: Control, command: object, outcome: CommandOutcome) -> str | None:
    """Return the position of the rows of a statement that has been carried out; None for another one."""
    if outcome.error is not None or outcome.state in (CommandState.PENDING, CommandState.HYDRATING):
        return None
    if isinstance(command, InsertRows | AdvanceStream | PunctuateStream):
        return position_text(control.positions(command.source))
    if isinstance(command, UpdateRows | DeleteRows):
        return position_text(control.positions(command.relation))
    return None


def parsed_position(text: str) -> dict[int, int]:
    """Return the last post by source. Raises PenstockError P0712 for what is no position."""
    found: dict[int, int] = {}
    parts = text.split(",") if text.strip() else []
    for part in parts[: _MOST + 1]:
        one = _ONE.fullmatch(part.strip())
        if one is None or len(parts) > _MOST:
            hint = "pass one as a post, an INSERT or COPY has answered it, several with commas"
            raise PenstockError("P0712", f"{text[:100]!r} is no position", hint=hint)
        found[int(one[1])] = max(int(one[2]), found.get(int(one[1]), 0))
    return found


def await_read(
    text: str | None, has_read: Callable[[int, int], bool], left: Cancellation, seconds: float | None
) -> None:
    """Wait until all posts up to a position have been read, and what they lead to can be read.

    Args:
        text: the position; None for none.
        has_read: whether a post of a source, and those before it, have been read.
        left: ends the waiting.
        seconds: to wait at most; None for any time.

    Raises:
        PenstockError: P0712 for what is no position, P0725 after that time, P0726 where `left` is set.
    """
    began = time.monotonic()
    for source, post in parsed_position(text or "").items():
        while not has_read(source, post):
            if seconds is not None and time.monotonic() - began > seconds:
                hint = "what was posted is durable: ask again, without the position for what has been read so far"
                message = f"the rows up to the position {source}.{post} have not been read within {seconds:g} seconds"
                raise PenstockError("P0725", message, hint=hint)
            left.wait(_LOOK)
            left.check()
