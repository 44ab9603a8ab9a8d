"""Files of withheld answers: read whole while others write and remove them, and damaged ones refused."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.physical.elements import Elements
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.output.withheld import Withheld, WithheldAnswers


def withheld(*values: int, first: int = 3) -> Withheld:
    ticks = np.array(values, np.int64)
    column = pa.array(values, pa.int64())
    return Withheld(Elements((column,), ticks, ticks + 1, np.ones(len(ticks), np.int8)), first)


def values(found: Withheld | None) -> list[int] | None:
    return None if found is None else found.changes.columns[0].to_pylist()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "penstock")
    made.begin_run()
    return made


def test_looking_at_files_that_are_written_and_removed_finds_each_whole(folder: Folder) -> None:
    writer, reader, ended, errors = WithheldAnswers(folder), WithheldAnswers(folder), threading.Event(), []
    seen: set[int] = set()

    def look() -> None:
        try:
            while not ended.is_set():
                for since, batch in ((0, 10**6), (5, 6)):
                    seen.add(len(values(reader.read("q", since, batch)) or ()))
        except PenstockError as error:
            errors.append(error)

    looking = [threading.Thread(target=look) for _ in range(2)]
    for one in looking:
        one.start()
    for batch in range(60):
        writer.write("q", batch, withheld(*range(batch % 7)))
        writer.seed("q", 5, withheld(1, 2))
        writer.add_past("q", 5, withheld(*range(batch % 5)))
    ended.set()
    for one in looking:
        one.join()
    assert not errors
    assert len(seen) > 1


def test_the_last_batch_and_what_was_read_of_the_past(folder: Folder) -> None:
    kept = WithheldAnswers(folder)
    assert kept.read("q", 2, 9) is None
    kept.seed("q", 2, withheld(1))
    kept.add_past("q", 2, withheld(7, 8, first=5))
    found = kept.read("q", 2, 9)
    assert found is not None
    assert (values(found), found.first) == ([1, 7, 8], 5)
    for batch in (2, 3, 4):
        kept.write("q", batch, withheld(batch))
    assert [values(kept.read("q", 2, batch)) for batch in (4, 5, 9)] == [[3], [4], [4]]


@pytest.mark.parametrize("damage", ["empty", "short", "byte", "seal", "swapped"])
def test_a_damaged_file_is_refused(folder: Folder, damage: str) -> None:
    kept = WithheldAnswers(folder)
    kept.write("q", 2, withheld(1, 2))
    (path,) = folder.root.glob("withheld/*/*.arrow")
    content = bytearray(path.read_bytes())
    if damage == "swapped":
        kept.write("other", 2, withheld(3, 4))
        (content,) = [other.read_bytes() for other in folder.root.glob("withheld/*/*.arrow") if other != path]
    elif damage == "byte":
        content[len(content) // 3] ^= 1
    elif damage == "seal":
        content[-12] ^= 1
    else:
        content = content[: 3 if damage == "short" else 0]
    path.write_bytes(content)
    with pytest.raises(PenstockError, match="P0605"):
        kept.read("q", 2, 9)
