"""The tables of options: one owner for the binder, the connectors and docs/connectors.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.options import Applies, Option
from penstock.connectors.overview.catalogue import connectors_page
from penstock.connectors.sinks import SINKS, sink_options
from penstock.connectors.sources import open_source, source_names, source_options
from penstock.connectors.sources.files import FilesSource
from penstock.language.scripts import bind_script

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connectors.md"
TABLES = {
    **{f"FROM {name}": source_options(name) for name in source_names()},
    **{f"INTO {name}": sink_options(name) for name in SINKS},
}
OPTIONS = [(place, option) for place, table in TABLES.items() for option in table or ()]


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == connectors_page(), (
        "renew it: python -m penstock.connectors.overview.catalogue > docs/connectors.md"
    )


@pytest.mark.parametrize(("place", "option"), OPTIONS, ids=lambda part: getattr(part, "name", part))
def test_an_option_is_described_and_its_default_accepted(place: str, option: Option[Any]) -> None:
    assert option.name == option.name.lower() and option.help and option.type.name
    assert not (option.required and option.default is not None)
    if option.default is not None:
        assert option.type.normal(option.default) == option.default
        option.type.read(option.default)
    if option.applies is not Applies.ALL:
        assert place.startswith("FROM ")


@pytest.mark.parametrize("place", TABLES)
def test_no_name_stands_twice_in_a_table(place: str) -> None:
    table = TABLES[place]
    assert table is not None and len({option.name for option in table}) == len(table.options)


@pytest.mark.parametrize(
    ("options", "attribute", "expected"),
    [
        ("max_record_bytes '1000'", "limit", 1000),
        ("delimiter 'tab'", "delimiter", "\t"),
        (r"delimiter '\\t'", "delimiter", "\t"),
        ("quote ''", "quote", None),
        ("header 'FALSE'", "header", False),
    ],
)
def test_a_script_may_write_what_the_reader_accepts(options: str, attribute: str, expected: object) -> None:
    text = f"CREATE RELATION r (a INT) FROM FILES (path 'in.csv', {options})"
    (source,) = bind_script(text).catalog.sources.values()
    connector = open_source(source)
    assert isinstance(connector, FilesSource)
    assert getattr(connector._text, attribute) == expected


def test_internal_options_are_not_for_scripts() -> None:
    table = source_options("MEMORY")
    assert table is not None and table.names == () and [option.name for option in table] == ["spool"]
    assert source_options("DATAFRAME") is None
