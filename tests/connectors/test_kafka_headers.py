"""Headers of a record of Kafka: a JSON object, in which headers of one name are kept."""

from __future__ import annotations

import json

import pytest

from penstock.connectors.sources.kafka import _headers_text


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        (None, None),
        ([], {}),
        ([("a", b"1"), ("b", None), ("a", b"\xff"), ("a", None)], {"a": ["1", "/w==", None], "b": None}),
        ([("a", b"1"), ("A", b"2")], {"a": "1", "A": "2"}),
    ],
)
def test_headers_of_one_name_are_an_array(headers: list[tuple[str, bytes | None]] | None, shown: object) -> None:
    text = _headers_text(headers)
    assert text is None if shown is None else json.loads(text or "") == shown
