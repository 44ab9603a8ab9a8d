"""The command log: what has been accepted, in order, and what became of it.

    <number>.json          a transaction: its commands, from this number on, and what they change
    outcomes-<number>.json what became of the commands up to this number, from that of the file before
    catalog-<number>.json  the stored catalog after the command of this number
    finished-<number>.json transactions that a catalog contains, up to this number, with their outcomes

A transaction is accepted when its file is there: from then on it happens, once. An idempotency key belongs to the token
that it was used with. Numbers count commands and are never used again, and no file replaces another one of its number:
what is written again is `amend` and outcomes that are noted twice. Transactions are removed once a catalog contains
them and the last of their file is older than the retention; their keys are forgotten with them.

Finished transactions that a catalog contains are read from their files when they are needed: memory holds only their
numbers and the hashes of their keys, so a server does not grow with the commands that it has carried out.
"""

from __future__ import annotations

import hashlib
import time
from array import array as numbers_array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.control.outcomes import CommandOutcome, CommandState
from penstock.control.sealed_files import NumberedDocuments, SealedFiles
from penstock.control.stored_catalog import CatalogChange, StoredCatalog
from penstock.errors import PenstockError
from penstock.storage.documents import Document, array, as_document, as_text, integer, nested, text
from penstock.storage.seals import damaged
from penstock.storage.stamps import StampRetention

#: A command: its transaction, its text, its number, and its outcome, None where that is open.
_LoggedCommand: TypeAlias = "tuple[Transaction, str, int, CommandOutcome | None]"
#: Commands between two catalogs.
CATALOG_EVERY = 100


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
            "first": self.first,
            "texts": list(self.texts),
            "who": self.who,
            "at": self.at,
            "key": self.key,
            "digest": self.digest,
            "settings": dict(self.settings),
            "change": self.change.document(),
        }

    @staticmethod
    def read(document: Document) -> Transaction:
        key = document["key"]
        settings = {name: as_text(value, name) for name, value in nested(document, "settings").items()}
        return Transaction(
            integer(document, "first"),
            tuple(as_text(t, "texts") for t in array(document, "texts")),
            text(document, "who"),
            integer(document, "at"),
            None if key is None else as_text(key, "key"),
            text(document, "digest"),
            settings,
            CatalogChange.read(nested(document, "change")),
        )


@dataclass(frozen=True)
class BegunQuery:
    """Where a query began last.

    Args:
        number: of the command with which it began.
        at: when that was accepted, in microseconds since 1970.
        tick: τ0, None where the answer begins with its sources.
    """

    number: int
    at: int
    tick: int | None


@dataclass(frozen=True)
class _FinishedFile:
    """What is known of a file of finished transactions without reading it.

    Args:
        last: the number of the last command in it.
        firsts: the numbers of its transactions, in order.
        keys: the hashes of their idempotency keys.
        newest: when the last one was accepted.
    """

    last: int
    firsts: numbers_array[int]
    keys: numbers_array[int]
    newest: int

    @staticmethod
    def of(transactions: Sequence[Transaction]) -> _FinishedFile:
        ordered = sorted(transactions, key=lambda one: one.first)
        keys = (_key_hash(one.who, one.key) for one in ordered if one.key is not None)
        return _FinishedFile(
            ordered[-1].last,
            numbers_array("q", (one.first for one in ordered)),
            numbers_array("q", keys),
            max(one.at for one in ordered),
        )

    def may_contain(self, number: int) -> bool:
        return self.firsts[0] <= number <= self.last

    def has(self, first: int) -> bool:
        """Return whether it has the transaction of this number."""
        place = bisect_right(self.firsts, first)
        return place > 0 and self.firsts[place - 1] == first


def _key_hash(who: str, key: str) -> int:
    return hash((who, key))


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
    #: By number: those that the latest catalog does not contain, or that are not finished.
    transactions: dict[int, Transaction] = field(default_factory=dict)
    #: Of the commands of these.
    outcomes: dict[int, CommandOutcome] = field(default_factory=dict)
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)
    _first_by_number: dict[int, int] = field(default_factory=dict)
    _last: int = 0
    _catalog: int = 0
    #: By the number of a file, the commands that it holds.
    _in_outcomes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _finished: dict[int, _FinishedFile] = field(default_factory=dict)
    #: By place.
    _begun: dict[int, BegunQuery] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stamps = StampRetention(self.retention, lambda: _now())
        #: When the newest transaction was accepted.
        self._newest = 0
        self._transaction_files, self._outcome_files, self._catalog_files, self._finished_files = (
            NumberedDocuments(self.files, prefix) for prefix in ("", "outcomes-", "catalog-", "finished-")
        )

    @staticmethod
    def opened(files: SealedFiles, retention: float) -> tuple[CommandLog, StoredCatalog]:
        """Return the log in a folder, and the latest stored catalog. Raises PenstockError P0605."""
        log = CommandLog(files, retention)
        for number in log._finished_files.numbers():
            transactions, outcomes = log._read_finished(number)
            log._finished[number] = _FinishedFile.of(transactions)
            log._last = max(log._last, number)
            log._newest = max(log._newest, log._finished[number].newest)
            for transaction in transactions:
                log._note_begin(transaction, outcomes)
        for number in log._transaction_files.numbers():
            if not log._is_packed(number):
                log._know(log._transaction_files.read_as(number, Transaction.read))
        for number in log._outcome_files.numbers():
            found = log._outcome_files.read_as(number, _outcomes_in)
            log.note(found.values())
            log._in_outcomes[number] = tuple(found)
        log._catalog = max(log._catalog_files.numbers(), default=0)
        log._last = max(log._last, log._catalog, max(log.outcomes, default=0))
        log._check_whole()
        catalog = StoredCatalog()
        if log._catalog:
            catalog = log._catalog_files.read_as(log._catalog, StoredCatalog.read)
        log._forget_begins(catalog)
        return log, catalog

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
        if found is not None and (found.last not in self.outcomes or not self._is_old(found.at)):
            return found
        hashed = _key_hash(who, key)
        for number, file in reversed(list(self._finished.items())):
            if hashed in file.keys and not self._is_old(file.newest):
                for one in self._read_finished(number)[0]:
                    if (one.who, one.key) == (who, key) and not self._is_old(one.at):
                        return one
        return None

    def of(self, number: int) -> Transaction | None:
        """Return the transaction that contains a command, if it is still known."""
        first = self._first_by_number.get(number)
        found = None if first is None else self.transactions.get(first)
        if found is not None:
            return found
        files = (self._read_finished(name)[0] for name in self._files_with(number))
        return next((one for transactions in files for one in transactions if number in one.numbers), None)

    def outcome(self, number: int) -> CommandOutcome | None:
        """Return what became of a command; None where that is open, and where it is forgotten."""
        return self.outcomes_of([number]).get(number)

    def outcomes_of(self, numbers: Iterable[int]) -> dict[int, CommandOutcome]:
        """Return what became of commands, without those of which that is open or forgotten. A file is read once."""
        commands = [*numbers]
        found = {number: self.outcomes[number] for number in commands if number in self.outcomes}
        read: set[int] = set()
        for number in commands:
            for name in [] if number in found else self._files_with(number):
                if name not in read:
                    read.add(name)
                    outcomes = self._read_finished(name)[1]
                    found |= {other: outcomes[other] for other in commands if other in outcomes}
        return found

    def has_failed(self, transaction: Transaction) -> bool:
        """Return whether a transaction, which a catalog does not contain, has no effect: all its commands have failed.
        One that has been applied may have statements whose rows could not be changed."""
        outcomes = [self.outcomes.get(number) for number in transaction.numbers]
        return all(outcome is not None and outcome.state is CommandState.FAILED for outcome in outcomes)

    def commands(self, after: int = 0, limit: int | None = None) -> list[_LoggedCommand]:
        """Return the commands behind the number `after`, in order. limit: how many at most."""
        # What is put into a file meanwhile is in both.
        found = _by_number(list(self.transactions.values()), self.outcomes, after)
        files = list(self._finished.values())
        files.sort(key=lambda one: one.firsts[0])
        for file in files:
            if limit is not None and len(found) >= limit and sorted(found)[limit - 1] < file.firsts[0]:
                break
            if file.last > after:
                found |= _by_number(*self._read_finished(file.last), after)
        return [found[number] for number in sorted(found)][:limit]

    def begun(self, place: int) -> BegunQuery | None:
        """Return where the query of a place began last."""
        return self._begun.get(place)

    # -- writing -----------------------------------------------------------------------------------------------

    def accept(
        self,
        texts: Sequence[str],
        who: str,
        key: str | None,
        posted: str,
        settings: Mapping[str, str],
        change: CatalogChange,
    ) -> Transaction:
        """Write a transaction, which happens from then on. posted: the digest of what was posted. Raises PenstockError
        P0601, and then it does not happen."""
        made = Transaction(self.next_number, tuple(texts), who, _now(), key, posted, dict(settings), change)
        self._transaction_files.append(made.first, made.document())
        self._know(made)
        return made

    def withdraw(self, number: int) -> None:
        """Take back the last transaction, whose acceptance has failed. No client has received that it was accepted, and
        its numbers are used again.

        number: of its first command.
        """
        self._transaction_files.withdraw(number)
        self._last = number - 1
        self.transactions.pop(number, None)
        self._first_by_number = {n: first for n, first in self._first_by_number.items() if first != number}
        self._keys = {key: first for key, first in self._keys.items() if first != number}

    def amend(self, transaction: Transaction, change: CatalogChange) -> Transaction:
        """Write a transaction again that is not applied yet, with another change. Raises PenstockError P0601, and then
        it is as it was."""
        made = replace(transaction, change=change)
        self._transaction_files.replace(made.first, made.document())
        self.transactions[made.first] = made
        return made

    def finish(self, outcomes: Sequence[CommandOutcome]) -> None:
        """Write what became of commands. It may be called again with the same ones. Raises PenstockError P0601."""
        self.note(outcomes)
        numbers = {outcome.number for outcome in outcomes}
        last = max(numbers)
        numbers |= {*self._in_outcomes.get(last, ())} & self.outcomes.keys()
        document = {"outcomes": [self.outcomes[number].document() for number in sorted(numbers)]}
        files = self._outcome_files
        write = files.replace if last in files.own else files.append
        write(last, document)
        self._in_outcomes[last] = tuple(numbers)

    def note(self, outcomes: Iterable[CommandOutcome]) -> None:
        """Know what became of commands, before it is written."""
        found = {one.number: one for one in outcomes}
        self.outcomes |= found
        for first in {self._first_by_number[number] for number in found if number in self._first_by_number}:
            self._note_begin(self.transactions[first], found)

    def save(self, catalog: StoredCatalog, number: int) -> None:
        """Write the catalog that contains what is finished up to the command `number`; remove what is no longer needed,
        and put what is finished together. Raises PenstockError P0601."""
        self._catalog_files.append(number, catalog.document())
        self._catalog = number
        for former in self._catalog_files.numbers():
            if former < number:
                self._catalog_files.remove(former)
        for packed, file in list(self._finished.items()):
            if self._is_old(file.newest):
                # In this order: who reads it meanwhile finds that it is gone.
                del self._finished[packed]
                self._finished_files.remove(packed)
        self._pack()
        self._forget_begins(catalog)

    def _pack(self) -> None:
        """Write what is finished and contained in the latest catalog into one file, without what it has declared, and
        keep it there alone: so there are few files and little in memory, however many commands are kept."""
        finished = [
            one
            for one in list(self.transactions.values())
            if one.last <= self._catalog and one.last in self.outcomes and not self._is_packed(one.first)
        ]
        kept = [one for one in finished if not self._is_old(one.at)]
        if kept:
            last = max(one.last for one in kept)
            short = [replace(one, change=CatalogChange(concerns=one.change.concerns)) for one in kept]
            outcomes = [self.outcomes[number] for one in kept for number in one.numbers if number in self.outcomes]
            document = {"transactions": [one.document() for one in short]}
            self._finished_files.append(last, {**document, "outcomes": [one.document() for one in outcomes]})
            self._finished[last] = _FinishedFile.of(short)
        for one in finished:
            self._drop(one)
        # A crash may have left some, and those of files that could not be removed.
        for number in self._transaction_files.numbers():
            if self._is_packed(number):
                self._transaction_files.remove(number)
        for number, held in list(self._in_outcomes.items()):
            if number <= self._catalog and not any(one in self._first_by_number for one in held):
                self._outcome_files.remove(number)
                del self._in_outcomes[number]
        for gone in [one for one in list(self.outcomes) if one <= self._catalog and one not in self._first_by_number]:
            del self.outcomes[gone]

    def _drop(self, transaction: Transaction) -> None:
        self._transaction_files.remove(transaction.first)
        del self.transactions[transaction.first]
        for number in transaction.numbers:
            del self._first_by_number[number]
        if transaction.key is not None and self._keys.get((transaction.who, transaction.key)) == transaction.first:
            del self._keys[transaction.who, transaction.key]

    # -- what is finished --------------------------------------------------------------------------------------

    def _is_old(self, at: int) -> bool:
        # With the newest, so that all stamps ahead of the clock are noticed at once.
        first, last = self._stamps.kept(self._newest)
        return not first <= at <= last

    def _is_packed(self, first: int) -> bool:
        return any(file.may_contain(first) and file.has(first) for file in list(self._finished.values()))

    def _files_with(self, number: int) -> list[int]:
        return [name for name, file in list(self._finished.items()) if file.may_contain(number)]

    def _read_finished(self, number: int) -> tuple[list[Transaction], dict[int, CommandOutcome]]:
        """Return the transactions of a file and the outcomes of their commands; none where it has been removed. Raises
        PenstockError P0605."""
        try:
            return self._finished_files.read_as(number, _finished_in)
        except PenstockError:
            if number in self._finished or number in self._finished_files.numbers():
                raise
            return [], {}

    def _check_whole(self) -> None:
        """Raise PenstockError P0605 where a command is missing that the latest catalog does not contain: its file is
        removed after that is written. Without it, what it declared would be lost silently."""
        for number in range(self._catalog + 1, self._last + 1):
            if number not in self._first_by_number:
                raise damaged(self.files.root, FileNotFoundError(f"the file of command {number} is missing"))

    def _note_begin(self, transaction: Transaction, outcomes: Mapping[int, CommandOutcome]) -> None:
        """Note which queries have begun with the commands of a transaction."""
        for number, place in transaction.change.concerns.items():
            outcome, known = outcomes.get(number), self._begun.get(place)
            if outcome is not None and outcome.version is not None and (known is None or known.number <= number):
                self._begun[place] = BegunQuery(number, transaction.at, outcome.tick)

    def _forget_begins(self, catalog: StoredCatalog) -> None:
        """Forget where queries began that are gone."""
        places = {each.place for _, query in catalog.queries for each in query.computed}
        for transaction in list(self.transactions.values()):
            places |= set(transaction.change.concerns.values())
        self._begun = {place: one for place, one in self._begun.items() if place in places}

    def _know(self, transaction: Transaction) -> None:
        self._newest = max(self._newest, transaction.at)
        self.transactions[transaction.first] = transaction
        self._first_by_number |= dict.fromkeys(transaction.numbers, transaction.first)
        self._last = max(self._last, transaction.last)
        if transaction.key is not None:
            self._keys[transaction.who, transaction.key] = transaction.first


def _by_number(
    transactions: Iterable[Transaction], outcomes: Mapping[int, CommandOutcome], after: int
) -> dict[int, _LoggedCommand]:
    return {
        number: (one, text, number, outcomes.get(number))
        for one in transactions
        if one.last > after
        for number, text in zip(one.numbers, one.texts, strict=True)
        if number > after
    }


def _outcomes_in(document: Document) -> dict[int, CommandOutcome]:
    found = (CommandOutcome.read(as_document(one, "outcomes")) for one in array(document, "outcomes"))
    return {outcome.number: outcome for outcome in found}


def _finished_in(document: Document) -> tuple[list[Transaction], dict[int, CommandOutcome]]:
    transactions = [Transaction.read(as_document(one, "finished")) for one in array(document, "transactions")]
    return transactions, _outcomes_in(document)
