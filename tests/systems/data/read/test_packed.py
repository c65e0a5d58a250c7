"""Reading samples of packed shards by number."""

from __future__ import annotations

import contextlib
import errno
import gc
import multiprocessing
import os
import pickle
import tarfile
import threading
import time

import numpy
import pytest

from cordee.core.errors import CorruptDataError, DataError, UsageError
from cordee.systems.data.node.read.packed import batch_pread as many
from cordee.systems.data.node.read.packed import files as packed_files
from cordee.systems.data.node.read.packed.source import PackedSource


@pytest.mark.parametrize("way", ["advise", "fetch"])
def test_a_source_that_is_let_go_does_not_wait_for_threads_that_cannot_end_just_now(tmp_path, pack, make, way):
    before = set(threading.enumerate())
    sources = [PackedSource(pack(tmp_path / "set", make(60)), ahead=way)]
    sources[0].expect(numpy.arange(60))
    sources[0].begin(numpy.arange(30))
    done = threading.Event()

    def let_go():
        with threading._active_limbo_lock:  # every thread needs it to end
            sources.clear()
        done.set()

    threading.Thread(target=let_go, daemon=True).start()
    assert done.wait(60)
    end = time.monotonic() + 60
    while set(threading.enumerate()) - before or [path for path in open_files() if str(tmp_path / "set") in path]:
        assert time.monotonic() < end
        gc.collect()  # an error that a thread has kept holds what it was reading
        time.sleep(0.02)


def open_files():
    """Return the paths of what this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return found


def without_key(sample):
    return {name: value for name, value in sample.items() if name != "key"}


@pytest.mark.parametrize("way", ["advise", "fetch", "none"])
def test_every_sample_comes_back_in_the_order_asked_for(tmp_path, pack, make, way):
    samples = make(45)
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way)
    order = numpy.random.default_rng(3).permutation(45)
    source.expect(order)
    found = source.read(order[:20]) + source.read(order[20:])
    assert found == [without_key(samples[number]) for number in order]
    assert source.read(numpy.array([7, 7, 0])) == [without_key(samples[number]) for number in (7, 7, 0)]
    assert (source.size, source.counts.samples) == (45, 48)
    source.close()


@pytest.mark.parametrize("fields", [["jpg"], ["txt"], ["txt", "jpg"]])
def test_only_the_fields_asked_for_are_read(tmp_path, pack, make, fields):
    samples = make(12)
    source = PackedSource(pack(tmp_path / "set", samples), fields, keys=True)
    assert source.read(numpy.array([5])) == [
        {"key": samples[5]["key"], "label": 2, **{name: samples[5][name] for name in fields}}
    ]


def test_without_fields_only_labels_are_given_and_nothing_is_read(tmp_path, pack, make):
    source = PackedSource(pack(tmp_path / "set", make(12)), [])
    source.expect(numpy.arange(12))
    assert source.read(numpy.array([4, 2])) == [{"label": 1}, {"label": 2}]
    assert source.counts.requests == 0


def test_columns_of_large_data_sets_stay_mapped(tmp_path, pack, make, monkeypatch):
    monkeypatch.setattr("cordee.systems.data.node.read.packed.layout._COPIED_BYTES", 0)
    samples = make(45)
    folder = pack(tmp_path / "set", samples)
    order = numpy.random.default_rng(3).permutation(45)
    for fields in (["jpg"], ["txt", "jpg"]):
        found = PackedSource(folder, fields, check="always").read(order)
        assert found == [{name: samples[number][name] for name in [*fields, "label"]} for number in order]


def test_a_data_set_without_samples_or_with_empty_ones_is_read(tmp_path, pack):
    assert PackedSource(pack(tmp_path / "none", [], fields=["x"])).read(numpy.arange(0)) == []
    folder = pack(tmp_path / "empty", [{"key": "a", "x": b""}, {"key": "b", "y": b""}], fields=["x", "y"])
    for way in ("advise", "fetch"):
        source = PackedSource(folder, ["x"], ahead=way)
        source.expect(numpy.array([1, 0]))
        assert source.read(numpy.array([1, 0])) == [{}, {"x": b""}]
        source.close()


def test_fields_that_a_sample_has_not_and_empty_ones_are_told_apart(tmp_path, pack):
    samples = [{"key": "a", "x": b"", "y": b"1"}, {"key": "b", "y": b"2"}, {"key": "c", "x": b"3", "label": 4}]
    folder = pack(tmp_path / "set", samples)
    expected = [{"x": b"", "y": b"1"}, {"y": b"2"}, {"x": b"3", "label": 4}]
    assert PackedSource(folder).read(numpy.arange(3)) == expected
    assert PackedSource(folder, ["x"]).read(numpy.arange(3)) == [{"x": b""}, {}, {"x": b"3", "label": 4}]


def test_fields_next_to_each_other_are_one_request_and_those_far_apart_two(tmp_path, pack):
    samples = [{"key": str(number), "a": b"1" * 9, "b": b"2" * 100_000, "c": b"3" * 7} for number in range(4)]
    folder = pack(tmp_path / "set", samples)
    together, apart = PackedSource(folder), PackedSource(folder, ["a", "c"])
    assert together.read(numpy.arange(4)) == [without_key(sample) for sample in samples]
    assert together.counts.requests == 4
    assert apart.read(numpy.arange(4)) == [{"a": b"1" * 9, "c": b"3" * 7}] * 4
    assert (apart.counts.requests, apart.counts.bytes) == (8, 64)


def test_long_names_in_extended_headers_are_accepted(tmp_path, pack):
    samples = [{"key": "ä" * 70 + str(number), "txt": b"x"} for number in range(3)]
    for number, kind in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        source = PackedSource(pack(tmp_path / str(number), samples, tar_format=kind))
        assert source.read(numpy.arange(3)) == [{"txt": b"x"}] * 3


def test_counts_say_what_was_read(tmp_path, pack):
    samples = [{"key": str(number), "bin": bytes(1024)} for number in range(30)]
    source = PackedSource(pack(tmp_path / "set", samples))
    source.read(numpy.arange(30))
    counts = source.counts
    assert (counts.samples, counts.requests, counts.bytes, counts.opens) == (30, 30, 30 * 1024, 3)
    assert counts.sizes[10] == 30 == sum(counts.sizes)
    assert counts.busy_s > 0


def test_few_files_are_open_at_once(tmp_path, pack, make):
    samples = make(60, size=10)
    source = PackedSource(pack(tmp_path / "set", samples, shard_samples=2))
    source.files.most = 4
    order = numpy.random.default_rng(0).permutation(60)
    assert source.read(order) == [without_key(samples[number]) for number in order]
    assert sum(str(tmp_path) in path and path.endswith(".tar") for path in open_files()) <= 4


@pytest.mark.parametrize("given", [[-1], [12], [0, 99]])
def test_numbers_outside_are_refused(tmp_path, pack, make, given):
    with pytest.raises(UsageError, match="no such sample"):
        PackedSource(pack(tmp_path / "set", make(12))).read(numpy.array(given))


@pytest.mark.parametrize("options", [{"fields": ["png"]}, {"check": "maybe"}, {"corrupt": "ignore"}, {"ahead": "far"}])
def test_options_that_there_are_not_name_those_that_there_are(tmp_path, pack, make, options):
    with pytest.raises(UsageError) as raised:
        PackedSource(pack(tmp_path / "set", make(3)), **options)
    assert raised.value.allowed


def damage(folder, source, sample, field="jpg"):
    """Change the last byte of a sample's field."""
    column = source.index.fields.index(field)
    shard = source.index.shard_path(int(source.index.columns["shard"][sample]))
    end = int(source.index.columns["offset"][sample, column] + source.index.columns["length"][sample, column])
    with open(shard, "r+b") as file:
        file.seek(end - 1)
        last = file.read(1)
        file.seek(end - 1)
        file.write(bytes([last[0] ^ 1]))


def test_damage_is_found_when_always_checked_and_names_the_key(tmp_path, pack, make):
    folder = pack(tmp_path / "set", make(25))
    damage(folder, PackedSource(folder), 13)
    source = PackedSource(folder, check="always")
    with pytest.raises(CorruptDataError) as raised:
        source.read(numpy.arange(25))
    assert "class-1/000013" in raised.value.given
    assert "set-000001.tar at byte" in raised.value.given


def test_damaged_samples_are_left_out_when_asked_for(tmp_path, pack, make):
    samples = make(25)
    folder = pack(tmp_path / "set", samples)
    damage(folder, PackedSource(folder), 13)
    source = PackedSource(folder, check="always", corrupt="skip")
    expected = [None if number == 13 else without_key(samples[number]) for number in range(25)]
    with pytest.warns(RuntimeWarning, match="class-1/000013"):
        assert source.read(numpy.arange(25)) == expected
    assert source.counts.skipped == 1


def test_damage_is_told_from_what_cannot_be_decoded(tmp_path, pack, make):
    folder = pack(tmp_path / "set", make(25))
    source = PackedSource(folder)
    damage(folder, source, 13)
    twelve, thirteen = source.read(numpy.array([12, 13]))
    source.verify(12, twelve)
    with pytest.raises(CorruptDataError, match="jpg is not what was packed"):
        source.verify(13, thirteen)


def test_an_index_of_other_shards_is_refused(tmp_path, pack, make):
    mine, other = pack(tmp_path / "mine", make(20)), pack(tmp_path / "other", make(20, seed=1))
    (mine / "set-000001.tar").write_bytes((other / "set-000001.tar").read_bytes())
    with pytest.raises(CorruptDataError, match="not the one of this index"):
        PackedSource(mine).read(numpy.array([15]))


def test_a_shard_of_the_same_size_with_other_samples_is_refused(tmp_path, pack):
    for name, key in (("mine", "a"), ("other", "b")):
        pack(tmp_path / name, [{"key": f"{key}{number}", "x": b"1"} for number in range(4)])
    (tmp_path / "mine/set-000000.tar").write_bytes((tmp_path / "other/set-000000.tar").read_bytes())
    with pytest.raises(CorruptDataError, match=r"'b0\.x' stands where 'a0\.x' should"):
        PackedSource(tmp_path / "mine").read(numpy.array([1]))


@pytest.mark.parametrize("options", [{}, {"corrupt": "skip"}, {"ahead": "fetch"}])
def test_a_shard_of_equal_names_and_sizes_with_other_bytes_is_refused(tmp_path, pack, options):
    for start, name in enumerate(("mine", "other")):
        pack(tmp_path / name, [{"key": f"{at}", "bin": (at + start).to_bytes(4, "big") * 256} for at in range(30)])
    (tmp_path / "mine/set-000001.tar").write_bytes((tmp_path / "other/set-000001.tar").read_bytes())
    source = PackedSource(tmp_path / "mine", **options)
    assert source.read(numpy.array([3]))[0]["bin"][3] == 3
    with pytest.raises(CorruptDataError, match="of 8 samples that were compared 8 have other bytes"):
        source.read(numpy.array([15]))


@pytest.mark.parametrize("options", [{}, {"corrupt": "skip"}])
def test_a_shard_with_damaged_samples_is_not_taken_for_another(tmp_path, pack, make, options):
    samples = make(60)
    folder = pack(tmp_path / "set", samples, shard_samples=30)
    for number in (0, 29):
        damage(folder, PackedSource(folder), number)
    assert PackedSource(folder, **options).read(numpy.array([14])) == [without_key(samples[14])]


def test_every_flipped_byte_of_an_index_is_told_when_it_is_opened(tmp_path, pack, make):
    folder = pack(tmp_path / "set", make(12))
    index = folder / "dataset.index"
    whole, told = index.read_bytes(), 0
    for at in range(len(whole)):
        index.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            PackedSource(folder)
        except CorruptDataError as error:
            told += "the index cannot be used" in error.text
        else:
            assert whole[at] == 0  # filled up to the next multiple of 64
    assert told > len(whole) * 0.8


def test_a_damaged_index_of_many_samples_is_told(tmp_path, pack, make, monkeypatch):
    monkeypatch.setattr("cordee.systems.data.node.shards.index._LARGE_BYTES", 1)
    monkeypatch.setattr("cordee.systems.data.node.shards.index._PART_BYTES", 100)
    folder = pack(tmp_path / "set", make(60))
    PackedSource(folder)
    index = bytearray((folder / "dataset.index").read_bytes())
    index[-1] ^= 1
    (folder / "dataset.index").write_bytes(index)
    with pytest.raises(CorruptDataError, match="its column keys is damaged"):
        PackedSource(folder)


def test_a_shard_that_is_cut_off_or_gone_is_named(tmp_path, pack, make):
    folder = pack(tmp_path / "set", make(20))
    os.truncate(folder / "set-000000.tar", 4096)
    (folder / "set-000001.tar").unlink()
    source = PackedSource(folder)
    with pytest.raises(CorruptDataError, match="cut off: 4096 bytes"):
        source.read(numpy.array([1]))
    with pytest.raises(DataError, match="cannot be opened: No such file") as raised:
        source.read(numpy.array([15]))
    assert raised.value.given.endswith("set-000001.tar")


@pytest.mark.parametrize("way", ["none", "fetch"])
def test_of_a_shard_that_is_cut_off_the_rest_is_read_where_damage_is_left_out(tmp_path, pack, make, way):
    samples = make(20)
    folder = pack(tmp_path / "set", samples)
    source = PackedSource(folder, corrupt="skip", ahead=way)
    cut = int(source.index.columns["offset"][6, 0])
    os.truncate(folder / "set-000000.tar", cut)
    with pytest.warns(RuntimeWarning, match="left out") as warned:
        found = source.read(numpy.arange(20))
    assert found == [None if 6 <= number < 10 else without_key(samples[number]) for number in range(20)]
    assert source.counts.skipped == 4
    said = [str(warning.message) for warning in warned]
    assert any("class-0/000006" in text for text in said)
    assert any("set-000000.tar is cut off" in text for text in said)


def test_a_shard_that_is_cut_off_while_it_is_read_names_the_sample(tmp_path, pack, make):
    folder = pack(tmp_path / "set", make(20))
    source = PackedSource(folder)
    source.read(numpy.array([0]))
    os.truncate(folder / "set-000000.tar", 10240)
    with pytest.raises(CorruptDataError, match="ends within a sample") as raised:
        source.read(numpy.array([0, 9]))
    assert "class-0/000009" in raised.value.given


def test_a_copy_for_a_spawned_worker_reads_the_same(tmp_path, pack, make):
    samples = make(20)
    folder = pack(tmp_path / "set", samples)
    source = PackedSource(folder, ["jpg"], ahead="fetch")
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read(numpy.arange(20)) == source.read(numpy.arange(20))
    pack(folder, make(20, seed=9))
    with pytest.raises(CorruptDataError, match="packed anew"):
        pickle.loads(pickle.dumps(source))


@pytest.mark.parametrize("way", ["advise", "fetch"])
def test_a_forked_worker_reads_while_its_parent_reads_on(tmp_path, pack, make, way):
    samples = make(40)
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way)
    source.expect(numpy.arange(40))
    expected = [without_key(sample) for sample in samples]
    assert source.read(numpy.arange(10)) == expected[:10]
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work():
        source.expect(numpy.arange(40))
        sender.send(source.read(numpy.arange(40)) == expected)

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    assert source.read(numpy.arange(10, 40)) == expected[10:]
    assert receiver.poll(60)
    assert receiver.recv() is True
    child.join(60)
    assert child.exitcode == 0


def failing(number, times):
    """Return an os.pread that fails so many times for requests of more than a header."""
    real, left = os.pread, [times]

    def pread(file, length, offset):
        if length != 512 and left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return real(file, length, offset)

    return pread


@pytest.mark.parametrize("way", ["none", "fetch"])
def test_a_file_that_was_replaced_on_its_server_is_opened_anew(tmp_path, pack, make, monkeypatch, way):
    samples = make(10)
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way)
    source.read(numpy.array([0]))  # the shard is compared with its index
    monkeypatch.setattr(os, "pread", failing(errno.ESTALE, 2))
    assert source.read(numpy.array([3])) == [without_key(samples[3])]
    assert source.counts.opens == 2


@pytest.mark.parametrize("way", ["none", "advise", "fetch"])
def test_storage_that_fails_is_named_with_the_sample(tmp_path, pack, make, monkeypatch, way):
    source = PackedSource(pack(tmp_path / "set", make(10)), ahead=way)
    source.read(numpy.array([0]))  # the shard is compared with its index
    source.expect(numpy.arange(10))
    monkeypatch.setattr(os, "pread", failing(errno.EIO, 1000))
    with pytest.raises(DataError, match=r"Input/output error \(EIO\)") as raised:
        source.read(numpy.arange(1, 10))
    assert "class-1/000001" in raised.value.given
    assert "set-000000.tar at byte" in raised.value.given
    source.close()


def test_a_list_that_fails_is_read_again_sample_by_sample(tmp_path, pack, make, monkeypatch):
    samples = make(40)
    source = PackedSource(pack(tmp_path / "set", samples), ahead="none")
    tried = []

    def read(files, sizes, begins):
        tried.append(len(files))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(many, "read_here", read)
    for found in (source.read(numpy.arange(40)), source.begin(numpy.arange(40))()):
        assert list(found) == [without_key(sample) for sample in samples]
    assert tried
    source.close()


@pytest.mark.parametrize("way", ["advise", "fetch", "none"])
def test_samples_that_were_begun_come_when_they_are_waited_for(tmp_path, pack, make, way):
    samples = make(60)
    expected = [without_key(sample) for sample in samples]
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way)
    source.expect(numpy.arange(60))
    begun = [source.begin(numpy.arange(at, at + 20)) for at in (0, 20, 40)]
    assert [sample for wait in begun for sample in wait()] == expected
    assert source.counts.samples == 60
    begun = source.begin(numpy.arange(30, 50))
    assert source.read(numpy.arange(5)) == expected[:5]
    assert list(begun()) == expected[30:50]
    source.begin(numpy.arange(60))  # never waited for
    source.close()
    assert not [path for path in open_files() if str(tmp_path) in path and path.endswith(".tar")]
    assert list(source.begin(numpy.arange(7))()) == expected[:7]
    source.close()


def test_a_begun_read_of_a_shard_that_is_cut_off_names_the_sample(tmp_path, pack, make):
    source = PackedSource(pack(tmp_path / "set", make(40)), ahead="none")
    source.read(numpy.arange(40))  # all shards are open, and were whole
    os.truncate(tmp_path / "set" / "set-000003.tar", 1024)
    wait = source.begin(numpy.arange(25, 40))
    with pytest.raises(CorruptDataError, match="a shard ends within a sample") as raised:
        wait()
    assert "set-000003.tar" in raised.value.given
    source.close()


def test_answers_in_parts_are_put_together(tmp_path, pack, make, monkeypatch):
    samples = make(10)
    source = PackedSource(pack(tmp_path / "set", samples))
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, offset: real(file, min(length, 700), offset))
    assert source.read(numpy.arange(10)) == [without_key(sample) for sample in samples]


@pytest.mark.parametrize("way", ["advise", "fetch"])
def test_reading_something_else_than_expected_forgets_it(tmp_path, pack, make, way):
    samples = make(60)
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way, ahead_bytes=40_000)
    expected = [without_key(sample) for sample in samples]
    source.expect(numpy.arange(60))
    assert source.read(numpy.arange(5)) == expected[:5]
    assert source.read(numpy.arange(30, 50)) == expected[30:50]
    source.expect(numpy.arange(50, 60))
    assert source.read(numpy.arange(50, 60)) == expected[50:]
    source.close()


@pytest.mark.parametrize("way", ["advise", "fetch"])
def test_samples_that_are_expected_twice_come_twice(tmp_path, pack, make, way):
    samples = make(8)
    source = PackedSource(pack(tmp_path / "set", samples), ahead=way)
    wanted = numpy.array([1, 1, 7, 1, 7])
    source.expect(wanted[:3])
    source.expect(wanted[3:])
    assert source.read(wanted) == [without_key(samples[number]) for number in wanted]
    source.close()


def test_a_closed_source_leaves_no_threads_and_no_files(tmp_path, pack, make):
    before = set(threading.enumerate())
    sources = [PackedSource(pack(tmp_path / way, make(30)), ahead=way) for way in ("advise", "fetch")]
    for source in sources:
        source.expect(numpy.arange(30))
        source.read(numpy.arange(10))
        source.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert set(threading.enumerate()) <= before
    assert not [path for path in open_files() if str(tmp_path) in path and path.endswith(".tar")]
    for source in sources:
        source.expect(numpy.arange(30))
        assert len(source.read(numpy.arange(30))) == 30
        source.close()


def test_a_source_that_is_closed_in_the_middle_of_a_read_leaves_no_files(tmp_path, pack, make, monkeypatch):
    source = PackedSource(pack(tmp_path / "set", make(30)), ahead="fetch")
    files, reading, go_on, answers = source.files, threading.Event(), threading.Event(), []

    def held(file, length, offset, read=packed_files.read_whole):
        reading.set()
        go_on.wait(60)
        return read(file, length, offset)

    files.read(0, 0, 1)
    monkeypatch.setattr(packed_files, "read_whole", held)
    thread = threading.Thread(target=lambda: answers.append(files.read(0, 0, 512)))
    thread.start()
    assert reading.wait(60)
    source.close()
    go_on.set()
    thread.join(60)
    assert [len(answer) for answer in answers] == [512]  # its file stays open until it is given back
    assert not [path for path in open_files() if str(tmp_path) in path and path.endswith(".tar")]
    with pytest.raises(DataError, match="closed while it was read"):
        files.read(1, 0, 512)  # a thread that had not yet opened its shard
    assert len(source.read(numpy.arange(3))) == 3
    source.close()


def test_a_shard_whose_first_read_fails_is_named(tmp_path, pack, make, monkeypatch):
    source = PackedSource(pack(tmp_path / "set", make(10)))

    def pread(file, length, offset):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", pread)
    with pytest.raises(DataError, match="first read: Input/output error") as raised:
        source.read(numpy.array([1]))
    assert raised.value.given.endswith("set-000000.tar")
