"""`penstock apply`: a script as all that a server is to declare."""

from __future__ import annotations

from dataclasses import replace

import typer

from penstock.cli.shared.connecting import connected_to
from penstock.cli.shared.options import ServerPlace
from penstock.cli.shell.server_side import placed
from penstock.connectors.sinks.tabular import shown
from penstock.errors import PenstockError


def apply_at_server(place: ServerPlace, script: str, name: str, settings: dict[str, str], dry: bool) -> None:
    """Bring a server's declarations to those of a script; write the statements that differ to standard output.

    Args:
        name: of the script's file, for messages.
        settings: of the session, as written.
        dry: only find the difference.

    Raises:
        PenstockError: nothing has been changed, or a change that was accepted has failed.
    """
    with connected_to(place) as client:
        try:
            changes = client.apply(script, dry=dry, settings=settings)
        except PenstockError as error:
            raise placed(error, 0, name) from None
    for warning in changes.warnings:
        typer.echo(replace(warning, position=replace(warning.position, file=name)).render(), err=True)
    for one in changes:
        typer.echo(shown(f"{one.sql};"))
    done = "to change" if dry else "changed"
    typer.echo(f"{name}: nothing {done}" if not changes else f"{name}: {len(changes)} {done}", err=True)
    for one in changes:
        if one.error is not None:
            raise one.error
