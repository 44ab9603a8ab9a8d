"""A number of the log is written once: by one of several servers, whatever fails meanwhile."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from control_kit import STREAM, SUM, Server

from penstock.control.command_log import CommandLog
from penstock.control.outcomes import CommandOutcome, CommandState
from penstock.control.sealed_files import NumberedDocuments, SealedFiles
from penstock.control.stored_catalog import CatalogChange, StoredCatalog
from penstock.control.transactions import applying
from penstock.errors import PenstockError
from penstock.storage import local, replaced_storage
from penstock.storage.documents import Document, text
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.testing.faults import KINDS, FailingCalls


def documents(folder: Path, prefix: str = "kind-") -> NumberedDocuments:
    return NumberedDocuments(SealedFiles(folder), prefix)


def who(documents: NumberedDocuments, number: int) -> str:
    return documents.read_as(number, lambda document: text(document, "who"))


def refused(documents: NumberedDocuments, number: int, document: Document) -> None:
    with pytest.raises(PenstockError, match=rf"P0601: .*{number}\.json exists already, and is not replaced") as caught:
        documents.append(number, document)
    assert "another server may have written it" in (caught.value.hint or "")


def test_a_number_is_written_once(tmp_path: Path) -> None:
    first, second, other = documents(tmp_path), documents(tmp_path), documents(tmp_path, "")
    for number in (10, 2):
        first.append(number, {"who": "first"})
    other.append(2, {"who": "other"})
    for each in (first, second):
        refused(each, 2, {"who": "second"})
        refused(each, 2, {"who": "first"})
        assert each.numbers() == [2, 10] and who(each, 2) == "first"
    assert other.numbers() == [2] and who(other, 2) == "other"
    first.replace(2, {"who": "first again"})
    assert who(second, 2) == "first again"
    # What is withdrawn is this writer's own.
    second.withdraw(2)
    assert second.numbers() == [2, 10]
    first.withdraw(2)
    first.withdraw(2)
    first.remove(10)
    first.remove(10)
    assert first.numbers() == [] and other.numbers() == [2]
    second.append(2, {"who": "second"})
    first.withdraw(2)
    assert who(first, 2) == "second"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.json", "kind-2.json"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_append_that_fails_leaves_nothing(tmp_path: Path, kind: str) -> None:
    calls = FailingCalls()
    with replaced_storage(LocalStorage(calls)):
        documents(tmp_path / "calm").append(1, {"who": "calm"})
    for number in range(1, calls.counts[kind] + 1):
        found = documents(tmp_path / str(number))
        with replaced_storage(LocalStorage(FailingCalls(kind, number))), pytest.raises(PenstockError, match="P0601"):
            found.append(1, {"who": "first"})
        assert list((tmp_path / str(number)).glob("*")) == []
        found.append(1, {"who": "second"})
        assert who(found, 1) == "second"


class Stuck(SystemCalls):
    """Calls of a disk that can be read alone from the first sync of a folder on."""

    is_stuck = False

    def fsync(self, handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):  # noqa: PTH112 - it is a link of the kernel
            self.is_stuck = True
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def unlink(self, path: Path) -> None:
        if self.is_stuck:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        super().unlink(path)


def test_what_could_not_be_removed_is_removed_before_its_number_is_given_again(tmp_path: Path) -> None:
    found, other = documents(tmp_path), documents(tmp_path)
    with replaced_storage(LocalStorage(Stuck())), pytest.raises(PenstockError, match="Read-only"):
        found.append(1, {"who": "first"})
    assert found.numbers() == [1]
    refused(other, 1, {"who": "other"})
    found.append(1, {"who": "second"})
    assert who(found, 1) == "second"
    refused(found, 1, {"who": "third"})


class Foreign(SystemCalls):
    """Calls of a disk that is full when another server has written the document."""

    def __init__(self, other: NumberedDocuments) -> None:
        self._other = other

    def fsync(self, handle: int) -> None:
        with replaced_storage(LocalStorage()):
            self._other.append(1, {"who": "other"})
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_append_that_fails_leaves_what_another_one_has_written(tmp_path: Path) -> None:
    found, other = documents(tmp_path), documents(tmp_path)
    with replaced_storage(LocalStorage(Foreign(other))), pytest.raises(PenstockError, match="No space"):
        found.append(1, {"who": "first"})
    refused(found, 1, {"who": "first"})
    assert who(found, 1) == "other"


_APPENDS = """
import json, sys
from pathlib import Path
from penstock.control.sealed_files import NumberedDocuments, SealedFiles
from penstock.errors import PenstockError

folder, who, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
found, won = NumberedDocuments(SealedFiles(folder), ""), []
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    try:
        found.append(number, {"who": who})
        won.append(number)
    except PenstockError as error:
        assert "exists already" in error.message
print(json.dumps(won))
"""


def test_of_two_processes_one_writes_each_number(tmp_path: Path) -> None:
    count = 300
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", _APPENDS, str(tmp_path), name, str(count)],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in ("first", "second")
    ]
    for process in racing:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in racing:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [json.loads(process.communicate(timeout=120)[0]) for process in racing]
    assert sorted(won[0] + won[1]) == list(range(count))
    found = documents(tmp_path, "")
    assert found.numbers() == list(range(count))
    for name, numbers in zip(("first", "second"), won, strict=True):
        assert {who(found, number) for number in numbers} <= {name}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


# -- the log -----------------------------------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "control").glob("*.json")}


def test_a_control_whose_lock_is_lost_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them takes the numbers for its own. The first that writes has them."""
    monkeypatch.setattr(local, "_locked", lambda handle: True)
    first, second = Server(tmp_path), Server(tmp_path)
    first.done(STREAM)
    before = files(tmp_path)
    assert second.control.stop_reason is None
    for attempt in range(2):
        with pytest.raises(PenstockError, match=r"P0601: .*1\.json exists already") as caught:
            second.run(STREAM.replace(" S ", " T "))
        assert ("the control has ended" in caught.value.message) == bool(attempt)
        assert "stop all" in (caught.value.hint or "")
        assert files(tmp_path) == before
    reason = second.control.stop_reason
    assert reason is not None and "1.json exists already" in reason.message and "stop all" in (reason.hint or "")
    first.done(SUM)
    for system in (second, first):
        system.control.close()
    again = Server(tmp_path)
    assert sorted(one.name for one in again.control.stored.values()) == ["S", "q"]
    again.control.close()


def test_a_control_that_cannot_remove_its_own_goes_on_once_it_can(tmp_path: Path) -> None:
    system = Server(tmp_path)
    with replaced_storage(LocalStorage(Stuck())):
        with pytest.raises(PenstockError, match="Read-only"):
            system.run(STREAM)
        with pytest.raises(PenstockError, match=r"exists already|Read-only"):
            system.run(STREAM)
        assert system.control.stop_reason is None
    system.done(STREAM)
    system.control.close()
    again = Server(tmp_path)
    assert [one.name for one in again.control.stored.values()] == ["S"]
    again.control.close()


def opened(folder: Path) -> CommandLog:
    return CommandLog.opened(SealedFiles(folder / "control"), 3600.0)[0]


def accept(log: CommandLog, body: str) -> int:
    return log.accept([body], "me", None, body, {}, CatalogChange()).first


def outcome(number: int, state: CommandState = CommandState.COMPLETED) -> CommandOutcome:
    return CommandOutcome(number, state)


def test_outcomes_and_catalogs_of_another_log_stay(tmp_path: Path) -> None:
    accept(opened(tmp_path), "SHOW QUERIES")
    first, second = opened(tmp_path), opened(tmp_path)
    first.finish([outcome(1)])
    before = files(tmp_path)
    with pytest.raises(PenstockError, match=r"outcomes-1\.json exists already"):
        second.finish([outcome(1, CommandState.FAILED)])
    assert files(tmp_path) == before
    first.save(StoredCatalog(next_id=7), 1)
    before = files(tmp_path)
    with pytest.raises(PenstockError, match=r"catalog-1\.json exists already"):
        second.save(StoredCatalog(), 1)
    assert files(tmp_path) == before


def test_what_became_of_a_command_can_be_written_again(tmp_path: Path) -> None:
    """What is done behind a change may be repeated, with the outcomes of it alone."""
    log = opened(tmp_path)
    for number in (1, 2):
        assert accept(log, f"SHOW QUERIES {number}") == number
    log.finish([outcome(1, CommandState.FAILED), outcome(2)])
    log.finish([outcome(2, CommandState.RUNNING)])
    found = opened(tmp_path).outcomes
    assert {number: one.state.value for number, one in found.items()} == {1: "FAILED", 2: "RUNNING"}


class BrokenAppends:
    """Appends that raise what nobody has foreseen, before or after the document is written."""

    def __init__(self, patch: pytest.MonkeyPatch, prefix: str, is_after: bool) -> None:
        append = NumberedDocuments.append

        def broken(documents: NumberedDocuments, number: int, document: Document) -> None:
            if documents.prefix == prefix and not self.has_raised:
                if is_after:
                    append(documents, number, document)
                self.has_raised = True
                raise ZeroDivisionError
            append(documents, number, document)

        self.has_raised = False
        patch.setattr(NumberedDocuments, "append", broken)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("prefix", ["", "outcomes-", "catalog-", "finished-"])
def test_numbers_after_an_error_that_nobody_has_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str, is_after: bool
) -> None:
    """Its command fails alone or happens, and the numbers behind it are given."""
    monkeypatch.setattr(applying, "CATALOG_EVERY", 2)
    system = Server(tmp_path)
    system.done(STREAM)
    broken = BrokenAppends(monkeypatch, prefix, is_after)
    names = [f"q{number}" for number in range(6)]
    for name in names:
        text = f"CREATE QUERY {name} AS SELECT v FROM S;"
        try:
            system.done(text)
        except PenstockError as error:
            assert prefix == "" and broken.has_raised and error.code == "P0601"
            system.done(text)
    assert broken.has_raised
    for _ in range(2):
        found = [(one.number, text) for _, text, one in system.control.commands()]
        assert [number for number, _ in found] == list(range(1, 8))
        assert [text.split(" ")[2] for _, text in found[1:]] == names
        assert {system.status(name) for name in names} == {"RUNNING"}
        system.control.close()
        system = Server(tmp_path)
    system.control.close()
