#!/usr/bin/env python3
"""JPEG files decoded and resized by kernels: two threads against one, beside a busy loop of Python, and against Pillow.

`data.images.*`: photographs as nets are trained with them, cut, resized, flipped, normalised and put into batches, by one thread
each: against Pillow under torch's DataLoader, and against simplejpeg with OpenCV where these are installed.
"""
import importlib.util
import io
import math
import multiprocessing
import os
import random
import statistics
import threading

from common import Side, compare, measure, report, spread, wanted

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

    def run(count: int) -> None:
        thread = threading.Thread(target=decode, args=(count,))
        if busy == "process":
            other = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
            other.start()
        thread.start()
        if busy == "main":
            spin(lambda: not thread.is_alive())
        thread.join()
        if busy == "process":
            other.kill()

    return run


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


def make_training():
    """Batches for training, by the kernel alone."""
    import numpy as np
    import sluice as sl
    sl.set_num_threads(1)
    files = photographs()
    packed = [sl.from_numpy(sl.io.pack(files[i:i + BATCH])) for i in range(0, len(files), BATCH)]

    def run(count: int) -> None:
        for i in range(count):
            keys = sl.from_numpy(np.stack([np.full(BATCH, i), np.arange(BATCH)], 1))
            sl._C.ops.decode_image(packed[i % 4], None, None, keys, count=BATCH, height=SIZE[0], width=SIZE[1], dtype=sl.float32,
                                   mean=MEAN, std=STD, crop="random", crop_numbers=[0.08, 1, 3 / 4, 4 / 3], flip=0.5)

    return run


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

    batches = iter(())

    def run(count: int) -> None:
        nonlocal batches
        for _ in range(count):
            if next(batches, None) is None:
                batches = iter(DataLoader(Photographs(), BATCH))
                next(batches)

    return run


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


def images_per_second(name: str, peer, peer_name: str) -> None:
    """Images a second of one thread each."""
    sides = [Side(make_training)] + ([Side(peer)] if peer else [])
    times = [[BATCH / t for t in side] for side in measure(sides, rounds=9)]
    rates = [statistics.median(side) for side in times]
    report(name, rates[0], rates[1] if peer else None, peer_name, "images/s", 9, max(map(spread, times)),
           rates[0] / rates[1] if peer else None, batch=BATCH)


if __name__ == "__main__":
    if wanted("data.jpeg.threads"):
        compare("data.jpeg.threads", Side(make, 2), Side(make, 1), "one thread (the aim: 1.8)", rounds=5, files=FILES)
    if wanted("data.jpeg.busy"):
        sides = [Side(make, 1, busy, daemon=False) for busy in ("main", "process")]
        compare("data.jpeg.busy", *sides, "a busy process (the aim: 0.9)", rounds=5, files=FILES)
    if wanted("data.jpeg.pillow"):
        compare("data.jpeg.pillow", Side(make, 1), Side(make_pillow), "Pillow, one thread", rounds=5, files=FILES)
    if wanted("data.images.pillow"):
        images_per_second("data.images.pillow", make_pillow_training, "Pillow under torch's DataLoader, one thread")
    if wanted("data.images.simplejpeg"):
        there = importlib.util.find_spec("simplejpeg") and importlib.util.find_spec("cv2")
        images_per_second("data.images.simplejpeg", make_simplejpeg_training if there else None, "simplejpeg and OpenCV, one thread")
