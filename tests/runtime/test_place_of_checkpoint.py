"""A checkpoint that cannot be where it is said to be: what is wrong, and what helps."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.checkpoint_lock import claim
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.runtime.spark.checkpoint.place import check_place
from penstock.session import Session


def refused(place: Path) -> str:
    with pytest.raises(PenstockError) as told:
        check_place(place)
    assert told.value.code == "P0608"
    return told.value.message


def test_files_and_what_is_below_them_are_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert refused(tmp_path / "file") == f"{tmp_path}/file is a file"
    for below in (tmp_path / "file" / "below", tmp_path / "file" / "far" / "below"):
        assert refused(below) == f"{tmp_path}/file is a file, so {below} cannot be a folder"
    assert refused(tmp_path / "nowhere") == f"{tmp_path}/nowhere is no folder"
    check_place(tmp_path)
    check_place(tmp_path / "new" / "below")


def test_a_start_below_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    session = Session()
    session.execute("CREATE STREAM s (ts INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY q AS SELECT * FROM s [NOW];")
    with pytest.raises(PenstockError, match="is a file, so ") as told:
        session.start(str(tmp_path / "file" / "below"))
    assert told.value.code == "P0608"


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "free space on that disk and start"),
        (errno.EROFS, "allow writing there and start"),
        (errno.EACCES, "allow writing there and start"),
        (errno.EIO, "free space on that disk, or allow writing there, and start"),
    ],
)
def test_what_helps_follows_from_what_the_system_says(tmp_path: Path, number: int, hint: str) -> None:
    error = unwritable(tmp_path, OSError(number, os.strerror(number)))
    assert error.code == "P0601" and os.strerror(number) in error.message
    assert (error.hint or "").startswith(hint)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PenstockError, match="Permission denied") as told:
        claim(tmp_path / "checkpoint")
    tmp_path.chmod(0o700)
    assert told.value.code == "P0601" and (told.value.hint or "").startswith("allow writing there")
