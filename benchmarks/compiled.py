"""compiled.train.NET, compiled.infer.NET: sluice.compile against the same code eager; compiled.MODE.mlp: a mode against the default;
compiled.first.NET: seconds until the first gradient, tracing and compiling included."""
import os
import statistics
import sys
import time

from common import Side, compare, report, wanted

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))


def net_and_input(torch, name):
    from nets import gpt2, resnet50
    nn = torch.nn
    torch.manual_seed(0)
    if name == "mlp":
        return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]), torch.randn(64, 256)
    if name == "mlp1":
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)), torch.randn(1, 64)
    if name == "cnn":
        layers = [nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1),
                  nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
        return nn.Sequential(*layers), torch.randn(16, 3, 32, 32)
    if name == "rnn":
        return cell_loop(nn, torch), torch.randn(24, 16, 64)
    if name == "resnet50":
        return resnet50(torch, (3, 4, 6, 3), 64, 1000), torch.randn(2, 3, 96, 96)
    if name == "gpt":
        return gpt2(torch, 4, 128, 4, 64, 1000), torch.randint(0, 1000, (4, 64))
    return nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True), torch.randn(8, 32, 128)


def cell_loop(nn, torch):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = nn.GRUCell(64, 64), nn.Linear(64, 8)

        def forward(self, rows):
            h = torch.zeros(rows.shape[1], 64)
            for row in rows:
                h = self.cell(row, h)
            return self.out(h)
    return Loop()


def side(name, compiled, train, mode=None):
    import sluice as torch
    net, x = net_and_input(torch, name)
    net.train(train)
    call = torch.compile(net, mode=mode) if compiled else net
    parameters = list(net.parameters())

    def run(steps):
        for _ in range(steps):
            if train:
                for p in parameters:
                    p.grad = None
                call(x).square().mean().backward()
                parameters[0].grad.sum().item()
            else:
                with torch.no_grad():
                    call(x).sync()

    run(1)
    return run


def first(name):
    import sluice as torch
    net, x = net_and_input(torch, name)
    call = torch.compile(net)
    begin = time.perf_counter()
    call(x).square().mean().backward()
    return time.perf_counter() - begin


if __name__ == "__main__":
    for kind in ("train", "infer"):
        for net in ("mlp", "cnn", "rnn", "encoder", "gpt", "resnet50"):
            if wanted(f"compiled.{kind}.{net}"):
                compare(f"compiled.{kind}.{net}", Side(side, net, True, kind == "train"), Side(side, net, False, kind == "train"), "Sluice eager")
    for mode in ("reduce-overhead", "max-autotune"):
        if wanted(f"compiled.{mode}.mlp"):
            compare(f"compiled.{mode}.mlp", Side(side, "mlp1", True, False, mode), Side(side, "mlp1", True, False), "mode default")
    if wanted("compiled.first.resnet50"):
        seconds = [first("resnet50") for _ in range(3)]
        report("compiled.first.resnet50", statistics.median(seconds), None, "", "s", len(seconds), 0.0)
