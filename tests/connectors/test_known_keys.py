"""The keys of posts: in memory the same as a dictionary, in a few bytes each; in files that are read one by one."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.connectors.sources import posted_keys
from penstock.connectors.sources.posted_keys import KnownKeys, PostKey, expire_keys, keep_keys, kept_keys, last_kept


@pytest.mark.parametrize("seed", range(3))
def test_they_are_a_dictionary(seed: int) -> None:
    draw, keys, model = random.Random(seed), KnownKeys(), dict[str, tuple[str, int]]()
    for at in range(4_000):
        key, action = f"k{draw.randrange(2_000)}", draw.random()
        if action < 0.85:
            digest = str(draw.randrange(5))
            keys.add(key, digest, at)
            model[key] = digest, at
        elif action < 0.995:
            keys.remove(key)
            model.pop(key, None)
        else:
            keys.expire(at - 1_500, at)
            model = {one: post for one, post in model.items() if post[1] >= at - 1_500}
        if at % 200 == 0:
            for one in [f"k{number}" for number in range(0, 2_000, 7)]:
                assert keys.at(one) == (model[one][1] if one in model else None)
                assert [keys.has(one, str(d)) for d in range(5)] == [
                    one in model and model[one][0] == str(d) for d in range(5)
                ]
    assert len(keys) == len(model) > 500
    assert len(keys._arrays) <= 6


def test_the_latest_post_with_a_key_counts() -> None:
    posts = [
        PostKey(1, "a", "old", 10),
        PostKey(2, "a", "new", 20),
        PostKey(3, "", "", 30),
        PostKey(4, "\ud800", "x", 40),
    ]
    keys = KnownKeys.of(posts)
    assert len(keys) == 2 and keys.at("a") == 20 and keys.has("a", "new") and not keys.has("a", "old")
    assert keys.at("\ud800") == 40 and keys.at("") is None


def test_a_key_takes_few_bytes() -> None:
    count = 5_000
    tracemalloc.start()
    try:
        keys = KnownKeys()
        for number in range(count):
            keys.add(f"producer {number:032x}", f"{number:064x}", number)
        taken = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    # As objects with their texts they took 500.
    assert taken < 60
    keys.expire(count, 2**62)
    assert len(keys) == 0 and keys._arrays == []


def post(number: int) -> PostKey:
    return PostKey(number, f"producer {number:032x}", f"{number:064x}", number)


def most_bytes(action: Callable[[], object]) -> int:
    """Return how many bytes an action takes at once."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_however_many_keys_there_are_one_file_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest, count = 2**15, 3_000
    monkeypatch.setattr(posted_keys, "LARGEST", largest)
    most = 0
    for number in range(1, count, 10):
        posts = [post(one) for one in range(number, number + 10)]
        most = max(most, most_bytes(lambda posts=posts: keep_keys(tmp_path, posts)))  # type: ignore[misc]
    sizes = [path.stat().st_size for path in (tmp_path / "keys").iterdir()]
    assert max(sizes) < largest + 100 and sum(sizes) > 10 * largest and len(sizes) < 4 * sum(sizes) / largest
    assert [one.number for one in kept_keys(tmp_path)] == [*range(1, count + 1)] and last_kept(tmp_path) == count
    # A file of half that size is in memory as its bytes, its lines, and the same of what is written.
    assert most < 8 * largest, most
    assert most_bytes(lambda: max(one.number for one in kept_keys(tmp_path))) < 8 * largest
    assert most_bytes(lambda: expire_keys(tmp_path, count // 2, count)) < 8 * largest
    left = [one.number for one in kept_keys(tmp_path)]
    assert left[-1] == count and set(range(count // 2, count + 1)) <= {*left} and len(left) < 0.6 * count


def test_a_key_that_came_again_counts_as_the_later_one_in_files(tmp_path: Path) -> None:
    for number, digest in enumerate(["old", "other", "new", "last"], 1):
        keep_keys(tmp_path, [PostKey(number, "a" if digest in ("old", "new") else digest, digest, number)])
    keys = KnownKeys.of(kept_keys(tmp_path))
    assert len(keys) == 3 and keys.at("a") == 3 and keys.has("a", "new") and not keys.has("a", "old")


def test_a_merged_file_that_a_crash_left_is_merged_again(tmp_path: Path) -> None:
    keep_keys(tmp_path, [post(1), post(2)])
    (first,) = (tmp_path / "keys").iterdir()
    content = first.read_bytes()
    keep_keys(tmp_path, [post(3), post(4)])
    first.write_bytes(content)
    assert [one.number for one in kept_keys(tmp_path)] == [1, 2, 1, 2, 3, 4]
    keep_keys(tmp_path, [post(number) for number in range(5, 10)])
    assert [one.number for one in kept_keys(tmp_path)] == [*range(1, 10)]


def test_posts_without_keys_leave_one_file(tmp_path: Path) -> None:
    """Each round removes some; a file for each would be listed with every later one."""
    for number in range(1, 201):
        keep_keys(tmp_path, [PostKey(number, "", "", number)])
    assert last_kept(tmp_path) == 200
    assert len(list((tmp_path / "keys").iterdir())) == 1
    keep_keys(tmp_path, [PostKey(201, "k", "d", 201)])
    for number in range(202, 300):
        keep_keys(tmp_path, [PostKey(number, "", "", number)])
    assert [post.key for post in kept_keys(tmp_path)] == ["k"]
    assert len(list((tmp_path / "keys").iterdir())) <= 2
