"""sluice.data: order, batches, errors, places, memory."""

import io
import json
import os
import pathlib
import struct
import tarfile

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from sluice import data
from sluice.data._order import Order, Walk, permuted
from sluice.utils.tensorboard import SummaryWriter

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(3)
N = 37


def jpeg(i, size=(24, 32), kind="JPEG"):
    """A file whose brightness says which it is."""
    file = io.BytesIO()
    Image.fromarray(np.full((*size, 3), 5 + 6 * i, np.uint8)).save(file, kind, **({"quality": 95} if kind == "JPEG" else {}))
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    for i in range(N):
        place = root / f"class{i % 3}"
        place.mkdir(exist_ok=True)
        (place / f"{i:03}.{'png' if i % 5 == 0 else 'jpg'}").write_bytes(jpeg(i, kind="PNG" if i % 5 == 0 else "JPEG"))
    (root / "class0" / "notes.txt").write_text("no image")
    return root


def seen(pipeline):
    """The samples of a pass, by their brightness, and labels."""
    got, labels = [], []
    for x, y in pipeline:
        got += ((x.float().mean((1, 2, 3)).numpy() - 5) / 6).round().astype(int).tolist()
        labels += y.tolist()
    assert [i % 3 for i in got] == labels
    return got


def rows(pipeline):
    return [x.numpy().reshape(-1).tolist() for x in pipeline]


def numbers(n=20):
    return data.arrays(np.arange(n, dtype=np.float32))


# The order.

@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 16, 17, 100, 1000])
def test_a_permutation_has_all_samples_once(n):
    got = permuted(np.arange(n), n, 12345)
    assert sorted(got.tolist()) == list(range(n))
    assert n < 16 or got.tolist() != permuted(np.arange(n), n, 12346).tolist() != list(range(n))
    at = RNG.integers(0, n, 7)
    assert permuted(at, n, 12345).tolist() == got[at].tolist()  # any place alone


def test_permutations_are_spread_evenly():
    n, keys = 8, 1500
    counts = np.zeros((n, n))
    pairs = np.zeros((n, n))
    for key in range(keys):
        order = permuted(np.arange(n), n, key)
        counts[np.arange(n), order] += 1
        pairs[order[:-1], order[1:]] += 1
    assert np.abs(counts / keys - 1 / n).max() < 0.04
    off = ~np.eye(n, dtype=bool)
    assert np.abs(pairs[off] / keys - 1 / n).max() < 0.04


def test_a_million_samples_are_reached_at_once():
    order = Order(10**9, seed=3, shuffled=True)
    ids, keys = Walk(order, 2, 10**9 - 5).next(10)  # over the border of an epoch
    assert len(set(ids.tolist())) == 10 and (keys[:, 1] == ids).all() and len(set(keys[:, 0].tolist())) == 2


@pytest.mark.parametrize("uneven", ["pad", "drop"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_shards_are_equal_and_together_all(world, uneven):
    shards = [sum(rows(numbers(22).shuffle().shard(rank, world, uneven).batch(4)), []) for rank in range(world)]
    assert len({len(shard) for shard in shards}) == 1
    together = sum(shards, [])
    assert set(together) == set(range(22)) if uneven == "pad" else len(set(together)) == len(together) == 22 // world * world
    assert len(together) - len(set(together)) < world


def test_epochs_differ_and_seeds_repeat():
    pipeline = numbers().shuffle().batch(6)
    first, second = rows(pipeline), rows(pipeline)
    assert first != second and sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(20))
    assert rows(numbers().shuffle().batch(6)) == first != rows(numbers().shuffle(seed=1).batch(6))
    assert list(map(len, first)) == [6, 6, 6, 2] and len(pipeline) == 4
    assert list(map(len, rows(numbers().batch(6, drop_last=True)))) == [6, 6, 6]


def test_repeat_goes_over_the_border():
    got = rows(numbers(5).shuffle().repeat(3).batch(4))
    assert list(map(len, got)) == [4, 4, 4, 3]
    flat = sum(got, [])
    for epoch in range(3):
        assert sorted(flat[5 * epoch:5 * epoch + 5]) == list(range(5))
    endless = iter(numbers(5).repeat().batch(4))
    assert [next(endless).tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1]]
    with pytest.raises(TypeError, match="repeat\\(\\) has no length"):
        len(numbers(5).repeat().batch(4))


def test_take_skip_and_filter_choose_from_all():
    assert rows(numbers().skip(3).take(5).batch(10)) == [[3, 4, 5, 6, 7]]
    assert rows(numbers().take(5).skip(3).batch(10)) == [[3, 4]]
    odd = numbers().filter(lambda sample: sample[0] % 2 == 1).filter(lambda sample: sample[0] > 4)
    assert rows(odd.batch(10)) == [[5, 7, 9, 11, 13, 15, 17, 19]]
    assert sorted(sum(rows(odd.shuffle().shard(0, 2).batch(3)) + rows(odd.shuffle().shard(1, 2).batch(3)), [])) == list(range(5, 20, 2))
    assert rows(numbers().take(0).batch(2)) == [] and rows(numbers().filter(lambda s: False).batch(2)) == []


# Sources.

def test_folders_have_their_images_and_labels(folder, tmp_path):
    pipeline = data.images(folder).batch(8).decode(16)
    assert sorted(seen(pipeline)) == list(range(N)) and pipeline.classes == ["class0", "class1", "class2"]
    index = tmp_path / "index"
    kept = [data.images(folder, index=index), data.images(folder, index=index)]
    stamp = index.stat().st_mtime_ns
    assert {p._source.fingerprint for p in kept} == {pipeline._source.fingerprint}
    assert sorted(seen(kept[1].shuffle().batch(5).decode(8))) == list(range(N))
    extra = folder / "class1" / "999.jpg"
    extra.write_bytes(jpeg(1))
    try:
        assert data.images(folder, index=index)._source.count == N + 1
        assert index.stat().st_mtime_ns > stamp
    finally:
        extra.unlink()
    whole = index.read_bytes()
    for change in (b"", b"junk" * 20, whole[:-40], whole[:100], whole[:-1] + bytes([whole[-1] ^ 1])):
        index.write_bytes(change)
        with pytest.raises(ValueError, match=r"data: .*index: (is no index|the index (is broken|ends early)); remove it"):
            data.images(folder, index=index)
    index.write_bytes(whole.replace(b"sluice-index-2", b"sluice-index-1", 1))  # an older one is made anew
    assert data.images(folder, index=index)._source.count == N and index.read_bytes().startswith(b"sluice-index-2")


def write_tar(path, samples, **options):
    with tarfile.open(path, "w", **options) as tar:
        for name, content in samples:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_tars_have_webdatasets_samples(tmp_path):
    long_name = "a/" + "x" * 150 + "/"
    for part, format_ in ((0, tarfile.PAX_FORMAT), (1, tarfile.GNU_FORMAT)):
        samples = []
        for i in range(part * 6, part * 6 + 6):
            samples += [(f"{long_name}{i:04}.cls", str(i % 3).encode()), (f"{long_name}{i:04}.seg.txt", b"x"), (f"{long_name}{i:04}.jpg", jpeg(i))]
        write_tar(tmp_path / f"part-{part:03}.tar", samples, format=format_)
    for pattern in (tmp_path / "part-{000..001}.tar", f"{tmp_path}/part-*.tar", [tmp_path / "part-000.tar", tmp_path / "part-{001,}.tar"]):
        if isinstance(pattern, list):
            pattern[1] = tmp_path / "part-001.tar"
        assert sorted(seen(data.tar(pattern).shuffle().batch(5).decode(8))) == list(range(12))
    index = tmp_path / "index"
    for _ in range(2):
        assert seen(data.tar(tmp_path / "part-{000..001}.tar", index=index).batch(5).decode(8)) == list(range(12))
    write_tar(tmp_path / "none.tar", [("1.txt", b"a")])
    with pytest.raises(ValueError, match=r"data.tar: .*none.tar: sample '1' has txt; must have an image"):
        data.tar(tmp_path / "none.tar")
    write_tar(tmp_path / "label.tar", [("1.jpg", jpeg(1)), ("1.cls", b"cat")])
    with pytest.raises(ValueError, match="the label of sample '1' is b'cat'; must be an int"):
        data.tar(tmp_path / "label.tar")
    (tmp_path / "text.tar").write_bytes(b"no tar" * 300)
    with pytest.raises(ValueError, match="text.tar: is no tar file that can be read"):
        data.tar(tmp_path / "text.tar")
    with pytest.raises(OSError, match="data.tar: .*missing.tar: cannot be read"):
        data.tar(tmp_path / "missing.tar")


def test_crc32c_is_that_of_the_standard():
    crc = sl._C.fn.crc32c
    assert crc(b"123456789") == 0xE3069283 and crc(b"") == 0 and crc(bytes(32)) == 0x8A9136AA and crc(b"\xff" * 32) == 0x62A8AB43


def test_records_are_written_read_and_found(tmp_path):
    path = tmp_path / "images.rec"
    with data.RecordWriter(path) as file:
        for i in range(12):
            assert file.write(jpeg(i), i % 3) == i
    assert [len(r) for r in data.read_records(path)] == [len(jpeg(i)) for i in range(12)]
    assert sorted(seen(data.records(path).shuffle().batch(5).decode(8))) == list(range(12))
    plain = tmp_path / "plain.rec"  # as others write them: no index
    content = path.read_bytes()
    end = content.rindex(b"sluice-records-index-1") - 12
    plain.write_bytes(content[:end])
    assert [x.shape[0] for x, _ in data.records(plain).batch(5).decode(8)] == [5, 5, 2]
    (length,), = [struct.unpack("<Q", content[:8])]
    assert content[12:12 + length] == jpeg(0)
    with pytest.raises(RuntimeError), data.RecordWriter(tmp_path / "half.rec") as file:
        file.write(b"x")
        raise RuntimeError
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images.rec", "plain.rec"]


def test_records_are_tensorboards(tmp_path):
    """The framing is that of TensorBoard's event files."""
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.5, 3)
    events, = tmp_path.glob("events*")
    found = list(data.read_records(events))
    assert b"brain.Event:2" in found[0] and any(b"loss" in r for r in found[1:])


def test_lines_and_csv(tmp_path):
    text = tmp_path / "a.txt"
    text.write_bytes("first\nsecond line\n\nöäü\r\nlast".encode())
    (x, lengths), = data.lines(text, width=8).batch(8)
    assert x.shape == (5, 8) and lengths.tolist() == [5, 8, 0, 6, 4]
    assert x.numpy()[3, :6].tobytes().decode() == "öäü"
    counts, = data.lines(text, width=8).map(lambda line: len(line)).batch(8)
    assert counts.tolist() == [5, 11, 0, 3, 4]
    table = tmp_path / "a.csv"
    table.write_text("a,b,kind\n1,2.5,0\n3,4,1\n")
    (x, y), = data.csv(table, label="kind").batch(4)
    assert x.tolist() == [[1, 2.5], [3, 4]] and y.tolist() == [0, 1] and x.dtype == sl.float32
    assert next(iter(data.csv(table, ["b"]).batch(4))).tolist() == [[2.5], [4]]
    with pytest.raises(ValueError, match="has no column 'c'; must be one of a, b, kind"):
        data.csv(table, ["c"])
    table.write_text("a,b\n1,x\n")
    with pytest.raises(ValueError, match="a.csv: line 2: .*'x'"):
        data.csv(table)


class Squares:
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return sl.full((2,), float(i * i)), i, 0.5


def noisy(sample, rng):
    return sample[0].numpy() + rng.normal(size=2).astype(np.float32), sample[1]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_functions_of_python_in_any_number_of_workers(workers):
    batches = list(data.dataset(Squares()).map(lambda sample: (sample[0] * 2, sample[1])).batch(4))
    assert [y.tolist() for _, y in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] and batches[2][0].tolist() == [[128, 128], [162, 162]]
    (x, y, half), *_ = data.dataset(Squares()).batch(4)
    assert (x.dtype, y.dtype, half.dtype) == (sl.float32, sl.int64, sl.float32)
    pipeline = data.dataset(Squares()).shuffle().map(noisy, workers=workers).repeat(2).batch(4)
    got = [(x.numpy(), y.tolist()) for x, y in pipeline]
    want = [(x.numpy(), y.tolist()) for x, y in data.dataset(Squares()).shuffle().map(noisy).repeat(2).batch(4)]
    assert all(np.array_equal(a[0], b[0]) and a[1] == b[1] for a, b in zip(got, want)) and len(got) == len(want) == 5
    assert len({x.tobytes() for x, _ in got}) == 5


def fails(sample):
    if sample[1] == 6:
        raise KeyError("no such thing")
    return sample


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_of_a_function_is_told(workers):
    batches = iter(data.dataset(Squares()).map(fails, workers=workers).batch(4))
    assert next(batches)[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="no such thing"):
        next(batches)


# Stages.

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def test_normalising_is_part_of_decoding(folder):
    options = {"crop": data.random_resized_crop(), "flip": 0.5}
    plain = data.images(folder).shuffle().batch(8).decode(16, **options)
    floats = data.images(folder).shuffle().batch(8).decode(16, **options).normalize(MEAN, STD)
    assert len(floats._stages) == 1
    mean, std = (np.array(v).reshape(3, 1, 1) for v in (MEAN, STD))
    for (x, y), (u, v) in zip(floats, plain):
        assert y.tolist() == v.tolist() and x.dtype == sl.float32 and u.dtype == sl.uint8
        np.testing.assert_allclose(x.numpy(), (u.numpy() / 255.0 - mean) / std, atol=3e-6)
    x = next(iter(data.images(folder).batch(8).decode(16).normalize(0.5, 0.5, sl.bfloat16)))[0]
    assert x.dtype == sl.bfloat16
    apart = data.arrays(np.full((4, 3, 2, 2), 51, np.uint8)).batch(4).normalize([0.1, 0.2, 0.3], 0.5)
    np.testing.assert_allclose(next(iter(apart)).numpy()[0, :, 0, 0], [0.2, 0.0, -0.2], atol=1e-6)


def test_functions_of_batches_are_ops_of_the_plan(folder):
    pipeline = data.images(folder).batch(8).decode(16).map(lambda x, y: (x.float() / 255, y, y * 2))
    x, y, z = next(iter(pipeline))
    assert x.shape == (8, 3, 16, 16) and z.tolist() == (y * 2).tolist()
    assert {k["op"] for k in pipeline._plan.graph.plan["kernels"]} >= {"decode_image"}
    with pytest.raises(TypeError, match="must be tensors with a row for each of 8 samples"):
        next(iter(data.images(folder).batch(8).decode(16).map(lambda x, y: x.float().mean())))


def test_bytes_are_the_same_for_any_cores_and_steps_in_work(folder):
    def hashes(threads, depth, size):
        sl.set_num_threads(threads)
        p = data.images(folder, seed=7).shuffle().repeat(2).batch(size).decode(12, crop=data.random_resized_crop(), flip=0.5)
        return np.concatenate([x.numpy() for x, _ in p.prefetch(depth)]).tobytes()

    threads = sl.get_num_threads()
    try:
        want = hashes(1, 1, 8)
        assert all(hashes(t, d, size) == want for t in (1, 2) for d in (1, 3) for size in (5, 8))
    finally:
        sl.set_num_threads(threads)


# Errors.

@pytest.fixture
def bad_folder(folder, tmp_path):
    root = tmp_path / "bad"
    for place in sorted(folder.iterdir()):
        (root / place.name).mkdir(parents=True)
        for file in sorted(place.iterdir()):
            (root / place.name / file.name).write_bytes(file.read_bytes())
    files = sorted(root.glob("*/*.jpg"))
    files[1].write_bytes(b"no image")
    files[7].write_bytes(files[7].read_bytes()[:150])
    index = data.images(root)
    files[15].unlink()
    return index, [files[i] for i in (1, 7, 15)]


def test_a_bad_file_fails_its_batch_by_name_and_the_next_comes(bad_folder):
    pipeline, bad = bad_folder
    batches, good, told = iter(pipeline.batch(4).decode(8)), 0, []
    while True:
        try:
            good += len(next(batches)[1])
        except StopIteration:
            break
        except (ValueError, OSError) as error:
            told.append(str(error))
    assert len(told) == 3 and good == N - 12
    assert all(any(str(path) in text for text in told) for path in bad)


def test_bad_files_are_replaced_or_skipped_and_counted(bad_folder):
    pipeline, bad = bad_folder
    replaced = pipeline.batch(4).decode(8).on_error("replace", most=3)
    got = seen(replaced)
    assert len(got) == N and len(set(got)) == N - 3
    assert replaced.errors.counts == {"broken or too large": 2, "cannot be read": 1} and replaced.errors.total == 3
    assert {name.split(": ")[0] for name in replaced.errors.names} == set(map(str, bad))
    skipped = pipeline.batch(4).decode(8).on_error("skip")
    sizes = [len(y) for _, y in skipped]
    assert sum(sizes) == N - 3 and max(sizes) == 4 and sorted(seen(skipped)) == sorted(set(got))
    with pytest.raises(ValueError, match="data: 3 bad samples, the last .*; on_error\\(\\) allows 2"):
        seen(pipeline.batch(4).decode(8).on_error("skip", most=2))


def test_images_beyond_the_limits_are_broken(folder):
    pipeline = data.images(folder).batch(8).decode(8, max_pixels=10).on_error("skip")
    assert list(pipeline) == [] and pipeline.errors.counts == {"broken or too large": N}


# Places.

def test_an_iteration_goes_on_from_any_place():
    pipeline = numbers(23).shuffle().repeat(3).batch(4)
    want = rows(pipeline)
    for stop in range(len(want) + 1):
        first = numbers(23).shuffle().repeat(3).batch(4)
        batches = iter(first)
        begun = [next(batches).tolist() for _ in range(stop)]
        state = json.loads(json.dumps(first.state_dict()))
        assert len(json.dumps(state)) < 1024
        second = numbers(23).shuffle().repeat(3).batch(4)
        second.load_state_dict(state)
        assert begun + rows(second) == want
        third = numbers(23).shuffle().repeat(3).batch(4)
        third.load_state_dict(first.state_dict(steps=0))
        assert begun + rows(third) == want


def test_the_pass_after_a_resumed_one_is_whole():
    pipeline = numbers().shuffle().batch(8)
    passes = [rows(pipeline) for _ in range(3)]
    first = numbers().shuffle().batch(8)
    rows(first)
    next(batches := iter(first))
    again = numbers().shuffle().batch(8)
    again.load_state_dict(first.state_dict())
    assert [rows(again), rows(again)] == [passes[1][1:], passes[2]]
    del batches
    left = iter(pipeline)  # left in the middle: the next is a pass of its own
    next(left)
    assert len(sum(rows(pipeline), [])) == 20 and list(left) == []


def test_the_number_of_ranks_may_change():
    def shard(rank, world):
        return numbers(24).shuffle().shard(rank, world).batch(2)

    states, got = [], []
    for rank in range(2):
        pipeline = shard(rank, 2)
        batches = iter(pipeline)
        got += next(batches).tolist() + next(batches).tolist() + next(batches).tolist()
        states.append(pipeline.state_dict())
    for rank in range(3):
        pipeline = shard(rank, 3)
        pipeline.load_state_dict(states[0])
        got += sum(rows(pipeline), [])
    assert sorted(got) == list(range(24))
    with pytest.raises(ValueError, match="12 samples into the epoch; 5 ranks cannot share that evenly"):
        shard(0, 5).load_state_dict(states[0])
    with pytest.raises(ValueError, match="the state has seed 0; this pipeline has 9"):
        data.arrays(np.arange(24, dtype=np.float32), seed=9).batch(2).load_state_dict(states[0])
    with pytest.raises(ValueError, match="the state has fingerprint"):
        numbers(25).batch(2).load_state_dict(states[0])


# Inside of a plan.

class Training(nn.Graph):
    def __init__(self, pipeline):
        super().__init__()
        self.pipeline, self.net = pipeline, nn.Linear(3, 3)
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1))

    def build(self):
        x, y = self.pipeline()
        loss = nn.functional.cross_entropy(self.net(x.float().mean((2, 3)) / 255), y)
        loss.backward()
        return loss, x, y


def test_stages_are_part_of_a_training_plan(folder):
    def pipeline():
        return data.images(folder).shuffle().batch(8, drop_last=True).decode(16, flip=0.5)

    graph, want = Training(pipeline()), list(pipeline())
    for x, y in want:
        loss, u, v = graph()
        assert sl.equal(u, x) and sl.equal(v, y) and np.isfinite(loss.item())
    with pytest.raises(sl.EndOfData):
        graph()[0].item()
    graph.reset()
    second = list(own := pipeline()) and list(own)
    assert sl.equal(graph()[1], second[0][0])
    resumed = pipeline()
    resumed.load_state_dict(pipeline().state_dict(steps=2))
    assert sl.equal(Training(resumed)()[1], want[2][0])


def test_bad_files_are_counted_inside_of_a_plan_too(bad_folder):
    source, bad = bad_folder
    for most, wrong in ((3, False), (2, True)):
        pipeline = source.batch(12, drop_last=True).decode(8).on_error("replace", most=most)
        graph, told = Training(pipeline), []
        for _ in range(3):
            try:
                assert np.isfinite(graph()[0].item())
            except RuntimeError as error:
                told.append(str(error))
        graph.close()
        assert pipeline.errors.total == 3 and {name.split(": ")[0] for name in pipeline.errors.names} == set(map(str, bad))
        assert bool(told) == wrong and all("on_error() allows 2" in text for text in told)


def test_pipelines_of_one_source_do_not_disturb_each_other():
    base = data.dataset(Squares()).map(lambda sample: (sample[0], sample[1]))
    one, two = iter(base.shuffle().batch(3)), iter(base.batch(4))
    got = [next(batches)[1].tolist() for _ in range(3) for batches in (one, two)]
    assert got[1::2] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert got[::2] == [y.tolist() for _, y in base.shuffle().batch(3)][:3]


@pytest.mark.parametrize(("make", "error", "text"), [
    (lambda f: data.images(f).batch(8).decode(8)(), TypeError, "called inside of a graph's build"),
    (lambda f: Training(data.images(f).batch(8).decode(8))(), ValueError, "the last batch is smaller"),
    (lambda f: Training(data.images(f).repeat().batch(8).decode(8).on_error("skip"))(), ValueError, "makes batches smaller"),
    (lambda f: next(iter(data.images(f).batch(8))), ValueError, "encoded images; decode\\(\\) must say"),
    (lambda f: next(iter(data.images(f).decode(8))), ValueError, "decode: before batch\\(\\)"),
    (lambda f: next(iter(numbers())), ValueError, "a pipeline without batch"),
    (lambda f: numbers().batch(2).decode(8), ValueError, "decode: of what is no encoded image"),
    (lambda f: numbers().batch(2).batch(2), ValueError, "batch: twice"),
    (lambda f: numbers().batch(2).shuffle(), ValueError, "shuffle: after batch"),
    (lambda f: numbers().batch(0), ValueError, "batch: size 0"),
    (lambda f: numbers().shard(3, 2), ValueError, "shard: rank 3 of 2"),
    (lambda f: numbers().batch(2).map(print, workers=2), ValueError, "map: workers behind batch"),
    (lambda f: numbers().batch(2).on_error("hope"), ValueError, "on_error: 'hope'; must be one of raise, replace, skip"),
    (lambda f: data.images(f / "class0"), ValueError, "data.images: .*has no folders"),
    (lambda f: data.images(f / "nowhere"), OSError, "data.images: .*cannot be read"),
    (lambda f: data.images(f).batch(2).decode(8, crop="random"), TypeError, "decode: crop: str"),
    (lambda f: data.arrays(np.ones(3), np.ones(4)), ValueError, "arrays of \\[3, 4\\] rows"),
    (lambda f: data.dataset(iter([1])), TypeError, "has no __len__"),
    (lambda f: data.arrays(np.ones((3, 2), np.float32)).batch(2).normalize(0.0, 0.0), ValueError, "std: 0.0; must be positive"),
    (lambda f: data.images(f).batch(2).decode(8).normalize([0.1] * 4, [0.1] * 4), ValueError, "4 numbers for 3 channels"),
    (lambda f: next(iter(data.arrays(np.ones(3, np.uint16)).batch(2))), TypeError, "uint16; must be a dtype that Sluice has"),
])
def test_misuse_is_told(folder, make, error, text):
    with pytest.raises(error, match=text):
        make(folder)


@pytest.mark.parametrize("threads", sorted({1, sl.get_num_threads()}))
def test_decoding_has_all_threads_beside_its_source(folder, threads):
    before = sl.get_num_threads()
    sl.set_num_threads(threads)
    try:
        pipeline = data.images(folder).batch(8).decode(8)
        pipeline.memory()  # which compiles the plan
    finally:
        sl.set_num_threads(before)
    assert [s["cores"] for s in pipeline._plan.graph.plan["streams"] if "compute" in str(s)] == [threads]


def test_memory_is_known_before_the_first_batch(folder):
    pipeline = data.images(folder).repeat().batch(8).decode(64).normalize(MEAN, STD)
    told = pipeline.memory()
    assert told["total"] == told["plan"] + told["decoders"] and told["plan"] > 8 * 3 * 64 * 64 * 4
    batches = iter(pipeline)
    for _ in range(3):
        next(batches)
    before = resident()
    for _ in range(40):
        next(batches)
    assert resident() - before < 8 << 20


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
