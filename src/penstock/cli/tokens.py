"""`penstock token add|list|revoke`."""

from __future__ import annotations

import datetime as dt
import enum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.errors_shown import errors_shown
from penstock.errors import PenstockError
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile, default_token_file
from penstock.types import Interval

tokens = typer.Typer(help="Tokens of `penstock serve`.", no_args_is_help=True)


class TokenRole(enum.StrEnum):
    READ = "read"
    CONTROL = "control"
    ADMIN = "admin"


TokenPlace = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Default: ~/.config/penstock/tokens.json.")
]


@tokens.command("add")
def token_add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is; commands are logged under it.")],
    role: Annotated[TokenRole, typer.Option(help="What it allows.")] = TokenRole.READ,
    expires: Annotated[str | None, typer.Option(metavar="WHEN", help="'30 days', or a date; default: never.")] = None,
    token_file: TokenPlace = None,
) -> None:
    """Make a token and print it, once."""
    with errors_shown(context):
        file = TokenFile(token_file or default_token_file())
        token = file.add(name, AccessRole[role.value.upper()], None if expires is None else _moment(expires))
        typer.echo(token)
        typer.echo(f"added to {file.path}; the token cannot be shown again", err=True)


@tokens.command("list")
def token_list(context: typer.Context, token_file: TokenPlace = None) -> None:
    """List all tokens, without their texts."""
    with errors_shown(context):
        from rich.console import Console
        from rich.table import Table

        now = dt.datetime.now(dt.UTC)
        table = Table("name", "role", "created", "expires")
        file = TokenFile(token_file or default_token_file())
        for entry in file.entries():
            expires = f"{entry.expires} (expired)" if entry.expired(now) else entry.expires or "never"
            table.add_row(entry.name, entry.role, entry.created, expires)
        Console(soft_wrap=True).print(table)
        if not file.path.exists():
            typer.echo(f"there is no file {file.path}; 'penstock token add NAME' makes it", err=True)


@tokens.command("revoke")
def token_revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the token.")],
    token_file: TokenPlace = None,
) -> None:
    """Remove a token; a running server refuses it at once."""
    with errors_shown(context):
        file = TokenFile(token_file or default_token_file())
        file.revoke(name)
        typer.echo(f"revoked {name} in {file.path}", err=True)


def _moment(text: str) -> dt.datetime:
    """Return the end of a length of time from now, or the moment that a text names. Raises PenstockError P0807."""
    length = Interval.parse(text)
    try:
        if length is not None:
            microseconds = float(length.amount * length.unit.value)
            return dt.datetime.now(dt.UTC) + dt.timedelta(microseconds=microseconds)
        moment = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        hint = "write it as '30 days' or 2030-01-31"
        raise PenstockError("P0807", f"{text!r} is no length of time and no date", hint=hint) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
