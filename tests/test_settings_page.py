"""docs/settings.md is what the table of settings holds, and every default and value on it is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import TABLE, Setting, settings_page

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), (
        "renew it: python -m penstock.settings > docs/settings.md"
    )


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_the_default_as_it_is_shown_is_the_default(setting: Setting) -> None:
    assert setting.parse(setting.shown) == setting.default


@pytest.mark.parametrize("setting", TABLE, ids=lambda setting: setting.name)
def test_the_values_are_described(setting: Setting) -> None:
    assert setting.values and setting.help
