"""train.*: one training step through nn.Graph against PyTorch eager with the same number of threads."""
import os

from common import Side, compare, wanted

THREADS = len(os.sched_getaffinity(0))


def mlp(nn, sizes):
    layers = []
    for i, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:])):
        layers += [nn.Linear(fan_in, fan_out)] + ([nn.ReLU()] if i + 2 < len(sizes) else [])
    return nn.Sequential(*layers)


def digits_net(nn):
    """The example's net, on either framework: its source with the import taken away."""
    path = os.path.join(os.path.dirname(__file__), "..", "examples", "digits_net.py")
    scope = {"nn": nn}
    with open(path) as file:
        exec(compile(file.read().replace("import sluice.nn as nn", ""), path, "exec"), scope)
    return scope["DigitsNet"]()


def workload(name, torch):
    """(model, x, y, learning rate) of a named workload, on either framework."""
    torch.manual_seed(0)
    if name == "digits":
        return digits_net(torch.nn), torch.randn(64, 1, 8, 8), torch.randint(0, 10, (64,)), 0.05
    sizes, batch = {"mlp": ((64, 128, 128, 10), 32), "mlp_large": ((784, 512, 512, 10), 64)}[name]
    return mlp(torch.nn, sizes), torch.randn(batch, sizes[0]), torch.randint(0, sizes[-1], (batch,)), 0.01


def torch_side(name):
    import torch
    torch.set_num_threads(THREADS)
    model, x, y, lr = workload(name, torch)
    loss_fn, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def run(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
        loss.item()
    return run


def sluice_graph(name, granularity="program"):
    """A compiled training graph and its inputs."""
    import sluice as torch
    model, x, y, lr = workload(name, torch)

    class Train(torch.nn.Graph):
        def __init__(self):
            super().__init__()
            self.model, self.loss_fn = model, torch.nn.CrossEntropyLoss()
            self.add_optimizer(torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9))

        def build(self, x, y):
            loss = self.loss_fn(self.model(x), y)
            loss.backward()
            return loss

    graph = Train()
    graph.config.set_granularity(granularity)
    graph(x, y)
    return graph, (x, y)


def sluice_side(name, granularity="program"):
    graph, inputs = sluice_graph(name, granularity)

    def run(steps):
        for _ in range(steps):
            loss = graph(*inputs)
        loss.item()
    return run


if __name__ == "__main__":
    for workload_name in ("digits", "mlp", "mlp_large"):
        if wanted(f"train.{workload_name}"):
            compare(f"train.{workload_name}", Side(sluice_side, workload_name), Side(torch_side, workload_name),
                    "PyTorch eager", threads=THREADS)
