"""sluice.data: files that were damaged, and files that are made to do damage."""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time
import zlib

import numpy as np
import pytest

from sluice import data
from sluice._C import fn
from sluice.utils._framing import framed

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(11)


def jpeg(i, size=(24, 32), **options):
    file = io.BytesIO()
    Image.fromarray(np.full((*size, 3), 5 + 6 * i, np.uint8)).save(file, "JPEG", quality=95, **options)
    return file.getvalue()


def write_tar(path, samples, **options):
    with tarfile.open(path, "w", **options) as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def changed(content, n):
    for _ in range(n):
        bad = bytearray(content)
        for at in RNG.integers(0, len(bad), int(RNG.integers(1, 5))):
            bad[at] = RNG.integers(0, 256)
        yield bytes(bad[:int(RNG.integers(0, len(bad)))] if RNG.random() < 0.2 else bad)


GOOD = [part for i in range(4) for part in ((f"{i}.jpg", jpeg(i)), (f"{i}.cls", b"0"))]


@pytest.mark.parametrize("kind", ["tar", "rec"])
def test_a_file_without_content_is_a_bad_sample(tmp_path, kind):
    path, contents = tmp_path / f"some.{kind}", [jpeg(0), b"", jpeg(2)]
    if kind == "tar":
        write_tar(path, [part for i, content in enumerate(contents) for part in ((f"{i}.jpg", content), (f"{i}.cls", str(i).encode()))])
    else:
        with data.RecordWriter(path) as file:
            for i, content in enumerate(contents):
                file.write(content, i)
    pipeline = (data.tar if kind == "tar" else data.records)(path).batch(3).decode(8).on_error("skip")
    assert [label for _, labels in pipeline for label in labels.tolist()] == [0, 2]
    assert pipeline.errors.counts == {"broken or too large": 1}


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["tar", "rec"])
def test_changed_tars_and_records_are_errors_or_their_images_are_counted(tmp_path, repetitions, count, kind):
    """Two thousand five hundred files of each kind. None takes a second of a core. Of those that are read, each image stands in a batch or is
    counted, whoever is beside it."""
    good, n = tmp_path / f"good.{kind}", repetitions(2500, 30_000)
    if kind == "tar":
        write_tar(good, GOOD)
    else:
        with data.RecordWriter(good) as file:
            for _, content in GOOD[::2]:
                file.write(content, 0)
    make, refused, read = data.tar if kind == "tar" else data.records, 0, []
    for number, content in enumerate(changed(good.read_bytes(), n)):
        path = tmp_path / f"{number}.{kind}"
        path.write_bytes(content)
        begin = time.process_time()
        try:
            made = make(path)
        except ValueError as error:
            refused += 1
            assert re.match(rf"data\.(tar|records): {path}: ", str(error)), error
            path.unlink()
        else:
            assert 0 < made._source.count <= 4
            read.append(path)
        assert time.process_time() - begin < 1
    assert len(read) > n // 100 and refused
    images = {}
    for policy in ("skip", "replace"):
        pipeline = make(read).batch(64).decode(8, max_pixels=1 << 20).on_error(policy)
        rows = sum(len(y) for _, y in pipeline)
        assert rows + (pipeline.errors.total if policy == "skip" else 0) == pipeline._source.count
        images[policy] = (pipeline.errors.total, pipeline._source.count)
    assert images["skip"] == images["replace"] and 0 < images["skip"][0] < images["skip"][1]
    count("reading", n, f"changed files ({kind}), {refused} of them refused and {images['skip'][0]} images of others left out")


def test_archives_that_were_cut_or_broken_lose_nothing_silently(tmp_path):
    """Whoever reads on behind a broken header, or ends at it as at the end, has fewer samples than there were."""
    path = tmp_path / "a.tar"
    write_tar(path, GOOD)
    content = path.read_bytes()
    assert data.tar(path)._source.count == 4
    second = content.index(b"1.jpg")
    for bad in (content[:second] + b"x" + content[second + 1:], content[:second], content[:second + 100], content[:second + 700]):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=rf"data.tar: {path}: is no tar file that can be read: byte \d+: .*; must be whole"):
            data.tar(path)
    path.write_bytes(content + b"behind the end")
    assert data.tar(path)._source.count == 4


def test_tars_of_any_program(tmp_path):
    """Links, folders, long names, names that are not UTF-8, large numbers: as Python's tarfile reads them."""
    for format_ in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{format_}.tar"
        with tarfile.open(path, "w", format=format_) as tar:
            others = {"folder/": tarfile.DIRTYPE, "link.jpg": tarfile.SYMTYPE, "hard.jpg": tarfile.LNKTYPE, "pipe": tarfile.FIFOTYPE}
            for name, kind in others.items():
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, "folder/0.jpg"
                tar.addfile(info)
            names = ["folder/0.jpg", "./1.jpg", "x" * 90 + "/" + "y" * 60 + ".jpg", "\u00f6\udcff.jpg"]
            if format_ != tarfile.USTAR_FORMAT:
                names.append("z" * 300 + ".jpg")
            for i, name in enumerate(names):
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(jpeg(i)), 1.5
                tar.addfile(info, io.BytesIO(jpeg(i)))
        with tarfile.open(path) as tar:
            want = [(m.name, m.offset_data, m.size) for m in tar if m.isreg()]
        assert [name for name, _, _ in want] == names
        assert [(os.fsdecode(name), offset, size) for name, offset, size in fn.tar_members(os.fsencode(path))] == want
        assert sum(len(y) for _, y in data.tar(path).batch(4).decode(8)) == len(names)


def test_an_index_that_was_made_to_do_damage_is_refused(tmp_path):
    """All check sums are right."""
    body, path = framed(b"one") + framed(b"two"), tmp_path / "a.rec"

    def write(rows, at=None, end=b""):
        table = struct.pack(f"<{len(rows)}q", *rows)
        path.write_bytes(body + framed(b"sluice-records-index-1\n" + table)
                         + framed(b"sluice-records-end-1\n" + struct.pack("<Q", len(body) if at is None else at) + end))

    write([12, 3, 5, 31, 3, 6])
    assert [r.tolist() for r in data.records(path)._source.labels] == [5, 6] and list(data.read_records(path)) == [b"one", b"two"]
    for rows, options, text in [
        ([12, 3], {}, "the index at byte 38 is none"),
        ([12, 1 << 40, 0], {}, "names records beyond the file"),
        ([-12, 3, 0], {}, "names records beyond the file"),
        ([12, -3, 0], {}, "names records beyond the file"),
        ([(1 << 63) - 1, 1, 0], {}, "names records beyond the file"),
        ([12, 3, 0], {"at": 1 << 63}, "no record at byte 9223372036854775808"),
        ([12, 3, 0], {"at": (1 << 64) - 1}, "no record at byte 18446744073709551615"),
        ([12, 3, 0], {"at": 0}, "the index at byte 0 is none"),
        ([12, 3, 0], {"end": b"x"}, "the record at byte 38 is of an index that is broken"),
    ]:
        write(rows, **options)
        with pytest.raises(ValueError, match=rf"data.records: {path}: .*{text}"):
            data.records(path)
    write([12, 3, 0], at=3)
    with pytest.raises(ValueError, match=f"records.read: {path}: the index is said to be at byte 3, within a record"):
        list(data.read_records(path))


def test_a_command_shows_what_files_have(tmp_path, capsys):
    from sluice.data.__main__ import main
    write_tar(tmp_path / "a.tar", GOOD)
    with data.RecordWriter(tmp_path / "a.rec") as file:
        for i in range(3):
            file.write(jpeg(i), i % 2)
    assert main([str(tmp_path / "a.tar"), str(tmp_path / "a.rec"), "--first", "1", "--check"]) == 0
    size = len(jpeg(0))
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{tmp_path}/a.tar: tar, 4 samples, 1 labels, ") and told[1:3] == ["  4 .cls, 4 .jpg", f"  0: {size} bytes"]
    assert told[3].startswith(f"{tmp_path}/a.rec: records, 3 samples, 2 labels, ")
    assert told[4:] == [f"  record 0: {size} bytes", "  the check sums of all 3 records are right"]
    assert main([str(tmp_path / "a.rec"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 3
    content = bytearray((tmp_path / "a.rec").read_bytes())
    content[20] ^= 1
    (tmp_path / "a.rec").write_bytes(content)
    assert main([str(tmp_path / "a.rec"), "--check"]) == 1
    assert "records.read: " in (error := capsys.readouterr().err) and "the record at byte 0 is broken: its check sum is another one" in error


# Memory.

BOUNDED = """
import pathlib, resource, sys
from sluice import data

everything, small, count, limited = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "limited"

def now(what):
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":")) * 1024

def pipeline_of(folder):
    pipeline = data.images(folder).shuffle().repeat().batch(20).decode(64, crop=data.random_resized_crop())
    return pipeline.normalize(0.5, 0.5).on_error("skip")

def read(pipeline, batches, seen=0):
    resident = []
    while seen + pipeline.errors.total < count:
        seen += len(next(batches)[1])
        resident.append(now("VmRSS"))
    assert pipeline.errors.counts.keys() == {"broken or too large"}, pipeline.errors
    return resident

pipeline = pipeline_of(everything)
told, before = pipeline.memory()["total"], now("VmHWM")
batches = iter(pipeline)
first = len(next(batches)[1])
if limited:
    most = now("VmSize") + told + (24 << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
read(pipeline, batches, first)
grown, bad = now("VmHWM") - before, pipeline.errors.total
assert grown <= told + (24 << 20), f"{grown} bytes more; {told} were told"

pipeline = pipeline_of(small)  # what the system's allocator keeps of large images is there now
resident = read(pipeline, iter(pipeline))
quarter = len(resident) // 4
slope = min(resident[-quarter:]) - min(resident[quarter:2 * quarter])
assert slope < 4 << 20, f"{slope} bytes more in the last quarter than in the second"
print(f"{bad} of them bombs: {grown >> 20} MiB more, {told >> 20} MiB told; {slope >> 10} KiB more from the second quarter to the last of small ones")
"""


@pytest.mark.soak
@pytest.mark.parametrize("limited", ["", "limited"])
def test_memory_stays_within_what_was_told(tmp_path, repetitions, count, limited):
    """Images, a few of 20 million pixels and some in several scans among them, and bombs. A hundred thousand in the long run."""
    folder, small = tmp_path / "all" / "0", tmp_path / "small"
    folder.mkdir(parents=True)
    for i in range(180):
        (folder / f"{i}.jpg").write_bytes(jpeg(i % 40, (48 + i % 7, 64 + i % 5), progressive=i % 9 == 0))
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13)
    bombs = [("png", head + ihdr + struct.pack(">I", zlib.crc32(ihdr))), ("jpg", jpeg(1)[:20] + bytes(1 << 20)), ("jpg", b"\xff\xd8" * 1000),
             ("jpg", size_of(jpeg(1, progressive=True), 65000, 65000))]
    for i, (kind, bomb) in enumerate(bombs):
        (folder / f"bomb{i}.{kind}").write_bytes(bomb)
    shutil.copytree(folder.parent, small)
    y, x = np.mgrid[:4000, :5000]
    large = Image.fromarray(np.stack([x % 251, y % 241, (x + y) % 239], -1).astype(np.uint8))
    large.save(folder / "large.jpg", quality=50)
    large.resize((2500, 2000)).save(folder / "scans.jpg", quality=50, progressive=True)
    n = repetitions(1000, 100_000)
    done = subprocess.run([sys.executable, "-c", BOUNDED, folder.parent, small, str(n), limited], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count("decoding in bounded memory" + (", of which the system gives no more" if limited else ""), n, f"images; {done.stdout.strip()}")


def size_of(content, height, width):
    """The file with another size in its head."""
    at = next(m.start() for m in re.finditer(rb"\xff[\xc0\xc2]", content))
    return content[:at + 5] + struct.pack(">HH", height, width) + content[at + 9:]


def test_the_bombs_are_bombs():
    content = size_of(jpeg(1, progressive=True), 65000, 65000)
    with pytest.raises(Image.DecompressionBombError, match="4225000000 pixels"):
        Image.open(io.BytesIO(content))


@pytest.mark.parametrize("read", [lambda path: data.csv(path), lambda path: data.tar(path), lambda path: data.records(path), lambda path: data.lines(path, 8)],
                         ids=["csv", "tar", "records", "lines"])
def test_pipes_are_refused(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: a folder, a device or a pipe; must be a file"):
        read(tmp_path / "pipe")


def test_a_link_to_nothing_is_a_bad_sample(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "0.jpg").write_bytes(jpeg(0))
    (tmp_path / "a" / "1.jpg").symlink_to("nothing")
    pipeline = data.images(tmp_path).batch(2).decode(8).on_error("skip")
    assert sum(len(labels) for _, labels in pipeline) == 1 and pipeline.errors.counts == {"cannot be read": 1}


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n1,2\n", encoding="utf-8-sig")
    (x, y), = data.csv(tmp_path / "x.csv", columns=["a"], label="b").batch(1)
    assert x.tolist() == [[1]] and y.tolist() == [2]
