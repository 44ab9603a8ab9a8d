"""What happens: commands, versions and settings, and who uses the server."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from penstock.connectors.deadletters import DeadLetter, DeadLetters
from penstock.control.command_log import Transaction
from penstock.control.entities.attributes import (
    COUNT,
    FLAG,
    MOMENT,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    Origin,
    unmeasured,
)
from penstock.control.entities.queries import moment_of
from penstock.control.entities.system import SessionFact, StatementFact, SystemView, TokenFact
from penstock.control.outcomes import CommandOutcome
from penstock.language.queries import Name
from penstock.language.statements import AlterSystemStatement, Statement
from penstock.redaction import redacted_text
from penstock.settings import TABLE, Setting

#: Dead letters that are listed, of all sources together.
MOST_LETTERS = 100_000


@dataclass(frozen=True)
class CommandRow:
    """A command of the log."""

    transaction: Transaction
    text: str
    outcome: CommandOutcome


COMMANDS: ControlRelation[CommandRow] = ControlRelation(
    "commands",
    "The log of commands; finished ones are kept for `control_retention`.",
    (
        Attribute("n", COUNT, "its number", lambda row: row.outcome.number, Origin.LOG),
        Attribute("at", MOMENT, "when it was accepted", lambda row: row.transaction.at, Origin.LOG),
        Attribute("who", TEXT, "the name of the token", lambda row: row.transaction.who, Origin.LOG),
        Attribute("text", TEXT, "the statement, without secrets", lambda row: redacted_text(row.text), Origin.LOG),
        Attribute(
            "state",
            TEXT,
            "PENDING, HYDRATING, RUNNING, COMPLETED or FAILED",
            lambda row: row.outcome.state.value,
            Origin.LOG,
        ),
        Attribute(
            "version", COUNT, "the version from which on it has effect", lambda row: row.outcome.version, Origin.LOG
        ),
        Attribute(
            "round",
            COUNT,
            "the first batch with it, as penstock.batches numbers them; NULL for one in none",
            lambda row: row.outcome.batch,
            Origin.LOG,
        ),
        Attribute(
            "error",
            TEXT,
            "the code and message with which it failed",
            lambda row: f"{row.outcome.code} {row.outcome.message}" if row.outcome.code else None,
            Origin.LOG,
        ),
    ),
    lambda view: [CommandRow(*one) for one in view.commands],
)


@dataclass(frozen=True)
class VersionRow:
    """A version of the plan. commands: how many of the log it contains first; at: when the last of them was accepted,
    in microseconds since 1970."""

    number: int
    last_command: int | None
    commands: int
    at: int | None
    is_current: bool


def _versions(view: SystemView) -> Iterable[VersionRow]:
    found: dict[int, list[CommandRow]] = {view.version.number: []}
    for one in view.commands:
        if one[2].version is not None:
            found.setdefault(one[2].version, []).append(CommandRow(*one))
    return [
        VersionRow(
            number,
            max((row.outcome.number for row in rows), default=None),
            len(rows),
            max((row.transaction.at for row in rows), default=None),
            number == view.version.number,
        )
        for number, rows in sorted(found.items())
    ]


VERSIONS: ControlRelation[VersionRow] = ControlRelation(
    "versions",
    "The versions of the plan: the one that runs, and those of the commands in the log.",
    (
        Attribute("number", COUNT, "its number", lambda row: row.number, Origin.RUN),
        Attribute(
            "command", COUNT, "the last command that it contains first", lambda row: row.last_command, Origin.LOG
        ),
        Attribute("commands", COUNT, "how many commands it contains first", lambda row: row.commands, Origin.LOG),
        Attribute("at", MOMENT, "when the last of these was accepted", lambda row: row.at, Origin.LOG),
        Attribute("is_current", FLAG, "whether it runs", lambda row: row.is_current, Origin.RUN),
    ),
    _versions,
)


@dataclass(frozen=True)
class SettingRow:
    """A setting of the whole system."""

    view: SystemView
    setting: Setting

    @property
    def value(self) -> str:
        value = self.view.settings[self.setting.name]
        return Setting(self.setting.name, value, self.setting.parse, "").shown


def _can_change(row: SettingRow) -> bool:
    return not row.setting.is_fixed


def _set_system(row: SettingRow, value: str) -> Statement:
    return AlterSystemStatement(Name(row.setting.name), value)


SETTINGS: ControlRelation[SettingRow] = ControlRelation(
    "settings",
    "The settings of the whole system.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.setting.name),
        Attribute("id", TEXT, "the id of its entity", lambda row: f"setting:{row.setting.name}"),
        Attribute(
            "value",
            TEXT,
            "its value; some are fixed when the server is started",
            lambda row: row.value,
            setting=AttributeSetting(_set_system, "ALTER SYSTEM SET", applies=_can_change),
        ),
        Attribute("settable", FLAG, "whether it can change while the server runs", _can_change),
        Attribute("default_value", TEXT, "its value without SET", lambda row: row.setting.shown),
        Attribute("values", TEXT, "what it may be", lambda row: row.setting.values),
        Attribute("help", TEXT, "what it is", lambda row: row.setting.help),
    ),
    lambda view: [SettingRow(view, one) for one in TABLE],
    kind="setting",
    key=lambda row: row.setting.name,
    title=lambda row: row.setting.name,
    confirms=True,
)


SESSIONS: ControlRelation[SessionFact] = ControlRelation(
    "sessions",
    "The sessions at the doors that have some; a request over HTTP has none.",
    (
        Attribute("id", TEXT, "its id", lambda row: row.id, Origin.SERVER),
        Attribute("door", TEXT, "the protocol", lambda row: row.door, Origin.SERVER),
        Attribute("who", TEXT, "the name of the token", lambda row: row.who, Origin.SERVER),
        Attribute("role", TEXT, "`read`, `control` or `admin`", lambda row: row.role, Origin.SERVER),
        Attribute("began", MOMENT, "when it began", lambda row: moment_of(row.began), Origin.SERVER),
        Attribute("address", TEXT, "where it comes from", lambda row: row.address or None, Origin.SERVER),
    ),
    lambda view: view.doors.sessions(),
)

SUBSCRIPTIONS: ControlRelation[StatementFact] = ControlRelation(
    "subscriptions",
    "The subscriptions that run.",
    (
        Attribute("id", TEXT, "its id, for CANCEL", lambda row: row.id, Origin.SERVER),
        Attribute("who", TEXT, "the name of the token", lambda row: row.who, Origin.SERVER),
        Attribute("began", MOMENT, "when it began", lambda row: moment_of(row.began), Origin.SERVER),
        Attribute("text", TEXT, "the statement, without secrets", lambda row: row.text, Origin.SERVER),
    ),
    lambda view: [one for one in view.doors.statements() if one.kind == "SUBSCRIBE"],
)

SNAPSHOTS: ControlRelation[StatementFact] = ControlRelation(
    "snapshots",
    "The one-time queries that run.",
    (
        Attribute("id", TEXT, "its id, for CANCEL", lambda row: row.id, Origin.SERVER),
        Attribute("text", TEXT, "the statement, without secrets", lambda row: row.text, Origin.SERVER),
        unmeasured("isolation", TEXT, "`window` or `latest`, as set by `SET isolation`"),
        Attribute("state", TEXT, "RUNNING", lambda row: "RUNNING", Origin.SERVER),
        unmeasured("tick", COUNT, "its instant, which the answer carries"),
        unmeasured("staleness", REAL, "its staleness, which the answer carries"),
        unmeasured("sub_windows", COUNT, "sub-windows of what it reads"),
        unmeasured("read", COUNT, "those that have been read"),
        unmeasured("restarts", COUNT, "how often it began again"),
        unmeasured("aborts", COUNT, "how often it was aborted"),
        Attribute(
            "seconds",
            REAL,
            "since it began",
            lambda row: max(0.0, datetime.now().timestamp() - row.began),
            Origin.SERVER,
            "seconds",
        ),
        unmeasured("bytes", COUNT, "bytes that it has read"),
    ),
    lambda view: [one for one in view.doors.statements() if one.kind != "SUBSCRIBE"],
)

TOKENS: ControlRelation[TokenFact] = ControlRelation(
    "tokens",
    "The tokens of the server; a token itself is kept nowhere.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.name, Origin.SERVER),
        Attribute("role", TEXT, "`read`, `control` or `admin`", lambda row: row.role, Origin.SERVER),
        Attribute("created", TEXT, "when it was made, in ISO-8601", lambda row: row.created, Origin.SERVER),
        Attribute(
            "expires", TEXT, "when it ends, in ISO-8601; NULL: never", lambda row: row.expires or None, Origin.SERVER
        ),
    ),
    lambda view: view.doors.tokens(),
)


@dataclass(frozen=True)
class LetterRow:
    """A dead letter. source: the stream, relation or query that it belongs to."""

    source: str
    letter: DeadLetter


def _letters(view: SystemView) -> Iterable[LetterRow]:
    folder = view.figures.dead_letters
    if folder is None:
        return ()
    letters = DeadLetters(folder)
    names = {
        name: one.stored.name
        for name, place in view.figures.places.items()
        for one in view.listed
        if one.query.place == place
    }
    rows = (LetterRow(names.get(name, name), letter) for name in letters.sources() for letter in letters.read(name))
    return itertools.islice(rows, MOST_LETTERS)


DEAD_LETTERS: ControlRelation[LetterRow] = ControlRelation(
    "dead_letters",
    f"Records that could not be read, elements that came late, and rows that a sink refused; at most {MOST_LETTERS:,}"
    " are listed.",
    (
        Attribute("source", TEXT, "the stream, relation or query", lambda row: row.source, Origin.RUN),
        Attribute("origin", TEXT, "the file, partition or post", lambda row: row.letter.path, Origin.RUN),
        Attribute(
            "line", COUNT, "its line or offset there, where it is known", lambda row: row.letter.line, Origin.RUN
        ),
        Attribute("record", TEXT, "the record, up to 1,000 characters", lambda row: row.letter.record, Origin.RUN),
        Attribute("reason", TEXT, "why", lambda row: row.letter.reason, Origin.RUN),
        Attribute("tick", COUNT, "its timestamp, where that is known", lambda row: row.letter.ts, Origin.RUN, "ticks"),
    ),
    _letters,
)
