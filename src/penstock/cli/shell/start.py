"""The start of the shell: its script first, then statements from a person at a terminal, or from a pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

from penstock import __version__
from penstock.cli.scripts import read_lines, read_script
from penstock.cli.shell.shell import Quit, Shell
from penstock.connectors.sinks.output import OutputFormat
from penstock.errors import PenstockError
from penstock.modules import look_beside
from penstock.session import Session
from penstock.settings import Settings


def run_shell(script: Path | None, settings: Settings, form: OutputFormat, keep_going: bool, debug: bool) -> int:
    """Run a shell to its end; return the exit code: 1 where a statement from a pipe failed.

    Raises:
        PenstockError: the script cannot be read or executed; prompt_toolkit is missing.
    """
    is_interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()
    shell = Shell(
        Session(settings=settings), sys.stdout, sys.stderr, form, is_interactive, keep_going or is_interactive, debug
    )
    look_beside(str(Path.cwd()))
    if script is not None:
        text, name = read_script(script)
        shell.execute(text, name)
    if is_interactive:
        _converse(shell)
        return 0
    with suppress(Quit):
        shell.read(read_lines(sys.stdin.buffer, "<stdin>"), "<stdin>")
    return int(shell.failed)


def _converse(shell: Shell) -> None:
    try:
        from penstock.cli.shell.terminal import Terminal
    except ModuleNotFoundError:
        hint = "pip install 'penstock[shell]'; statements from a pipe need no terminal"
        raise PenstockError("P0723", "the shell needs the package prompt_toolkit at a terminal", hint=hint) from None
    terminal = Terminal(lambda: shell.session.catalog)
    sys.stdout.write(f"penstock {__version__}; statements end with ; and \\? lists the commands\n")
    while True:
        try:
            text = terminal.read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            shell.read(text.splitlines(keepends=True), None)
        except Quit:
            return
        except KeyboardInterrupt:
            sys.stderr.write("cancelled\n")
