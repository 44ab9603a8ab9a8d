"""The commands. Exit codes: 0 done; 1 the run failed; 2 wrong script or usage, and nothing ran; 128 + signal when a
signal stopped the run cleanly, also 141 where the reader of standard output has closed it (`| head`). Results of
CONSOLE sinks and the output of EXPLAIN and SHOW go to standard output; everything about the run goes to standard error.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.errors_shown import WRONG, errors_shown
from penstock.cli.logs import LogFormat, LogLevel, configure
from penstock.cli.shared.options import (
    Authorities,
    ClientToken,
    Connect,
    Format,
    ResultFormat,
    Script,
    Set,
    StateFormat,
    place_of,
    read_settings,
    written,
)
from penstock.cli.shared.scripts import read_script
from penstock.cli.tokens import tokens
from penstock.errors import PenstockError
from penstock.loading import lazy_pandas
from penstock.loading.modules import is_found, look_beside
from penstock.runtime.spark.checkpoint.place import check_place
from penstock.settings import Settings

# --- Standard output of a command.


def buffer_output() -> None:
    """Put a buffer before standard output where Python has none (`PYTHONUNBUFFERED`, `python -u`).

    An unbuffered write may write only a part without an error: a reader that closes the pipe in the middle would be
    taken for one that has read all of it.
    """
    out = sys.stdout
    raw = getattr(out, "buffer", None)
    if isinstance(out, io.TextIOWrapper) and isinstance(raw, io.RawIOBase):
        encoding, errors = out.encoding, out.errors
        out.detach()
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)


class Commands(TyperGroup):
    """The commands; a usage error is one line on standard error."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except Exception as error:
            # The error's class depends on the version of Typer, which brings its own Click or uses another.
            if not standalone_mode or not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                error.show()  # type: ignore[attr-defined]  # a class of Click
            else:
                typer.echo(_usage_line(error), err=True)
            sys.exit(WRONG)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


#: By options of other programs, those that mean the same here.
_MEANT = {
    **dict.fromkeys(("--server", "--url", "--host", "--address", "--port"), frozenset({"--connect", "--http"})),
    **dict.fromkeys(("--token", "--password"), frozenset({"--token-file"})),
}
#: Values that other programs take behind a flag.
_SWITCHES = frozenset(("yes", "no", "true", "false", "on", "off", "1", "0"))


def _usage_line(error: Any) -> str:
    """Return the line for a usage error: `error: No such option: --x; "penstock run --help" lists what there is`."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split()).replace("Value error, ", "")
    there = {option for parameter in context.command.params for option in parameter.opts} if context else set()
    meant = there & _MEANT.get(getattr(error, "option_name", ""), frozenset())
    if meant:
        message = f"{message.partition(' (')[0]}; that is {' or '.join(sorted(meant))} here"
    if context is None:
        return f"error: {message}"
    flags = {name for one in context.command.params if getattr(one, "is_flag", False) for name in one.opts}
    for flag, value in pairwise(sys.argv):
        if flag in flags and value.lower() in _SWITCHES:
            message = f"{message.rstrip('.')}; {flag} takes no value"
    return f'error: {message.rstrip(".")}; "{context.command_path} --help" lists what there is'


app = typer.Typer(
    name="penstock",
    cls=Commands,
    help="Continuous queries in CQL over streams and relations, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

#: Patterns of a script that will run on Spark, and of one with settings of its own for Spark.
_NEEDS_SPARK = re.compile(r"\bcreate\s+query\b", re.IGNORECASE)
_SETS_SPARK = re.compile(r"\bspark\b", re.IGNORECASE)


app.add_typer(tokens, name="token")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Continuous queries in CQL over streams and relations, on Apache Spark."""


@app.command()
def run(
    context: typer.Context,
    script: Script,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the run's state here; the same command resumes from it.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="At the end of bounded inputs let time run on until all windows are empty.")
    ] = False,
    set_: Set = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master; default: this machine.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Remove results that exist already.")] = False,
    backfill: Annotated[
        bool,
        typer.Option(
            "--backfill", help="Queries that the checkpoint does not know read the past of their sources first."
        ),
    ] = False,
    accept_missing_results: Annotated[
        bool,
        typer.Option(
            "--accept-missing-results", help="Go on though parts of results are gone that the run has delivered."
        ),
    ] = False,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the metrics of every batch to FILE, as lines of JSON.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="N", help="Serve metrics for Prometheus on this port; 0: any that is free.")
    ] = None,
    format_: Annotated[
        ResultFormat | None,
        typer.Option("--format", help="How CONSOLE results are written; default: table on a terminal, else csv."),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="How the log on standard error is written.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Minimum severity that is logged.")] = LogLevel.WARNING,
) -> None:
    """Run the queries of a script until their inputs end, or until Ctrl-C."""
    with errors_shown(context):
        text, name = read_script(script)
        configure(log_format, log_level)
        settings = read_settings(set_)
        if checkpoint is not None:
            check_place(checkpoint)
        _start_spark_ahead(text, settings, master)
        # Imported here, so that commands without Spark start without it.
        from penstock.cli.running import run_script
        from penstock.connectors.sinks.output import OutputFormat

        if metrics is not None:
            settings = settings.with_value("metrics_file", str(metrics))
        if metrics_port is not None:
            settings = settings.with_value("metrics_port", str(metrics_port))
        output_format = format_ or _usual_format()
        code = run_script(
            text,
            name,
            settings,
            checkpoint,
            drain=drain,
            master=master,
            overwrite=overwrite,
            backfill=backfill,
            form=OutputFormat(output_format.value),
            accept_missing=accept_missing_results,
        )
    raise typer.Exit(code)


@app.command()
def query(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[SCRIPT] [QUERY]", help="A script, and a query over its sources and queries."),
    ],
    format_: Annotated[
        ResultFormat | None,
        typer.Option("--format", help="How the rows are written; default: table on a terminal, else csv."),
    ] = None,
    set_: Set = None,
    connect: Connect = None,
    token_file: ClientToken = None,
    tls_ca: Authorities = None,
) -> None:
    """Answer a one-time SELECT, or those of a script: over inputs that end, without Spark, or at a running server."""
    from penstock.cli.shared.querying import answer, check_something, is_statement, read_query

    with errors_shown(context):
        for one in arguments:
            check_something(one)
    script, text = (arguments[0], arguments[1]) if len(arguments) == 2 else (None, arguments[0])
    if len(arguments) > 2 or (script is not None and (is_statement(script) or not is_statement(text))):
        expected = "expected a script, a query, or a script and then a query in quotes"
        if len(arguments) == 2 and not is_statement(text):
            expected += f": the second one begins with no statement, such as SELECT: {text}"
        raise typer.BadParameter(expected, context)
    place = place_of(context, connect, token_file, tls_ca)
    with errors_shown(context):
        from penstock.connectors.sinks.output import OutputFormat
        from penstock.session import Session

        output_format = OutputFormat((format_ or _usual_format()).value)
        if place is not None:
            from penstock.cli.remote.asking import answer_at_server

            read = [(one, None) if is_statement(one) else read_query(one) for one in arguments]
            answer_at_server(place, read, output_format, written(set_))
            return
        session = Session(settings=read_settings(set_))
        if script is not None:
            content, name = read_query(script)
            session.declare(content, file=name, one_time=True)
            answer(session, text, None, output_format)
        elif is_statement(text):
            look_beside(str(Path.cwd()))
            answer(session, text, None, output_format)
        else:
            content, name = read_query(text)
            answer(session, content, name, output_format)


@app.command()
def shell(
    context: typer.Context,
    script: Annotated[Path | None, typer.Argument(metavar="[SCRIPT]", help="A script to execute first.")] = None,
    format_: Annotated[
        ResultFormat | None,
        typer.Option("--format", help="How rows are written: table, csv or json; default: table on a terminal."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Go on after an error in statements that are read from a pipe.")
    ] = False,
    set_: Set = None,
    connect: Connect = None,
    token_file: ClientToken = None,
    tls_ca: Authorities = None,
) -> None:
    """Execute statements one after the other: over inputs that end, without Spark, or at a running server."""
    place = place_of(context, connect, token_file, tls_ca)
    with errors_shown(context):
        from penstock.cli.shell.start import run_shell
        from penstock.connectors.sinks.output import OutputFormat

        output_format = OutputFormat((format_ or _usual_format()).value)
        code = run_shell(
            script,
            read_settings(set_),
            output_format,
            keep_going,
            bool(context.find_root().params.get("debug")),
            place,
            written(set_),
        )
    raise typer.Exit(code)


def _usual_format() -> ResultFormat:
    return ResultFormat.TABLE if sys.stdout and sys.stdout.isatty() else ResultFormat.CSV


def _start_spark_ahead(text: str, settings: Settings, master: str | None) -> None:
    """Start Spark while the script is read, if the script seems to need it and has no settings for it."""
    if _NEEDS_SPARK.search(text) and not _SETS_SPARK.search(text):
        from penstock.runtime.spark.startup.early_session import start_session_ahead

        start_session_ahead(master, settings.spark)


@app.command()
def serve(
    context: typer.Context,
    checkpoint: Annotated[Path, typer.Option(metavar="DIR", help="Keep queries, results and state here.")],
    script: Annotated[Path | None, typer.Argument(metavar="[SCRIPT]", help="A script to execute at the start.")] = None,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any that is free.")
    ] = "127.0.0.1:8265",
    pg: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to speak PostgreSQL's protocol, as 127.0.0.1:5439; or none.")
    ] = "none",
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file of tokens; default: ~/.config/penstock/tokens.json.")
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Require no tokens; on this machine only.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="The key of the certificate, PEM.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond this machine without TLS: tokens are sent unencrypted.")
    ] = False,
    server_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A host name for which the server answers.")
    ] = None,
    allow_path: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Statements may read and write files below this folder.")
    ] = None,
    allow_env: Annotated[
        list[str] | None, typer.Option(metavar="PREFIX", help="Secrets may come from variables with this prefix.")
    ] = None,
    allow_functions: Annotated[
        list[str] | None, typer.Option(metavar="MODULE", help="Functions of this module may be declared.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="HOST[:PORT]", help="Brokers and databases that may be reached.")
    ] = None,
    set_: Set = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark's master; default: this machine.")] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Without Spark, over inputs that end and rows that are posted.")
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How the log on standard error is written.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="Minimum severity that is logged.")] = LogLevel.WARNING,
) -> None:
    """Serve queries that come and go, over HTTP, until SIGTERM or Ctrl-C."""
    with errors_shown(context):
        from penstock.cli.serve import ServeOptions, start_in_process, start_on_spark
        from penstock.cli.serve import serve as serve_until_signal

        configure(log_format, log_level)
        for folder in allow_path or ():
            if not Path(folder).exists():
                typer.echo(f"warning: --allow-path {folder} does not exist", err=True)
        given_script = ("", "") if script is None else read_script(script)
        for module in allow_functions or ():
            if not is_found(module):
                typer.echo(f"warning: --allow-functions {module}: no such module is found", err=True)
                typer.echo(
                    f"  hint: put {module.partition('.')[0]}.py beside the script, or its folder into PYTHONPATH",
                    err=True,
                )
        options = ServeOptions(
            checkpoint,
            http,
            read_settings(set_),
            tuple(set_ or ()),
            given_script,
            token_file,
            not no_auth,
            insecure,
            (tls_cert, tls_key),
            tuple(allow_path or ()),
            tuple(allow_env or ()),
            tuple(allow_functions or ()),
            tuple(allow_host or ()),
            tuple(server_name or ()),
            master,
            None if pg.strip().lower() == "none" else pg,
        )
        code = serve_until_signal(options, start_in_process if in_process else start_on_spark)
    raise typer.Exit(code)


@app.command()
def check(
    context: typer.Context,
    script: Script,
    serve: Annotated[bool, typer.Option("--serve", help="It is one for penstock serve.")] = False,
    set_: Set = None,
) -> None:
    """Read and bind a script, look for its files, show all its errors, run nothing."""
    with errors_shown(context):
        from penstock.cli.checking import check_for_run, check_for_server

        text, name = read_script(script)
        lines = check_for_server(text, name, written(set_)) if serve else check_for_run(text, name, read_settings(set_))
        for line in lines:
            typer.echo(line)


@app.command()
def apply(
    context: typer.Context,
    script: Script,
    server: Annotated[str, typer.Option("--server", "--connect", metavar="URL", help="The server.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    set_: Set = None,
    token_file: ClientToken = None,
    tls_ca: Authorities = None,
) -> None:
    """Bring the declarations of a server to those of a script, all of them or none; show the statements that differ."""
    place = place_of(context, server, token_file, tls_ca)
    with errors_shown(context):
        from penstock.cli.remote.applying import apply_at_server

        assert place is not None, "the server is required"
        text, name = read_script(script)
        apply_at_server(place, text, name, written(set_), dry_run)


@app.command()
def explain(
    context: typer.Context,
    script: Script,
    query: Annotated[str | None, typer.Option(metavar="NAME", help="One query; default: all.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How to draw the plan.")] = Format.TEXT,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the queries in this process and show what every operator did.")
    ] = False,
    set_: Set = None,
) -> None:
    """Show the logical and physical plans of a script's queries."""
    with errors_shown(context):
        from penstock.session import Session

        text, name = read_script(script)
        session = Session(settings=read_settings(set_))
        created = session.execute(text, file=name).queries
        if format_ is Format.DRAWN and query is None and len(created) > 1:
            message = f"a picture is of one query, {name} has {len(created)}"
            raise PenstockError("P0104", message, hint=f"--query NAME, such as --query {created[0]}")
        plans = [
            session.explain(query_name, format_.value, analyze)
            for query_name in ([query] if query is not None else created)
        ]
        if not plans:
            typer.echo(f"{name}: no query to explain", err=True)
        typer.echo(_joined(plans, format_, is_single=query is not None), nl=False)


def _joined(plans: list[str], format_: Format, is_single: bool) -> str:
    """Return one plan unchanged; the plans of a whole script in JSON become a list."""
    if format_ is Format.JSON and not is_single:
        return "[" + ",\n".join(plan.rstrip() for plan in plans) + "]\n"
    return "\n".join(plans)


@app.command()
def state(
    context: typer.Context,
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="The folder given to run --checkpoint.")],
    format_: Annotated[StateFormat, typer.Option("--format", help="How to write it.")] = StateFormat.TEXT,
    shards: Annotated[bool, typer.Option("--shards", help="Also of each shard by itself.")] = False,
) -> None:
    """Show what a checkpoint holds: per query and operator rows, bytes, oldest and newest element, chunks."""
    with errors_shown(context):
        from penstock.cli.state import state_text

        typer.echo(state_text(checkpoint, format_ is StateFormat.JSON, shards), nl=False)


@app.command()
def repair(
    context: typer.Context,
    checkpoint: Annotated[Path, typer.Argument(metavar="DIR", help="The folder given to serve --checkpoint.")],
    pause: Annotated[
        list[str], typer.Option("--pause", metavar="QUERY", help="The next start leaves it out; may be repeated.")
    ],
) -> None:
    """Pause queries with which a server does not come up, in the checkpoint of a server that does not run."""
    with errors_shown(context):
        from penstock.cli.shell.declared import quoted
        from penstock.connectors.sinks.tabular import shown
        from penstock.control.live.repair import DROPPED, pause_queries

        for name, state_before in pause_queries(checkpoint, pause):
            if state_before == DROPPED:
                typer.echo(shown(f"{name}: its DROP was accepted; the next start drops it and does not run it before"))
                continue
            was = "is paused" if state_before == "RUNNING" else f"was {state_before}, and does not run"
            typer.echo(shown(f"{name} {was}; ALTER QUERY {quoted(name)} RESUME begins it again"))


@app.command()
def warm(
    context: typer.Context,
    only_java: Annotated[bool, typer.Option("--only-java", help="Write the archive of Java's classes alone.")] = False,
) -> None:
    """Compile and keep what first queries would wait for: for an image, or right after an installation."""
    with errors_shown(context):
        from penstock.cli.warming import warm as fill_caches

        is_filled = fill_caches(only_java, lambda text: typer.echo(text, err=True))
    raise typer.Exit(0 if is_filled else 1)


def main() -> None:
    lazy_pandas.postpone()
    buffer_output()
    try:
        app()
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    gc.freeze()  # the end of Python looks for unreachable objects among all: 0.3 s of CPU, and nothing of it is needed
    _leave(code)


def _leave(code: int | str | None) -> NoReturn:
    """End the process at once, after running the exit handlers here.

    While threads of Spark live, Python itself must not shut down: a thread that returns from Arrow during shutdown of
    the interpreter aborts the process (`PyGILState_Release`, exit code 134).
    """
    other_threads = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if not other_threads or not (code is None or isinstance(code, int)):
        sys.exit(code)
    try:
        for thread in other_threads:
            if not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code or 0)


if __name__ == "__main__":
    main()
