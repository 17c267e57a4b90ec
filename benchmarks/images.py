#!/usr/bin/env python3
"""JPEG files decoded and resized by kernels: two threads against one, beside a busy loop of Python, and against Pillow.

`data.images.*`: photographs as nets are trained with them, cut, resized, flipped, normalised and put into batches: how many of them a
second of a core is worth, against Pillow under torch's DataLoader, and against simplejpeg with OpenCV, turboloader, tf.data and DALI
where these are installed; by two threads against one, and beside a busy loop of Python.
"""
import io
import math
import multiprocessing
import os
import pathlib
import random
import statistics
import tarfile
import tempfile
import threading

from common import Side, alive, compare, cores_taken, measure, report, spread, wanted

FILES, SIZE = 400, (224, 224)
MEAN, STD, BATCH = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225], 64


def pictures() -> list:
    """Files of 500 x 375 pixels, as photographs of ImageNet have, with detail at all scales."""
    import numpy as np
    from PIL import Image
    rng = np.random.default_rng(0)
    files = []
    for _ in range(8):
        pixels = sum(np.kron(rng.normal(0, 12 * scale ** 0.5, (375 // scale + 1, 500 // scale + 1, 3)), np.ones((scale, scale, 1)))[:375, :500]
                     for scale in (1, 4, 16, 64))
        file = io.BytesIO()
        Image.fromarray(np.clip(pixels + 128, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return [files[i % len(files)] for i in range(FILES)]


def spin(until=lambda: False) -> None:
    number = 0
    while not until():
        number = (number * 31 + 7) % 1000003


def make(threads: int, busy: str = ""):
    """A function that decodes and resizes all files n times, on so many threads.

    busy: beside a busy loop of Python, of the "main" thread, or of another "process", which takes as much of the machine.
    """
    os.environ["SLUICE_CORES"] = str(max(threads, 2))
    import sluice as sl
    sl.set_num_threads(threads)
    packed = sl.from_numpy(sl.io.pack(pictures()))

    def decode(count: int) -> None:
        for _ in range(count):
            sl.io.decode_jpeg(packed, SIZE, count=FILES)

    return beside(decode, busy)


def make_pillow():
    import numpy as np
    from PIL import Image
    files = pictures()

    def run(count: int) -> None:
        for _ in range(count):
            for file in files:
                image = Image.open(io.BytesIO(file)).convert("RGB").resize(SIZE, Image.Resampling.BILINEAR)
                np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    return run


def photographs() -> list:
    """Parts of two photographs, of 500 x 375 pixels."""
    from PIL import Image
    from sklearn.datasets import load_sample_images
    draw, files = random.Random(0), []
    images = [Image.fromarray(array) for array in load_sample_images().images]
    for i in range(BATCH * 4):
        image = images[i % 2]
        x, y = draw.randint(0, image.width - 500), draw.randint(0, image.height - 375)
        file = io.BytesIO()
        image.crop((x, y, x + 500, y + 375)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def box(draw) -> tuple:
    """torchvision's RandomResizedCrop of 500 x 375 pixels: x, y, width, height."""
    for _ in range(10):
        area, ratio = 500 * 375 * draw.uniform(0.08, 1), math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if width <= 500 and height <= 375:
            return draw.randint(0, 500 - width), draw.randint(0, 375 - height), width, height
    return 0, 0, 500, 375


def beside(work, busy: str):
    """A function that does work(count) in a thread, beside a busy loop of the "main" thread, of another "process", or of nobody."""
    def run(count: int) -> None:
        if not busy:
            return work(count)
        thread = threading.Thread(target=work, args=(count,))
        other = multiprocessing.get_context("spawn").Process(target=spin, daemon=True) if busy == "process" else None
        if other is not None:
            other.start()
        thread.start()
        if busy == "main":
            spin(lambda: not thread.is_alive())
        thread.join()
        if other is not None:
            other.kill()

    return run


def make_training(threads: int = 1, busy: str = ""):
    """Batches for training, by the kernel alone."""
    os.environ["SLUICE_CORES"] = str(max(threads, 2))
    import numpy as np
    import sluice as sl
    sl.set_num_threads(threads)
    files = photographs()
    packed = [sl.from_numpy(sl.io.pack(files[i:i + BATCH])) for i in range(0, len(files), BATCH)]

    def work(count: int) -> None:
        for i in range(count):
            keys = sl.from_numpy(np.stack([np.full(BATCH, i), np.arange(BATCH)], 1))
            sl._C.ops.decode_image(packed[i % 4], None, None, keys, count=BATCH, height=SIZE[0], width=SIZE[1], dtype=sl.float32,
                                   mean=MEAN, std=STD, crop="random", crop_numbers=[0.08, 1, 3 / 4, 4 / 3], flip_probability=0.5)

    return beside(work, busy)


def make_pillow_training():
    import numpy as np
    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    torch.set_num_threads(1)
    files, draw = photographs(), random.Random(0)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))

    class Photographs(Dataset):
        def __len__(self):
            return len(files)

        def __getitem__(self, i):
            x, y, width, height = box(draw)
            image = Image.open(io.BytesIO(files[i])).convert("RGB")
            image = image.resize(SIZE, Image.Resampling.BILINEAR, (x, y, x + width, y + height))
            if draw.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 255
            return torch.from_numpy((pixels - mean) / std)

    return batches_of(lambda: DataLoader(Photographs(), BATCH))


def make_simplejpeg_training():
    import cv2
    import numpy as np
    import simplejpeg
    cv2.setNumThreads(1)
    files, draw = photographs(), random.Random(0)
    batch = np.empty((BATCH, 3, *SIZE), np.float32)

    def run(count: int) -> None:
        for i in range(count):
            for k in range(BATCH):
                x, y, width, height = box(draw)
                image = simplejpeg.decode_jpeg(files[(i * BATCH + k) % len(files)])
                image = cv2.resize(image[y:y + height, x:x + width], SIZE, interpolation=cv2.INTER_LINEAR)
                if draw.random() < 0.5:
                    image = cv2.flip(image, 1)
                batch[k] = cv2.dnn.blobFromImage(image, 1 / 58.0, SIZE, (123.0, 116.0, 103.0))[0]

    return run


def batches_of(make_batches):
    """A function that takes n batches of 64 from iterators that make_batches() begins, one after the other."""
    batches = iter(())

    def run(count: int) -> None:
        nonlocal batches
        for _ in range(count):
            if next(batches, None) is None:
                batches = iter(make_batches())
                next(batches)

    return run


def make_turboloader():
    import turboloader
    folder = tempfile.TemporaryDirectory()
    path = pathlib.Path(folder.name) / "train.tar"
    with tarfile.open(path, "w") as tar:
        for i, content in enumerate(photographs()):
            for name, part in ((f"{i:04}.jpg", content), (f"{i:04}.cls", b"1")):
                info = tarfile.TarInfo(name)
                info.size = len(part)
                tar.addfile(info, io.BytesIO(part))
    loader = turboloader.DataLoader(str(path), batch_size=BATCH, num_workers=1, output_format="numpy", train_aug=True, image_size=SIZE[0])
    return batches_of(lambda folder=folder: loader)


def make_tfdata(parallel: int = 1):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)

    def one(content):
        begin, size, _ = tf.image.sample_distorted_bounding_box([375, 500, 3], tf.zeros([1, 0, 4]), area_range=(0.08, 1.0),
                                                                aspect_ratio_range=(3 / 4, 4 / 3), use_image_if_no_bounding_boxes=True)
        image = tf.io.decode_and_crop_jpeg(content, tf.concat([begin[:2], size[:2]], 0), channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, SIZE))
        return tf.transpose((image / 255 - MEAN) / STD, [2, 0, 1])

    batches = tf.data.Dataset.from_tensor_slices(photographs()).repeat().map(one, num_parallel_calls=parallel).batch(BATCH)
    return batches_of(lambda: batches)


def make_dali():
    import numpy as np
    from nvidia.dali import fn, pipeline_def, types
    files = [np.frombuffer(content, np.uint8) for content in photographs()]

    def source():
        while True:
            for i in range(0, len(files), BATCH):
                yield files[i:i + BATCH]

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None)
    def training():
        encoded = fn.external_source(source=source(), dtype=types.UINT8, ndim=1)
        images = fn.decoders.image_random_crop(encoded, random_area=(0.08, 1.0), random_aspect_ratio=(3 / 4, 4 / 3))
        images = fn.resize(images, size=SIZE)
        return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=[255 * m for m in MEAN],
                                        std=[255 * s for s in STD], mirror=fn.random.coin_flip())

    pipeline = training()
    pipeline.build()

    def run(count: int) -> None:
        for _ in range(count):
            pipeline.run()

    return run


PEERS = {"pillow": (make_pillow_training, 3.5, "Pillow under torch's DataLoader"),
         "simplejpeg": (make_simplejpeg_training, 1.3, "simplejpeg and OpenCV"),
         "turboloader": (make_turboloader, 1.5, "turboloader"), "tfdata": (make_tfdata, 1.0, "tf.data"), "dali": (make_dali, 1.0, "DALI on a CPU")}


def per_core() -> None:
    """Images that a second of a core is worth. Everyone has one thread for them; time of all of a process's threads counts."""
    names = [name for name in PEERS if wanted(f"data.images.{name}")]
    if not names:
        return
    sides = {name: alive(PEERS[name][0]) for name in names}
    there = [name for name in names if sides[name] is not None]
    ours, *others = [[BATCH / t for t in side] for side in cores_taken([Side(make_training), *(sides[name] for name in there)])]
    rates = {name: statistics.median(side) for name, side in zip(there, others)}
    mine = statistics.median(ours)
    for name in names:
        _, aim, told = PEERS[name]
        wide = max(map(spread, [ours, *(side for other, side in zip(there, others) if other == name)]))
        report(f"data.images.{name}", mine, rates.get(name), told if name in rates else f"{told}, which is not installed",
               "images per second of a core", len(ours), wide, mine / rates[name] if name in rates else None, aim, batch=BATCH)


def compare_rates(name: str, sides: list, peer_name: str, aim: float) -> None:
    """Images a second of two sides that decode the same."""
    times = measure(sides, rounds=5, seconds=1)
    rates = [BATCH / statistics.median(side) for side in times]
    report(name, *rates, peer_name, "images/s", 5, max(map(spread, times)), rates[0] / rates[1], aim, batch=BATCH)


if __name__ == "__main__":
    if wanted("data.jpeg.threads"):
        compare("data.jpeg.threads", Side(make, 2), Side(make, 1), "one thread (the aim: 1.8)", rounds=5, files=FILES)
    if wanted("data.jpeg.busy"):
        sides = [Side(make, 1, busy, daemon=False) for busy in ("main", "process")]
        compare("data.jpeg.busy", *sides, "a busy process (the aim: 0.9)", rounds=5, files=FILES)
    if wanted("data.jpeg.pillow"):
        compare("data.jpeg.pillow", Side(make, 1), Side(make_pillow), "Pillow, one thread", rounds=5, files=FILES)
    per_core()
    if wanted("data.images.cores"):
        compare_rates("data.images.cores", [Side(make_training, 2), Side(make_training, 1)], "one core", 1.85)
    if wanted("data.images.busy"):
        sides = [Side(make_training, 1, busy, daemon=False) for busy in ("main", "process")]
        compare_rates("data.images.busy", sides, "beside a busy process instead", 0.95)
