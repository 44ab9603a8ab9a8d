"""Posted relations with the engine on Spark, without Spark: what is selected, compacted and left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from inline_engine import InlineServer
from inline_run import InlineRun

from penstock.language.scripts import bind_script, bind_select
from penstock.results.content import ResultContents
from penstock.results.run_input import pinned_input, state_of_run
from penstock.results.select import LiveAnswer, LiveReader
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.hydration.compaction import Compaction
from penstock.runtime.spark.retention.compacted_updates import CompactedLog, CompactedUpdates


def compacting(server: InlineServer, retention: float = 0, limit: int = 2**28) -> Compaction:
    run = server.run
    return Compaction(run.inline.folder, run.rounds, lambda: run.job.intake, retention, limit)


def compacted_of(server: InlineServer, relation: str = "R") -> CompactedUpdates:
    return CompactedLog(server.run.inline.folder, source_file(relation, server.run.job.intake.births)).read()


def selected(server: InlineServer, text: str, declarations: str, name: str = "reader") -> LiveAnswer:
    """Answer a SELECT; declarations: of the sources, FROM MEMORY."""
    return selected_of(server.run.inline, text, declarations, name)


def selected_of(run: InlineRun, text: str, declarations: str, name: str = "reader") -> LiveAnswer:
    """Do the same with a run."""
    with _reading(run, text, declarations, name) as answered:
        return answered()


@contextmanager
def pinned(server: InlineServer, text: str, declarations: str) -> Iterator[Callable[[], LiveAnswer]]:
    """Begin a SELECT; give what computes its answer."""
    with _reading(server.run.inline, text, declarations, "first") as answered:
        yield answered


@contextmanager
def _reading(run: InlineRun, text: str, declarations: str, name: str) -> Iterator[Callable[[], LiveAnswer]]:
    query = bind_select(text, bind_script(declarations).catalog).query
    with pinned_input(run, name, {one.lower() for one in sources_of(query)}) as known:
        state = state_of_run(run, known, {}, ResultContents(run.folder.results))
        yield lambda: LiveReader(lambda: state).answer(query)


def posts(folder: Path, source: str = "*") -> list[Path]:
    """The files of posts that are there."""
    return sorted((folder / "control" / "kept").glob(f"{source}/*.arrow"))
