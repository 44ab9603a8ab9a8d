"""Arguments and options that several commands share, and what they stand for."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.errors import PenstockError
from penstock.settings import Settings


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DRAWN = "drawn"


class StateFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


class ResultFormat(enum.StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"


Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A file of CQL statements, or - for standard input.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]


Connect = Annotated[
    str | None, typer.Option("--connect", metavar="URL", help="Have a running server execute the statements.")
]
ClientToken = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="With --connect: a file that holds a token; default: $PENSTOCK_TOKEN, on this machine the first token.",
    ),
]
Authorities = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca", metavar="FILE", help="With --connect: certificates to trust, PEM; default: $PENSTOCK_TLS_CA."
    ),
]


@dataclass(frozen=True)
class ServerPlace:
    """A server, and how to reach it.

    Args:
        token_file: the file that holds a token; None: the environment, or on this machine what `penstock serve` made.
        authorities: a PEM file of certificates to trust; None: that of the environment.
    """

    url: str
    token_file: Path | None = None
    authorities: Path | None = None


def place_of(
    context: typer.Context, connect: str | None, token_file: Path | None, authorities: Path | None
) -> ServerPlace | None:
    """Return the server of --connect; None for statements that are executed here."""
    if connect is None:
        if token_file is not None or authorities is not None:
            raise typer.BadParameter("--token-file and --tls-ca need --connect", context)
        return None
    return ServerPlace(connect, token_file, authorities)


def written(pairs: list[str] | None) -> dict[str, str]:
    """Return settings as they were written. Raises PenstockError P0104."""
    read_settings(pairs)
    return {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in pairs or ())}


def read_settings(pairs: list[str] | None) -> Settings:
    """Return the settings. Raises PenstockError P0104."""
    settings = Settings()
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise PenstockError("P0104", f"--set {pair}: a setting is KEY=VALUE")
        settings = settings.with_value(key.strip(), value.strip())
    return settings
