"""The commands of the shell, and what \\d shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from penstock.cli.shell.declared import Declared, DeclaredObject
from penstock.errors import PenstockError, nearest


class Commanded(Protocol):
    """What the commands act on."""

    def describe(self, name: str) -> None: ...

    def watch(self, arguments: str) -> None: ...

    def include(self, path: str) -> None: ...

    def set_format(self, name: str) -> None: ...

    def set_expanded(self, word: str) -> None: ...

    def set_timing(self, word: str) -> None: ...

    def write_to(self, path: str) -> None: ...

    def edit(self, path: str) -> None: ...

    def help(self) -> None: ...

    def quit(self) -> None: ...


@dataclass(frozen=True)
class ShellCommand:
    """A command of the shell. usage: how it is written; what: what it does; run: given the shell and what follows the
    word."""

    usage: str
    what: str
    run: Callable[[Commanded, str], None]


def _alone(command: str, word: str, run: Callable[[], None]) -> None:
    """Run a command that takes nothing behind it. Raises PenstockError P0101 where something is."""
    if word:
        raise PenstockError("P0101", f"{command} {word}: {command} stands alone")
    run()


COMMANDS: dict[str, ShellCommand] = {
    "\\d": ShellCommand(
        "\\d [name]", "what is declared, or the columns and the text of one of it", lambda s, t: s.describe(t)
    ),
    "\\watch": ShellCommand(
        "\\watch [n [times]]", "repeat the last SELECT every n seconds, until Ctrl-C", lambda s, t: s.watch(t)
    ),
    "\\i": ShellCommand("\\i file", "execute a file of statements and commands", lambda s, t: s.include(t)),
    "\\format": ShellCommand(
        "\\format [name]", "how rows are written: table, csv or json", lambda s, t: s.set_format(t)
    ),
    "\\x": ShellCommand(
        "\\x [on or off]", "a table with a line for each value of a row", lambda s, t: s.set_expanded(t)
    ),
    "\\timing": ShellCommand("\\timing [on or off]", "show how long each statement took", lambda s, t: s.set_timing(t)),
    "\\o": ShellCommand(
        "\\o [file]", "write answers into a file; without one to the terminal again", lambda s, t: s.write_to(t)
    ),
    "\\e": ShellCommand(
        "\\e [file]", "edit the last statement, or a file, in $EDITOR, and execute it", lambda s, t: s.edit(t)
    ),
    "\\?": ShellCommand("\\?", "this list", lambda s, t: _alone("\\?", t, s.help)),
    "\\q": ShellCommand("\\q", "quit (also Ctrl-D)", lambda s, t: _alone("\\q", t, s.quit)),
}


#: Words that people type who do not know the shell, and the commands that they mean.
_WORDS = {"help": "\\?", "quit": "\\q", "exit": "\\q"}


def command_of(line: str) -> str | None:
    """Return the command that a line is, where no statement is open; None: it is the line of a statement."""
    line = line.strip()
    return line if line.startswith("\\") else _WORDS.get(line.removesuffix(";").strip().lower())


def command_table(declared: Declared, name: str) -> tuple[str, pa.Table, str]:
    """Return what \\d shows: a title, a table, and the statement below it. Raises PenstockError P0201."""
    if not name:
        return "", _listed(list(declared.objects.values())), ""
    one = declared.objects.get(name.removeprefix("`").removesuffix("`").replace("``", "`").lower())
    if one is None:
        hint = nearest(name, [known.name for known in declared.objects.values()])
        raise PenstockError("P0201", f"unknown stream, relation, view or query {name}", hint=hint)
    columns = {"column": [column for column, _ in one.columns], "type": [kind for _, kind in one.columns]}
    title = f"{one.kind} {one.name}" + (f", {one.state}" if one.state else "")
    return title, _texts(columns), one.text


def _listed(objects: list[DeclaredObject]) -> pa.Table:
    columns = {
        "name": [one.name for one in objects],
        "kind": [one.kind for one in objects],
        "connector": [one.connector for one in objects],
    }
    if any(one.state for one in objects):
        columns["state"] = [one.state for one in objects]
    return _texts(columns)


def _texts(columns: dict[str, list[str]]) -> pa.Table:
    return pa.table({title: pa.array(cells, pa.string()) for title, cells in columns.items()})
