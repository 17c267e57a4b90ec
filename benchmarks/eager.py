"""eager.*: small eager ops and nets against PyTorch, in one process, bursts in turn, on one thread.

Times are of the process's clock, which does not count what other processes take of the cores; the least of the bursts
counts for small ops, whose noise is all one-sided, and the median for nets.
"""
import os
import statistics
import sys
import time

from common import report, spread, wanted

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))

ROUNDS = 15


def bursts(ours, peer, seconds, rounds=ROUNDS):
    """Seconds per call of both, burst by burst in turn."""
    counts = []
    for f in (ours, peer):
        for _ in range(3):
            f()
        begin = time.process_time()
        f()
        counts.append(max(1, int(seconds / max(time.process_time() - begin, 1e-6))))
    times = ([], [])
    for _ in range(rounds):
        for f, n, row in zip((ours, peer), counts, times):
            begin = time.process_time()
            for _ in range(n):
                f()
            row.append((time.process_time() - begin) / n)
    return times


def compare(name, make, unit, seconds=0.02, rounds=ROUNDS, **more):
    """`make(torch)` gives what is called, on either framework."""
    if not wanted(name):
        return
    import torch

    import sluice
    for module in (sluice, torch):
        module.set_num_threads(1)
    ours, peer = bursts(make(sluice), make(torch), seconds, rounds)
    scale, middle = (1e6, min) if unit == "us" else (1e3, statistics.median)
    report(name, middle(ours) * scale, middle(peer) * scale, "torch", unit, rounds, max(spread(ours), spread(peer)), **more)


# --- small ops ---

def operands(torch, grad):
    x, y, a, b = torch.ones(16), torch.ones(16), torch.ones(4, 4), torch.ones(4, 4)
    return [t.requires_grad_(grad) for t in (x, y, a, b)]


SMALL = {
    "add": lambda x, y, a, b: x + y,
    "mul": lambda x, y, a, b: x * y,
    "matmul4": lambda x, y, a, b: a @ b,
    "view": lambda x, y, a, b: x.view(4, 4),
    "index": lambda x, y, a, b: a[1],
}


SMALL_OPS = 2000


def small_ops(torch):
    """SMALL_OPS calls: the overhead of a call, whatever it computes."""
    x, y, a, b = operands(torch, False)

    def run():
        for _ in range(SMALL_OPS // 8):
            h = (x + y) * x - y
            h = torch.relu(h).view(4, 4)
            h = (a @ h)[1].sum()
    return run


def forward(op):
    def make(torch):
        given = operands(torch, False)
        return lambda: op(*given)
    return make


def backward(op):
    def make(torch):
        given = operands(torch, True)
        grad = torch.ones(op(*given).shape)
        return lambda: op(*given).backward(grad)
    return make


# --- nets ---

def lstm(torch):
    torch.manual_seed(0)
    net, x = torch.nn.LSTM(512, 512, 2), torch.randn(64, 32, 512)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        y, _ = net(x)
        (y * y).mean().backward()
        optimizer.step()
    return step


def elementwise(torch):
    x, weights = torch.randn(64, 1024), [torch.randn(1024).requires_grad_() for _ in range(8)]

    def step():
        h = x
        for w in weights:
            h = torch.tanh(h * w) + torch.sigmoid(h) * 0.5
            h = torch.nn.functional.gelu(h - h.mean(-1, keepdim=True)) / (1 + h.abs())
        h.sum().backward()
        for w in weights:
            w.grad = None
    return step


def gpt_small(torch, batch=4, length=128, words=2048):
    """GPT-2 small in outline, a third as wide and as deep."""
    from nets import gpt2
    torch.manual_seed(0)
    net, x = gpt2(torch, 4, 256, 8, length, words), torch.randint(0, words, (batch, length))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), x.view(-1)).backward()
        optimizer.step()
    return step


def main():
    for name, op in SMALL.items():
        compare(f"eager.{name}", forward(op), "us")
        compare(f"eager.{name}.train", backward(op), "us")
    compare("eager.small_ops", small_ops, "ms")
    compare("eager.lstm", lstm, "ms", 0.5, 7)
    compare("eager.elementwise", elementwise, "ms", 0.2, 9)
    compare("eager.gpt_small", gpt_small, "ms", 0.5, 7)


if __name__ == "__main__":
    main()
