"""graphs.*: a recurrent net as a graph against eager, calls that nobody reads yet, sparse updates of a large table against a small one."""
import statistics
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


def compare(name, make, ours, peer, peer_name, unit, scale):
    if wanted(name):
        a, b = map(list, measure([Side(make, ours), Side(make, peer)]))
        report(name, statistics.median(a) * scale, statistics.median(b) * scale, peer_name, unit, len(a), max(spread(a), spread(b)))


if __name__ == "__main__":
    compare("graphs.lstm", lstm, True, False, "the same step, eager", "ms", 1e3)
    compare("graphs.unread", unread, False, True, "each result read before the next call", "ms", 1e3)
    compare("graphs.sparse", sparse, 1_000_000, 100_000, "a table of 100,000 rows; the aim, a ratio above 0.77", "us", 1e6)
