"""The one error class of Penstock, its codes, and positions in a script.

Contract: whatever goes wrong because of a user's text, data or machine reaches the user as a
`PenstockError` with a stable code [semantics 7]. Codes are never reused; `CODES` is the catalogue that
`docs/errors.md` prints and that a test walks, so a code without a test or a line in the docs fails the build.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import math
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.events import log_event, logger_of
from penstock.redaction import redacted_line, redacted_text

#: code -> what kind of mistake it stands for. P01 syntax, P02 names and types, P03 meaning and planning,
#: P04 sources and their data, P05 sinks and results, P06 running, P07 changing a run, one-time queries and the shell,
#: P08 the server and its clients, P09 not supported yet.
CODES: dict[str, str] = {
    "P0101": "the text is not a statement of the language",
    "P0102": "a window or interval is malformed",
    "P0103": "a clause occurs twice or in the wrong place",
    "P0104": "an unknown setting or attribute, or a value it cannot take",
    "P0105": "a script, a statement or a query that is larger than its limit",
    "P0106": "a plan that is not of the form of plans as data",
    "P0201": "unknown stream, relation, view or query",
    "P0202": "unknown column",
    "P0203": "types do not fit",
    "P0204": "unknown function, or wrong number of arguments",
    "P0205": "ambiguous column",
    "P0206": "a name is declared twice",
    "P0207": "unknown type",
    "P0208": "unknown connector, or an option it does not know or lacks",
    "P0209": "the timestamp or operation column does not fit",
    "P0210": "a primary key that does not fit",
    "P0212": "an unknown time zone",
    "P0221": "a user-defined function or aggregate that cannot be loaded",
    "P0222": "something that is used cannot be dropped",
    "P0301": "a window on a relation",
    "P0302": "streams of different time domains in one query",
    "P0303": "an interval that is no whole number of ticks",
    "P0304": "an aggregate or column where it may not stand",
    "P0305": "the columns of the two sides do not fit together",
    "P0306": "a view that depends on itself",
    "P0307": "a relation-to-stream operator over a stream",
    "P0310": "an INTERNAL window where results have to expire",
    "P0312": "a subquery that cannot be taken out of its place",
    "P0318": "WSTREAM over DISTINCT or negation, or without a window",
    "P0319": "RESTORE where nothing can be restored",
    "P0321": "a volatile function over rows that may be retracted",
    "P0326": "GROUPING of what is not grouped",
    "P0328": "a function in FROM, or a window in GROUP BY, whose arguments do not fit",
    "P0331": "ORDER BY, LIMIT or OFFSET where it may not stand",
    "P0332": "a LIMIT or OFFSET that is no count of rows",
    "P0340": "a NON RETROACTIVE relation that meets no elements of streams",
    "P0341": "operators of a plan that do not fit together",
    "P0342": "a plan that cannot be written as data",
    "P0350": "an estimate without a summary that it can read, or with several; FADE FACTOR without levels",
    "P0351": "a preference where missing results would make wrong ones",
    "P0352": "an approximate aggregate over rows that may be retracted, where it cannot forget them",
    "P0353": "an approximate aggregate over a window without SLIDE, where it needs panes",
    "P0355": "a bound or an estimate of what is exact, is not sampled or has no formula",
    "P0356": "an item that FREQUENT does not keep",
    "P0370": "a source whose rows have no valid time",
    "P0371": "a VALID clause that does not fit the columns",
    "P0372": "a column, or an alias, that is no part of a coalesced source",
    "P0373": "CLOSED where periods never become final",
    "P0374": "coalescing where it has no meaning",
    "P0375": "a session window that does not fit",
    "P0376": "shedding of a query that cannot shed",
    "P0380": "a promise or a heartbeat that does not fit its stream",
    "P0381": "a punctuation that is no conjunction of comparisons with constants",
    "P0382": "two promises of one name",
    "P0401": "a source that cannot be read",
    "P0402": "a source whose columns do not fit its declaration",
    "P0403": "a malformed record in a source declared ON ERROR FAIL",
    "P0404": "a source with no file",
    "P0409": "a secret of a connector that cannot be found",
    "P0411": "a Kafka broker that does not answer or does not let us in, or a client that cannot be had",
    "P0412": "a topic that is not there",
    "P0413": "records that Kafka no longer has",
    "P0414": "a row that its source cannot take",
    "P0501": "a result that exists already",
    "P0502": "a result that cannot be written",
    "P0503": "a result of which parts are gone",
    "P0504": "a result in a place that another query writes to, or that the script reads",
    "P0601": "the run failed",
    "P0602": "a checkpoint that does not fit the script",
    "P0603": "no Java that Spark can use",
    "P0604": "a Python of Spark's workers that cannot run Penstock",
    "P0605": "a state that is damaged, or of another format",
    "P0606": "a setting that the state of a checkpoint does not fit",
    "P0607": "a query that cannot read its past",
    "P0608": "a folder that is no checkpoint",
    "P0609": "a checkpoint that another run uses",
    "P0612": "a scalar subquery with more than one row",
    "P0621": "a user-defined function or aggregate failed",
    "P0622": "an input without an end where all of it is to be read",
    "P0631": "metrics that cannot be served or written",
    "P0632": "more state than state_limit allows",
    "P0633": "an answer less accurate than accuracy_at_least",
    "P0634": "more answers than result_limit allows",
    "P0701": "a run whose queries cannot be changed",
    "P0702": "a statement or clause that only a server carries out",
    "P0703": "a query that begins with a past which is not kept",
    "P0711": "a result without a snapshot of its content",
    "P0712": "a cursor that a result does not have",
    "P0721": "a one-time query over what is not kept",
    "P0723": "a package that the shell needs is missing",
    "P0724": "a one-time query that needs more memory than it may have",
    "P0725": "a one-time query that takes longer than it may",
    "P0726": "a statement that was cancelled",
    "P0731": "an idempotency key that was used for something else",
    "P0732": "commands that cannot happen together",
    "P0751": "a control relation where it cannot be read",
    "P0752": "an attribute that cannot be set, or not to this value",
    "P0753": "an UPDATE that changes another number of rows than it confirms",
    "P0801": "a request without a valid token",
    "P0802": "a role that does not allow the request",
    "P0803": "a request that the server cannot read",
    "P0804": "a request beyond a limit of the server",
    "P0805": "a place, a name or code outside of what the server allows",
    "P0806": "a server that cannot be started as requested",
    "P0807": "a token file that cannot be used, or a name that is not in it",
    "P0808": "a server that cannot be reached, or an answer that is none of a server",
    "P0809": "a package that the server or its client needs is missing",
    "P0901": "described by the language, not supported yet",
}


def counted(count: float, noun: str) -> str:
    """Return `1 row`, `1,200 rows`: an integer with its noun; `countless rows` where it is infinite."""
    if not math.isfinite(count):
        return f"countless {noun}s"
    return f"{count:,.0f} {noun}" + ("" if round(count) == 1 else "s")


def as_name(name: str) -> str:
    """Return a name as a statement has it: in backticks where it needs them."""
    is_word = name.isascii() and name.isidentifier()
    return name if is_word else "`" + name.replace("`", "``") + "`"


#: How a server changes what is declared, by kind.
_ALTERED = {
    "QUERY": "a server changes it by ALTER QUERY {} AS SELECT ...; otherwise ",
    "STREAM": "a server changes its attributes by ALTER STREAM {} SET (...); otherwise ",
    "RELATION": "a server changes its attributes by ALTER RELATION {} SET (...); otherwise ",
}


def instead_of_taken(known: str, name: str, kind: str) -> str:
    """Return the hint for a CREATE of a `kind`, such as QUERY, whose name a `known` has."""
    replaced = f", CREATE OR REPLACE {kind}" if known == kind else ""
    altered = _ALTERED.get(kind, "").format(as_name(name)) if known == kind else ""
    return f"{altered}DROP {known} {as_name(name)} first{replaced}, or choose another name"


def malformed_rows(count: int, source: str) -> str:
    """Return such as `1 row of S is malformed`."""
    return f"{counted(count, 'row')} of {source} {'is' if count == 1 else 'are'} malformed"


@dataclass(frozen=True)
class Position:
    """A position in a script: 1-based line and column, the text of that line, and the length of the marked word."""

    line: int
    column: int
    text: str = ""
    length: int = 1
    file: str | None = None

    @staticmethod
    def at(source: str, offset: int, length: int = 1, file: str | None = None) -> Position:
        """Return the position of the character at `offset` (0-based) of `source`."""
        offset = max(0, min(offset, len(source)))
        start = source.rfind("\n", 0, offset) + 1
        end = source.find("\n", offset)
        text = source[start : len(source) if end < 0 else end]
        return Position(source.count("\n", 0, offset) + 1, offset - start + 1, text, max(1, length), file)

    def render(self) -> str:
        """Return two lines: the source line, its secrets removed, and a caret under the position."""
        text, column, length = redacted_line(self.text, self.column, self.length)
        width = max(1, min(length, len(text) - column + 1))
        pad = "".join("\t" if c == "\t" else " " for c in text[: column - 1])
        return f"{text}\n{pad}{'^' * width}"


class PenstockError(Exception):
    """A mistake that a user can act on.

    code: one of `CODES`; position: where in the script, or None when the mistake has no place there;
    hint: what to do about it; cause: the error below, kept for logs and never printed as a traceback.
    """

    def __init__(
        self,
        code: str,
        message: str,
        position: Position | None = None,
        hint: str | None = None,
        cause: BaseException | None = None,
    ) -> None:
        if code not in CODES:
            raise KeyError(f"error code {code} is not in the catalogue")
        super().__init__(message)
        self.code = code
        self.message = message
        self.position = position
        self.hint = hint
        self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__

    def __reduce__(self) -> tuple[object, ...]:
        # The default pickles `args` only; Spark's workers hand errors to the driver by pickle.
        return (type(self), (self.code, self.message, self.position, self.hint))

    def at(self, position: Position | None) -> PenstockError:
        """Return the same error at `position`, unless it has one already."""
        if self.position is None:
            self.position = position
        return self

    def render(self) -> str:
        """Return the text for users: position, code, message, the line with a caret, the hint. Secrets are removed."""
        place = ""
        if self.position is not None:
            name = f"{self.position.file}:" if self.position.file else "line "
            place = f"{name}{self.position.line}:{self.position.column}: "
        lines = [f"{place}error {self.code}: {redacted_text(self.message)}"]
        if self.position is not None and self.position.text:
            lines += ["  " + part for part in self.position.render().split("\n")]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render()


@dataclass(frozen=True)
class ScriptWarning:
    """A construct of a script that is allowed and probably a mistake. Shown before the script runs, which it does not
    stop."""

    message: str
    position: Position
    hint: str | None = None

    def render(self) -> str:
        """Return the text for users, as `PenstockError.render`."""
        place = f"{self.position.file or 'line '}{':' if self.position.file else ''}"
        lines = [f"{place}{self.position.line}:{self.position.column}: warning: {redacted_text(self.message)}"]
        if self.position.text:
            lines += ["  " + part for part in self.position.render().split("\n")]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Notice:
    """What is to be known of an answer: of what it has no rows any more, or not yet."""

    message: str
    hint: str | None = None

    def __str__(self) -> str:
        return self.message + ("" if self.hint is None else f" ({self.hint})")


class Busy(PenstockError):
    """A limit that will allow the request later. seconds: when to try again."""

    def __init__(self, message: str, seconds: float, hint: str | None = None) -> None:
        super().__init__("P0804", message, hint=hint)
        self.seconds = seconds

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message, self.seconds, self.hint))


class ScriptErrors(PenstockError):
    """All errors of one script, in the order of their positions. `errors` is never empty; the code is that of the
    first."""

    def __init__(self, errors: Sequence[PenstockError]) -> None:
        self.errors = tuple(
            sorted(errors, key=lambda e: (e.position.line, e.position.column) if e.position else (0, 0))
        )
        first = self.errors[0]
        super().__init__(first.code, first.message, first.position, first.hint, first.cause)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.errors,))

    def render(self) -> str:
        return "\n".join(error.render() for error in self.errors)


def check_columns(chosen: Iterable[str | None], known: Iterable[str]) -> None:
    """Raise PenstockError P0202 where a column is chosen that a result has not; None chooses none."""
    names = list(known)
    for name in chosen:
        if name is not None and name not in names:
            raise PenstockError("P0202", f"the result has no column {name}", hint=nearest(name, names))


def check_watched(seconds: object, every: object, rows: object, value: str | None, numbers: Sequence[str]) -> None:
    """Check the arguments of a `watch`. numbers: the columns that a chart can draw. Raises PenstockError P0203."""
    for name, given in (("seconds", seconds), ("every", every)):
        is_number = isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < float("inf")
        if not is_number and not (name == "seconds" and given is None):
            raise PenstockError("P0203", f"{name}: {given!r} is no number of seconds", hint=f"as in {name}=0.5")
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise PenstockError("P0203", f"rows: {rows!r} is no number of rows", hint="it is a whole number from 1 on")
    if value is not None and value not in numbers:
        shown = ", ".join(numbers) or "none"
        raise PenstockError("P0203", f"value: {value} has no numbers to draw", hint=f"columns with numbers: {shown}")


def likeness(one: str, other: str) -> float:
    """Return how like two words are, from 0 to 1."""
    return difflib.SequenceMatcher(None, one, other).ratio()


def close_names(name: str, known: Iterable[str], most: int = 1, least: float = 0.6) -> list[str]:
    """Return the known names that are like `name`, in any case of letters, the closest first.

    Args:
        most: how many of them.
        least: the least likeness, from 0 to 1: 0.6 where `name` must be one of them, more where it may be another one.
    """
    folded = {one.lower(): one for one in known}
    return [folded[one] for one in difflib.get_close_matches(name.lower(), folded, n=most, cutoff=least)]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the known names closest to `name` (case-insensitive), or a few names when none is close."""
    names = sorted(set(known))
    if not names:
        return None
    close = close_names(name, names, most=3)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    shown = ", ".join(names[:8])
    return f"known: {shown}" + (", ..." if len(names) > 8 else "")


# -- unforeseen errors: a fault of the program -----------------------------------------------------------------------
#
# Such an error is logged with its traceback and a reference. The sender of the command receives P0601 with this
# reference and without the traceback. The same fault at the same place has the same reference, also after a restart.

#: Characters of the text of such an error that its message has.
_LONGEST_REASON = 200


def first_error(error: PenstockError) -> PenstockError:
    """Return an error, or the first one of a script."""
    return error.errors[0] if isinstance(error, ScriptErrors) else error


def as_known(error: Exception, what: str) -> PenstockError:
    """Return an error for users: the first one of a script, another PenstockError as it is, P0601 for an unforeseen
    one. what: what has failed, such as `the command cannot be applied`."""
    if isinstance(error, PenstockError):
        return first_error(error)
    reference = log_internal(error, what)
    return PenstockError(
        "P0601",
        f"{what}: {_in_short(error)} (reference {reference})",
        cause=error,
        hint=f"this is an internal error; the log of the server has more of it under {reference}",
    )


def log_internal(error: Exception, what: str) -> str:
    """Log an error with its traceback; return the reference under which the log has it. what: what has failed."""
    frames = [(frame.filename.rpartition("/")[2], frame.name, frame.lineno) for frame in _frames(error)]
    reference = hashlib.sha256(repr((_in_short(error), frames)).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    message = f"{what}: {_in_short(error)} (reference {reference})"
    log_event(logger_of("control"), logging.ERROR, "internal_error", message, trace=error, reference=reference)
    return reference


def _frames(error: Exception) -> traceback.StackSummary:
    return traceback.extract_tb(error.__traceback__)


def _in_short(error: Exception) -> str:
    """Return the kind of an error and its first line: those of other programs have whole stacks in their text."""
    text = (str(error).splitlines() or [""])[0][:_LONGEST_REASON]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
