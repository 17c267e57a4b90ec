"""The kernel behind sluice.io.decode_image: parts of images, PNG, crops by keys, broken files, limits."""

import io
import struct
import time
import zlib

import numpy as np
import pytest

import sluice as sl

Image = pytest.importorskip("PIL.Image")
pytest.importorskip("PIL.ImageFile").MAXBLOCK = 1 << 22  # progressive files of noise fit into no less
RNG = np.random.default_rng(5)
OP = sl._C.ops.decode_image
SUBSAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def pixels(height, width):
    y, x = np.mgrid[:height, :width]
    base = np.stack([x * 255 / max(width - 1, 1), y * 255 / max(height - 1, 1), (x + y) % 256], -1)
    return np.clip(base + RNG.normal(0, 40, base.shape), 0, 255).astype(np.uint8)


def encoded(array, kind="JPEG", mode=None, **options):
    file, image = io.BytesIO(), Image.fromarray(array)
    (image if mode is None else image.convert(mode)).save(file, kind, **options)
    return file.getvalue()


def pillow(content, mode="RGB"):
    array = np.asarray(Image.open(io.BytesIO(content)).convert(mode))
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def part(content, y, x, h, w, shape, mode="RGB"):
    """The pixels of a box, in their own size."""
    H, W = shape
    boxes = np.array([[y / H, x / W, h / H, w / W]])
    return sl.io.decode_image([content], (h, w), mode=mode, boxes=boxes).numpy()[0]


def random_box(height, width):
    h, w = RNG.integers(1, height + 1), RNG.integers(1, width + 1)
    return int(RNG.integers(0, height - h + 1)), int(RNG.integers(0, width - w + 1)), int(h), int(w)


def parts(content, places, size, shape, mode):
    """The pixels of boxes of one size, in their own size."""
    boxes = np.array([[y / shape[0], x / shape[1], size[0] / shape[0], size[1] / shape[1]] for y, x in places])
    return sl.io.decode_image([content] * len(places), size, mode=mode, boxes=boxes).numpy()


ENCODINGS = [{"subsampling": s, "progressive": p, "quality": 90 if p else 35} for s in SUBSAMPLINGS.values() for p in (False, True)]
ENCODINGS += [{"mode": "L", "progressive": p, "quality": 75} for p in (False, True)]


@pytest.mark.soak
def test_a_part_has_the_bits_that_it_has_in_the_whole_image(repetitions, count):
    """Ten thousand boxes: of odd sizes, of all ways to store colours, of gray ones, in one scan and in several."""
    n = 0
    sizes = [((1, 1), 5), ((8, 8), 9), ((17, 3), 11), ((3, 50), 11), ((95, 131), 9), ((64, 48), 11), ((33, 257), 7), ((375, 500), 2)]
    sizes += [(tuple(int(s) for s in RNG.integers(1, 300, 2)), 8) for _ in range(repetitions(0, 40))]
    for (height, width), groups in sizes:
        array = pixels(height, width)
        for options in ENCODINGS:
            content = encoded(array, **options)
            for mode in ("RGB", "GRAY"):
                whole = sl.io.decode_image(content, mode=mode).numpy()
                if mode == "RGB" or "mode" in options:
                    np.testing.assert_array_equal(whole, pillow(content, "RGB" if mode == "RGB" else "L"))
                for _ in range(groups):
                    y, x, h, w = random_box(height, width)
                    places = [(y, x)] + [(int(RNG.integers(0, height - h + 1)), int(RNG.integers(0, width - w + 1))) for _ in range(9)]
                    for (y, x), got in zip(places, parts(content, places, (h, w), (height, width), mode)):
                        np.testing.assert_array_equal(got, whole[:, y:y + h, x:x + w], err_msg=f"{options} {mode} {(y, x, h, w)}")
                        n += 1
    assert n >= 10_000
    count("decoding", n, "parts of images")


def test_files_of_training_sets_have_pillows_pixels():
    """Pixels at the sizes of photographs, whole and resized: torchvision's are Pillow's."""
    for height, width in ((375, 500), (854, 1280)):
        for options in ({"quality": 90}, {"quality": 90, "subsampling": 0}, {"quality": 75, "progressive": True}, {"quality": 75, "mode": "L"}):
            content = encoded(pixels(height, width), **options)
            np.testing.assert_array_equal(sl.io.decode_image(content, mode="RGB").numpy(), pillow(content))
            image = Image.open(io.BytesIO(content)).convert("RGB")
            y, x, h, w = random_box(height, width)
            want = np.asarray(image.crop((x, y, x + w, y + h)).resize((224, 224), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
            box = np.array([[y / height, x / width, h / height, w / width]])
            got = sl.io.decode_image([content], 224, mode="RGB", boxes=box).numpy()[0]
            assert np.abs(got - want.astype(int)).max() <= 1, (height, options)


def test_large_scales_both_ways_have_pillows_pixels():
    content = encoded(pixels(331, 517))
    image = Image.open(io.BytesIO(content))
    for size in [(1, 1), (2, 517), (331, 2), (5, 700), (900, 7), (21, 33), (24, 31), (40, 40), (331, 517), (660, 1000)]:
        want = np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        off = np.abs(sl.io.decode_image([content], size).numpy()[0] - want.astype(int))
        # Pillow begins with the axis that becomes smaller; here it is always the rows, as they come.
        assert off.max() <= (1 if size[0] < 331 and size[1] > 517 else 0), size


PNGS = [("RGB", {}), ("L", {}), ("RGBA", {}), ("LA", {}), ("P", {}), ("1", {}), ("RGB", {"optimize": True})]


@pytest.mark.parametrize(("mode", "options"), PNGS)
def test_png_files_have_pillows_pixels(mode, options):
    for shape in [(1, 1), (7, 33), (50, 41)]:
        content = encoded(pixels(*shape), "PNG", mode, **options)
        np.testing.assert_array_equal(sl.io.decode_image(content, mode="RGB").numpy(), pillow(content))
        np.testing.assert_array_equal(sl.io.decode_png(content, mode="GRAY").numpy(), pillow(content, "L"))
        assert sl.io.decode_png(content).shape[0] == (1 if mode in ("L", "LA", "1") else 3)
        y, x, h, w = random_box(*shape)
        np.testing.assert_array_equal(part(content, y, x, h, w, shape), pillow(content)[:, y:y + h, x:x + w])


def png(width, height, depth, colour, lines, interlaced=0, header_size=None):
    """A PNG file, written here: of what Pillow cannot write."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    w, h = header_size or (width, height)
    head = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


ADAM7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]


def interlaced(array):
    lines = b""
    for y, x, step_y, step_x in ADAM7:
        some = array[y::step_y, x::step_x]
        lines += b"".join(b"\0" + row.tobytes() for row in some) if some.size else b""
    return png(array.shape[1], array.shape[0], 8, 2, lines, interlaced=1)


def test_png_files_of_sixteen_bits_and_in_passes():
    array = RNG.integers(0, 1 << 16, (9, 11, 3)).astype(">u2")
    content = png(11, 9, 16, 2, b"".join(b"\0" + row.tobytes() for row in array))
    np.testing.assert_array_equal(sl.io.decode_image(content).numpy(), (array >> 8).astype(np.uint8).transpose(2, 0, 1))
    for shape in [(1, 1), (5, 3), (19, 23)]:
        array = pixels(*shape)
        content = interlaced(array)
        np.testing.assert_array_equal(pillow(content), array.transpose(2, 0, 1))
        np.testing.assert_array_equal(sl.io.decode_image(content).numpy(), array.transpose(2, 0, 1))
        y, x, h, w = random_box(*shape)
        np.testing.assert_array_equal(part(content, y, x, h, w, shape), array.transpose(2, 0, 1)[:, y:y + h, x:x + w])


def test_webp_files_have_pillows_pixels():
    """Where the build has found libwebp; elsewhere the error says so."""
    if "webp" not in sl.io.image_formats():
        with pytest.raises(NotImplementedError, match="a WebP file, and this build has no libwebp; install libwebp-dev and build again"):
            sl.io.decode_image(encoded(pixels(8, 8), "WEBP"))
        return
    for shape in [(1, 1), (7, 33), (50, 41), (131, 95)]:
        for mode, options in (("RGB", {"quality": 60}), ("RGB", {"lossless": True}), ("RGBA", {"lossless": True, "exact": True})):
            content = encoded(pixels(*shape), "WEBP", mode, **options)
            np.testing.assert_array_equal(sl.io.decode_image(content, mode="RGB").numpy(), pillow(content))
            np.testing.assert_array_equal(sl.io.decode_image(content, mode="GRAY").numpy(), pillow(content, "L"))
            assert sl.io.decode_image(content).shape == (3, *shape)
            y, x, h, w = random_box(*shape)
            np.testing.assert_array_equal(part(content, y, x, h, w, shape), pillow(content)[:, y:y + h, x:x + w])
            whole, cut = call([content, content[:-3 - len(content) // 4]], on_error="mark")[1].tolist()
            assert (whole, cut) == (0, 3)
            assert call([content], on_error="mark", max_decoder_bytes=len(content))[1].tolist() == [3]
    still = Image.fromarray(pixels(8, 8))
    moving = io.BytesIO()
    still.save(moving, "WEBP", save_all=True, append_images=[Image.fromarray(pixels(8, 8))], duration=10)
    with pytest.raises(ValueError, match="it is animated; save one of its pictures"):
        sl.io.decode_image(moving.getvalue())


def call(files, keys=None, size=(24, 32), boxes=None, flip=None, **attributes):
    packed = sl.from_numpy(sl.io.pack(files))
    keys = None if keys is None else sl.tensor(np.asarray(keys, np.int64))
    return OP(packed, boxes, None, keys, count=len(files), height=size[0], width=size[1], **attributes)


RANDOM = {"crop": "random", "crop_numbers": [0.08, 1.0, 0.75, 4 / 3]}


def test_normalised_images_are_those_of_the_definition():
    files, mean, std = [encoded(pixels(40, 60)), encoded(pixels(33, 21))], [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    plain = call(files)[0].numpy()
    want = (plain / 255.0 - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    floats = call(files, dtype=sl.float32, mean=mean, std=std)[0]
    np.testing.assert_allclose(floats.numpy(), want, rtol=0, atol=2e-6)
    halves = call(files, dtype=sl.bfloat16, mean=mean, std=std)[0]
    assert sl.equal(halves, floats.bfloat16())
    np.testing.assert_array_equal(call(files, dtype=sl.float32)[0].numpy(), plain)
    for width in (1, 3, 15, 16, 17, 35):
        sides = [call(files, size=(5, width), dtype=d, keys=[[0, 0]] * 2, flip_probability=p)[0].float().numpy()
                 for d in (sl.uint8, sl.float32, sl.bfloat16) for p in (0, 1)]
        for i in (0, 2, 4):
            np.testing.assert_array_equal(sides[i + 1], sides[i][..., ::-1])
            np.testing.assert_array_equal(sides[i], sides[0])


def test_what_is_random_comes_from_the_key_alone():
    content, other = encoded(pixels(80, 120)), encoded(pixels(50, 40))
    n = 64
    keys = np.stack([np.full(n, 12), np.arange(n)], 1)
    options = {**RANDOM, "flip_probability": 0.5}
    threads = sl.get_num_threads()
    try:
        results = []
        for count in (1, 2):
            sl.set_num_threads(count)
            results.append(call([content] * n, keys, **options)[0].numpy())
    finally:
        sl.set_num_threads(threads)
    np.testing.assert_array_equal(*results)
    assert len({image.tobytes() for image in results[0]}) == n
    order = RNG.permutation(n)
    np.testing.assert_array_equal(call([content] * n, keys[order], **options)[0].numpy(), results[0][order])
    alone = call([other, content], keys[[3, 5]], **options)[0].numpy()
    np.testing.assert_array_equal(alone[1], results[0][5])
    assert not np.array_equal(call([content] * n, keys, salt=1, **options)[0].numpy(), results[0])


def test_random_crops_have_the_areas_and_ratios_asked_for():
    """The place of a crop shows in an image whose colours are coordinates."""
    height, width, n = 240, 240, 400
    y, x = np.mgrid[:height, :width]
    content = encoded(np.stack([y, x, np.zeros_like(x)], -1).astype(np.uint8), "PNG")
    keys = np.stack([np.zeros(n), np.arange(n)], 1)
    images = call([content] * n, keys, size=(64, 64), **RANDOM)[0].numpy().astype(float)
    rows, columns = images[:, 0].mean(2), images[:, 1].mean(1)
    h, w = ((side[:, -8] - side[:, 8]) * 64 / 48 for side in (rows, columns))
    area, ratio = h * w / (height * width), w / h
    assert 0.05 < area.min() < 0.15 and 0.85 < area.max() < 1.05 and 0.4 < area.mean() < 0.6
    assert 0.70 < ratio.min() < 0.85 and 1.2 < ratio.max() < 1.42
    assert np.ptp(images[:, 0].mean((1, 2))) > 80 and np.ptp(images[:, 1].mean((1, 2))) > 80


def test_a_central_crop_is_torchvisions():
    for shape in [(60, 90), (90, 60), (64, 64)]:
        array = pixels(*shape)
        content = encoded(array, "PNG")
        got = call([content], size=(28, 28), crop="central", crop_numbers=[32])[0].numpy()[0]
        side = int(28 * min(shape) / 32 + 0.5)
        y, x = (shape[0] - side) // 2, (shape[1] - side) // 2
        want = Image.fromarray(array).crop((x, y, x + side, y + side)).resize((28, 28), Image.Resampling.BILINEAR)
        np.testing.assert_array_equal(got, np.asarray(want).transpose(2, 0, 1))


def test_broken_files_are_marked_replaced_or_left_out(tmp_path):
    good = [encoded(pixels(30, 30)), encoded(pixels(25, 35), "PNG"), encoded(pixels(40, 20))]
    nowhere = str(tmp_path / "nowhere.jpg")
    files = [good[0], good[0][:200], good[1], nowhere, b"no image", good[2], None]
    images = {i: call([files[i]])[0].numpy()[0] for i in (0, 2, 5)}
    black = np.zeros_like(images[0])
    with pytest.raises(ValueError, match="decode_image: image 1: "):
        call(files)
    for policy, rows, source in (("mark", [0, -1, 2, -1, -1, 5, -1], [0, 1, 2, 3, 4, 5, -1]),
                                 ("replace", [0, 2, 2, 5, 5, 5, -1], [0, 2, 2, 5, 5, 5, -1]),
                                 ("skip", [0, 2, 5, -1, -1, -1, -1], [0, 2, 5, -1, -1, -1, -1])):
        got, status, which = call(files, on_error=policy)
        assert status.tolist() == [0, 3, 0, 2, 3, 0, 1] and which.tolist() == source
        for image, i in zip(got.numpy(), rows):
            np.testing.assert_array_equal(image, images.get(i, black))
    with pytest.raises(OSError, match=f"decode_image: image 0 \\('{nowhere}'\\): "):
        call([nowhere, b"x"], on_error="replace")  # there is nothing to put there
    assert call([nowhere, b"x"], on_error="skip")[2].tolist() == [-1, -1]


def many_scans(count):
    """A progressive file whose scans, which say nothing new, come many times."""
    content = encoded(pixels(64, 64), progressive=True)
    last = content.rfind(b"\xff\xda")
    return content[:-2] + content[last:-2] * count + content[-2:]


LIMITS = [
    ({"max_pixels": 999}, encoded(pixels(25, 40)), r"it has 25 x 40 pixels; must be 999 at most"),
    ({"max_bytes": 50}, encoded(pixels(25, 40)), r"it has \d+ bytes; must be 50 at most"),
    ({"max_scans": 20}, many_scans(100), r"it has more scans than may be: must be 20 at most"),
    ({"max_decoder_bytes": 100_000}, encoded(pixels(700, 700), progressive=True), r".+"),
    ({"max_decoder_bytes": 1000}, interlaced(pixels(25, 40)), r"interlaced, it takes 4000 bytes; must be 1000 at most"),
    ({}, png(1, 1, 8, 2, b"\0abc", header_size=(65501, 3)), r".*(exceeds user limit|Invalid IHDR|65500).*"),
    ({}, png(9, 9, 8, 2, b"\0abc"), r".*(early|enough|Not enough|read error).*"),
]


@pytest.mark.parametrize(("limits", "content", "message"), LIMITS)
def test_files_that_are_more_work_than_may_be_are_refused(tmp_path, limits, content, message):
    path = tmp_path / "large"
    path.write_bytes(content)
    for file in (content, path):
        with pytest.raises(ValueError, match=f"decode_image: image 0.*: {message}"):
            call([file], **limits)
        assert call([file], on_error="mark", **limits)[1].tolist() == [3]


@pytest.mark.parametrize(("attributes", "error", "text"), [
    ({"crop": "corner"}, ValueError, "crop: 'corner'; must be one of box, random, central"),
    ({"on_error": "hope"}, ValueError, "on_error: 'hope'; must be one of raise, mark, replace, skip"),
    ({"crop": "random"}, ValueError, "crop_numbers: 0 numbers; must be 4"),
    ({"crop": "random", "crop_numbers": [0.0, 1, 1, 1]}, ValueError, "area from 0 to 1"),
    ({"crop": "random", "crop_numbers": [0.5, 1, 2, 1]}, ValueError, "ratio from 2 to 1"),
    ({"crop": "central", "crop_numbers": [0.0]}, ValueError, "the shorter side has 0 pixels"),
    (RANDOM, ValueError, "keys: none; random crops"),
    ({"flip_probability": 0.5}, ValueError, "keys: none"),
    ({"flip_probability": 1.5}, ValueError, "flip_probability: 1.5; must be a probability"),
    ({"keys": [[1, 2, 3]]}, ValueError, r"keys: is .*must be int64\(1, 2\)"),
    ({"dtype": sl.float64}, TypeError, "dtype: float64; must be uint8, float32 or bfloat16"),
    ({"mean": [0.5] * 3, "std": [0.5] * 3}, ValueError, "mean: 3 numbers for 3 channels of uint8"),
    ({"dtype": sl.float32, "mean": [0.5], "std": [0.5]}, ValueError, "mean: 1 numbers for 3 channels"),
    ({"dtype": sl.float32, "mean": [0.5] * 3, "std": [0.5]}, ValueError, "mean, std: 3 and 1 numbers"),
    ({"dtype": sl.float32, "mean": [0.5] * 3, "std": [0.5, 0, 1]}, ValueError, "std: 0; must be positive"),
    ({"max_pixels": 0}, ValueError, "must be positive"),
])
def test_attributes_that_mean_nothing_are_refused(attributes, error, text):
    with pytest.raises(error, match=f"decode_image: .*{text}"):
        call([encoded(pixels(4, 4))], **attributes)


def mutants(content, n):
    for _ in range(n):
        bad = bytearray(content)
        for at in RNG.integers(2, len(bad), int(RNG.integers(1, 6))):
            bad[at] = RNG.integers(0, 256)
        if RNG.random() < 0.2:
            bad = bad[:int(RNG.integers(2, len(bad)))]
        if RNG.random() < 0.1:
            at = int(RNG.integers(2, len(bad)))
            bad[at:at] = bad[:int(RNG.integers(0, len(bad)))]
        yield bytes(bad)


@pytest.mark.soak
def test_bytes_that_were_changed_are_errors_or_images(repetitions, count):
    """Ten thousand files, none of which takes a second of a core."""
    seeds = [encoded(pixels(24, 31)), encoded(pixels(31, 24), progressive=True), encoded(pixels(20, 20), mode="L"),
             encoded(pixels(16, 40), subsampling=1), encoded(pixels(20, 24), "PNG"), encoded(pixels(20, 24), "PNG", "P"),
             interlaced(pixels(18, 22))]
    if "webp" in sl.io.image_formats():
        seeds += [encoded(pixels(18, 22), "WEBP", quality=50), encoded(pixels(12, 20), "WEBP", lossless=True)]
    broken, n, together = 0, repetitions(1430, 15_000), 10
    for content in seeds:
        bad, longest = list(mutants(content, n)), 0.0
        for at in range(0, n, together):
            keys, begin = np.stack([np.zeros(together), np.arange(at, at + together)], 1), time.process_time()
            got, status, _ = call(bad[at:at + together], keys, size=(8, 8), on_error="mark", max_pixels=1 << 20, max_decoder_bytes=1 << 24,
                                  **RANDOM)
            longest = max(longest, time.process_time() - begin)
            codes = status.numpy()
            assert set(codes.tolist()) <= {0, 3} and (got.numpy()[codes == 3] == 0).all()
            broken += int((codes == 3).sum())
        assert longest < 1, content[:200]
        assert call([content], [[0, 0]], on_error="mark", **RANDOM)[1].tolist() == [0]
    assert 0 < broken < n * len(seeds)
    count("decoding", n * len(seeds), f"changed files, {broken} of them refused")
