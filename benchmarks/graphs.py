"""graphs.*: nets as graphs against eager, calls that nobody reads yet, sparse updates of a large table against a small one.

`graphs.modes.*` are training steps of a batch of 16: the ratio is eager time over graph time, and the aim at most 1.25.
"""
import os
import statistics
import sys
import time

from common import Side, measure, report, spread, wanted


def lstm(graph):
    """A training step of an LSTM over 100 elements: many small ops."""
    import sluice as sl
    from sluice import nn

    sl.manual_seed(0)
    net, head = nn.LSTM(16, 16), nn.Linear(16, 4)
    sgd = sl.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
    x, y = sl.randn(100, 4, 16), sl.randint(0, 4, (4,))

    def step(x, y):
        sgd.zero_grad()
        loss = nn.functional.cross_entropy(head(net(x)[0][-1]), y)
        loss.backward()
        sgd.step()
        return loss

    call = nn.Graph.trace(step, state=[net, head, sgd]) if graph else step

    def run(steps):
        for _ in range(steps):
            loss = call(x, y)
        loss.item()
    return run


def chain(graph):
    """10,000 additions of 16 numbers, each of the result of the one before."""
    import sluice as sl

    def adds(x, y):
        for _ in range(10_000):
            x = x + y
        return x

    call, x, y = sl.nn.Graph.trace(adds) if graph else adds, sl.ones(16), sl.ones(16)

    def run(steps):
        for _ in range(steps):
            z = call(x, y)
        z.numpy()
    return run


def mobilenet(sl, classes):
    """Sandler et al. 2018, inverted residuals, at a quarter of the width."""
    nn = sl.nn

    class Inverted(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            wide = 6 * channels
            self.body = nn.Sequential(
                nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
                nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
                nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
            self.adds = stride == 1 and channels == out

        def forward(self, x):
            return x + self.body(x) if self.adds else self.body(x)

    layers, channels = [nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()], 8
    for out, count, stride in ((8, 2, 2), (16, 3, 2), (24, 3, 1), (40, 2, 2)):
        for k in range(count):
            layers.append(Inverted(channels, out, stride if k == 0 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def encoder(sl, classes):
    """Two layers as BERT's and ERNIE's, of 128 features, and a head on the first token."""
    nn = sl.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(1000, 128), nn.Embedding(64, 128)
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, activation="gelu", batch_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(128, classes)

        def forward(self, tokens):
            return self.head(self.layers(self.words(tokens) + self.places.weight)[:, 0])

    return Net()


def mode(graph, name):
    """A training step of a batch of 16, with SGD and momentum."""
    import sluice as sl
    from nets import gpt2, resnet50
    sl.manual_seed(0)
    images, tokens, classes = sl.randn(16, 3, 64, 64), sl.randint(0, 1000, (16, 64)), 10
    makes = {"resnet": (lambda: resnet50(sl, (1, 1, 1, 1), 16, classes), images),
             "mobilenet": (lambda: mobilenet(sl, classes), images),
             "transformer": (lambda: gpt2(sl, 2, 128, 4, 64, 1000), tokens),
             "ernie": (lambda: encoder(sl, classes), tokens)}
    make, x = makes[name]
    net = make()
    y = sl.randint(0, classes, (net(x).shape[0],))
    optimizer = sl.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step(x, y):
        optimizer.zero_grad()
        loss = sl.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    call = sl.nn.Graph.trace(step, state=[net, optimizer]) if graph else step

    def run(steps):
        for _ in range(steps):
            loss = call(x, y)
        loss.item()
    return run


def unread(read):
    """Calls of a graph whose host stage waits for 0.5 ms, as for a disk, before a compute stage of about as long."""
    import sluice as sl
    from sluice import nn

    def host(x):
        time.sleep(5e-4)
        return x

    weight = nn.Parameter(sl.randn(160, 160) / 160**0.5)

    @nn.Graph.trace
    def call(x):
        y = sl.host_function(host, x, out=((160, 160), sl.float32))
        for _ in range(4):
            y = (y @ weight).tanh()
        return y.sum()

    call.config.set_outputs_buffer_size(4)
    call.config.set_cores(1)
    x = sl.randn(160, 160)

    def run(steps):
        results = []
        for _ in range(steps):
            y = call(x)
            if read:
                y.item()
            results.append(y)
        results[-1].item()
    return run


def sparse(rows):
    """A step that updates 256 rows of a table of so many, by Adam."""
    import sluice as sl
    from sluice import nn

    class Train(nn.Graph):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(rows, 32)
            self.add_optimizer(sl.optim.Adam(self.table.parameters()), is_sparse=True)

        def build(self, ids):
            loss = self.table(ids).square().mean()
            loss.backward()
            return loss

    graph, ids = Train(), sl.randint(0, 50_000, (256,))

    def run(steps):
        for _ in range(steps):
            loss = graph(ids)
        loss.item()
    return run


def compare(name, make, ours, peer, peer_name, unit, scale, *more):
    if wanted(name):
        a, b = map(list, measure([Side(make, ours, *more), Side(make, peer, *more)]))
        report(name, statistics.median(a) * scale, statistics.median(b) * scale, peer_name, unit, len(a), max(spread(a), spread(b)))


sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))

if __name__ == "__main__":
    compare("graphs.chain", chain, True, False, "the same 10,000 additions, eager; the aim, 1.5", "ms", 1e3)
    for net in ("resnet", "mobilenet", "transformer", "ernie"):
        compare(f"graphs.modes.{net}", mode, True, False, "the same step, eager; the aim, at most 1.25", "ms", 1e3, net)
    compare("graphs.lstm", lstm, True, False, "the same step, eager", "ms", 1e3)
    compare("graphs.unread", unread, False, True, "each result read before the next call", "ms", 1e3)
    compare("graphs.sparse", sparse, 1_000_000, 100_000, "a table of 100,000 rows; the aim, a ratio above 0.77", "us", 1e6)
