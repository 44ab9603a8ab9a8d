"""The pages about the language say what is true: examples bind, and every error's example gives that error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plans import errors_of

from penstock.connectors.options import Option
from penstock.errors import CODES
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES, SHEDDING_ATTRIBUTES, SOURCE_ATTRIBUTES
from penstock.language.commands import applied
from penstock.language.scripts import Catalog, bind_command, bind_script, parse_script
from penstock.settings import Settings
from penstock.shedding.policies import POLICIES

DOCS = Path(__file__).resolve().parents[2] / "docs"
CHAPTERS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "language").glob("*.md"))}
PAGE = CHAPTERS["live-statements"]
BLOCKS = {
    f"{chapter}-{number}": block
    for chapter, text in CHAPTERS.items()
    for number, block in enumerate(re.findall(r"```cql\n(.*?)```", text, flags=re.DOTALL))
}
LIVE = re.findall(r"```live\n(.*?)```", PAGE, flags=re.DOTALL)
LINES = re.findall(r"^\| `(P\d{4})` \| (.*?) \| (.*) \|$", (DOCS / "errors.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("name", BLOCKS)
def test_examples_bind(name: str) -> None:
    bound = bind_script(BLOCKS[name])
    assert bound.queries or bound.actions


def test_the_contents_have_every_chapter_and_section() -> None:
    """The contents name each page, in an order that is theirs, and each section by a link to it."""
    linked = set(re.findall(r"\]\(([\w-]+\.md)(?:#[\w-]+)?\)", CHAPTERS["README"]))
    assert linked == {f"{chapter}.md" for chapter in CHAPTERS.keys() - {"README"}}
    sections = {
        f"{chapter}.md#{re.sub(r'[^a-z0-9_ -]', '', heading.lower()).replace(' ', '-')}"
        for chapter, text in CHAPTERS.items()
        for heading in re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    }
    assert {section for section in sections if f"({section})" not in CHAPTERS["README"]} == set()


def test_the_chapters_have_all_examples() -> None:
    assert len(BLOCKS) >= 31


@pytest.mark.parametrize("block", LIVE, ids=range(len(LIVE)))
def test_examples_for_a_server_bind_one_after_the_other(block: str) -> None:
    catalog = Catalog()
    script = parse_script(block)
    for statement in script.statements:
        command, warnings = bind_command(statement, catalog, Settings(), script.source)
        assert warnings == ()
        catalog = applied(command, catalog)
    assert set(catalog.queries) == {"largeorders"}
    assert len(script.statements) > 15


def test_every_attribute_is_on_the_page() -> None:
    def row(option: Option[object], *default: str) -> str:
        cells = f"`{option.name}`", option.type.name, *default, option.help
        return "| " + " | ".join(cells).replace("](", "](../") + " |"

    for option in QUERY_ATTRIBUTES:
        empty = "the setting" if option.default is None else "empty"
        assert row(option, f"`{option.default}`" if option.default else empty) in PAGE
    for option in SHEDDING_ATTRIBUTES:
        assert row(option, f"`{option.default}`" if option.default else "none") in PAGE
    for option in SOURCE_ATTRIBUTES:
        assert row(option) in PAGE


def test_every_policy_of_shedding_is_on_the_page() -> None:
    for policy in POLICIES.values():
        assert f"| `{policy.name}` | {policy.help} |" in PAGE


def test_every_code_has_its_line() -> None:
    assert [(code, meaning) for code, meaning, _ in LINES] == list(CODES.items())


@pytest.mark.parametrize(("code", "example"), [(c, e) for c, _, e in LINES if e.startswith("`")])
def test_the_example_gives_the_error(code: str, example: str, catalog: Catalog) -> None:
    assert {error.code for error in errors_of(example.strip("`"), catalog)} == {code}
