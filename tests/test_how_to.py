"""Each section of docs/how-to.md is carried out in a copy of the package, and its check is run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:] if "```python" in part
}

_BLOCK = re.compile(r"^```(?:python|insert) (?P<what>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r'(?P<side>after|before) "(?P<line>.*)" in (?P<path>\S+)')


def carry_out(section: str, package: Path) -> str:
    """Make the changes of a section in `package`; return its check."""
    check = ""
    for block in _BLOCK.finditer(section):
        what, text = block["what"], block["text"]
        if what == "check":
            check += text
        elif what.startswith("new "):
            place = package / what.removeprefix("new ")
            assert not place.exists(), f"{place.name} is there already"
            place.write_text(text, encoding="utf-8")
        else:
            match = _PLACE.fullmatch(what)
            assert match is not None, what
            place = package / match["path"]
            before, line = place.read_text(encoding="utf-8"), f"\n{match['line']}\n"
            assert before.count(line) == 1, f"{place.name} must have this line once: {match['line']}"
            added = line + text if match["side"] == "after" else "\n" + text + line[1:]
            place.write_text(before.replace(line, added), encoding="utf-8")
    return check


def check_sections(titles: list[str], tmp_path: Path) -> None:
    """Carry out sections in a copy of the package, and run their checks in one process."""
    # With what was compiled of them, which counts for files of the same time; not what others are about to rename.
    unwanted = shutil.ignore_patterns("*.egg-info", "*.tmp.*", "*.pyc.*")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=unwanted)
    checks = {title: carry_out(SECTIONS[title], tmp_path / "src" / "penstock") for title in titles}
    assert all(checks.values()), f"without a check: {[title for title, check in checks.items() if not check]}"
    script = tmp_path / "check.py"
    place = f"import penstock\nassert penstock.__file__.startswith({str(tmp_path)!r})\n"
    runs = (
        f"exec(compile({check!r}, {title!r}, 'exec'), {{'__name__': '__main__'}})" for title, check in checks.items()
    )
    script.write_text(place + "\n".join(runs), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
    ran = subprocess.run(
        [sys.executable, str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_the_sections_do_what_they_say(tmp_path: Path) -> None:
    """All in one copy: seven processes take 2 s each to begin."""
    assert len(SECTIONS) >= 11
    check_sections([*SECTIONS], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_alone_does_what_it_says(title: str, tmp_path: Path) -> None:
    check_sections([title], tmp_path)


#: What adding a window kind touches: its word and grammar, the binder, one file of the algebra, one each of spec,
#: operator and lowering, one of the oracle, and the line of each registry.
WINDOW_KIND = {
    "language/queries.py",
    "language/grammar/windows.py",
    "language/binder/from_/windows.py",
    "algebra/nodes/landmark_window.py",
    "physical/plan/landmark_window.py",
    "physical/operators/windows/landmark_window.py",
    "physical/operators/__init__.py",
    "physical/planning/lowering/landmark_window.py",
    "physical/planning/lowering/__init__.py",
    "testing/definitions/landmark_window.py",
    "testing/definitions/__init__.py",
}


#: A statement is a file and its lines in the registry.
STATEMENT = {"language/statements/readers.py", "language/statements/__init__.py"}


#: By section, the files that adding one of its things touches: what it does, and the lines of registries.
TOUCHED = {
    "Add a source": {"connectors/sources/counter.py", "connectors/sources/__init__.py"},
    "Add a scheduling policy": {"runtime/decisions/weighted_units.py", "runtime/decisions/registry.py"},
    "Add a shedding policy": {"shedding/policies.py", "testing/approximation/shedding.py"},
    "Add a setting": {"settings.py", "language/statements/insert.py"},
    "Add an HTTP route": {"server/http/version.py", "server/http/application/app.py"},
}


def places(section: str) -> set[str]:
    """Return the files that the blocks of a section change."""
    found = (block["what"].rpartition(" ")[2] for block in _BLOCK.finditer(section))
    return {place for place in found if place.endswith(".py")}


def test_a_window_kind_touches_its_own_files_and_registries_alone() -> None:
    assert places(SECTIONS["Add a window kind"]) == WINDOW_KIND


def test_a_statement_touches_its_own_file_and_the_registry_alone() -> None:
    assert places(SECTIONS["Add a statement"]) == STATEMENT


@pytest.mark.parametrize("title", TOUCHED)
def test_a_thing_touches_its_own_file_and_registries_alone(title: str) -> None:
    assert places(SECTIONS[title]) == TOUCHED[title]


def test_the_page_has_its_sections() -> None:
    assert {
        "Add a function",
        "Add an aggregate",
        "Add a sink",
        "Add a window kind",
        "Add an operator with its synopsis",
        "Add a rewrite rule",
        "Add a statement",
        "Add a scheduling policy",
        "Add a shedding policy",
        "Add a setting",
        "Add a source",
        "Add an HTTP route",
    } <= SECTIONS.keys()
