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
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.storage import Held, Locked, storage
from penstock.storage.documents import Document, as_document
from penstock.storage.seals import damaged, other_format, sealed, unsealed

Content = TypeVar("Content")
#: The format of the documents, in a field of each. Documents of another one are refused.
FORMAT = 3
_FORMAT = "format"
_LOCK = ".in-use"
_OTHER = "another version of Penstock may have written it"


@dataclass(frozen=True)
class SealedFiles:
    """Documents in one folder and those below it, by their path in it."""

    root: Path

    def write(self, name: str, document: Document, new: bool = False) -> None:
        """Write a document whole and durably.

        Raises:
            PenstockError: P0601, it cannot be written.
            FileExistsError: with `new`, there is one of that name.
        """
        path = self.root / name
        try:
            storage().write(path, _content(name, document), new=new)
        except OSError as error:
            if new and isinstance(error, FileExistsError):
                raise
            raise not_written(path, error) from error

    def has(self, name: str, document: Document) -> bool:
        """Return whether this very document is there."""
        try:
            return storage().read(self.root / name) == _content(name, document)
        except OSError:
            return False

    def read(self, name: str) -> Document:
        """Return a document without its format. Raises PenstockError P0605."""
        path = self.root / name
        try:
            document = as_document(json.loads(unsealed(storage().read(path), name)), name)
            number = document[_FORMAT]
            if type(number) is not int:
                raise ValueError(f"its format is {number!r}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise damaged(path, error) from error
        if number != FORMAT:
            raise other_format(path, number, FORMAT)
        return {field: value for field, value in document.items() if field != _FORMAT}

    def read_as(self, name: str, made_of: Callable[[Document], Content]) -> Content:
        """Return what a document holds. Raises PenstockError P0605, also for one with other fields: of another version,
        most likely."""
        document = self.read(name)
        try:
            return made_of(document)
        except KeyError as error:
            reason: Exception = ValueError(f"it has no field {error}; {_OTHER}")
        except (TypeError, ValueError) as error:
            reason = ValueError(f"{error}; {_OTHER}")
        raise damaged(self.root / name, reason)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the finished files in a folder."""
        return [name for name in storage().list(self.root / folder) if not name.startswith(".")]

    def remove(self, name: str) -> bool:
        """Remove a document if it exists; return whether it is gone. One that cannot be removed stays: it is removed by
        a later attempt."""
        try:
            storage().remove(self.root / name)
        except OSError:
            return False
        return True

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


class NumberTaken(PenstockError):
    """A number of a document is another server's, which does not know this one: this one is to end."""


@dataclass(frozen=True)
class NumberedDocuments:
    """Documents of one kind, `<prefix><number>.json`: a number that exists is refused, also of another process.

    Where the lock of a folder is lost, as may happen on a network disk, two controls count from the same number: the
    first that writes it has it, and nothing that was accepted is replaced. The other one ends.
    """

    files: SealedFiles
    prefix: str
    #: The numbers that this process has appended.
    own: set[int] = field(default_factory=set)
    #: Those of them that were withdrawn and could not be removed.
    _left: set[int] = field(default_factory=set)

    def numbers(self) -> list[int]:
        """Return the numbers that exist, in order."""
        names = (name for name in self.files.names() if name.startswith(self.prefix))
        inner = (name.removeprefix(self.prefix).removesuffix(".json") for name in names)
        return sorted(int(number) for number in inner if number.isascii() and number.isdecimal())

    def read_as(self, number: int, made_of: Callable[[Document], Content]) -> Content:
        """Return what a document holds. Raises PenstockError P0605."""
        return self.files.read_as(self._name(number), made_of)

    def append(self, number: int, document: Document) -> None:
        """Write a document durably under a number that does not exist.

        Raises:
            NumberTaken: P0601, another server has written one of the number.
            PenstockError: P0601, it cannot be written; nothing of the document is there then.
        """
        name = self._name(number)
        if number in self._left and self.files.remove(name):
            self._left.discard(number)
        try:
            self.files.write(name, document, new=True)
        except FileExistsError as error:
            taken = PenstockError if number in self._left else NumberTaken
            raise taken(
                "P0601",
                f"{self.files.root / name} exists already, and is not replaced",
                cause=error,
                hint="another server may have written it: stop all that use this checkpoint, and start one of them",
            ) from error
        except Exception:
            # It may be there, or that of another server.
            if self.files.has(name, document):
                self._discard(number)
            raise
        self.own.add(number)

    def withdraw(self, number: int) -> None:
        """Remove a document that this process has appended; what is there of another server stays."""
        if number in self.own:
            self._discard(number)

    def replace(self, number: int, document: Document) -> None:
        """Write a document again that this process has appended or read. Raises PenstockError P0601."""
        self.files.write(self._name(number), document)

    def remove(self, number: int) -> bool:
        """Remove a document if it exists; return whether it is gone. One that cannot be removed stays: it is removed by
        a later attempt."""
        self.own.discard(number)
        return self.files.remove(self._name(number))

    def _discard(self, number: int) -> None:
        if not self.remove(number):
            self._left.add(number)

    def _name(self, number: int) -> str:
        return f"{self.prefix}{number}.json"


def _content(name: str, document: Document) -> bytes:
    return sealed(json.dumps({_FORMAT: FORMAT, **document}, separators=(",", ":")), name)


def not_written(path: Path, error: OSError) -> PenstockError:
    """Return the error for a file that cannot be written."""
    reason = error.strerror or str(error)
    return PenstockError("P0601", f"{path} cannot be written: {reason}", cause=error, hint="nothing has been changed")


def moved_away(checkpoint: Path) -> PenstockError:
    """Return the error for a checkpoint that was removed or renamed while a server used it."""
    return PenstockError(
        "P0601",
        f"the checkpoint {checkpoint} was removed or renamed while the server ran",
        hint="put it back, or a copy of it, and start the server again",
    )
