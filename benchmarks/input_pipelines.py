#!/usr/bin/env python3
"""Input pipelines: batches for training from files, by sluice.data and by torch's DataLoader with Pillow; functions of Python by
workers, and what it takes to hand over what they made; the first batch of many files; a pipeline that has set itself, against settings
by hand."""
import os
import pathlib
import statistics
import tempfile
import time

from common import Side, alive, measure, report, spread, wanted
from images import BATCH, MEAN, SIZE, STD, photographs

MANY = 100_000
PASS = 10  # times all photographs. A pass is timed as a whole: between passes no side has batches in work, or ready


def folder_of(files, classes: int) -> tempfile.TemporaryDirectory:
    """A folder for each class, with links to the files in it."""
    root = tempfile.TemporaryDirectory()
    path = pathlib.Path(root.name)
    (path / "files").mkdir()
    for i, file in enumerate(files):
        (path / "files" / f"{i}.jpg").write_bytes(file)
    for c in range(classes):
        (path / "train" / f"{c:04}").mkdir(parents=True)
    return root


def make_input(cores: int):
    """An iterator over batches of a folder, as torch's tensors, which have the same memory."""
    os.environ["SLUICE_CORES"] = str(cores)
    import sluice as sl
    from sluice import data
    sl.set_num_threads(cores)
    files = photographs()
    root = folder_of(files, 4)
    for i in range(len(files)):
        os.link(f"{root.name}/files/{i}.jpg", f"{root.name}/train/{i % 4:04}/{i}.jpg")
    pipeline = (data.images(f"{root.name}/train").shuffle().repeat(PASS).batch(BATCH)
                .decode(SIZE, crop=data.random_resized_crop(), flip=0.5).normalize(MEAN, STD))

    def run(count: int, root=root) -> None:
        for _ in range(count):
            assert sum(1 for _ in data.torch_iter(pipeline)) * BATCH == PASS * len(files)

    return run


def make_torch_input(workers: int):
    import io
    import random

    import numpy as np
    import torch
    from images import box
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    torch.set_num_threads(1)
    files = photographs()
    root = folder_of(files, 1)
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))

    class Photographs(Dataset):
        def __len__(self):
            return PASS * len(files)

        def __getitem__(self, i):
            draw = random.Random(i)
            with open(f"{root.name}/files/{i % len(files)}.jpg", "rb") as file:
                content = file.read()
            x, y, width, height = box(draw)
            image = Image.open(io.BytesIO(content)).convert("RGB")
            image = image.resize(SIZE, Image.Resampling.BILINEAR, (x, y, x + width, y + height))
            if draw.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            pixels = np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 255
            return torch.from_numpy((pixels - mean) / std), i % 4

    batches = DataLoader(Photographs(), BATCH, shuffle=True, num_workers=workers, multiprocessing_context="fork", persistent_workers=True)

    def run(count: int, root=root) -> None:
        for _ in range(count):
            assert sum(1 for _ in batches) * BATCH == PASS * len(files)

    return run


def iterators() -> None:
    """Images a second that a loop over batches gets, on two cores, and the time of the cores that each image takes."""
    sides = [Side(make_input, 2), Side(make_torch_input, 2, daemon=False)]
    for side in sides:
        side.time(1)
    seconds, cpu = [[], []], [[], []]
    for _ in range(3):
        for i, side in enumerate(sides):
            before = side.cpu_seconds()
            seconds[i].append(side.time(1))
            cpu[i].append(side.cpu_seconds() - before)
    for side in sides:
        side.close()
    images = PASS * len(photographs())
    rates = [images / statistics.median(side) for side in seconds]
    ours, peer = (statistics.median(side) / images * 1e6 for side in cpu)
    report("data.input.iterator", *rates, "torch's DataLoader with Pillow, two workers", "images/s", 3, max(map(spread, seconds)),
           rates[0] / rates[1], 3, batch=BATCH, cpu_us=ours, peer_cpu_us=peer, cpu_ratio=peer / ours)


SAMPLES = 320


def burnt(sample):
    """About five milliseconds of one core."""
    import numpy as np
    number = int(sample)
    for i in range(80_000):
        number = (number * 31 + i) % 1_000_003
    return np.full((3, 64, 64), number, np.float32)


def make_mapped(workers: int):
    import numpy as np
    from sluice import data
    pipeline = data.dataset(range(SAMPLES)).map(burnt, workers=workers, out=((3, 64, 64), np.float32)).batch(16)

    def run(count: int) -> None:
        for _ in range(count):
            assert sum(len(batch) for batch in pipeline) == SAMPLES

    return run


def python_stages() -> None:
    """Samples a second of a function of Python, by two workers and by none."""
    times = measure([Side(make_mapped, 2, daemon=False), Side(make_mapped, 0)], rounds=5)
    rates = [SAMPLES / statistics.median(side) for side in times]
    report("data.input.map", *rates, "no workers", "samples/s", 5, max(map(spread, times)), rates[0] / rates[1], 1.8, workers=2)


HANDED = 20_000


def handed(sample, kept=[]):  # noqa: B006 of the process that calls it
    """An array of 48 KiB that is there already."""
    if not kept:
        import numpy as np
        kept.append(np.zeros((3, 64, 64), np.float32))
    return kept[0]


def make_handed():
    import numpy as np
    from sluice import data
    pipeline = data.dataset(range(HANDED)).map(handed, workers=1, out=((3, 64, 64), np.float32)).batch(64, drop_last=True)

    def run(count: int) -> None:
        for _ in range(count):
            assert sum(1 for _ in pipeline) == HANDED // 64

    return run


def transport() -> None:
    """Microseconds that a sample takes from a worker to its batch: to be put into a row, handed over, and given out."""
    times = measure([Side(make_handed, daemon=False)], rounds=5)[0]
    us = statistics.median(times) / HANDED * 1e6
    report("data.input.transport", us, 40, "the most it may be", "us a sample of 48 KiB", 5, spread(times), aim=1)


def first_batch() -> None:
    """Seconds from the name of a folder of 100,000 files to its first batch, with an index and without."""
    from sluice import data
    with folder_of(photographs()[:4], 100) as root:
        for i in range(MANY):
            os.link(f"{root}/files/{i % 4}.jpg", f"{root}/train/{i % 100:04}/{i}.jpg")  # a file has 65,000 names at most

        def took(index) -> float:
            begin = time.perf_counter()
            next(iter(data.images(f"{root}/train", index=index).shuffle().batch(BATCH).decode(32)))
            return time.perf_counter() - begin

        took(f"{root}/index")
        for name, index, most in (("data.input.first", f"{root}/index", 0.15), ("data.input.first_without_index", None, 1.2)):
            times = [took(index) for _ in range(5)]
            report(name, statistics.median(times), most, "the most it may be", "s", 5, spread(times), aim=1, files=MANY)


BY_HAND = [(workers, cores) for workers in (0, 1, 2, 3, 4, 8) for cores in (1, 2)]  # settings


def make_set(workers: int | None, cores: int):
    """Samples of a slow function, and kernels behind it: as it is set by hand, or (None) by autotune()."""
    import numpy as np
    import sluice as sl
    from sluice import data
    sl.set_num_threads(cores)
    pipeline = (data.dataset(range(SAMPLES)).map(waited, workers=workers or 0, out=((3, 64, 64), np.float32)).batch(16)
                .map(lambda x: (x.sin() + x.cos()).exp()))
    if workers is None:
        pipeline = pipeline.autotune(memory="1GiB", cores=2)
        for _ in range(3):
            assert sum(len(batch) for batch in pipeline) == SAMPLES

    def run(count: int) -> None:
        for _ in range(count):
            assert sum(len(batch) for batch in pipeline) == SAMPLES

    return run


def waited(sample):
    """Two milliseconds for which no core is needed, as if they were of another machine, and some that one is."""
    time.sleep(0.002)
    import numpy as np
    return np.full((3, 64, 64), int(sample), np.float32)


def make_tfdata_set():
    """The same of tf.data, which chooses by itself."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np
    import tensorflow as tf
    made = tf.data.Dataset.range(SAMPLES).map(lambda i: tf.ensure_shape(tf.numpy_function(waited, [i], tf.float32), (3, 64, 64)),
                                              num_parallel_calls=tf.data.AUTOTUNE)
    batches = made.batch(16).map(lambda x: tf.exp(tf.sin(x) + tf.cos(x))).prefetch(tf.data.AUTOTUNE)

    def run(count: int) -> None:
        for _ in range(count):
            assert sum(len(np.asarray(batch)) for batch in batches) == SAMPLES

    return run


def autotuned() -> None:
    """Samples a second of a pipeline that has chosen its setting, against the best of twelve by hand; beside it, what tf.data chooses."""
    sides = [Side(make_set, None, 2, daemon=False), *(Side(make_set, *setting, daemon=False) for setting in BY_HAND)]
    tfdata = alive(make_tfdata_set)
    times = measure(sides + ([tfdata] if tfdata else []), rounds=5)
    rates = [SAMPLES / statistics.median(side) for side in times]
    best = max(range(len(BY_HAND)), key=lambda i: rates[1 + i])
    report("data.input.autotune", rates[0], rates[1 + best], f"the best of {len(BY_HAND)} settings by hand", "samples/s", 5,
           max(spread(times[0]), spread(times[1 + best])), rates[0] / rates[1 + best], 0.95, by_hand=BY_HAND[best],
           tfdata=rates[-1] if tfdata else None)


if __name__ == "__main__":
    if wanted("data.input.autotune"):
        autotuned()
    if wanted("data.input.iterator"):
        iterators()
    if wanted("data.input.map"):
        python_stages()
    if wanted("data.input.transport"):
        transport()
    if wanted("data.input.first") or wanted("data.input.first_without_index"):
        first_batch()
