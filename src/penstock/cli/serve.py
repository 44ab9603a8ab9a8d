"""`penstock serve`: checks of the start, the service and its doors, and their end."""

from __future__ import annotations

import datetime as dt
import importlib.util
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from penstock.cli.errors_shown import FAILED
from penstock.errors import PenstockError
from penstock.runtime.allocation import FreedMemory, arrow_by_malloc, collect_new_only
from penstock.runtime.spark.checkpoint.place import check_place
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.control.engine import Engine
    from penstock.control.outcomes import Principal
    from penstock.results.select_workers import LargerSelects, SelectWorkers
    from penstock.server.listening import Certificate
    from penstock.server.policy import ServerPolicy
    from penstock.server.roles import Caller
    from penstock.server.service import Service
    from penstock.server.tokens import TokenFile

#: Seconds between two looks whether the server is to end by itself: the run has failed, or a query that stops it.
_LOOK = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PACKAGES = ("fastapi", "uvicorn", "sse_starlette")


@dataclass(frozen=True)
class ServeOptions:
    """The options of the command.

    Args:
        pairs: the settings as written, `key=value`.
        script: executed at the start, its text and name; empty for none.
        auth: whether requests need a token.
        insecure: whether the server may be reached from other machines without TLS.
        names: further host names for which it answers.
        pg: where it speaks PostgreSQL's protocol; None: nowhere.
    """

    checkpoint: Path
    address: str
    settings: Settings = field(default_factory=Settings)
    pairs: tuple[str, ...] = ()
    script: tuple[str, str] = ("", "")
    token_file: Path | None = None
    auth: bool = True
    insecure: bool = False
    certificate: tuple[Path | None, Path | None] = (None, None)
    paths: tuple[Path, ...] = ()
    variables: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    master: str | None = None
    pg: str | None = None


def serve(options: ServeOptions, start: Callable[[ServeOptions, ServerPolicy], Service]) -> int:
    """Serve until a signal; return the exit code.

    Args:
        start: starts what is behind the doors, `start_on_spark` or `start_in_process`.

    Raises:
        PenstockError: P0806 for a server that cannot be started so, P0807 for its token file, P0608 and P0609 for its
            checkpoint.
    """
    check_packages()
    arrow_by_malloc()
    # Imported here, so that the other commands do not need the extra.
    from penstock.server.addresses import Address, HostNames
    from penstock.server.http.application.doors import start_door
    from penstock.server.http.application.server import HttpServer
    from penstock.server.http.door import HttpDoor
    from penstock.server.limits import DoorLimits
    from penstock.server.listening import check_exposure, opened
    from penstock.server.policy import ServerPolicy
    from penstock.server.tokens import TokenFile, default_token_file, first_token

    address = Address.parse(options.address)
    certificate = _certificate(options)
    check_exposure(address, certificate, options.auth, options.insecure)
    check_place(options.checkpoint)
    tokens = TokenFile(options.token_file or default_token_file()) if options.auth else None
    closed = (options.checkpoint, *((tokens.path.parent,) if tokens is not None else ()))
    policy = ServerPolicy(options.paths, options.variables, options.modules, options.hosts, closed)
    if tokens is not None:
        tokens.entries()
    listener = opened(address)
    pg_address = None if options.pg is None else Address.parse(options.pg)
    pg_listener, service = None, None
    try:
        if pg_address is not None:
            check_exposure(pg_address, certificate, options.auth, options.insecure)
            pg_listener = opened(pg_address, "--pg")
        service = start(options, policy)
        # Last of all: a token made by a start that then fails would be shown neither by it nor by the next one.
        first = None if tokens is None else first_token(tokens)
    except BaseException:
        if service is not None:
            service.close()
        listener.close()
        if pg_listener is not None:
            pg_listener.close()
        raise
    with _signal_noted() as caught:
        door = HttpDoor(service, tokens, HostNames.of(address, options.names), DoorLimits.of(options.settings))
        server = HttpServer(door, address, certificate, listener)
        pg_server = None
        if pg_address is not None and pg_listener is not None:
            pg_server = start_door("postgresql", door, pg_address, pg_listener, certificate)
        collect_new_only()
        _announce(server.url, options, first, None if pg_server is None else pg_server.address.shown, _user(tokens))
        reason = _wait(caught.event, service, FreedMemory())
        typer.echo("stopping: the round in hand is finished", err=True)
        if pg_server is not None:
            pg_server.close()
        server.close()
        service.close()
        if reason is not None:
            typer.echo(reason.render(), err=True)
            return FAILED
    return 0 if caught.number == signal.SIGTERM else 128 + caught.number


def _wait(signaled: threading.Event, service: Service, freed: FreedMemory) -> PenstockError | None:
    """Wait until the server is to end; return why, None for a signal."""
    while not signaled.wait(_LOOK):
        reason = service.stop_reason()
        if reason is not None:
            return reason
        freed.look()
    return None


def check_packages() -> None:
    """Raises PenstockError P0809 without the packages of the server."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        message = f"penstock serve needs the package {missing[0]}"
        raise PenstockError("P0809", message, hint="pip install 'penstock[server]'")


def start_in_process(options: ServeOptions, policy: ServerPolicy) -> Service:
    """Start a live system whose queries run in this process, and execute the script. Raises PenstockError."""
    from penstock.engines.in_process import InProcessEngine

    return _live(options, policy, InProcessEngine(options.checkpoint / "engine", workers=_workers(options.settings)))


def start_on_spark(options: ServeOptions, policy: ServerPolicy) -> Service:
    """Start a live system on Spark, and execute the script. Raises PenstockError."""
    from penstock.engines.spark import SparkEngine
    from penstock.results.large_select import LargeSelects
    from penstock.runtime.spark.startup.early_session import start_session_ahead
    from penstock.session import Session

    start_session_ahead(options.master, options.settings.spark)
    session = Session(settings=options.settings, master=options.master)
    memory, weight = (options.settings.get_int(name) for name in ("snapshot_memory", "snapshot_weight"))
    larger = LargeSelects(lambda: session.spark, options.checkpoint / "control" / "selects", memory, weight)
    workers = _workers(options.settings, larger)
    service = _live(options, policy, SparkEngine(options.checkpoint, lambda: session.spark, workers))
    # The checkpoint is this process's now.
    larger.remove_left()
    workers.warm()
    return service


def _workers(settings: Settings, larger: LargerSelects | None = None) -> SelectWorkers:
    """Return what computes one-time queries."""
    from penstock.results.select_workers import SelectWorkers

    timeout = float(settings["statement_timeout"])
    return SelectWorkers(memory=settings.get_int("snapshot_memory"), timeout=timeout, larger=larger)


def _live(options: ServeOptions, policy: ServerPolicy, engine: Engine) -> Service:
    from penstock.control.live.control import Control
    from penstock.server.access import StatementAccess
    from penstock.server.live.live_service import LiveService
    from penstock.server.start_script import StartScript
    from penstock.server.tokens import TokenFile, default_token_file

    access = StatementAccess(policy)
    written = {name.strip(): value.strip() for name, _, value in (pair.partition("=") for pair in options.pairs)}
    try:
        control = Control(
            options.checkpoint, engine, written, policy=lambda command, who: access.check_command(command, _caller(who))
        )
    except BaseException:
        engine.close()
        raise
    seconds, stalled = float(options.settings["statement_timeout"]), float(options.settings["stall_timeout"])
    tokens = TokenFile(options.token_file or default_token_file()) if options.auth else None
    service = LiveService(control, engine, access, seconds, stalled, tokens)
    try:
        if options.script[0]:
            StartScript(control, options.checkpoint).execute(*options.script)
    except BaseException:
        service.close()
        raise
    return service


def _caller(who: Principal) -> Caller:
    from penstock.server.roles import AccessRole, Caller

    return Caller(who.name, AccessRole[who.role.upper()])


def _certificate(options: ServeOptions) -> Certificate | None:
    from penstock.server.listening import Certificate

    chain, key = options.certificate
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        raise PenstockError("P0806", "--tls-cert and --tls-key are needed together")
    found = Certificate(chain, key)
    found.check()
    return found


def _user(tokens: TokenFile | None) -> str | None:
    """Return the name of a token with which psql can connect; None where none is needed."""
    if tokens is None:
        return None
    now = dt.datetime.now(dt.UTC)
    return next((one.name for one in tokens.entries() if not one.expired(now)), "NAME")


def _announce(url: str, options: ServeOptions, first: Path | None, pg: str | None, user: str | None) -> None:
    """Print where the server listens; the address alone goes to standard output, where a program reads it."""
    typer.echo(url)
    if pg is not None:
        typer.echo(f"PostgreSQL's protocol: {pg}", err=True)
        typer.echo(psql_line(pg, user), err=True)
    if not options.auth:
        typer.echo("requests need no token: every user of this machine has the role admin", err=True)
    if options.insecure and not url.startswith("https"):
        typer.echo("WARNING: tokens and rows are sent unencrypted (--insecure)", err=True)
    if first is not None:
        typer.echo(f"a token of the role admin is in {first}", err=True)


def psql_line(pg: str, user: str | None) -> str:
    """Return how psql connects.

    Args:
        pg: host and port where PostgreSQL's protocol is spoken.
        user: the name of a token, which is the password; None where no token is needed.
    """
    host, _, port = pg.rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host.strip("[]"), host.strip("[]"))
    line = f'psql "host={host} port={port} dbname=penstock user={user or "penstock"}"'
    return line if user is None else f"{line} (its password is the token {user})"


@dataclass
class _Caught:
    number: int = 0
    event: threading.Event = field(default_factory=threading.Event)


@contextmanager
def _signal_noted() -> Iterator[_Caught]:
    """Note the first signal that requests the end; the second one ends the process as it would by default."""
    caught = _Caught()

    def note(number: int, _frame: FrameType | None) -> None:
        caught.number = number
        caught.event.set()
        for one in _SIGNALS:
            signal.signal(one, signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in _SIGNALS}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
