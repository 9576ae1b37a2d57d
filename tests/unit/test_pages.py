"""Huge pages: what the kernel is asked, what it says, and what smaps has of it afterwards."""

import ctypes
import errno
import mmap

import numpy as np
import pytest

from ddlbench import pages as module
from ddlbench.bench.environment import small_pages
from ddlbench.errors import UnsupportedError
from ddlbench.pages import Again, HugePages, Mapped, Tally, huge_nbytes, mappings, memory_at, setting

PAGE = 2 << 20
SMAPS = """00400000-00800000 rw-p 00000000 00:00 0                                  [heap]
Size:               4096 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me ac hg
7f0000000000-7f0000400000 rw-s 00001000 00:1b 49888                      /dev/shm/window of 1-2 (deleted)
Rss:                4096 kB
AnonHugePages:         0 kB
ShmemPmdMapped:     4096 kB
7f0000400000-7f0000600000 r--s 00401000 00:1b 49888                      /dev/shm/window
ShmemPmdMapped:        0 kB
"""


class Refusing:
    """A C library whose madvise says `number` to everything."""

    def __init__(self, number):
        self.number = number

    def madvise(self, *_):
        ctypes.set_errno(self.number)
        return -1


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Give a folder of the system's settings."""
    monkeypatch.setattr(module, "SETTINGS", tmp_path)
    (tmp_path / "hpage_pmd_size").write_text(f"{PAGE}\n")
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    (tmp_path / "shmem_enabled").write_text("always within_size advise never [deny] force\n")
    (tmp_path / "mounts").write_text("tmpfs /tmp tmpfs rw,huge=always 0 0\ntmpfs /dev/shm tmpfs rw,huge=advise 0 0\n")
    monkeypatch.setattr(module, "MOUNTS", tmp_path / "mounts")
    return tmp_path


@pytest.fixture
def huge():
    """Give huge pages where this system has them."""
    found = HugePages.on_all(lambda mine: [mine])
    found.array(1)
    if found.refusal("arrays"):
        pytest.skip(found.refusal("arrays"))
    found.check(lambda mine: [mine])
    return found


def alone(value):
    return [value]


def test_smaps_is_read_mapping_by_mapping():
    assert list(mappings(SMAPS)) == [
        Mapped(0x400000, 0x800000, shared=False, offset=0, huge_nbytes=2048 << 10),
        Mapped(0x7F0000000000, 0x7F0000400000, shared=True, offset=0x1000, huge_nbytes=4096 << 10),
        Mapped(0x7F0000400000, 0x7F0000600000, shared=True, offset=0x401000, huge_nbytes=0),
    ]
    assert list(mappings("")) == []


def test_only_mappings_of_the_memory_itself_count(tmp_path, monkeypatch):
    (tmp_path / "smaps").write_text(SMAPS)
    monkeypatch.setattr(module, "SMAPS", tmp_path / "smaps")
    assert huge_nbytes(0x400000, 0x400000) == 2048 << 10
    assert huge_nbytes(0x500000, 0x300000) == 0, "a mapping that begins before it holds other memory too"
    assert huge_nbytes(0x7F0000000000, 0x600000) == 4096 << 10
    monkeypatch.setattr(module, "SMAPS", tmp_path / "nowhere")
    assert huge_nbytes(0x400000, 0x400000) == 0


def test_a_setting_is_the_word_in_brackets(settings):
    assert (setting("enabled"), setting("shmem_enabled"), setting("defrag")) == ("madvise", "deny", "unknown")


def test_what_a_mount_does_not_say_is_never(settings):
    (settings / "mounts").write_text("tmpfs /dev/shm tmpfs rw,huge=advise 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n")
    assert module.mount_setting() == "never", "the last mount there is the one that is seen"
    (settings / "mounts").unlink()
    assert module.mount_setting() == "unknown"


def test_a_system_without_huge_pages_is_refused_on_all_ranks(settings):
    assert HugePages.on_all(alone).page_nbytes == PAGE
    with pytest.raises(UnsupportedError, match="no huge pages"):
        HugePages.on_all(lambda mine: [mine, 0])
    (settings / "hpage_pmd_size").unlink()
    with pytest.raises(UnsupportedError, match=r"no huge pages for memory: no .*hpage_pmd_size"):
        HugePages.on_all(alone)


def test_memory_that_gets_none_is_refused_with_the_setting_and_what_the_kernel_says(settings, monkeypatch):
    monkeypatch.setattr(module, "_libc", lambda: Refusing(errno.EINVAL))
    monkeypatch.setattr(module, "huge_nbytes", lambda *_: 0)
    huge = HugePages(PAGE)
    huge.fill("windows", np.ones(PAGE, np.uint8))
    assert huge.refusal("windows") == (
        f"shared windows cannot have huge pages here: {settings}/shmem_enabled is deny, "
        "/dev/shm is mounted with huge=advise, and madvise says: Invalid argument"
    )
    assert huge.refusal("arrays") == "", "nobody asked for any"
    with pytest.raises(UnsupportedError, match="shared windows cannot"):
        huge.check(alone)


def test_a_refusal_on_one_rank_is_one_on_all(settings):
    with pytest.raises(UnsupportedError, match="elsewhere"):
        HugePages(PAGE).check(lambda mine: [mine, "windows elsewhere"])


def test_a_trial_is_forgotten():
    huge = HugePages(PAGE)
    huge.tallies["arrays"] = Tally(1, PAGE, PAGE)
    huge.check(alone)
    assert huge.tallies == {"arrays": Tally(), "windows": Tally()}


def test_what_is_not_in_huge_pages_is_asked_for_again_and_told_as_it_is(monkeypatch):
    asked, found = [], iter([0, PAGE])
    library = Refusing(0)
    library.madvise = lambda *given: asked.append(given[2])
    monkeypatch.setattr(module, "_libc", lambda: library)
    monkeypatch.setattr(module, "huge_nbytes", lambda *_: next(found, PAGE))
    huge = HugePages(PAGE)
    huge.fill("arrays", np.ones(2 * PAGE, np.uint8))
    assert asked == [mmap.MADV_HUGEPAGE, *[module.MADV_COLLAPSE] * module.TRIES]
    assert huge.tallies["arrays"] == Tally(1, 2 * PAGE, PAGE)
    assert huge.refusal("arrays") == ""


@pytest.mark.parametrize("nbytes", [1, PAGE, PAGE + 1])
def test_an_array_lies_in_huge_pages_of_its_own(huge, nbytes):
    arrays = [huge.array(nbytes) for _ in range(3)]
    for array in arrays:
        assert (array.nbytes, array.ctypes.data % huge.page_nbytes) == (nbytes, 0)
        assert not array.any()
        array[:] = 7
    pages = huge.rounded(nbytes)
    tally = huge.tallies["arrays"]
    assert (tally.allocations, tally.nbytes) == (3, 3 * pages)
    seen = [huge_nbytes(array.ctypes.data, pages) for array in arrays]
    assert 0 < sum(seen) == tally.huge_nbytes <= tally.nbytes, "each is seen apart from the rest"


@pytest.mark.parametrize("nbytes", [1 << 60, 1 << 64])
def test_no_room_for_an_array_is_told_as_such(nbytes):
    with pytest.raises(MemoryError, match="no memory for"):
        HugePages(PAGE).array(nbytes)


def test_an_array_has_the_shape_that_is_asked_for(huge):
    array = huge.empty((3, 5), np.float64)
    assert (array.shape, array.dtype) == ((3, 5), np.float64)


def test_shared_memory_is_seen_again_where_it_can_have_huge_pages(tmp_path):
    libc, nbytes = module._libc(), 2 * PAGE
    room = mmap.mmap(-1, nbytes + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at = -(-np.frombuffer(room, np.uint8).ctypes.data // PAGE) * PAGE
    path = tmp_path / "window"
    path.write_bytes(bytes(mmap.PAGESIZE + nbytes))
    with path.open("r+b") as file:  # as Open MPI does it: the address fits, but the place in the file is 4 KiB further
        shared, fixed = mmap.MAP_SHARED, 0x10
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        assert libc.mmap(at, nbytes, protection, shared | fixed, file.fileno(), mmap.PAGESIZE) == at
    again = Again(at, nbytes, PAGE)
    memory_at(again.address, 9)[:] = np.frombuffer(b"here I am", np.uint8)
    assert again.address % PAGE == 0
    assert path.read_bytes()[PAGE : PAGE + 9] == b"here I am", "the first place of the file that can begin a huge page"
    assert bytes(memory_at(at + PAGE - mmap.PAGESIZE, 9)) == b"here I am", "the first mapping is still there"
    begin = again._second[0]
    assert begin in [one.begin for one in module._mapped(module.MAPS)]
    again.close()
    assert begin not in [one.begin for one in module._mapped(module.MAPS)]


def test_memory_of_one_process_is_seen_where_it_is():
    memory = mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    again = Again(address, 2 * PAGE, PAGE)
    assert again.address == -(-address // PAGE) * PAGE
    again.close()
    memory[:1] = b"x"


def test_the_record_has_the_sums_over_ranks_and_the_settings(settings):
    ranks = [{"arrays": Tally(1, PAGE, PAGE), "windows": Tally(2, 4 * PAGE, at * PAGE)} for at in (4, 1)]
    assert HugePages(PAGE).to_json(ranks) == {
        "page_nbytes": PAGE,
        "settings": {"enabled": "madvise", "shmem_enabled": "deny", "mount": "advise"},
        "arrays": {"allocations": 2, "nbytes": 2 * PAGE, "huge_nbytes": 2 * PAGE},
        "windows": {"allocations": 4, "nbytes": 8 * PAGE, "huge_nbytes": 5 * PAGE},
    }


def test_memory_that_is_not_in_huge_pages_is_flagged():
    tallies = {"arrays": {"nbytes": PAGE, "huge_nbytes": PAGE}, "windows": {"nbytes": 3 * PAGE, "huge_nbytes": PAGE}}
    (flag,) = small_pages(tallies)
    assert (flag.flag, flag.detail) == ("small-pages", "50.0% of the memory that was to be in huge pages was not")
    tallies["windows"]["huge_nbytes"] = 3 * PAGE
    assert list(small_pages(tallies)) == list(small_pages(None)) == []
