"""The files of a round: the read tasks that one task of Spark carries out, as JSON.

A task of Spark costs some ten milliseconds of processor time, whatever it reads: the JVM schedules it, sends it to a
Python worker and takes its packets. So the read tasks of a hundred relations with an update each are carried out by as
many tasks of Spark as run at once.

    [{..}, {..}]    read tasks, one after the other
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from penstock.runtime.spark.checkpoint.folder import Folder, chunks_of
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.storage import storage
from penstock.storage.seals import damaged, sealed, unsealed

#: Bytes up to which a read task may share a file with others: reading them takes less than a task of Spark.
SMALL = 2**16


def shared_files(
    tasks: Sequence[ReadTask], parallelism: int, alone: Collection[str] = ()
) -> list[tuple[ReadTask, ...]]:
    """Return the read tasks by file: small ones in at most `parallelism` files, each of the others in its own.

    Args:
        alone: sources whose size is not known before they are read.
    """
    small = [task for task in tasks if task.source not in alone and sum(s.bytes for s in task.splits) <= SMALL]
    together = {part[0].task: tuple(part) for part in chunks_of(small, parallelism)}
    in_parts = {task.task for part in together.values() for task in part}
    return [together.get(task.task, (task,)) for task in tasks if task.task in together or task.task not in in_parts]


def file_name(number: int) -> str:
    """Return the name of the file with a number in its round."""
    return f"{number:05d}.json"


def file_text(folder: Folder, path: Path, tasks: Sequence[ReadTask]) -> bytes:
    """Return the content of the file at `path`, with its seal."""
    return sealed(json.dumps([asdict(task) for task in tasks]), folder.place(path))


def load_read_tasks(folder: Folder, path: str | Path, content: bytes | None = None) -> list[ReadTask]:
    """Return the read tasks in a file of a round.

    Args:
        content: the bytes of the file, where they have been read.

    Raises:
        PenstockError: P0605 where it is damaged, or belongs to another place.
    """
    # Spark passes paths as URIs: the part above the round is ignored.
    file = folder.root.joinpath("rounds", *Path(path).parts[-2:])
    try:
        data = storage().read(file) if content is None else content
        fields = json.loads(unsealed(data, folder.place(file)))
    except (OSError, ValueError) as error:
        raise damaged(file, error) from error
    return [ReadTask.from_json(task) for task in fields]
