"""The commands. Exit codes: 0 done; 1 the run failed; 2 wrong script or usage, and nothing ran; 128 + signal when a
signal stopped the run, cleanly. Results of CONSOLE sinks and the texts of EXPLAIN and SHOW go to standard output; all
talk about the run goes to standard error."""

from __future__ import annotations

import enum
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.logs import LogFormat, LogLevel, configure
from penstock.errors import PenstockError
from penstock.settings import Settings

app = typer.Typer(
    name="penstock",
    help="Continuous queries in CQL over streams and relations, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FAILED, WRONG = 1, 2

#: What a script that will run on Spark holds, and one that has settings of its own for it.
_WANTS_SPARK = re.compile(r"\bcreate\s+query\b", re.IGNORECASE)
_TELLS_SPARK = re.compile(r"\bspark\b", re.IGNORECASE)

#: The machine or the run is at fault, not what the user wrote.
_RUN_CODES = frozenset({"P0601", "P0603", "P0621", "P0631", "P0632"})


class Format(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


class StateFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A file of CQL statements, or - for standard input.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting; may be repeated.")]


@contextmanager
def errors_shown(context: typer.Context) -> Iterator[None]:
    """A mistake becomes text on standard error and an exit code; a traceback only with --debug."""
    try:
        yield
    except PenstockError as error:
        typer.echo(error.render(), err=True)
        _debug(context)
        raise typer.Exit(FAILED if error.code in _RUN_CODES else WRONG) from None
    except (KeyboardInterrupt, BrokenPipeError):
        raise typer.Exit(130) from None
    except Exception as error:
        typer.echo(f"error P0601: the run failed: {type(error).__name__}: {_first_line(error)}", err=True)
        if not _debug(context):
            typer.echo("  hint: `penstock --debug ...` shows where", err=True)
        raise typer.Exit(FAILED) from None


def _debug(context: typer.Context) -> bool:
    shown = bool(context.find_root().params.get("debug"))
    if shown:
        typer.echo(traceback.format_exc(), err=True)
    return shown


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0]


def read_script(path: Path) -> tuple[str, str]:
    """The text and the name that messages call it. What lies beside it can be named by CREATE FUNCTION. Raises
    PenstockError P0401."""
    beside = str(Path.cwd() if str(path) == "-" else path.absolute().parent)
    if beside not in sys.path:
        sys.path.append(beside)
    if str(path) == "-":
        return typer.get_text_stream("stdin").read(), "<stdin>"
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise PenstockError("P0401", f"cannot read the script {path}: {reason}", cause=error) from error


def read_settings(pairs: list[str] | None) -> Settings:
    """Raises PenstockError P0104."""
    settings = Settings()
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise PenstockError("P0104", f"--set {pair}: a setting is KEY=VALUE")
        settings = settings.with_value(key.strip(), value.strip())
    return settings


def _version(asked: bool) -> None:
    if asked:
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
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the metrics of every batch to FILE, as lines of JSON.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(metavar="N", help="Serve metrics for Prometheus on this port; 0: any that is free.")
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="How the log on standard error is written.")] = LogFormat.TEXT,
    log_level: Annotated[LogLevel, typer.Option(help="What the log tells at the least.")] = LogLevel.WARNING,
) -> None:
    """Run the queries of a script until their inputs end, or until Ctrl-C."""
    with errors_shown(context):
        text, name = read_script(script)
        configure(log_format, log_level)
        settings = read_settings(set_)
        _foresee_spark(text, settings, master)
        # Commands that need no Spark start without it.
        from penstock.cli.running import run_script

        if metrics is not None:
            settings = settings.with_value("metrics_file", str(metrics))
        if metrics_port is not None:
            settings = settings.with_value("metrics_port", str(metrics_port))
        code = run_script(
            text, name, settings, checkpoint, drain=drain, master=master, overwrite=overwrite, backfill=backfill
        )
    raise typer.Exit(code)


def _foresee_spark(text: str, settings: Settings, master: str | None) -> None:
    """Have Spark start while the script is read, where the script seems to want it, and as it is told here."""
    if _WANTS_SPARK.search(text) and not _TELLS_SPARK.search(text):
        from penstock.runtime.spark.jvm import start_session_ahead

        start_session_ahead(master, settings.spark)


@app.command()
def check(context: typer.Context, script: Script, set_: Set = None) -> None:
    """Read and bind a script, show all its errors, run nothing."""
    with errors_shown(context):
        from penstock.cli.checking import said_of_queries
        from penstock.session import Session

        text, name = read_script(script)
        session = Session(settings=read_settings(set_))
        count = len(session.declare(text, file=name))
        typer.echo(f"{name}: correct, {count} {'query' if count == 1 else 'queries'}")
        for line in said_of_queries(session, text, name):
            typer.echo(line)


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
        plans = [session.explain(one, format_.value, analyze) for one in ([query] if query is not None else created)]
        typer.echo(_joined(plans, format_, one=query is not None), nl=False)


def _joined(plans: list[str], format_: Format, one: bool) -> str:
    """One plan as it is; the plans of a whole script as JSON are a list."""
    if format_ is Format.JSON and not one:
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


def main() -> None:
    app()


if __name__ == "__main__":
    main()
