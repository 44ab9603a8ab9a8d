"""The command log: what has been accepted, in order, and what became of it.

    <number>.json          a transaction: its commands, from this number on, and what they change
    outcomes-<number>.json what became of the commands up to this number, from that of the file before
    catalog-<number>.json  the stored catalog after the command of this number
    finished-<number>.json transactions that a catalog contains, up to this number, with their outcomes

A transaction is accepted when its file is there: from then on it happens, once. An idempotency key belongs to the token
that it was used with. Numbers count commands and are never used again. A transaction is removed once a catalog contains
it and it is older than the retention; its key is forgotten with it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.control.outcomes import CommandOutcome
from penstock.control.sealed_files import SealedFiles
from penstock.control.stored_catalog import CatalogChange, StoredCatalog
from penstock.storage.documents import Document, array, as_document, as_text, integer, nested, text

#: Commands between two catalogs.
CATALOG_EVERY = 100
_TRANSACTION, _OUTCOMES, _CATALOG, _FINISHED = "", "outcomes-", "catalog-", "finished-"


def digest(script: str, settings: Mapping[str, str]) -> str:
    """Return a digest of what is posted with an idempotency key."""
    posted = repr((script, sorted(settings.items())))
    return hashlib.sha256(posted.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class Transaction:
    """Commands that were accepted together.

    Args:
        first: the number of the first.
        texts: of each command, as written; the numbers count on.
        who: the name of the token.
        at: when it was accepted, in microseconds since 1970.
        key: the idempotency key, None for none.
        digest: of what was posted.
        settings: of the session.
        change: what the commands change.
    """

    first: int
    texts: tuple[str, ...]
    who: str
    at: int
    key: str | None
    digest: str
    settings: Mapping[str, str]
    change: CatalogChange

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.texts))

    @property
    def last(self) -> int:
        return self.numbers[-1]

    def document(self) -> Document:
        return {
            "first": self.first, "texts": list(self.texts), "who": self.who, "at": self.at, "key": self.key,
            "digest": self.digest, "settings": dict(self.settings), "change": self.change.document(),
        }  # fmt: skip

    @staticmethod
    def read(document: Document) -> Transaction:
        key = document["key"]
        settings = {name: as_text(value, name) for name, value in nested(document, "settings").items()}
        return Transaction(
            integer(document, "first"), tuple(as_text(t, "texts") for t in array(document, "texts")),
            text(document, "who"), integer(document, "at"), None if key is None else as_text(key, "key"),
            text(document, "digest"), settings, CatalogChange.read(nested(document, "change")),
        )  # fmt: skip


def _now() -> int:
    return time.time_ns() // 1000


@dataclass
class CommandLog:
    """The log in a folder.

    Args:
        retention: for how many seconds a finished transaction and its key are kept.
    """

    files: SealedFiles
    retention: float
    transactions: dict[int, Transaction] = field(default_factory=dict)
    outcomes: dict[int, CommandOutcome] = field(default_factory=dict)
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)
    _first_by_number: dict[int, int] = field(default_factory=dict)
    _last: int = 0
    _catalog: int = 0
    #: By the number of a file, the commands that it holds: `outcomes-` and `finished-`.
    _in_outcomes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _in_finished: dict[int, frozenset[int]] = field(default_factory=dict)

    @staticmethod
    def opened(files: SealedFiles, retention: float) -> tuple[CommandLog, StoredCatalog]:
        """Return the log in a folder, and the latest stored catalog. Raises PenstockError P0605."""
        log = CommandLog(files, retention)
        names = files.names()
        for number in _numbers(names, _FINISHED):
            document = files.read(f"{_FINISHED}{number}.json")
            finished = [Transaction.read(as_document(one, "finished")) for one in array(document, "transactions")]
            for transaction in finished:
                log._know(transaction)
            log._in_finished[number] = frozenset(transaction.first for transaction in finished)
            log._note(document)
        for number in _numbers(names, _TRANSACTION):
            log._know(Transaction.read(files.read(f"{number}.json")))
        for number in _numbers(names, _OUTCOMES):
            log._in_outcomes[number] = log._note(files.read(f"{_OUTCOMES}{number}.json"))
        log._catalog = max(_numbers(names, _CATALOG), default=0)
        log._last = max(log._last, log._catalog, max(log.outcomes, default=0))
        if not log._catalog:
            return log, StoredCatalog()
        return log, StoredCatalog.read(files.read(f"{_CATALOG}{log._catalog}.json"))

    @property
    def next_number(self) -> int:
        """Return the number of the next command."""
        return self._last + 1

    @property
    def catalog_number(self) -> int:
        """Return the number of the last command that the latest catalog contains; 0 before the first."""
        return self._catalog

    def since_catalog(self) -> Iterator[Transaction]:
        """Yield the transactions that the latest catalog does not contain, in order: later ones, and those that were
        not finished when it was written."""
        for number in sorted(self.transactions):
            one = self.transactions[number]
            if number > self._catalog or one.last not in self.outcomes:
                yield one

    def with_key(self, who: str, key: str) -> Transaction | None:
        """Return the transaction that was posted with an idempotency key, if it is still known."""
        first = self._keys.get((who, key))
        found = None if first is None else self.transactions.get(first)
        if found is None or (found.at < _now() - int(self.retention * 1e6) and found.last in self.outcomes):
            return None
        return found

    def of(self, number: int) -> Transaction | None:
        """Return the transaction that contains a command, if it is still known."""
        first = self._first_by_number.get(number)
        return None if first is None else self.transactions[first]

    # -- writing -----------------------------------------------------------------------------------------------

    def accept(
        self, texts: Sequence[str], who: str, key: str | None, posted: str, settings: Mapping[str, str],
        change: CatalogChange,
    ) -> Transaction:  # fmt: skip
        """Write a transaction, which happens from then on. posted: the digest of what was posted. Raises PenstockError
        P0601, and then it does not happen."""
        made = Transaction(self.next_number, tuple(texts), who, _now(), key, posted, dict(settings), change)
        self.files.write(f"{made.first}.json", made.document())
        self._know(made)
        return made

    def finish(self, outcomes: Sequence[CommandOutcome]) -> None:
        """Write what became of commands. Raises PenstockError P0601."""
        last = max(outcome.number for outcome in outcomes)
        self.files.write(f"{_OUTCOMES}{last}.json", {"outcomes": [outcome.document() for outcome in outcomes]})
        self.outcomes |= {outcome.number: outcome for outcome in outcomes}
        self._in_outcomes[last] = tuple(outcome.number for outcome in outcomes)

    def save(self, catalog: StoredCatalog, number: int) -> None:
        """Write the catalog that contains what is finished up to the command `number`; remove what is no longer needed,
        and put what is finished together. Raises PenstockError P0601."""
        self.files.write(f"{_CATALOG}{number}.json", catalog.document())
        self._catalog = number
        for former in _numbers(self.files.names(), _CATALOG):
            if former < number:
                self.files.remove(f"{_CATALOG}{former}.json")
        self._forget()
        self._pack()

    def _forget(self) -> None:
        """Remove what is older than the retention and contained in the latest catalog."""
        before = _now() - int(self.retention * 1e6)
        for transaction in list(self.transactions.values()):
            is_finished = transaction.last <= self._catalog and transaction.last in self.outcomes
            if is_finished and transaction.at < before:
                self._drop(transaction)
        for number, firsts in list(self._in_finished.items()):
            if not firsts & self.transactions.keys():
                self.files.remove(f"{_FINISHED}{number}.json")
                del self._in_finished[number]
        self._remove_outcomes(set())

    def _pack(self) -> None:
        """Write what is finished and contained in the latest catalog into one file, without what it has changed: so
        there are few files, however many commands are kept."""
        packed = frozenset[int]().union(*self._in_finished.values())
        finished = [
            one
            for one in list(self.transactions.values())
            if one.last <= self._catalog and one.last in self.outcomes and one.first not in packed
        ]
        if finished:
            last = max(one.last for one in finished)
            short = [replace(one, change=CatalogChange()) for one in finished]
            outcomes = [self.outcomes[number] for one in finished for number in one.numbers if number in self.outcomes]
            self.files.write(
                f"{_FINISHED}{last}.json",
                {"transactions": [one.document() for one in short], "outcomes": [one.document() for one in outcomes]},
            )
            self.transactions |= {one.first: one for one in short}
            self._in_finished[last] = frozenset(one.first for one in short)
        # A crash may have left some of them, and those of files that could not be removed.
        names, packed = set(self.files.names()), frozenset[int]().union(*self._in_finished.values())
        for number in _numbers(sorted(names), _TRANSACTION):
            if number in packed:
                self.files.remove(f"{number}.json")
        self._remove_outcomes({number for first in packed for number in self._numbers_of(first)})

    def _numbers_of(self, first: int) -> Iterable[int]:
        found = self.transactions.get(first)
        return () if found is None else found.numbers

    def _remove_outcomes(self, packed: Collection[int]) -> None:
        """Remove the files of outcomes that stand in other files, the `packed`, or are of commands that are gone."""
        for number, held in list(self._in_outcomes.items()):
            needed = [one for one in held if one in self._first_by_number and one not in packed]
            if not needed and number <= self._catalog:
                self.files.remove(f"{_OUTCOMES}{number}.json")
                del self._in_outcomes[number]
        for gone in [one for one in list(self.outcomes) if one <= self._catalog and one not in self._first_by_number]:
            del self.outcomes[gone]

    def _drop(self, transaction: Transaction) -> None:
        self.files.remove(f"{transaction.first}.json")
        del self.transactions[transaction.first]
        for number in transaction.numbers:
            del self._first_by_number[number]
        if transaction.key is not None and self._keys.get((transaction.who, transaction.key)) == transaction.first:
            del self._keys[transaction.who, transaction.key]

    def _note(self, document: Document) -> tuple[int, ...]:
        """Know the outcomes in a document; return the numbers of their commands."""
        found = [CommandOutcome.read(as_document(one, "outcomes")) for one in array(document, "outcomes")]
        self.outcomes |= {outcome.number: outcome for outcome in found}
        return tuple(outcome.number for outcome in found)

    def _know(self, transaction: Transaction) -> None:
        self.transactions[transaction.first] = transaction
        self._first_by_number |= dict.fromkeys(transaction.numbers, transaction.first)
        self._last = max(self._last, transaction.last)
        if transaction.key is not None:
            self._keys[transaction.who, transaction.key] = transaction.first


def _numbers(names: Sequence[str], prefix: str) -> list[int]:
    """Return the numbers of the files `<prefix><number>.json`, in order."""
    inner = (name.removeprefix(prefix).removesuffix(".json") for name in names if name.startswith(prefix))
    return sorted(int(number) for number in inner if number.isascii() and number.isdecimal())
