#!/usr/bin/env python3
"""JPEG files decoded and resized by kernels: two threads against one, beside a busy loop of Python, and against Pillow."""
import io
import multiprocessing
import os
import threading

from common import Side, compare, wanted

FILES, SIZE = 400, (224, 224)


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


if __name__ == "__main__":
    if wanted("data.jpeg.threads"):
        compare("data.jpeg.threads", Side(make, 2), Side(make, 1), "one thread (the aim: 1.8)", rounds=5, files=FILES)
    if wanted("data.jpeg.busy"):
        sides = [Side(make, 1, busy, daemon=False) for busy in ("main", "process")]
        compare("data.jpeg.busy", *sides, "a busy process (the aim: 0.9)", rounds=5, files=FILES)
    if wanted("data.jpeg.pillow"):
        compare("data.jpeg.pillow", Side(make, 1), Side(make_pillow), "Pillow, one thread", rounds=5, files=FILES)
