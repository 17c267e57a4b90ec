#!/usr/bin/env python3
"""Input pipelines: batches for training from files, by sluice.data and by torch's DataLoader with Pillow; functions of
Python by workers; the first batch of many files; JPEG files and a ResNet in one process, by the
slots between them; a pipeline that has set itself, against settings by hand."""
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent / "gpu"))
from common import Side, measure, report, spread, traced_kernels, wanted
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
    """An iterator over batches of a folder."""
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
            assert sum(1 for _ in pipeline) * BATCH == PASS * len(files)

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
           rates[0] / rates[1], batch=BATCH, cpu_us=ours, peer_cpu_us=peer, cpu_ratio=peer / ours)


SAMPLES = 320


def burnt(sample):
    """Some milliseconds of one core."""
    import numpy as np
    number = int(sample)
    for i in range(60_000):
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
    report("data.input.map", *rates, "no workers (the aim: 1.8)", "samples/s", 5, max(map(spread, times)), rates[0] / rates[1], workers=2)


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
        with_index, without = ([took(index) for _ in range(5)] for index in (f"{root}/index", None))
        report("data.input.first", statistics.median(with_index), statistics.median(without), "without an index", "s", 5, spread(with_index),
               files=MANY)


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


def autotuned() -> None:
    """Samples a second of a pipeline that has chosen its setting, against the best of twelve by hand."""
    times = measure([Side(make_set, None, 2, daemon=False), *(Side(make_set, *setting, daemon=False) for setting in BY_HAND)], rounds=5)
    rates = [SAMPLES / statistics.median(side) for side in times]
    best = max(range(len(BY_HAND)), key=lambda i: rates[1 + i])
    report("data.input.autotune", rates[0], rates[1 + best], f"the best of {len(BY_HAND)} settings by hand (the aim: 0.9)", "samples/s", 5,
           max(spread(times[0]), spread(times[1 + best])), rates[0] / rates[1 + best], by_hand=BY_HAND[best])


RUNG, SIDES = 16, (32, 48, 64, 96, 128, 192)  # images of a step; pixels of a side that are tried


def attack(slots: int, side: int):
    """A graph: JPEG files -> a ResNet -> images that are moved along its gradient; `slots` between its two streams, of one core each."""
    import sluice as sl
    from nets import resnet50
    from sluice import data
    files = photographs()[:200]
    root = folder_of(files, 2)
    for i in range(len(files)):
        os.link(f"{root.name}/files/{i}.jpg", f"{root.name}/train/{i % 2:04}/{i}.jpg")

    class Attack(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.root, self.net = root, resnet50(sl, (1, 1, 1, 1), 8, 10).eval()
            self.input = data.images(f"{root.name}/train").repeat().batch(RUNG).decode(side).normalize(MEAN, STD)
            self.config.set_cores(1)
            self.config.enable_fast_quotas(False)
            self.config.set_outputs_buffer_size(4)

        def build(self):
            with sl.stream("compute:1"), sl.register_quota(slots):
                x, y = self.input()
            x.requires_grad_()
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            (gradient,) = sl.autograd.grad(loss, x)
            return x.reshape(RUNG, -1) + 0.01 * gradient.reshape(RUNG, -1).sign()

    return Attack()


def make_attack(slots: int, side: int):
    graph = attack(slots, side)

    def run(count: int) -> None:
        for _ in range(count):
            result = graph()
        result.numpy()

    return run


def unbalanced(side: int) -> float:
    """How far the time of decoding is from that of the net."""
    graph = attack(1, side)
    graph().numpy()
    graph.set_trace()
    for _ in range(4):
        graph().numpy()
    times = {True: 0.0, False: 0.0}
    for event in traced_kernels(graph):
        times[event["name"].startswith("decode_image") and not event["name"].endswith("copy")] += event["dur"]
    return abs(math.log(times[True] / times[False]))


def two_slots() -> None:
    """Steps of JPEG files and a ResNet that take equally long, with two slots between them against one."""
    side = min(SIDES, key=unbalanced)
    two, one = measure([Side(make_attack, 2, side), Side(make_attack, 1, side)])
    report("data.input.quota2", statistics.median(two) * 1e3, statistics.median(one) * 1e3, "one slot (the aim: 1.5)", "ms", len(two),
           max(spread(two), spread(one)), side=side)


if __name__ == "__main__":
    if wanted("data.input.autotune"):
        autotuned()
    if wanted("data.input.quota2"):
        two_slots()
    if wanted("data.input.iterator"):
        iterators()
    if wanted("data.input.map"):
        python_stages()
    if wanted("data.input.first"):
        first_batch()
