"""CONTRIBUTING.md, the workflow and the hooks before a commit agree with the Makefile and the how-tos."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_how_to_is_linked() -> None:
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    for heading in re.findall(r"^## (Add .*)$", page, re.MULTILINE):
        assert f"docs/how-to.md#{heading.lower().replace(' ', '-')})" in CONTRIBUTING, heading


def test_the_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", CONTRIBUTING)) | set(re.findall(r"^make ([a-z-]+)", CONTRIBUTING, re.M))
    assert {"setup", "test", "quick", "fix"} <= named <= targets


def test_what_make_quick_runs_exists() -> None:
    files = re.findall(r"tests/[\w/]+\.py", MAKEFILE.partition("QUICK := ")[2].partition("\n#")[0])
    assert {"tests/test_scripts.py", "tests/test_property.py"} <= set(files)
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_the_workflow_runs_the_command_of_the_makefile() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    assert re.findall(r"run: (.*)", workflow) == ["make test"]


def test_a_commit_is_repaired_as_make_fix_does() -> None:
    """Both hooks call what `make fix` calls, without the folder: a hook is given the files of the commit."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"^\t\$\(PY\) (.*) \.$", MAKEFILE.partition("\nfix:")[2].partition("\n\n")[0], re.MULTILINE)
    assert [f".venv/bin/python {command}" for command in commands] == re.findall(r"entry: (.*)", hooks)
    assert "rev:" not in hooks
