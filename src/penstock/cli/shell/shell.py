"""The shell apart from its terminal: it executes statements and its own commands, and writes answers and errors.

Contract: an error of a statement is a message, never a traceback, and leaves the session as it was; so does a statement
that is interrupted. Nothing that is written holds control characters of values.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from penstock.cli.shared.answers import FollowAnswer, Remark, RowsAnswer, TextAnswer, data_text, table_text
from penstock.cli.shared.scripts import read_script
from penstock.cli.shell.commands import COMMANDS, command_of, command_table
from penstock.cli.shell.following import AppendedRows, LiveTable, ResultDisplay, follow
from penstock.cli.shell.sides import ShellSide
from penstock.connectors.sinks.output import OutputFormat
from penstock.connectors.sinks.tabular import drawn, encodable, shown
from penstock.errors import PenstockError, nearest
from penstock.language.quotes import is_blank, statement_end
from penstock.temporary import removed_after

#: Formats of rows; an Arrow stream has one answer, and a shell gives many.
FORMATS = (OutputFormat.TABLE, OutputFormat.CSV, OutputFormat.JSON)
_STYLE = re.compile("\x1b\\[[0-9]+m")
#: Files that execute files with \i.
_MAX_DEPTH = 16


class Quit(Exception):
    """Ends the shell."""


class _FileAborted(Exception):
    """A file that was executed has been left at an error, which has been shown."""


_LISTED = "\\d shows what is declared, SHOW STREAMS, RELATIONS, VIEWS or QUERIES one kind of it"
#: Commands of psql that the shell has in other words, or not.
_OF_PSQL = {
    **dict.fromkeys(("\\dt", "\\dv", "\\dm", "\\dE", "\\dn", "\\df", "\\l", "\\d+", "\\dt+"), _LISTED),
    **dict.fromkeys(("\\c", "\\connect"), "a shell is of one server: penstock shell --connect http://127.0.0.1:8265"),
    "\\copy": (
        "rows come from a file by CREATE STREAM name (...) FROM FILES (path '...'), or by POST, or by \\copy of psql"
        " at a server with --pg"
    ),
    **dict.fromkeys(("\\set", "\\pset"), "a setting is SET name = value, the form of answers \\format or \\x"),
    "\\g": "a statement ends with a semicolon",
    "\\h": "\\? lists the commands; docs/language/statements.md has the statements",
}


class Shell:
    """Executes statements, and writes their answers.

    Args:
        side: where they are executed.
        form: how rows are written.
        confirms: whether declarations are confirmed, as for a person.
        keep_going: whether what follows an error is executed; a person decides that at each prompt.
        debug: whether the traceback of an error that is none of the user's is shown.
    """

    def __init__(
        self,
        side: ShellSide,
        out: TextIO,
        err: TextIO,
        form: OutputFormat,
        confirms: bool = False,
        keep_going: bool = False,
        debug: bool = False,
    ) -> None:
        self.side = side
        self.failed = False
        self._out = out
        self._err = err
        self._form = form
        self._confirms = confirms
        self._keep_going = keep_going
        self._debug = debug
        self._last_select: str | None = None
        self._last_text = ""
        self._is_expanded = self._is_timed = False
        #: Where answers are written while it is a file; the terminal, or what is in its place.
        self._file: TextIO | None = None
        self._terminal = out
        self._depth = 0
        self.set_format(form.value)

    # --- input

    def read(self, lines: Iterable[str], name: str | None) -> bool:
        """Execute statements and commands as their lines come; return False where an error ended that. Raises Quit.

        Args:
            name: of the file, for messages.
        """
        pending, first_line = "", 1
        for number, line in enumerate(lines, 1):
            command = command_of(line)
            if command is not None and is_blank(pending):
                pending, first_line = "", number + 1
                if not self._run(partial(self._command, command)):
                    return False
                continue
            pending += line
            if ";" not in line:
                continue
            remaining, ok = self._execute_ended(pending, first_line, name)
            if not ok:
                return False
            first_line += pending.count("\n") - remaining.count("\n")
            pending = remaining
        return is_blank(pending) or self.statement(pending, first_line, name)

    def _execute_ended(self, text: str, line: int, name: str | None) -> tuple[str, bool]:
        """Execute the statements of `text` that have ended; return the rest, and False where an error ended that."""
        start = 0
        while (end := statement_end(text, start)) is not None:
            if not is_blank(text[start:end]):
                lines_before = text.count("\n", 0, start)
                column = start - (text.rfind("\n", 0, start) + 1)
                if not self.statement(" " * column + text[start:end], line + lines_before, name):
                    return text[end:], False
            start = end
        column = start - (text.rfind("\n", 0, start) + 1) if start else 0
        return " " * column + text[start:], True

    def statement(self, text: str, line: int = 1, name: str | None = None) -> bool:
        """Execute one statement that begins in a line of a file; return False where an error ends the input."""
        # Positions are those of the file: what stands before the statement is blank.
        return self._run(lambda: self.execute("\n" * (line - 1) + text, name))

    def _run(self, work: Callable[[], None]) -> bool:
        try:
            work()
            return True
        except (Quit, KeyboardInterrupt, BrokenPipeError):
            raise
        except _FileAborted:
            return self._keep_going
        except PenstockError as error:
            self._report(error.render())
        except Exception as error:
            first_line = (str(error).strip().splitlines() or ["no message"])[0]
            self._report(f"error P0601: the statement failed: {type(error).__name__}: {first_line}")
            if self._debug:
                self._report(traceback.format_exc().rstrip())
        self.failed = True
        return self._keep_going

    # --- statements

    def execute(self, text: str, name: str | None) -> None:
        """Execute a script, and write its answers. Raises ScriptErrors, and any error of its sources."""
        self._last_text = text.strip() or self._last_text
        began = time.perf_counter()
        try:
            self._answers(text, name)
        finally:
            if self._is_timed:
                self._report(f"time: {duration_text(time.perf_counter() - began)}")

    def _answers(self, text: str, name: str | None) -> None:
        for answer in self.side.execute(text, name):
            match answer:
                case RowsAnswer():
                    self._last_select = answer.text or self._last_select
                    self._rows(answer)
                case TextAnswer():
                    self._text(answer.text)
                case FollowAnswer():
                    self._follow(answer)
                case Remark(confirms=True):
                    if self._confirms:
                        self._text(answer.text)
                case Remark():
                    self._report(answer.text)

    def finish(self) -> None:
        """Show an error for a transaction that was begun and not ended."""
        self._run(self.side.end)
        self._run(lambda: self.write_to(""))

    def _rows(self, answer: RowsAnswer) -> None:
        for line in answer.warnings:
            self._report(line)
        if self._form is OutputFormat.TABLE:
            for part in table_text(answer, self._is_expanded):
                self._put(part)
        else:
            self._write(data_text(answer.table, self._form))
        self._out.flush()

    def _follow(self, answer: FollowAnswer) -> None:
        """Show the results of a query until Ctrl-C: a relation as a table that changes, where a person sees it."""
        is_seen = self._out.isatty() and self._form is OutputFormat.TABLE and answer.sql is None
        is_live = is_seen and self.side.is_relation(answer.query)
        try:
            self._show(answer, LiveTable(self._out) if is_live else None)
        except PenstockError as error:
            if not is_live or error.code != "P0711":
                raise
            self._report(f"{error.message}: its changes are shown")
            self._show(FollowAnswer(answer.query, False, answer.progress), None)

    def _show(self, answer: FollowAnswer, live: LiveTable | None) -> None:
        display: ResultDisplay = live or AppendedRows(self._form, self._appended, self._report)
        followed = answer if live is None else replace(answer, snapshot=True, progress=True)
        rows = self.side.follow(followed, self._confirms, display.lost)
        try:
            follow(rows, display)
        except KeyboardInterrupt:
            if not self._confirms:
                raise
        finally:
            rows.close()
            last_words = display.close()
        self._text(last_words if self._form is OutputFormat.TABLE else "")

    def _appended(self, text: str) -> None:
        # A table has its styles in it, and its values as escapes already.
        (self._put if self._form is OutputFormat.TABLE else self._write)(text)
        self._out.flush()

    def _text(self, text: str) -> None:
        self._write(text if text.endswith("\n") or not text else f"{text}\n")
        self._out.flush()

    def _write(self, text: str) -> None:
        self._put(shown(text) if self._out.isatty() or self._form is OutputFormat.TABLE else text)

    def _put(self, text: str) -> None:
        if self._file is not None and self._form is OutputFormat.TABLE:
            # A file has no styles; escapes of values are texts already.
            text = _STYLE.sub("", text)
        self._out.write(encodable(text, self._out))

    def _report(self, text: str) -> None:
        self._err.write(f"{shown(text)}\n")
        self._err.flush()

    # --- commands

    def _command(self, line: str) -> None:
        word, _, arguments = line.strip().partition(" ")
        command = COMMANDS.get(word)
        if command is None:
            hint = _OF_PSQL.get(word) or nearest(word, COMMANDS)
            raise PenstockError("P0101", f"unknown command {word}", hint=f"{hint or ''} (\\? lists them)".strip())
        command.run(self, arguments.strip().removesuffix(";").strip())

    def quit(self) -> None:
        raise Quit

    def help(self) -> None:
        self._text("".join(f"{c.usage.ljust(21)} {c.what}\n" for c in COMMANDS.values()))

    def describe(self, name: str) -> None:
        """Show what is declared, or one declaration."""
        title, table, text = command_table(self.side.declared(fresh=True), name)
        if title:
            self._text(title)
        for part in drawn(table):
            self._put(part)
        if text:
            self._text(text)
        self._out.flush()

    def set_format(self, name: str) -> None:
        """Choose how rows are written, or show it."""
        names = [form.value for form in FORMATS]
        if not name:
            self._text(f"format: {self._form.value}")
        elif name.lower() not in names:
            raise PenstockError("P0104", f"the shell has no format {name}", hint=f"known: {', '.join(names)}")
        else:
            self._form = OutputFormat(name.lower())

    def set_expanded(self, word: str) -> None:
        """Write rows with a line for each value, or as tables again."""
        self._is_expanded = _switched("\\x", word, self._is_expanded)
        self._confirm(f"expanded: {'on' if self._is_expanded else 'off'}")

    def set_timing(self, word: str) -> None:
        """Show the duration of each statement from now on, or no longer."""
        self._is_timed = _switched("\\timing", word, self._is_timed)
        self._confirm(f"timing: {'on' if self._is_timed else 'off'}")

    def _confirm(self, text: str) -> None:
        if self._confirms:
            self._report(text)

    def write_to(self, path: str) -> None:
        """Write the answers that follow into a file; without one where they were written before."""
        opened: TextIO | None = None
        if path:
            place = Path(path.strip("'\"")).expanduser()
            try:
                opened = place.open("w", encoding="utf-8", errors="backslashreplace", newline="")
            except OSError as error:
                raise PenstockError("P0502", f"{place} cannot be written: {error.strerror}", cause=error) from None
        before, self._file, self._out = self._file, opened, opened or self._terminal
        if before is not None:
            try:
                before.close()
            except OSError as error:
                raise PenstockError("P0502", f"{before.name} cannot be written: {error.strerror}") from None

    def edit(self, path: str) -> None:
        """Open the last statement, or a file, in the editor of the user, and execute what it holds then."""
        chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        has_terminal = sys.stdin is not None and sys.stdin.isatty()
        if not chosen and not has_terminal:
            hint = "the variable EDITOR names a program that needs none"
            raise PenstockError("P0101", "\\e opens vi, which needs a terminal", hint=hint)
        with removed_after() as folder:
            place = Path(path.strip("'\"")).expanduser() if path else folder / "statement.cql"
            try:
                if not path:
                    place.write_text(f"{self._last_text}\n", encoding="utf-8")
                before = place.read_bytes() if place.exists() else b""
                # Statements that come through a pipe are not the editor's.
                inherited = None if has_terminal else subprocess.DEVNULL
                code = subprocess.run([*shlex.split(chosen or "vi"), str(place)], stdin=inherited).returncode
                after = place.read_bytes() if place.exists() else b""
            except (OSError, ValueError) as error:
                hint = "the variable EDITOR names the program"
                raise PenstockError("P0101", f"\\e could not edit: {error}", hint=hint, cause=error) from None
            if code:
                raise PenstockError("P0101", f"the editor ended with {code}, so nothing was executed")
            if after == before and not path:
                self._text("not changed, so not executed")
                return
            text, name = read_script(place)
        self._text(text)
        if not self.read(text.splitlines(keepends=True), name if path else None):
            raise _FileAborted

    def include(self, path: str) -> None:
        """Execute a file of statements and commands."""
        if not path:
            raise PenstockError("P0101", "\\i needs the name of a file")
        if self._depth >= _MAX_DEPTH:
            raise PenstockError("P0105", f"{path}: files may execute each other {_MAX_DEPTH} deep at most")
        text, name = read_script(Path(path.strip("'\"")).expanduser())
        self._depth += 1
        try:
            if not self.read(text.splitlines(keepends=True), name):
                raise _FileAborted
        finally:
            self._depth -= 1

    def watch(self, arguments: str) -> None:
        """Repeat the last SELECT every n seconds."""
        seconds, times = _watch_arguments(arguments)
        text = self._last_select
        if text is None:
            raise PenstockError("P0101", "\\watch repeats the last SELECT, and there is none yet")
        repetitions = 0
        while True:
            self.execute(text, None)
            repetitions += 1
            if repetitions == times:
                return
            time.sleep(seconds)


def duration_text(seconds: float) -> str:
    """Return how long something took."""
    return f"{1000 * seconds:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _switched(command: str, word: str, value: bool) -> bool:
    """Return what a command with `on` or `off` makes of a value; without a word the other one."""
    if word.lower() not in ("", "on", "off"):
        raise PenstockError("P0101", f"{command} {word}: expected on or off")
    return not value if not word else word.lower() == "on"


def _watch_arguments(text: str) -> tuple[float, int | None]:
    words = text.split() or ["2"]
    try:
        seconds = float(words[0])
        times = int(words[1]) if len(words) > 1 else None
    except ValueError:
        seconds, times = -1.0, None
    if not 0 < seconds <= 86_400 or (times is not None and times < 1) or len(words) > 2:
        hint = "as in \\watch 2 or \\watch 0.5 10"
        raise PenstockError("P0101", f"\\watch {text}: expected seconds, and how often", hint=hint)
    return seconds, times
