"""Listings, against a plain walk through the paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.memory.domain.listing import Entry, level, whole
from services.memory.domain.paths import parents
from tests.memory.test_paths import SEGMENT


def _apart(paths: list[str]) -> list[str]:
    """Without files that would be directories of others."""
    directories = {parent for path in paths for parent in parents(path)}
    return [path for path in paths if path not in directories]


FILES = (
    st.lists(st.lists(SEGMENT, min_size=1, max_size=4).map("/".join), max_size=12, unique=True)
    .map(_apart)
    .flatmap(
        lambda paths: st.tuples(*(st.builds(Entry, st.just(p), st.integers(0, 9), st.integers(1, 99)) for p in paths))
    )
)


@given(FILES)
def test_the_whole_listing_holds_files_and_their_directories_in_byte_order(files: tuple[Entry, ...]) -> None:
    entries = whole(files)
    assert [e.path.encode() for e in entries] == sorted(e.path.encode() for e in entries)
    assert {e for e in entries if not e.directory} == set(files)
    found = {e.path: e for e in entries if e.directory}
    assert found.keys() == {parent for file in files for parent in parents(file.path)}
    for path, directory in found.items():
        inside = [file for file in files if file.path.startswith(f"{path}/")]
        assert (directory.size, directory.updated_at) == (0, max(file.updated_at for file in inside))


@given(FILES)
def test_a_level_holds_what_the_whole_listing_has_there(files: tuple[Entry, ...]) -> None:
    entries = whole(files)
    for directory in ["", *(e.path for e in entries if e.directory)]:
        prefix = f"{directory}/" if directory else ""
        here = [e for e in entries if e.path.startswith(prefix) and "/" not in e.path[len(prefix) :]]
        found = level([file for file in files if file.path.startswith(prefix)], directory)
        assert [(e.path, e.size, e.updated_at, e.directory) for e in found] == [
            (e.path, e.size, e.updated_at, e.directory) for e in here
        ]
        for e in found:
            if e.directory:
                below = {c.path for c in entries if c.path.startswith(f"{e.path}/")}
                assert e.entry_count == sum("/" not in path[len(e.path) + 1 :] for path in below)
