"""The pages about the language say what is true: examples bind, and every error's example gives that error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plans import errors_of

from penstock.errors import CODES
from penstock.language import Catalog, bind_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCKS = re.findall(r"```cql\n(.*?)```", (DOCS / "language.md").read_text(), flags=re.DOTALL)
LINES = re.findall(r"^\| `(P\d{4})` \| (.*?) \| (.*) \|$", (DOCS / "errors.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_bind(block: str) -> None:
    bound = bind_script(block)
    assert bound.queries or bound.actions


def test_every_code_has_its_line() -> None:
    assert [(code, meaning) for code, meaning, _ in LINES] == list(CODES.items())


@pytest.mark.parametrize(("code", "example"), [(c, e) for c, _, e in LINES if e.startswith("`")])
def test_the_example_gives_the_error(code: str, example: str, catalog: Catalog) -> None:
    assert {error.code for error in errors_of(example.strip("`"), catalog)} == {code}
