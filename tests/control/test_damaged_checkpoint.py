"""A control whose checkpoint is damaged, of a later version, read-only, or taken away: told with a code, and nothing is
half done."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import STREAM, SUM, CommandFailed, Server

from penstock.control.entities.running_plan import running_plan_document
from penstock.control.sealed_files import FORMAT
from penstock.control.transactions import applying
from penstock.errors import PenstockError
from penstock.language.commands import ExportCommand
from penstock.language.printer import string_text
from penstock.runtime.live import state_folder
from penstock.runtime.state.chunk_files import read_manifest
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage, SystemCalls
from penstock.storage.seals import sealed, unsealed

SCRIPTS = (STREAM, SUM, "CREATE QUERY t AS SELECT v FROM S;", "ALTER QUERY t RENAME TO u;")


def rows(system: Server, tick: int, key: str | None = None) -> bool:
    values = pa.array([tick], pa.int32())
    return system.control.insert("S", pa.table({"ts": values, "v": values}), key)


def lived(folder: Path) -> Path:
    """Leave a checkpoint with commands in a catalog, finished ones, and later ones."""
    system = Server(folder)
    for script in SCRIPTS:
        system.done(script, key=script)
    rows(system, 2, "k")
    system.engine.round()
    system.control.close()
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(PenstockError) as caught:
        Server(folder).control.close()
    return f"{caught.value.code} {caught.value.message}"


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def foreign(content: bytes) -> bytes:
    return cut(content) + b"\x00\xff\xfe foreign" + content[len(content) // 2 :]


def other_seal(content: bytes) -> bytes:
    return content[:-6] + b"zzzzzz"


DAMAGES: tuple[Callable[[bytes], bytes], ...] = (cut, foreign, other_seal, lambda _: b"")


@pytest.fixture(params=[100, 3], ids=["log", "catalog"])
def checkpoint(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(applying, "CATALOG_EVERY", request.param)
    return lived(tmp_path / "checkpoint")


def files_of(checkpoint: Path) -> list[Path]:
    found = [*(checkpoint / "control").glob("*.json"), newest_manifest(checkpoint)]
    assert len(found) > 3
    return sorted(found)


def newest_manifest(checkpoint: Path) -> Path:
    """Return the manifest of the state of the queries."""
    return max((checkpoint / "engine").glob("*.json"))


def test_each_damage_of_each_file_is_told(checkpoint: Path) -> None:
    for path in files_of(checkpoint):
        content = path.read_bytes()
        for damage in DAMAGES:
            path.write_bytes(damage(content))
            assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged"), damage
        path.unlink()
        path.mkdir()
        assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged")
        path.rmdir()
        path.write_bytes(content)
    system = Server(checkpoint)
    assert sorted(one.name for one in system.control.stored.values()) == ["S", "q", "u"]
    system.control.close()


def test_each_damage_of_rows_and_state_is_told(checkpoint: Path) -> None:
    """A byte of any chunk that is needed, and any file."""
    manifest, _ = read_manifest(newest_manifest(checkpoint), lambda path: f"engine {path.name}")
    assert len(manifest.files) > 1
    for name, chunks in manifest.files.items():
        path = checkpoint / "engine" / name
        content = path.read_bytes()
        for start, length, _ in chunks.values():
            middle = start + length // 2
            for changed in (content[:middle], content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]):
                path.write_bytes(changed)
                assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged")
        path.unlink()
        assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged")
        path.write_bytes(content)
    Server(checkpoint).control.close()


def test_a_command_whose_file_is_missing_is_told(checkpoint: Path) -> None:
    """Its declarations would be gone without a word."""
    for path in (checkpoint / "control").glob("[0-9c]*.json"):
        content = path.read_bytes()
        path.unlink()
        assert refused(checkpoint).startswith("P0605")
        path.write_bytes(content)
    Server(checkpoint).control.close()


def test_files_in_the_place_of_each_other_are_told(tmp_path: Path) -> None:
    folder = lived(tmp_path)
    first, second = (folder / "control" / f"{number}.json" for number in (1, 2))
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    assert "it holds what was written as 2.json" in refused(folder)


def test_documents_of_a_later_version_are_told(checkpoint: Path) -> None:
    for path in (checkpoint / "control").glob("*.json"):
        content = path.read_bytes()
        document = json.loads(unsealed(content, path.name))
        first = sorted(document.keys() - {"format"})[0]
        for changed in ({f"later {first}": document.pop(first), **document}, {**document, first: {"later": [True]}}):
            path.write_bytes(sealed(json.dumps(changed), path.name))
            found = refused(checkpoint)
            assert found.startswith(f"P0605 {path}") and "another version of Penstock may have written it" in found
        path.write_bytes(content)
    Server(checkpoint).control.close()


def test_each_document_has_a_format_and_others_are_refused(checkpoint: Path) -> None:
    for path in (checkpoint / "control").glob("*.json"):
        content = path.read_bytes()
        document = json.loads(unsealed(content, path.name))
        assert document["format"] == FORMAT
        for other in (0, FORMAT - 1, FORMAT + 1, 1_000):
            path.write_bytes(sealed(json.dumps({**document, "format": other}), path.name))
            expected = f"P0605 {path} in the checkpoint has format {other}, this version reads format {FORMAT}"
            assert refused(checkpoint) == expected
        for wrong in (True, 1.0, "1", None, [1]):
            path.write_bytes(sealed(json.dumps({**document, "format": wrong}), path.name))
            assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged: its format is")
        path.write_bytes(sealed(json.dumps({n: one for n, one in document.items() if n != "format"}), path.name))
        assert refused(checkpoint).startswith(f"P0605 {path} in the checkpoint is damaged: 'format'")
        path.write_bytes(content)
    Server(checkpoint).control.close()


@pytest.mark.parametrize("number", [4, 6])
def test_state_of_queries_in_another_format_is_told(tmp_path: Path, number: int) -> None:
    """What it has would be misread: a sum of doubles in two of them is none in four."""
    system = Server(tmp_path)
    system.done(f"{STREAM} {SUM}")
    shutil.copytree(tmp_path / "engine", tmp_path / "before")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_folder, "FORMAT", number)
        system.done("CREATE QUERY t AS SELECT v FROM S;")
    system.control.close()
    folder = tmp_path / "engine"
    expected = f"has format {number}, this version reads format 5"
    assert refused(tmp_path) == f"P0605 {newest_manifest(tmp_path)} in the checkpoint {expected}"
    shutil.rmtree(folder)
    (tmp_path / "before").rename(folder)
    Server(tmp_path).control.close()


def keys_file(checkpoint: Path) -> Path:
    (path,) = (checkpoint / "control" / "kept" / "1" / "keys").iterdir()
    return path


@pytest.mark.parametrize("number", [1, 3])
def test_keys_of_posts_in_another_format_are_refused(checkpoint: Path, number: int) -> None:
    path = keys_file(checkpoint)
    place = f"1/keys/{path.name}"
    text = unsealed(path.read_bytes(), place)
    path.write_bytes(sealed(text.replace('"format": 2', f'"format": {number}'), place))
    system = Server(checkpoint)
    with pytest.raises(PenstockError, match=f"has format {number}, this version reads format 2"):
        rows(system, 3, "k")
    system.control.close()


def other_key(content: bytes) -> bytes:
    """Change a byte within a key, which leaves the lines as they are."""
    assert b'system k"' in content
    return content.replace(b'system k"', b'system j"')


def test_damaged_keys_of_posts_are_told_and_take_no_rows(checkpoint: Path) -> None:
    path = keys_file(checkpoint)
    content = path.read_bytes()
    others = lambda whole: whole[:-9], lambda _: b'{"number": 1}\n', lambda _: b"[]\n"
    for damage in (*DAMAGES, other_key, *others):
        path.write_bytes(damage(content))
        system = Server(checkpoint)
        for key in ("k", "other"):
            with pytest.raises(PenstockError, match="P0605"):
                rows(system, 3, key)
        with pytest.raises(CommandFailed, match="P0605"):
            system.done("INSERT INTO S VALUES (7, 7);")
        system.control.close()
        path.write_bytes(content)
    system = Server(checkpoint)
    assert not rows(system, 2, "k")
    system.control.close()


class ReadOnly(SystemCalls):
    """Calls of a file system that may be mounted again as read-only."""

    is_read_only = False

    def _check(self) -> None:
        if self.is_read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def open(self, path: Path, flags: int, mode: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._check()
        return super().open(path, flags, mode)

    def rename(self, source: Path, target: Path) -> None:
        self._check()
        super().rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        self._check()
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._check()
        super().unlink(path)

    def mkdir(self, path: Path, mode: int) -> None:
        self._check()
        super().mkdir(path, mode)


def test_a_checkpoint_that_becomes_read_only(tmp_path: Path) -> None:
    folder, calls = lived(tmp_path), ReadOnly()
    with replaced_storage(LocalStorage(calls)):
        calls.is_read_only = True
        assert "Read-only file system" in refused(folder)
        calls.is_read_only = False
        system = Server(folder)
        before = sorted(path.name for path in (folder / "control").iterdir())
        calls.is_read_only = True
        for action in (lambda: system.done("CREATE QUERY y AS SELECT v FROM S;"), lambda: rows(system, 9, "ro")):
            with pytest.raises(PenstockError, match=r"P0601.*Read-only file system"):
                action()
        assert sorted(path.name for path in (folder / "control").iterdir()) == before
        calls.is_read_only = False
        assert system.control.failure is None and system.control.stop_reason is None
        system.done("CREATE QUERY y AS SELECT v FROM S;")
        assert rows(system, 9, "ro") and rows(system, 10)
        system.engine.round()
        assert [row["v"] for row in system.answers("y")] == [9]
        system.control.close()


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_a_checkpoint_that_is_taken_away_is_not_made_again(tmp_path: Path, how: str) -> None:
    """Otherwise a second server would start in its place, and both would write there."""
    folder = lived(tmp_path / "checkpoint")
    system = Server(folder)
    folder.rename(tmp_path / "elsewhere")
    for action in (lambda: system.done("CREATE QUERY y AS SELECT v FROM S;"), lambda: rows(system, 9, "gone")):
        with pytest.raises(PenstockError, match=r"P0601.*was removed or renamed while the server ran"):
            action()
    reason = system.control.stop_reason
    assert reason is not None and reason.code == "P0601"
    assert not folder.exists()
    if how == "renamed":
        with pytest.raises(PenstockError, match="P0609"):
            Server(tmp_path / "elsewhere")
    second = Server(folder)
    # The end of the first one leaves the lock of the second where it is.
    system.control.close()
    with pytest.raises(PenstockError, match="P0609"):
        Server(folder)
    second.done(STREAM)
    second.control.close()


def test_a_checkpoint_is_one_however_it_is_spelled(tmp_path: Path) -> None:
    folder = lived(tmp_path / "checkpoint")
    link, linked = tmp_path / "link", tmp_path / "linked"
    link.symlink_to(folder)
    linked.mkdir()
    (linked / "control").symlink_to(folder / "control")
    system = Server(link)
    for spelled in (folder, link, folder / "control" / "..", tmp_path / "." / "link", linked):
        assert refused(spelled).startswith("P0609")
    system.control.close()


def test_a_stored_plan_that_does_not_type_stops_its_query_alone(tmp_path: Path) -> None:
    system = Server(tmp_path)
    system.done(STREAM + "CREATE QUERY q AS SELECT v + 1 AS w FROM S; CREATE QUERY t AS SELECT v FROM S;")
    (outcome,) = system.run("EXPORT PLAN OF q;")
    assert isinstance(outcome.command, ExportCommand)
    plan = running_plan_document(system.control.view(), outcome.command.query, outcome.command.logical)
    system.done(f"CREATE QUERY p FROM PLAN {string_text(plan)};")
    system.control.close()
    path = tmp_path / "control" / "4.json"
    document = json.loads(unsealed(path.read_bytes(), path.name))
    (stored,) = document["change"]["objects"]
    stored["text"] = stored["text"].replace('"v"', '"nothing"')
    path.write_bytes(sealed(json.dumps(document), path.name))
    system = Server(tmp_path)
    assert system.status("p") == "NEEDS ATTENTION" and "unknown column nothing" in system.control.query("p")[1].message
    assert system.status("q") == system.status("t") == "RUNNING"
    system.control.close()
