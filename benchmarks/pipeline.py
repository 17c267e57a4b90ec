"""pipeline.*: a training step of two stages and 8 micro-batches on two ranks, one thread each, and what the ranks buy."""
import os
import statistics

from common import compare, measure, report, spread, wanted
from data_parallel import Ranks

LAYERS, WIDTH, ROWS, BATCHES = 6, 512, 96, 8  # layers of a stage, rows of a micro-batch


def stage(nn):
    return nn.Sequential(*(m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.Tanh())))


def torch_rank(rank, size, port):
    import torch
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    torch.manual_seed(rank)
    model = stage(torch.nn)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(BATCHES * ROWS, WIDTH), torch.randn(BATCHES * ROWS, WIDTH)
    schedule = Schedule1F1B(PipelineStage(model, rank, size, torch.device("cpu")), BATCHES, loss_fn=torch.nn.functional.mse_loss)

    def run(n):
        for _ in range(n):
            optimizer.zero_grad()
            schedule.step(*((x,) if rank == 0 else ()), **({"target": y, "losses": []} if rank == size - 1 else {}))
            optimizer.step()
    return run


def sluice_rank(rank, size, port, staged):
    os.environ["SLUICE_CORES"] = "1"
    import sluice as sl
    if size > 1:
        import sluice.distributed as dist
        dist.init(rank=rank, world_size=size, master=f"127.0.0.1:{port}", token="benchmark")
    x, y = (sl.tensor(t) for t in data())

    class Train(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            sl.manual_seed(0)
            self.stages = sl.nn.ModuleList(stage(sl.nn) for _ in range(2))
            self.add_optimizer(sl.optim.SGD(self.stages.parameters(), lr=1e-3, momentum=0.9))
            self.config.set_gradient_accumulation_steps(BATCHES)
            for i, part in enumerate(self.stages if size > 1 else ()):
                place = sl.placement("cpu", [i])
                part.to_global(place, sl.sbp.broadcast)
                part.config.set_stage(i if staged else None, place)

        def build(self, x, y):
            for part in self.stages:
                x = part(x)
            loss = sl.nn.functional.mse_loss(x, y)
            loss.backward()
            return loss

    graph = Train()

    def run(n):
        for _ in range(n):
            losses = graph(x, y)
        losses.numpy()
    return run


def data():
    import numpy as np
    random = np.random.default_rng(0)
    return (random.normal(size=(BATCHES * ROWS, WIDTH)).astype("float32") for _ in range(2))


if __name__ == "__main__":
    if wanted("pipeline.two_stages"):
        compare("pipeline.two_stages", Ranks(sluice_rank, True), Ranks(torch_rank), "torch Schedule1F1B, gloo")
    if wanted("pipeline.stage_id"):  # without, the stages take turns
        compare("pipeline.stage_id", Ranks(sluice_rank, True), Ranks(sluice_rank, False), "no stage_id")
    if wanted("pipeline.scaling"):  # steps per second of two ranks over those of one process
        both, alone = measure([Ranks(sluice_rank, True), Ranks(sluice_rank, True, size=1)])
        ratios = [a / b for a, b in zip(alone, both)]
        most = 2 * BATCHES / (BATCHES + 1)  # the second stage waits for the first's first, the first for the second's last
        report("pipeline.scaling", statistics.median(ratios), most, "the most there is", "times one process", len(ratios),
               spread(ratios), ratio=statistics.median(ratios) / most)
