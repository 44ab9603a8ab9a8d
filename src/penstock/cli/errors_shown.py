"""Errors of a command as text on standard error, and its exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from penstock.errors import PenstockError

FAILED, WRONG = 1, 2

#: Errors of the machine or the run, not of what the user wrote.
_RUN_CODES = frozenset({"P0411", "P0601", "P0603", "P0604", "P0621", "P0631", "P0632", "P0806", "P0808"})


@contextmanager
def errors_shown(context: typer.Context) -> Iterator[None]:
    """Turn an error into text on standard error and an exit code; show a traceback only with --debug."""
    try:
        yield
    except PenstockError as error:
        typer.echo(error.render(), err=True)
        _debug(context)
        if error.code == "P0502":
            _let_go_of_output()
        raise typer.Exit(FAILED if error.code in _RUN_CODES else WRONG) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except BrokenPipeError:
        from penstock.cli.running import unread

        raise typer.Exit(unread()) from None
    except Exception as error:
        if isinstance(error, FileNotFoundError) and not _has_working_folder():
            typer.echo("error P0601: the working folder does not exist any more", err=True)
            typer.echo("  hint: change into one that exists: cd", err=True)
            raise typer.Exit(FAILED) from None
        typer.echo(f"error P0601: the run failed: {type(error).__name__}: {_first_line(error)}", err=True)
        if not _debug(context):
            typer.echo("  hint: `penstock --debug ...` shows where", err=True)
        raise typer.Exit(FAILED) from None


def _let_go_of_output() -> None:
    """Write what is buffered for standard output, or discard it: Python would try it again at exit, and complain."""
    from penstock.cli.running import discard

    try:
        sys.stdout.flush()
    except OSError:
        discard()


def _has_working_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _debug(context: typer.Context) -> bool:
    shown = bool(context.find_root().params.get("debug"))
    if shown:
        typer.echo(traceback.format_exc(), err=True)
    return shown


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]
