"""A process that preprocesses, and two ranks that train on what it makes."""

import subprocess
import sys

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

PIPELINE = """
import io, os
import numpy as np
from PIL import Image
from sluice import data

def jpeg(sample):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(int(sample)).integers(0, 255, (20, 24, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()

def pipeline(path):
    return (data.records(path, seed=4).shuffle().batch(5, drop_last=True).decode(16, crop=data.random_resized_crop(), flip=0.5)
            .normalize([0.5] * 3, [0.25] * 3).map(lambda x, y: (x, y, y * 0 + os.getpid())))
"""

SERVER = PIPELINE + """
import sys
with data.RecordWriter(sys.argv[1]) as records:
    for i in range(40):
        records.write(jpeg(i), label=i % 3)
server = data.serve(pipeline(sys.argv[1]))
print(server.address, os.getpid(), flush=True)
server.wait()
"""

TRAINING = PIPELINE + """
from sluice import nn
dist.init()

def trained(batches):
    sl.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 3)))
    optimizer, losses, pids = sl.optim.SGD(net.parameters(), lr=0.05), [], set()
    for epoch in range(2):
        for x, y, pid in batches:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            pids |= set(pid.tolist())
    return losses, [p.detach().numpy().tobytes() for p in net.parameters()], pids

far = trained(data.remote(ADDRESS, rank, size))
near = trained(data.records(PATH, seed=4).shuffle().shard(rank, size).batch(5, drop_last=True)
               .decode(16, crop=data.random_resized_crop(), flip=0.5).normalize([0.5] * 3, [0.25] * 3)
               .map(lambda x, y: (x, y, y * 0 + os.getpid())))
assert far[:2] == near[:2] and len(far[0]) == 8, (far[0], near[0])
print(*far[2], *near[2], os.getpid())
"""


def test_two_ranks_train_on_what_a_third_process_makes(ranks, tmp_path, environment):  # TFD-08
    pytest.importorskip("PIL.Image")
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path / "train.rec")], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        address, pid = server.stdout.readline().split()
        out = ranks(2, f"ADDRESS, PATH = {address!r}, {str(tmp_path / 'train.rec')!r}\n" + TRAINING)
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    (far_0, near_0, own_0), (far_1, near_1, own_1) = (line.split() for line, in out)
    assert far_0 == far_1 == pid and near_0 == own_0 != own_1 == near_1 and pid not in (own_0, own_1)
