"""Two streams of one server that differ in one thing, and get the same batches in turn.

What a server does for one of them and not for the other costs the same processes, so neither the compiling of the JVM
nor which worker holds what is between the two; `live_overhead.py` has the figures.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import answers, data
from benchmarks.queries import BenchQuery, watched_stream
from benchmarks.sides import Account, Side, measured_batch

#: Sinks of a query: parquet files, with `{path}` for a folder, and what the server keeps for subscribers.
FILES, RESULTS = "INTO FILES (path '{path}', format 'parquet')", "INTO RESULTS (max_bytes '1 GB')"


@dataclass(frozen=True)
class Twin:
    """One of the two streams, with a query over it.

    Args:
        retain: what its declaration has.
        sink: of its query.
    """

    retain: str = ""
    sink: str = FILES


class Twins:
    """The batches of two streams of a server.

    Args:
        root: a folder for what it reads and writes.
        files: of the batches.
        rows: of each of them.
    """

    def __init__(self, root: Path, server: Side, files: Sequence[Path], rows: int) -> None:
        self._root = root
        self._server = server
        self._files = files
        self._rows = rows
        self._read = 0

    def batches(
        self, query: BenchQuery, both: tuple[Twin, Twin], warm_up: int, appear: Callable[[Path, Path], None]
    ) -> list[tuple[Account, Account]]:
        """Return what the batches of both took, in pairs.

        Args:
            warm_up: pairs that do not count.
            appear: has a file appear in a folder.
        """
        folders = [self._root / f"twin-{number}" for number in range(2)]
        for folder in folders:
            (folder / "in").mkdir(parents=True)
        self._server.begin("".join(script_of(n, query, twin, folders[n]) for n, twin in enumerate(both)))
        self._read = 0
        pairs = []
        for number, file in enumerate(self._files):
            accounts = {}
            for index in (0, 1) if number % 2 else (1, 0):
                accounts[index] = self._batch(file, folders[index], appear)
            pairs.append((accounts[0], accounts[1]))
        self._check(query, both, folders)
        self._server.end()
        for folder in folders:
            shutil.rmtree(folder)
        return pairs[warm_up:]

    def _batch(self, file: Path, folder: Path, appear: Callable[[Path, Path], None]) -> Account:
        """Have one file answered; return what that took."""
        self._read += self._rows
        return measured_batch(self._server, lambda: appear(file, folder / "in"), self._rows, self._read)

    def _check(self, query: BenchQuery, both: tuple[Twin, Twin], folders: Sequence[Path]) -> None:
        # The last instant may have more rows, and is not answered yet.
        last = data.last_ms(self._rows * data.FILES) - 1
        expected = answers.reference_checksum(self._files[0].parent, query, last)
        for number, (twin, folder) in enumerate(zip(both, folders, strict=True)):
            name = f"{query.name}_{number}"
            if twin.sink == RESULTS:
                found = self._kept(name, query, last)
            else:
                found = answers.result_checksum(folder / "out", query, last)
            assert found == expected, f"{name}: a wrong answer: {found}, not {expected}"

    def _kept(self, name: str, query: BenchQuery, last: int) -> answers.Checksum:
        """Return the checksum of what the server keeps of an answer."""
        assert self._server.answer is not None, "it is a server"
        return sum(
            (answers.of_batch(batch, query, last) for batch in self._server.answer(name)), answers.none_of(query)
        )


def script_of(number: int, query: BenchQuery, twin: Twin, folder: Path) -> str:
    """Return the statements of a twin: the stream and the query have its number behind their names."""
    declared = watched_stream(folder / "in", twin.retain).replace("CREATE STREAM C ", f"CREATE STREAM C{number} ")
    cql = re.sub(r"\bFROM C\b", f"FROM C{number}", query.cql.strip())
    return f"{declared}CREATE QUERY {query.name}_{number} {twin.sink.format(path=folder / 'out')} AS {cql};\n"
