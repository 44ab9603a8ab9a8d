"""The files of a control: documents of JSON, each written whole, synced and sealed, and the lock that keeps a second
control out.

Errors of the storage become errors for the user here: P0601 where a file cannot be written, P0605 where it does not
hold what was written, P0609 where another control uses the folder.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.storage import Held, Locked, storage
from penstock.storage.documents import Document, as_document
from penstock.storage.seals import damaged, later_format, sealed, unsealed

Content = TypeVar("Content")
#: The format of the documents, in a field of each: raised where earlier programs would misread them. Documents without
#: it are older, and read as those of format 1.
FORMAT = 1
_FORMAT = "format"
_LOCK = ".in-use"
_LATER = "a later version of Penstock may have written it"


@dataclass(frozen=True)
class SealedFiles:
    """Documents in one folder and those below it, by their path in it."""

    root: Path

    def write(self, name: str, document: Document) -> None:
        """Write a document whole and durably. Raises PenstockError P0601; there is no such document then, or the former
        one."""
        path = self.root / name
        try:
            text = json.dumps({_FORMAT: FORMAT, **document}, separators=(",", ":"))
            storage().write(path, sealed(text, name))
        except OSError as error:
            raise not_written(path, error) from error

    def read(self, name: str) -> Document:
        """Return a document without its format. Raises PenstockError P0605."""
        path = self.root / name
        try:
            document = as_document(json.loads(unsealed(storage().read(path), name)), name)
            number = document.get(_FORMAT, FORMAT)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"its format is {number!r}")
        except (OSError, ValueError, TypeError) as error:
            raise damaged(path, error) from error
        if number > FORMAT:
            raise later_format(path, number, FORMAT)
        return {field: value for field, value in document.items() if field != _FORMAT}

    def read_as(self, name: str, made_of: Callable[[Document], Content]) -> Content:
        """Return what a document holds. Raises PenstockError P0605, also for one with other fields: of a later version,
        most likely."""
        document = self.read(name)
        try:
            return made_of(document)
        except KeyError as error:
            reason: Exception = ValueError(f"it has no field {error}; {_LATER}")
        except (TypeError, ValueError) as error:
            reason = ValueError(f"{error}; {_LATER}")
        raise damaged(self.root / name, reason)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the finished files in a folder."""
        return [name for name in storage().list(self.root / folder) if not name.startswith(".")]

    def remove(self, name: str) -> None:
        """Remove a document if it exists. One that cannot be removed stays: it is removed by a later attempt."""
        try:
            storage().remove(self.root / name)
        except OSError:
            return

    def lock(self) -> Locked:
        """Lock the folder for this process. Raises PenstockError P0609, P0601."""
        path = self.root / _LOCK
        try:
            return storage().lock(path, f"{os.getpid()} on {socket.gethostname()}")
        except Held as held:
            raise PenstockError(
                "P0609",
                f"the checkpoint {self.root.parent} is in use" + (f": by process {held.holder}" if held.holder else ""),
                hint="stop that server first, or give another --checkpoint",
            ) from None
        except OSError as error:
            raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> PenstockError:
    """Return the error for a file that cannot be written."""
    reason = error.strerror or str(error)
    return PenstockError("P0601", f"{path} cannot be written: {reason}", cause=error, hint="nothing has been changed")


def moved_away(checkpoint: Path) -> PenstockError:
    """Return the error for a checkpoint that was removed or renamed while a server used it."""
    return PenstockError(
        "P0601", f"the checkpoint {checkpoint} was removed or renamed while the server ran",
        hint="put it back, or a copy of it, and start the server again",
    )  # fmt: skip
