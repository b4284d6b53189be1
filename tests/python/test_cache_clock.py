"""The cache under clocks that differ: what a process of the future has written, one of the past uses."""
import subprocess
import sys
import time

import pytest
import test_cache
from rights import needs_program
from test_cache import MODEL, cache, was_read, warnings  # noqa: F401: a fixture among them

pytestmark = test_cache.pytestmark
FUTURE, NOW, PAST = "+2d", "+0d", "-2d"


def clock(when):
    """What a command begins with whose clock is set so; the monotonic clock stays, as nobody can set it."""
    return needs_program("faketime"), "--exclude-monotonic", "-f", when


@pytest.fixture
def at(cache):  # noqa: F811
    """`at(PAST, "run", ...)`: the command at a time. Times of files stay what they are."""

    def run(when, *arguments, **environment):
        return cache.inkle(*arguments, before=clock(when), NO_FAKE_STAT="1", **environment)

    return run


@pytest.fixture
def program(cache, at):  # noqa: F811
    """Runs the model at a time: its results, and what was logged."""

    def run(when, **environment):
        said = at(when, "run", MODEL, "--random", "--output", cache.out, **environment).stderr
        return {p.name: p.read_bytes() for p in cache.out.iterdir()}, said

    return run


@pytest.mark.parametrize("when, days", [(FUTURE, 2), (NOW, 0), (PAST, -2)])
def test_the_clock_is_another(when, days):
    """Otherwise the tests below would show nothing."""
    said = subprocess.run([*clock(when), sys.executable, "-c", "import time; print(time.time())"], capture_output=True,
                          text=True, check=True)
    assert round((float(said.stdout) - time.time()) / 86400) == days


@pytest.mark.parametrize("first, then", [(FUTURE, PAST), (PAST, FUTURE)])
def test_entries_of_another_time_are_used(cache, at, program, first, then):  # noqa: F811
    want, said = program(first)
    assert not was_read(said) and warnings(said) == []
    entries = {path: path.read_bytes() for path in cache.entries()}
    got, said = program(then)
    assert got == want and was_read(said) and warnings(said) == []
    assert f"{len(entries)} entries," in at(then, "cache", "stats").stdout
    assert f"{len(entries)} entries are right, 0 files" in at(then, "cache", "verify").stdout
    assert {path: path.read_bytes() for path in cache.entries()} == entries


def test_damage_is_found_whatever_the_time(cache, at, program):  # noqa: F811
    """An entry is not trusted more for being newer than now."""
    want, _ = program(FUTURE)
    for path in cache.entries():
        data = bytearray(path.read_bytes())
        data[-1] ^= 8
        path.write_bytes(data)
    got, said = program(PAST)
    assert got == want and not was_read(said)
    assert said.count("an entry of the cache is deleted and made anew") == 1
    cache.entries()[0].write_bytes(b"no entry")
    assert "1 files were deleted" in at(PAST, "cache", "verify").stdout


def test_the_least_recently_used_go_first_though_they_are_of_the_future(cache, program):  # noqa: F811
    """Another number of threads makes other entries of the same sizes, and the limit holds those of one."""
    want, _ = program(FUTURE, OMP_NUM_THREADS="1")
    old = set(cache.entries())
    limit = {"INKLE_CACHE_LIMIT": str(sum(path.stat().st_size for path in old) * 5 // 4)}
    for when in (PAST, NOW):
        got, said = program(when, OMP_NUM_THREADS="3", **limit)
        assert got == want and warnings(said) == []
        assert was_read(said) == (when == NOW)  # of what the past has written nothing is gone
        new = set(cache.entries()) - old
        assert len(new) == len(old) and len(set(cache.entries()) & old) < len(old)
    got, said = program(PAST, OMP_NUM_THREADS="1", **limit)
    assert got == want and not was_read(said)
