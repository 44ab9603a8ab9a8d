"""docs/missing-rows.md is true: its example warns as it says, and the reasons that it lists are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "missing-rows.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def test_the_example_warns_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("readings.csv").write_text(BLOCKS["csv"], encoding="utf-8")
    Path("readings.cql").write_text(BLOCKS["cql"], encoding="utf-8")
    ran = CliRunner().invoke(app, shlex.split(BLOCKS["sh"])[1:])
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "n\n3\n", BLOCKS["text"])


def test_the_reasons_are_those_of_the_code() -> None:
    table = PAGE.partition("| reason |")[2].partition("\n\n")[0]
    reasons = {
        reason.removesuffix(" ...")
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for reason in re.findall(r"`([^`]+)`", row)
    }
    assert len(reasons) >= 9
    folders = ("connectors", "physical", "runtime")
    code = "".join(p.read_text("utf-8") for f in folders for p in (ROOT / "src" / "penstock" / f).rglob("*.py"))
    assert [reason for reason in reasons if reason not in code] == []
