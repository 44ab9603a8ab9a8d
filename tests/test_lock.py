"""The lock: every dependency at one version, with hashes, and nothing missing that the project asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def requirements(text: str) -> dict[str, str]:
    """Name -> the rest of its lines, continuations joined."""
    joined = text.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]
    return {plain(line): line for line in lines}


def plain(requirement: str) -> str:
    name = _NAME.match(requirement)
    assert name is not None, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def loose(text: str) -> list[str]:
    """Requirements that are not pinned to one version with hashes."""
    pinned = re.compile(r"[\w.-]+(\[[\w,-]+\])?==[\w.!+-]+( ;[^\\]*?)?(\s+--hash=sha256:[0-9a-f]{64})+")
    return [name for name, line in requirements(text).items() if not pinned.fullmatch(line)]


def test_everything_is_pinned_with_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert loose(text) == []
    assert len(requirements(text)) > 20
    assert "://" not in text, "any mirror will do"


def test_everything_asked_for_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(one for some in project["optional-dependencies"].values() for one in some)]
    known = requirements((ROOT / "requirements.lock").read_text())
    assert {plain(one) for one in asked} - {"penstock"} <= set(known)


def test_what_is_loose_is_found() -> None:
    digest = "--hash=sha256:" + "0" * 64
    assert loose(f"a==1.0 \\\n    {digest} \\\n    {digest}\nb==2 ; sys_platform == 'win32' \\\n    {digest}\n") == []
    assert loose(f"a>=1.0 \\\n    {digest}\nb==2\nc @ file:///c {digest}\n") == ["a", "b", "c"]
