"""ddp.*: an eager training step on two ranks, one thread each: DistributedDataParallel against torch's over Gloo."""
import os
import socket
import statistics
from concurrent.futures import ThreadPoolExecutor

from common import Side, compare, measure, report, spread, wanted

LAYERS, WIDTH, BATCH = 20, 256, 256
BUCKET_MB = 1


class Ranks:
    """One contestant of several processes: `make(rank, size, port, *arguments)` runs in each; a step takes the longest."""

    def __init__(self, make, *arguments, size=2):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self._pool = ThreadPoolExecutor(size)
        self._sides = list(self._pool.map(lambda rank: Side(make, rank, size, port, *arguments), range(size)))

    def time(self, count):
        return max(self._pool.map(lambda side: side.time(count), self._sides))

    def close(self):
        list(self._pool.map(Side.close, self._sides))


def steps(torch, wrap):
    torch.manual_seed(0)
    nn = torch.nn
    model = wrap(nn.Sequential(*(m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh()))))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), torch.randn(BATCH, WIDTH)

    def run(n):
        for _ in range(n):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
        loss.item()
    return run


def torch_rank(rank, size, port, bucket_mb):
    import torch
    torch.set_num_threads(1)
    if size == 1:
        return steps(torch, lambda m: m)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    return steps(torch, lambda m: torch.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=bucket_mb))


def sluice_rank(rank, size, port, bucket_mb):
    os.environ["SLUICE_CORES"] = "1"
    import sluice as sl
    if size == 1:
        return steps(sl, lambda m: m)
    import sluice.distributed as dist
    dist.init(rank=rank, world_size=size, master=f"127.0.0.1:{port}", token="benchmark")
    return steps(sl, lambda m: sl.nn.parallel.DistributedDataParallel(m, bucket_cap_mb=bucket_mb))


if __name__ == "__main__":
    if wanted("ddp.mlp20"):
        compare("ddp.mlp20", Ranks(sluice_rank, BUCKET_MB), Ranks(torch_rank, BUCKET_MB), "torch DDP, gloo")
    if wanted("ddp.overlap"):  # one bucket can only be sent when backward is over
        compare("ddp.overlap", Ranks(sluice_rank, BUCKET_MB), Ranks(sluice_rank, 1024), "one bucket")
    if wanted("ddp.scaling"):  # batches per second of two ranks over those of one process without the wrapper
        times = measure([Ranks(make, BUCKET_MB, size=size) for make in (sluice_rank, torch_rank) for size in (1, 2)])
        ours, peer = ([2 * alone / both for alone, both in zip(*times[i:i + 2])] for i in (0, 2))
        a, b = statistics.median(ours), statistics.median(peer)
        report("ddp.scaling", a, b, "torch DDP, gloo", "times one process", len(ours), max(spread(ours), spread(peer)), ratio=a / b)
