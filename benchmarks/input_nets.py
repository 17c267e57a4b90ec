#!/usr/bin/env python3
"""data.nets.*: ResNet-18 trained from photographs, in small images, where the input takes longest, and in large ones: against PyTorch with
a DataLoader of two workers, and against an epoch from memory."""
import statistics
import tempfile

from common import Side, measure, report, spread, wanted
from images import MEAN, STD, photographs
from input_stages import files_of
from trace_cost import resnet18

FILES = 256


def ours(side: int, batch: int, decodes: bool, costs: str):
    """Training, from files or from batches that are in memory, and the inputs of its calls."""
    import numpy as np
    import sluice as sl
    from sluice import data
    sl.manual_seed(0)
    root = files_of(FILES)
    pipeline = data.images(f"{root.name}/train").shuffle().repeat().batch(batch)
    pipeline = pipeline.decode(side, crop=data.random_resized_crop(), flip=0.5).normalize(MEAN, STD)

    class Training(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.net, self.files = resnet18(sl.nn), root
            if decodes:
                self.input = pipeline
            if costs:
                self.config.set_cost_file(costs)
            self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9))

        def build(self, *inputs):
            if decodes:
                with sl.stream("compute:1"):
                    x, y = self.input()
            else:
                x, y = inputs
            loss = sl.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    draw = np.random.default_rng(0)
    inputs = [() if decodes else (sl.from_numpy(draw.normal(size=(batch, 3, side, side)).astype(np.float32)), sl.randint(0, 2, (batch,)))
              for _ in range(4)]
    return Training(), inputs


def make_ours(side: int, batch: int, decodes: bool):
    """Steps of training. What kernels take is measured first, and the compiler says how many cores and slots there are."""
    with tempfile.TemporaryDirectory() as folder:
        graph, inputs = ours(side, batch, decodes, "")
        graph.config.enable_trace()
        for i in range(6):
            graph(*inputs[i % 4]).item()
        graph.save_costs(f"{folder}/costs.json")
        graph.close()
        graph, inputs = ours(side, batch, decodes, f"{folder}/costs.json")
        graph(*inputs[0]).item()  # compiles while the costs are there

    def run(count: int) -> None:
        for i in range(count):
            loss = graph(*inputs[i % 4])
        loss.item()

    return run


def make_torch(side: int, batch: int, decodes: bool):
    import io
    import os
    import random

    import numpy as np
    import torch
    from images import box
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    files = photographs()[:FILES]
    mean, std = (np.array(v, np.float32)[:, None, None] for v in (MEAN, STD))

    class Photographs(Dataset):
        def __len__(self):
            return FILES

        def __getitem__(self, i):
            draw = random.Random()
            x, y, width, height = box(draw)
            image = Image.open(io.BytesIO(files[i])).convert("RGB")
            image = image.resize((side, side), Image.Resampling.BILINEAR, (x, y, x + width, y + height))
            if draw.random() < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            return torch.from_numpy((np.asarray(image).transpose(2, 0, 1).astype(np.float32) / 255 - mean) / std), i % 2

    net, loss_of = resnet18(torch.nn), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Photographs(), batch, shuffle=True, num_workers=2, multiprocessing_context="fork", persistent_workers=True)
    kept = [] if decodes else [(torch.randn(batch, 3, side, side), torch.randint(0, 2, (batch,))) for _ in range(4)]

    def batches():
        while True:
            yield from loader if decodes else kept

    coming = batches()

    def run(count: int) -> None:
        for _ in range(count):
            x, y = next(coming)
            optimizer.zero_grad()
            loss = loss_of(net(x), y)
            loss.backward()
            optimizer.step()
        loss.item()

    return run


def small() -> None:
    """Images of 64 x 64."""
    ours, peer = measure([Side(make_ours, 64, 32, True), Side(make_torch, 64, 32, True, daemon=False)], rounds=7, seconds=1.5)
    report("data.nets.64", statistics.median(ours) * 1e3, statistics.median(peer) * 1e3, "PyTorch and a DataLoader of two workers", "ms a step", 7,
           max(spread(ours), spread(peer)), aim=2.5, batch=32)


def large() -> None:
    """Images of 224 x 224, of which a step takes long. The peers are an epoch from memory, and PyTorch, which also shows what decoding costs."""
    sides = [Side(make, 224, 16, decodes, daemon=False) for make in (make_ours, make_torch) for decodes in (True, False)]
    times = measure(sides, rounds=5, seconds=3)
    files, memory, torch_files, torch_memory = (statistics.median(side) * 1e3 for side in times)
    report("data.nets.224_epoch", files, memory, "an epoch from memory", "ms a step", 5, max(map(spread, times[:2])), aim=1 / 1.03, batch=16)
    report("data.nets.224", files, torch_files, "PyTorch and a DataLoader of two workers; the aim is the ratio without decoding", "ms a step", 5,
           max(map(spread, times[::2])), aim=torch_memory / memory, batch=16)


if __name__ == "__main__":
    if wanted("data.nets.64"):
        small()
    if wanted("data.nets.224") or wanted("data.nets.224_epoch"):
        large()
