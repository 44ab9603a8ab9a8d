"""Errors as PostgreSQL's protocol has them: a SQLSTATE, the message, a position in the statement and a hint."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.redaction import redacted_text

SYNTAX, UNSUPPORTED, INVALID_VALUE, PROTOCOL = "42601", "0A000", "22023", "08P01"
NO_TRANSACTION, IN_TRANSACTION, FAILED_TRANSACTION, READ_ONLY = "25P01", "25001", "25P02", "25006"
CANCELLED, SHUTDOWN, TOO_MANY, NO_LOGIN, DOWNGRADED = "57014", "57P01", "53300", "28P01", "28000"
NO_CURSOR, NO_STATEMENT, TOO_LARGE, BAD_TEXT = "34000", "26000", "54000", "22021"

#: SQLSTATE by code of an error; a code that is not listed has that of its family, its first three characters.
_STATES = {
    "P01": SYNTAX, "P0104": INVALID_VALUE, "P0105": "54001",
    "P02": "42P17", "P0201": "42P01", "P0202": "42703", "P0203": "42804", "P0204": "42883", "P0205": "42702",
    "P0206": "42P07", "P0207": "42704", "P0208": "42704", "P0222": "2BP01",
    "P03": "42P17", "P0304": "42803", "P0321": UNSUPPORTED,
    "P04": "58030", "P0403": "22P02", "P0404": "58P01", "P0414": "23502", "P05": "58030", "P0501": "42P07",
    "P06": "58000", "P0612": "21000", "P0621": "38000", "P0622": "55000", "P0632": "53200",
    "P07": "55000", "P0701": UNSUPPORTED, "P0702": UNSUPPORTED, "P0724": "53200", "P0725": CANCELLED,
    "P0726": CANCELLED, "P0731": INVALID_VALUE, "P0732": IN_TRANSACTION,
    "P08": "42501", "P0801": NO_LOGIN, "P0803": PROTOCOL, "P0804": TOO_LARGE, "P0806": "58000", "P0807": "58000",
    "P0808": "08006", "P0809": "58000",
    "P09": UNSUPPORTED,
}  # fmt: skip


class WireError(PenstockError):
    """An error with a SQLSTATE of its own.

    Args:
        offset: of the place, in characters from 0: in the statement, and with `is_placed` in all that the client sent.
        routine: the function of PostgreSQL that raises it, by which clients know it among others of its SQLSTATE.
    """

    def __init__(
        self,
        state: str,
        message: str,
        hint: str | None = None,
        offset: int | None = None,
        code: str = "P0803",
        routine: str | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint)
        self.state = state
        self.offset = offset
        self.routine = routine
        self.is_placed = False

    def __reduce__(self) -> tuple[type[WireError], tuple[object, ...]]:
        return type(self), (self.state, self.message, self.hint, self.offset, self.code, self.routine)

    def moved(self, by: int | None) -> WireError:
        """Return the error of a statement that stands at an offset, with its place in all that the client sent. by:
        None for a statement that the client has sent before."""
        if self.offset is not None and not self.is_placed:
            self.offset = None if by is None else self.offset + by
        self.is_placed = True
        return self


class Fatal(WireError):
    """An error after which the connection ends."""


def unsupported(message: str, hint: str | None = None, offset: int | None = None) -> WireError:
    """Return the error for what PostgreSQL has and this server does not."""
    return WireError(UNSUPPORTED, message, hint, offset, "P0901")


def sqlstate(error: PenstockError) -> str:
    """Return the SQLSTATE of an error."""
    if isinstance(error, WireError):
        return error.state
    return _STATES.get(error.code) or _STATES[error.code[:3]]


def located(error: PenstockError, offset: int | None) -> WireError:
    """Return an error with its place in the text that the client sent, in characters from 0."""
    found = error
    if not isinstance(found, WireError):
        found = WireError(sqlstate(error), error.message, error.hint, offset, error.code)
    found.offset, found.is_placed = offset, True
    return found


def error_fields(error: PenstockError, severity: str = "ERROR") -> dict[str, str]:
    """Return the fields of an ErrorResponse."""
    severity = "FATAL" if isinstance(error, Fatal) else severity
    fields = {
        "S": severity,
        "V": severity,
        "C": sqlstate(error),
        "M": f"{error.code}: {redacted_text(error.message)}",
    }
    if error.hint:
        fields["H"] = error.hint
    if isinstance(error, WireError) and error.offset is not None:
        fields["P"] = str(error.offset + 1)
    if isinstance(error, WireError) and error.routine is not None:
        fields["R"] = error.routine
    return fields


def notice_fields(message: str, severity: str, hint: str | None = None, offset: int | None = None) -> dict[str, str]:
    """Return the fields of a NoticeResponse. severity: such as `WARNING`."""
    fields = {"S": severity, "V": severity, "C": "01000" if severity == "WARNING" else "00000", "M": message}
    if hint:
        fields["H"] = hint
    if offset is not None:
        fields["P"] = str(offset + 1)
    return fields
