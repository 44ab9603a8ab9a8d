"""What the rounds of a live run have read: the tasks of each round, kept after Spark has forgotten it.

A query that begins later reads the past again by these tasks. They hold the splits, the largest timestamp before them,
the stamp of SYSTEM TIME and the heartbeats of the clock, so that what was late then is late again, and records of a
topic are found by their positions.

`history/<first round>.json` holds a block of rounds. It is written before a round is published, but not synced: what a
loss of power takes is read from the splits instead (`past_input.py`), which is possible for files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, round_name
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.storage import storage

#: Rounds in one file, which is rewritten with each of them.
BLOCK = 64
#: Blocks that are kept. The past before them is read from the splits.
_BLOCKS = 1024


@dataclass(frozen=True)
class ReadRound:
    """What one round has read. files: by source, the name under which its splits are kept (`source_file`), which
    differs for a source that is declared again.
    """

    number: int
    tasks: tuple[ReadTask, ...]
    files: Mapping[str, str]


class RoundHistory:
    """The rounds of one run, in its folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        #: The block that is written: its first round, and by number the text of each of its rounds.
        self._block: tuple[int, dict[int, str]] | None = None

    def note(self, number: int, tasks: Sequence[ReadTask], births: Mapping[str, int]) -> None:
        """Record the tasks of round `number`, replacing what was planned for it before."""
        first = _first(number)
        if self._block is None or self._block[0] != first:
            self._block = first, {known.number: _text(known) for known in self._read(first)}
            self._forget(first)
        files = {task.source: source_file(task.source, births) for task in tasks if task.source is not None}
        texts = self._block[1]
        texts[number] = _text(ReadRound(number, tuple(tasks), files))
        text = f"[{', '.join(texts[n] for n in sorted(texts))}]"
        self._folder.write_sealed(self._path(first), text, durable=False)

    def until(self, last: int, after: int = 0) -> list[ReadRound]:
        """Return the rounds behind `after` up to `last` that are recorded without a gap, in order."""
        found: list[ReadRound] = []
        while last > after:
            first = _first(last)
            block = {known.number: known for known in self._read(first)}
            for number in range(last, max(first - 1, after), -1):
                if number not in block:
                    return found[::-1]
                found.append(block[number])
            last = first - 1
        return found[::-1]

    def _path(self, first: int) -> Path:
        return self._folder.root / "history" / f"{round_name(first)}.json"

    def _read(self, first: int) -> list[ReadRound]:
        """Return the rounds of a block; none where its file is lost or damaged."""
        path = self._path(first)
        if not storage().exists(path):
            return []
        try:
            rounds = json.loads(self._folder.read_sealed(path))
        except (OSError, ValueError):
            return []
        return [
            ReadRound(known["number"], tuple(ReadTask.from_json(task) for task in known["tasks"]), known["files"])
            for known in rounds
        ]

    def _forget(self, first: int) -> None:
        for name in storage().list(self._folder.root / "history"):
            stem = name.removesuffix(".json")
            if stem.isdigit() and int(stem) < first - _BLOCKS * BLOCK:
                storage().remove(self._folder.root / "history" / name)


def _text(known: ReadRound) -> str:
    return json.dumps(asdict(known))


def _first(number: int) -> int:
    """Return the first round of the block of round `number`."""
    return (number - 1) // BLOCK * BLOCK + 1
