"""The start of the shell: its script first, then statements from a person at a terminal, or from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.shared.scripts import read_lines, read_script
from penstock.cli.shell.shell import Quit, Shell
from penstock.cli.shell.sides import SessionSide, ShellSide
from penstock.connectors.sinks.output import OutputFormat
from penstock.errors import PenstockError
from penstock.loading.modules import look_beside
from penstock.session import Session
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.cli.shared.options import ServerPlace


def run_shell(
    script: Path | None,
    settings: Settings,
    form: OutputFormat,
    keep_going: bool,
    debug: bool,
    place: ServerPlace | None = None,
    pairs: Mapping[str, str] | None = None,
) -> int:
    """Run a shell to its end; return the exit code: 1 where a statement from a pipe failed.

    Args:
        place: the server whose shell it is; None: statements are executed in this process.
        pairs: settings as they were written, for the server.

    Raises:
        PenstockError: the script cannot be read or executed; prompt_toolkit is missing; the server cannot be used.
    """
    is_interactive = sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()

    def shell_of(side: ShellSide) -> Shell:
        return Shell(side, sys.stdout, sys.stderr, form, is_interactive, keep_going or is_interactive, debug)

    if place is None:
        look_beside(str(Path.cwd()))
        shell = shell_of(SessionSide(Session(settings=settings)))
        if script is not None:
            shell.execute(*read_script(script))
        return _read(shell, is_interactive, "")
    from penstock.cli.shared.connecting import connected_to
    from penstock.cli.shell.server_side import ServerSide

    with connected_to(place) as client:
        shell = shell_of(ServerSide(client, dict(pairs or {})))
        if script is not None:
            text, name = read_script(script)
            with suppress(Quit):
                shell.read(text.splitlines(keepends=True), name)
            if shell.failed and not is_interactive and not keep_going:
                return 1
        return _read(shell, is_interactive, f" at {place.url}")


def _read(shell: Shell, is_interactive: bool, where: str) -> int:
    if is_interactive:
        _converse(shell, where)
        return 0
    with suppress(Quit):
        shell.read(read_lines(sys.stdin.buffer, "<stdin>"), "<stdin>")
    shell.finish()
    return int(shell.failed)


def _converse(shell: Shell, where: str) -> None:
    try:
        from penstock.cli.shell.terminal import Terminal
    except ModuleNotFoundError:
        hint = "pip install 'penstock[shell]'; statements from a pipe need no terminal"
        raise PenstockError("P0723", "the shell needs the package prompt_toolkit at a terminal", hint=hint) from None
    terminal = Terminal(shell.side.declared)
    sys.stdout.write(f"penstock {__version__}{where}; statements end with ; and \\? lists the commands\n")
    while True:
        try:
            text = terminal.read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            shell.finish()
            return
        try:
            shell.read(text.splitlines(keepends=True), None)
        except Quit:
            shell.finish()
            return
        except KeyboardInterrupt:
            sys.stderr.write(f"{shell.side.interruption()}\n")
