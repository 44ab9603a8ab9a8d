"""Errors that nobody has foreseen, while a command is carried out: a fault of the program, not of the command.

Such an error is logged with its traceback and a reference. Whoever sent the command receives P0601 with this reference
and without the traceback. The same fault at the same place has the same reference, also after a restart.
"""

from __future__ import annotations

import hashlib
import logging
import traceback

from penstock.errors import PenstockError, ScriptErrors
from penstock.events import log_event, logger_of

LOG = logger_of("control")
_MOST_CHARACTERS = 200


def first_error(error: PenstockError) -> PenstockError:
    """Return an error, or the first one of a script."""
    return error.errors[0] if isinstance(error, ScriptErrors) else error


def as_known(error: Exception, what: str) -> PenstockError:
    """Return an error that users know: the first one of a script, another one as it is, P0601 for what nobody has
    foreseen. what: what has failed, such as `the command cannot be applied`."""
    if isinstance(error, PenstockError):
        return first_error(error)
    reference = note(error, what)
    return PenstockError(
        "P0601", f"{what}: {_in_short(error)} (reference {reference})", cause=error,
        hint=f"this is an internal error; the log of the server has more of it under {reference}",
    )  # fmt: skip


def note(error: Exception, what: str) -> str:
    """Log an error with its traceback; return the reference under which the log has it. what: what has failed."""
    frames = [(frame.filename.rpartition("/")[2], frame.name, frame.lineno) for frame in _frames(error)]
    reference = hashlib.sha256(repr((_in_short(error), frames)).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    message = f"{what}: {_in_short(error)} (reference {reference})"
    log_event(LOG, logging.ERROR, "internal_error", message, trace=error, reference=reference)
    return reference


def _frames(error: Exception) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)


def _in_short(error: Exception) -> str:
    """Return the kind of an error and its first line: those of other programs have whole stacks in their text."""
    text = (str(error).splitlines() or [""])[0][:_MOST_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
