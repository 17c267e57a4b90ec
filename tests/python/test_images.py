"""sluice.io: JPEG files as images, against Pillow."""

import io
import sys
import threading
import time

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn

Image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(11)


def jpeg(height=40, width=60, mode="RGB", **options):
    """The bytes of a file: noise over a gradient, so that every filter shows."""
    y, x = np.mgrid[:height, :width]
    pixels = np.stack([x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), (x + y) % 256], -1)
    pixels = np.clip(pixels + RNG.normal(0, 30, pixels.shape), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", **{"quality": 90, **options})
    return file.getvalue()


def pillow(content, size=None, mode="RGB", box=None, flip=False):
    """(C, H, W) by Pillow."""
    image = Image.open(io.BytesIO(content)).convert(mode)
    if box is not None:
        image = image.crop(box)
    if size is not None:
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@pytest.fixture
def folder(tmp_path):
    names = [tmp_path / f"{i}.jpg" for i in range(6)]
    for i, name in enumerate(names):
        name.write_bytes(jpeg(20 + 7 * i, 50 - 5 * i))
    return names


OPTIONS = [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 2, "quality": 30}, {"optimize": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", [(1, 1), (17, 33), (64, 48)])
def test_an_image_in_its_own_size_has_pillows_pixels(options, shape):
    content = jpeg(*shape, **options)
    np.testing.assert_array_equal(sl.io.decode_jpeg(content).numpy(), pillow(content))
    gray = jpeg(*shape, mode="L", **options) if "subsampling" not in options else content
    np.testing.assert_array_equal(sl.io.decode_jpeg(gray, mode="GRAY").numpy()[0].shape, shape)
    if gray is not content:
        np.testing.assert_array_equal(sl.io.decode_jpeg(gray).numpy(), pillow(gray, mode="L"))
        np.testing.assert_array_equal(sl.io.decode_jpeg(gray, mode=sl.io.ImageReadMode.RGB).numpy(), pillow(gray))


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (40, 60), (40, 31), (13, 60), (100, 90), (41, 61), (224, 3)])
@pytest.mark.parametrize("mode", ["RGB", "GRAY"])
def test_resized_images_have_pillows_pixels(size, mode):
    content = jpeg(mode="RGB" if mode == "RGB" else "L")
    got = sl.io.decode_jpeg([content], size, mode=mode)
    assert got.dtype == sl.uint8 and got.shape == (1, 3 if mode == "RGB" else 1, *size)
    want = pillow(content, size, "RGB" if mode == "RGB" else "L")
    assert np.abs(got.numpy()[0].astype(int) - want).max() <= 1


def test_boxes_and_flips_are_pillows():
    content, n = jpeg(53, 71), 40
    boxes = RNG.random((n, 4)).astype(np.float32)
    boxes[:3] = [(0, 0, 1, 1), (1, 1, 1, 1), (0.5, 0.5, 0, 0)]
    flips = RNG.random(n) < 0.5
    got = sl.io.decode_jpeg([content] * n, (24, 32), boxes=sl.tensor(boxes), flip=sl.tensor(flips)).numpy()

    def pixels(begin, length, size):
        end, first = min(float(begin) + float(length), 1.0), min(int(np.floor(float(begin) * size + 0.5)), size - 1)
        return first, max(int(np.floor(end * size + 0.5)), first + 1)

    np.testing.assert_array_equal(sl.io.decode_jpeg([content] * n, (24, 32), boxes=boxes.astype(np.float64), flip=flips).numpy(), got)
    for image, (top, left, height, width), flip in zip(got, boxes, flips):
        (y0, y1), (x0, x1) = pixels(top, height, 53), pixels(left, width, 71)
        want = pillow(content, (24, 32), box=(x0, y0, x1, y1), flip=flip)
        assert np.abs(image.astype(int) - want).max() <= 1


def test_files_are_given_in_any_form(folder):
    contents = [name.read_bytes() for name in folder]
    want = sl.io.decode_jpeg(contents, (16, 16))
    for files in (folder, [str(name) for name in folder], [bytearray(c) for c in contents], [memoryview(c) for c in contents],
                  [np.frombuffer(c, np.uint8) for c in contents], [sl.io.read_file(name) for name in folder],
                  [folder[0], *contents[1:]], tuple(folder)):
        assert sl.equal(sl.io.decode_jpeg(files, 16), want)
    assert sl.equal(sl.io.decode_jpeg(folder[2], 16), want[2]) and sl.equal(sl.io.decode_jpeg(contents[2], (16, 16)), want[2])
    packed = sl.io.pack(folder[:4], count=6, room=4096)
    assert packed.shape == (4096,)
    got = sl.io.decode_jpeg(packed, 16, count=6)
    assert sl.equal(got[:4], want[:4]) and (got[4:] == 0).all()
    assert sl.equal(sl.io.decode_jpeg([None, folder[1]], 16)[1], want[1]) and sl.io.decode_jpeg([], 16).shape == (0, 3, 16, 16)
    assert [i.shape for i in sl.io.decode_jpeg(folder[:2])] == [(3, 20, 50), (3, 27, 45)]
    np.testing.assert_array_equal(sl.io.read_image(folder[1]).numpy(), pillow(contents[1]))
    odd = folder[0].parent / "größe ☃.jpg"
    odd.write_bytes(contents[0])
    assert sl.equal(sl.io.decode_jpeg([odd], 16)[0], want[0])


def test_any_number_of_threads_gives_the_same_images(folder):
    threads = sl.get_num_threads()
    try:
        sl.set_num_threads(1)
        one = sl.io.decode_jpeg(folder, 32)
        sl.set_num_threads(2)
        assert sl.equal(sl.io.decode_jpeg(folder, 32), one)
    finally:
        sl.set_num_threads(threads)


def test_a_bad_file_is_named(folder, tmp_path):
    def refused(content, error, text, files=3):
        path = tmp_path / "bad.jpg"
        path.write_bytes(content)
        for bad, name in ((path, rf" \('{path}'\)"), (content, "")):
            with pytest.raises(error, match=rf"decode_jpeg: image {files - 1}{name}: {text}"):
                sl.io.decode_jpeg([*folder[:files - 1], bad, *folder[:2]], 8)

    good = jpeg()
    refused(b"GIF89a", ValueError, "not a JPEG file: its 6 bytes do not begin with FF D8")
    refused(b"\xff\xd8", ValueError, ".*JPEG")
    refused(good[:len(good) // 2], ValueError, "Premature end of JPEG file")
    refused(good[:-2], ValueError, "Premature end of JPEG file")
    refused(good[:100], ValueError, ".*")
    refused(jpeg(mode="CMYK"), ValueError, "its colours are CMYK; save it as RGB or gray")
    with pytest.raises(OSError, match=r"decode_jpeg: image 1 \('/nowhere/x.jpg'\): .*cannot be read: .*No such file"):
        sl.io.decode_jpeg([folder[0], "/nowhere/x.jpg"], 8)
    with pytest.raises(OSError, match="image 0 .*cannot be read"):
        sl.io.decode_jpeg([tmp_path], 8)
    with pytest.raises(OSError, match="image 0 .*cannot be read"):
        sl.io.decode_jpeg(["/dev/zero"], 8)
    (tmp_path / "empty.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"image 0 .*its 0 bytes do not begin"):
        sl.io.decode_jpeg([tmp_path / "empty.jpg"], 8)
    with pytest.raises(ValueError, match="decode_jpeg: .*not a JPEG file"):
        sl.io.decode_jpeg(b"GIF89a")
    several = [good[:50], folder[0], b"xx", "/nowhere/x.jpg"]
    for _ in range(5):
        with pytest.raises(ValueError, match="image 0"):  # the first, whoever is found first
            sl.io.decode_jpeg(several, 8)
    assert sl.io.decode_jpeg(folder, 8).shape == (6, 3, 8, 8)


def test_bytes_that_were_changed_are_errors_or_images():
    good, n = jpeg(24, 24), 0
    for _ in range(300):
        bad = bytearray(good)
        for at in RNG.integers(2, len(bad), 3):
            bad[at] = RNG.integers(0, 256)
        try:
            assert sl.io.decode_jpeg([bytes(bad)], 8).shape == (1, 3, 8, 8)
        except (ValueError, MemoryError):
            n += 1
    assert 0 < n < 300


def test_packed_bytes_that_were_changed_are_refused():
    packed = sl.io.pack([jpeg()])
    for word, value in ((0, -1), (1, 1 << 40), (2, 1 << 62), (3, -5), (3, len(packed))):
        bad = packed.copy()
        bad[:32].view(np.int64)[word] = value
        with pytest.raises(ValueError, match="packed files: the (name|content) of file 0 is at"):
            sl.io.decode_jpeg(bad, 8, count=1)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: sl.io.decode_jpeg([jpeg()], (0, 4)), ValueError, "size: .*must be 1 to"),
    (lambda: sl.io.decode_jpeg([jpeg()], 1 << 20), ValueError, "size: .*must be 1 to"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, mode="CMYK"), ValueError, "mode: 'CMYK'; must be one of"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, mode="unchanged"), ValueError, "UNCHANGED with a size"),
    (lambda: sl.io.decode_jpeg([jpeg()], flip=sl.tensor([True])), ValueError, "need the size"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, flip=sl.tensor([True, False])), ValueError, "flip: is .*must be bool\\(1,\\)"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, boxes=np.ones((1, 4), np.int64)), ValueError, "boxes: is int64"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, boxes=sl.ones(1, 3)), ValueError, "boxes: is .*must be float32\\(1, 4\\)"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, boxes=sl.tensor([[float("nan"), 0, 1, 1]])), ValueError, "image 0: its box begins at nan"),
    (lambda: sl.io.decode_jpeg([jpeg()], 8, boxes=sl.tensor([[0, 2.0, 1, 1]])), ValueError, "image 0: its box begins at 2"),
    (lambda: sl.io.decode_jpeg([3], 8), TypeError, "file 0: is int; must be a path, bytes"),
    (lambda: sl.io.decode_jpeg([""], 8), ValueError, "its name is empty"),
    (lambda: sl.io.decode_jpeg([b""], 8), ValueError, "is empty"),
    (lambda: sl.io.decode_jpeg([np.ones(3)], 8), TypeError, "must be its bytes, uint8"),
    (lambda: sl.io.pack([b"a", b"b"], count=1), ValueError, "2 files; count is 1"),
    (lambda: sl.io.pack([b"a"], room=10), ValueError, "take 33 bytes; room is 10"),
    (lambda: sl.io.decode_jpeg(sl.zeros(64), 8, count=2), TypeError, "files: is float32\\(64,\\); must be bytes"),
    (lambda: sl.io.decode_jpeg(sl.io.pack([b"a"]), 8, count=2), ValueError, "2 files take 64 at least"),
])
def test_misuse_is_told(call, error, text):
    with pytest.raises(error, match=text):
        call()


class Pictures(nn.Graph):
    """A source that says which files, and the plan does the rest."""

    def __init__(self, batches, room=4096):
        super().__init__()
        self.batches, self.room = batches, room

    def build(self):
        def names():
            for files, flip in self.batches:
                yield sl.io.pack(files, count=2, room=self.room), np.array(flip)

        files, flip = sl.host_function(names, out=[((self.room,), sl.uint8), ((2,), sl.bool)])
        return sl.io.decode_jpeg(files, (16, 12), count=2, flip=flip).float() / 255


def test_a_plan_reads_decodes_and_resizes(folder):
    flip = [True, False]
    graph = Pictures([(folder[:2], flip), (folder[2:4], flip), (folder[4:5], flip)])
    for start, stop in ((0, 2), (2, 4), (4, 5)):
        want = np.zeros((2, 3, 16, 12), np.float32)
        for i, name in enumerate(folder[start:stop]):
            want[i] = sl.io.decode_jpeg([name], (16, 12), flip=sl.tensor([flip[i]]))[0].float().numpy() / np.float32(255)
        np.testing.assert_allclose(graph().numpy(), want, rtol=1e-6)
    with pytest.raises(sl.EndOfData):
        graph().numpy()


@pytest.mark.parametrize("device", ["cpu", "sim:0"])
def test_a_stream_of_its_own_and_a_net_elsewhere(folder, device):
    class Net(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.set_device(device)
            self.net = nn.Conv2d(3, 2, 3)

        def build(self):
            files = sl.host_function(lambda: sl.io.pack(folder[:2], room=1000), out=((1000,), sl.uint8))
            with sl.stream("compute:1"):
                images = sl.io.decode_jpeg(files, 8, count=2)
            return self.net(images.float())

    graph = Net()
    want = graph.net(sl.io.decode_jpeg(folder[:2], 8).float()).detach().numpy()
    for _ in range(3):
        np.testing.assert_allclose(graph().cpu().numpy(), want, rtol=1e-4, atol=1e-3)
    streams = [a["stream"] for a in graph.plan["actors"]]
    assert len(set(map(str, streams))) >= 3


def test_a_bad_file_fails_its_step_of_a_plan_by_name(folder, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"nothing")
    graph = Pictures([(folder[:2], [0 > 1] * 2), ([folder[2], bad], [False] * 2), (folder[2:4], [False] * 2)])
    assert graph().shape == (2, 3, 16, 12)
    with pytest.raises(ValueError, match=rf"decode_jpeg: image 1 \('{bad}'\): not a JPEG file.*test_images\.py"):
        graph().numpy()
    assert graph().numpy().max() > 0


def test_the_gil_is_free_meanwhile(folder):
    """While a thread that never gives the GIL up looks on, another thread's images are decoded."""
    packed, n = sl.from_numpy(sl.io.pack([folder[5]] * 100)), 100

    def seen():
        """Whether the kernel was done while the other thread waited for the GIL."""
        got, ready = [], threading.Event()

        def work():
            ready.set()
            got.append(sl.io.decode_jpeg(packed, 64, count=n))

        calls = sl._C.kernel_time()[1]
        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        deadline = time.monotonic() + 20
        while sl._C.kernel_time()[1] == calls and time.monotonic() < deadline:
            pass
        waits = not got
        thread.join()
        assert got[0].shape == (n, 3, 64, 64)
        return waits

    interval = sys.getswitchinterval()
    sl._C.time_kernels(True)
    sys.setswitchinterval(1000)
    try:
        assert any(seen() for _ in range(20))  # a thread that comes late finds all done
    finally:
        sys.setswitchinterval(interval)
        sl._C.time_kernels(False)
