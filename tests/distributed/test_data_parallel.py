"""DistributedDataParallel and DistributedSampler: ranks with parts of a batch against one process with all of it."""

import json

import pytest

import sluice as sl
from rank_programs import environment, ranks, start  # noqa: F401: fixtures
from sluice.utils.data import DistributedSampler

NET = """
dist.init()
from sluice import nn
DDP = nn.parallel.DistributedDataParallel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.idle = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(3, 3)
        self.c = nn.Linear(8, 8)
        self.c.weight = self.b.weight  # shared
        self.register_buffer("seen", sl.zeros(1))

    def forward(self, x, use_c=True):
        self.seen += 1
        h = sl.tanh(self.b(sl.tanh(self.a(x))))
        return (self.c(h) if use_c else h).square().mean()

def batch(step):
    return sl.tensor(np.random.default_rng(step).normal(size=(4 * size, 6)).astype(np.float32))

def mine(x):
    return x[4 * rank:4 * rank + 4]
"""


@pytest.mark.parametrize("n, as_view", [(2, False), (2, True), (3, False)])
def test_training_is_as_with_the_whole_batch(ranks, n, as_view):
    out = ranks(n, NET + f"\nAS_VIEW = {as_view}\n" + """
sl.manual_seed(rank)  # rank 0's parameters count
net = DDP(Net(), bucket_cap_mb=100 / 2**20, gradient_as_bucket_view=AS_VIEW)
sl.manual_seed(0)
whole = Net()
assert all(p.equal(q) for p, q in zip(net.module.parameters(), whole.parameters()))
assert len(net._buckets) > 2, net._buckets
one, two = (sl.optim.SGD(m.parameters(), lr=0.5, momentum=0.9) for m in (net, whole))
for step in range(5):
    for optimizer, module, x in ((one, net, mine(batch(step))), (two, whole, batch(step))):
        optimizer.zero_grad()
        module(x).backward()
        optimizer.step()
for (name, p), q in zip(net.module.named_parameters(), whole.parameters()):
    assert np.allclose(p.detach().numpy(), q.detach().numpy(), atol=1e-6), name
assert net.module.idle.weight.grad is None and "module.a.weight" in net.state_dict()
sums = sl.stack([p.detach().sum() for p in net.parameters()])
every = [sl.zeros_like(sums) for _ in range(size)]
dist.all_gather(every, sums)
assert all(e.equal(sums) for e in every)  # the same bits
print("ok")
""")
    assert out == [["ok"]] * n


def test_parameters_that_some_rank_does_not_use_count_as_zero(ranks):
    out = ranks(2, NET + """
sl.manual_seed(0)
net = DDP(Net())
net(mine(batch(0)), use_c=rank == 0).backward()
bias = net.module.c.bias.grad.clone()
sl.manual_seed(0)
alone = Net()
alone(batch(0)[:4]).backward()
assert np.allclose(bias.numpy() * 2, alone.c.bias.grad.numpy(), atol=1e-6)
assert net.module.idle.weight.grad is None
print("ok")
""")
    assert out == [["ok"]] * 2


def test_no_sync_adds_up_until_a_pass_outside_averages(ranks):
    out = ranks(2, NET + """
sl.manual_seed(0)
net = DDP(Net())
with net.no_sync():
    net(mine(batch(0))).backward()
local = net.module.a.weight.grad.clone()
gathered = [sl.zeros_like(local) for _ in range(2)]
dist.all_gather(gathered, local)
assert not gathered[0].equal(gathered[1])
net(mine(batch(1))).backward()
sl.manual_seed(0)
whole = Net()
for step in range(2):
    whole(batch(step)).backward()
assert np.allclose(net.module.a.weight.grad.numpy(), whole.a.weight.grad.numpy(), atol=1e-6)
assert net.module.seen.item() == 2
print("ok")
""")
    assert out == [["ok"]] * 2


# 20 layers of 66,048 bytes, two for each bucket.
MLP = """
dist.init()
from sluice import nn
sl.manual_seed(0)
layers = [nn.Linear(128, 128) for _ in range(20)]
net = nn.Sequential(*(m for layer in layers for m in (layer, nn.Tanh())))
works, all_reduce = [], dist.all_reduce

def counted(*arguments, async_op=False):
    works.append(all_reduce(*arguments, async_op=True))
    return works[-1]

dist.all_reduce = counted
DDP = nn.parallel.DistributedDataParallel
"""


def test_buckets_are_sent_while_backward_goes_on(ranks):  # DDP-02, DDP-03
    out = ranks(2, MLP + """
ends = []
layers[0].weight.register_post_accumulate_grad_hook(lambda _: ends.append(time.perf_counter()))  # the last gradient of all
ddp = DDP(net, bucket_cap_mb=130_000 / 2**20)
x, hidden, all_of_it = sl.randn(4096, 128), 0.0, 0.0
for step in range(4):
    works.clear()
    ends.clear()
    net.zero_grad()
    loss = ddp(x).square().mean()
    begin = time.perf_counter()
    loss.backward()
    size_in_bytes = sum(p.numel() * 4 for p in net.parameters())
    assert len(ends) == 1 and len(works) <= -(-size_in_bytes // 130_000) == 11, (len(works), size_in_bytes)
    assert all(a.ended <= b.began for a, b in zip(works, works[1:]))
    assert begin < works[0].began < ends[0]
    mine = sl.tensor([[w.began for w in works], [w.ended for w in works], ends * len(works)], dtype=sl.float64)
    both = [sl.zeros_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    began, ended, end = np.maximum(*(b.numpy() for b in both))  # a collective begins when the last rank has come
    hidden += (np.minimum(ended, end) - np.minimum(began, end)).sum()
    all_of_it += (ended - began).sum()
print(hidden / all_of_it)
""")
    for lines in out:
        assert float(lines[0]) >= 0.5, out


def test_buckets_go_in_one_order_where_gradients_come_in_several(ranks):
    out = ranks(2, """
dist.init()
from sluice import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8, bias=False) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers if rank == 0 else reversed(self.layers):
            x = layer(x)
        return x.square().sum()

sl.manual_seed(0)
net = Net()
expected = []
for order in (1, -1):
    net.zero_grad()
    x = sl.ones(2, 8)
    for layer in list(net.layers)[::order]:
        x = layer(x)
    x.square().sum().backward()
    expected.append([p.grad.numpy() for p in net.parameters()])
net.zero_grad()
ddp = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1 / 2**20)
assert len(ddp._buckets) == 4
for step in range(3):
    ddp.zero_grad()
    ddp(sl.ones(2, 8)).backward()
    for p, a, b in zip(net.parameters(), *expected):
        assert np.allclose(p.grad.numpy(), (a + b) / 2, rtol=1e-5)
print("ok")
""")
    assert out == [["ok"]] * 2


def test_buckets_are_made_once_and_may_hold_the_gradients(ranks):
    out = ranks(2, MLP + """
ddp = DDP(net, bucket_cap_mb=1, gradient_as_bucket_view=True)
places = []
for step in range(3):
    ddp.zero_grad(set_to_none=step != 1)
    ddp(sl.randn(8, 128)).square().mean().backward()
    places.append([p.grad.data_ptr() for p in net.parameters()])
    flats = [(b.flat.data_ptr(), b.flat.data_ptr() + b.flat.nbytes) for b in ddp._buckets]
    assert all(any(begin <= place < end for begin, end in flats) for place in places[-1])
assert places[0] == places[1] == places[2] and len(ddp._buckets) == 2
print("ok")
""")
    assert out == [["ok"]] * 2


def test_copies_of_a_wrapper_and_new_data_of_parameters_are_averaged_too(ranks):
    out = ranks(2, NET + """
import copy
net = copy.deepcopy(DDP(Net()))
net.module.a.weight.data = net.module.a.weight.data.clone()
net(mine(batch(0))).backward()
for p in net.module.parameters():
    if p.grad is not None:
        every = [sl.zeros_like(p.grad) for _ in range(size)]
        dist.all_gather(every, p.grad)
        assert every[0].equal(every[1])

import gc, weakref
left = weakref.ref(net), weakref.ref(net.module.a.weight), weakref.ref(net._buckets[0].flat)
del net, p
gc.collect()
assert [w() for w in left] == [None] * 3
print("ok")
""")
    assert out == [["ok"]] * 2


def test_a_backward_that_fails_midway_is_told_and_the_next_works(ranks):
    out = ranks(2, MLP + """
ddp = DDP(net, bucket_cap_mb=130_000 / 2**20)
x = sl.randn(64, 128)
ddp(x).square().mean().backward()
ddp.zero_grad()

def fail(_):
    raise KeyError("midway")

handle = layers[10].weight.register_hook(fail) if rank == 1 else None
try:
    ddp(x).square().mean().backward()
except (KeyError, sl.Error) as e:
    print(type(e).__name__, str(e).split("  (")[0])
if handle:
    handle.remove()
ddp.zero_grad()
ddp(x).square().mean().backward()
every = [sl.zeros_like(layers[0].weight) for _ in range(2)]
dist.all_gather(every, layers[0].weight.grad)
print(every[0].equal(every[1]))
""")
    assert out == [["RuntimeError all_reduce: rank 1 takes no part: its backward() has failed", "True"], ["KeyError 'midway'", "True"]]


def test_a_rank_killed_in_the_middle_of_backward_is_named(start):
    status, out, err = start(2, MLP + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell
ddp = DDP(net, bucket_cap_mb=130_000 / 2**20)
x = sl.randn(64, 128)
ddp(x).square().mean().backward()
if rank == 1:
    layers[10].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
try:
    ddp(x).square().mean().backward()
except sl.Error as e:
    print(str(e).split("  (")[0])
""").output()
    assert status == 128 + 9
    assert out == "[0] all_reduce: rank 1 is gone: its connection closed without a goodbye; it crashed or was killed\n"


def test_a_second_gradient_after_the_first_was_sent_is_refused(ranks):
    out = ranks(2, NET + """
from sluice.autograd import Function

net = DDP(nn.Linear(6, 1, bias=False))

class Again(Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach()

    @staticmethod
    def backward(ctx, grad):
        with sl.enable_grad():
            net.module(sl.ones(1, 6)).sum().backward()
        return grad

try:
    net(Again.apply(mine(batch(0)).requires_grad_())).sum().backward()
except RuntimeError as e:
    print(str(e).split("  (")[0])
""")
    assert out == [["DistributedDataParallel: 'weight' has got another gradient after the first was sent; a backward pass must give each "
                    "parameter its whole gradient at once"]] * 2


def test_every_pass_outside_of_no_sync_is_averaged_whatever_the_order(ranks):
    out = ranks(2, NET + """
net = DDP(Net())

def equal():
    grad = net.module.a.weight.grad
    every = [sl.zeros_like(grad) for _ in range(2)]
    dist.all_gather(every, grad)
    return every[0].equal(every[1])

first, second = net(mine(batch(0))), net(mine(batch(1)))
with net.no_sync():
    third = net(mine(batch(2)))
print([(loss.backward(), equal())[1] for loss in (first, second, third)])
""")
    assert out == [["[True, True, False]"]] * 2


def test_buffers_are_rank_0s_in_training(ranks):
    out = ranks(2, NET + """
net = DDP(Net())
net.module.seen.fill_(10 * (rank + 1))
net(mine(batch(0)))
print(net.module.seen.item())
net.module.seen.fill_(10 * (rank + 1))
net.eval()(mine(batch(0)))
print(net.module.seen.item())
""")
    assert out == [["11.0", "11.0"], ["11.0", "21.0"]]


def test_modules_that_differ_are_refused_by_name(ranks):
    out = ranks(2, NET + """
P = sl.placement("cpu", [0, 1])
for make in (lambda: nn.Linear(3, 3 + rank), lambda: nn.Linear(3, 3, bias=rank == 0), lambda: nn.ReLU(),
             lambda: nn.Linear(2, 2).to_global(P, sl.sbp.split(0))):
    try:
        DDP(make())
    except (TypeError, ValueError) as e:
        print(str(e).split("  (")[0])
""")
    where = "DistributedDataParallel: "
    assert out == [[where + "rank 0 has 'weight float32 (3, 3) True', rank 1 has 'weight float32 (4, 3) True'; the ranks' modules must be "
                    "alike",
                    where + "rank 0 has 'bias float32 (3,) True', rank 1 has 'nothing'; the ranks' modules must be alike",
                    where + "the module has no parameter that requires a gradient; use it as it is",
                    where + "'weight' is a global tensor: sluice.sbp.split(dim=0) on cpu:0,1/cpu:0; give a local module, or use the global one "
                    "in nn.Graph without this wrapper"]] * 2


def test_in_a_graph_it_says_what_to_use(ranks):
    out = ranks(2, NET + """
class Graph(nn.Graph):
    def __init__(self):
        super().__init__()
        self.net = DDP(Net())

    def build(self, x):
        return self.net(x)

try:
    Graph()(batch(0))
except NotImplementedError as e:
    print(str(e).split("  (")[0].splitlines()[0])
""")
    assert out == [["DistributedDataParallel: is for eager code; inside nn.Graph use module.to_global(placement, sbp.broadcast)"]] * 2


def test_it_says_when_ranks_have_not_met():
    with pytest.raises(RuntimeError, match=r"the ranks have not met; call sluice.distributed.init\(\) first"):
        sl.nn.parallel.DistributedDataParallel(sl.nn.Linear(2, 2))


@pytest.mark.parametrize("n, size", [(1, 5), (2, 10), (3, 10), (4, 3)])
def test_sampler_shares_are_disjoint_and_together_all(n, size):
    for options in ({}, {"shuffle": False}, {"drop_last": True}):
        shares = [DistributedSampler(range(size), n, r, **options) for r in range(n)]
        taken = [list(share) for share in shares]
        assert all(len(t) == len(share) for t, share in zip(taken, shares)) and len({len(t) for t in taken}) == 1
        together = [i for t in taken for i in t]
        if options.get("drop_last"):
            assert len(set(together)) == len(together) == size // n * n
        else:
            assert set(together) == set(range(size)) and len(together) < size + n
            if size % n == 0:
                assert len(together) == size


def test_sampler_permutes_by_epoch_alike_in_all_ranks():
    samplers = [DistributedSampler(range(100), 2, r) for r in range(2)]

    def epoch(e):
        for s in samplers:
            s.set_epoch(e)
        return [list(s) for s in samplers]

    first, second = epoch(0), epoch(1)
    assert first != second and epoch(0) == first
    assert all(sorted(a + b) == list(range(100)) for a, b in (first, second))


@pytest.mark.parametrize("arguments, text", [
    ((range(3), 2, 2), "rank is 2, num_replicas is 2; ranks are 0 to num_replicas - 1"),
    ((range(0), 2, 0), "the dataset is empty; it must have at least one sample"),
])
def test_wrong_samplers_are_errors(arguments, text):
    with pytest.raises(ValueError) as error:
        DistributedSampler(*arguments)
    assert f"DistributedSampler: {text}" in str(error.value)


COMPILED = """
dist.init()
from sluice import nn
DDP = nn.parallel.DistributedDataParallel
averaged = []
given = DDP._averaged_by
DDP._averaged_by = lambda self, averages: (averaged.append(1), given(self, averages))[1]

def net():
    sl.manual_seed(0)
    return nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(32, 32), nn.Tanh())], nn.Linear(32, 3))

def batch(step):
    random = np.random.default_rng(10 * step + rank)
    return sl.from_numpy(random.normal(size=(16, 32)).astype(np.float32)), sl.from_numpy(random.integers(0, 3, 16))

def train(model, call, steps, accumulate=1):
    optimizer = sl.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x, y = batch(step * accumulate + part)
            with model.no_sync() if part + 1 < accumulate else contextlib.nullcontext():
                loss = nn.functional.cross_entropy(call(x), y)
                loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, [p.detach().numpy() for p in model.parameters()]

def same(a, b):
    assert np.allclose(a[0], b[0], atol=1e-6), (a[0], b[0])
    assert all(np.allclose(p, q, atol=1e-6) for p, q in zip(a[1], b[1]))
import contextlib
"""


@pytest.mark.parametrize("n", [2, 3])
def test_compiled_modules_average_in_the_plan_of_the_backward_pass(ranks, n):
    """They train as eager ones do, also when one rank is compiled and the others are not, and when gradients add up before."""
    out = ranks(n, COMPILED + """
eager = DDP(net(), bucket_cap_mb=8 / 1024)
expected = train(eager, eager, 4)
assert len(eager._buckets) > 2 and not averaged
model = DDP(net(), bucket_cap_mb=8 / 1024)
same(train(model, sl.compile(model), 4), expected)
assert len(averaged) == 4, averaged
model = DDP(net(), bucket_cap_mb=8 / 1024)
same(train(model, sl.compile(model) if rank == 1 else model, 4), expected)
assert len(averaged) == (8 if rank == 1 else 4), averaged
eager = DDP(net(), bucket_cap_mb=8 / 1024)
model = DDP(net(), bucket_cap_mb=8 / 1024)
same(train(model, sl.compile(model), 3, accumulate=2), train(eager, eager, 3, accumulate=2))
print("ok")
""")
    assert out == [["ok"]] * n


def test_compiled_gradients_travel_while_others_are_computed(ranks, tmp_path, count):
    """In some step the first bucket is on its way before the last gradient is there."""
    ranks(2, COMPILED + """
from sluice._compile.backward import Backward
from sluice._compile.settings import Settings
configure, made = Settings.configure, []
Settings.configure = lambda self, graph, *args, **more: (configure(self, graph, *args, **more), graph.config.enable_trace())
init = Backward.__init__
Backward.__init__ = lambda self, *args: (made.append(self), init(self, *args))[1]
model = DDP(nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)]), bucket_cap_mb=1 / 4)
call = sl.compile(model)
for step in range(8):
    dist.barrier()
    call(sl.ones(64, 256)).square().mean().backward()
    for p in model.parameters():
        p.grad = None
[plan] = made
assert plan.averages is not None
plan.graph.save_trace(f"rank{rank}.json")
""")
    shares = []
    for rank in range(2):
        events = json.loads((tmp_path / f"rank{rank}.json").read_text())["traceEvents"]
        lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
        for step in {e["args"]["step"] for e in events if e.get("cat") == "kernel"}:
            spans = {"host": [], "compute": []}
            for e in events:
                if e.get("cat") == "kernel" and e["args"]["step"] == step:
                    spans["host" if "/host" in lanes[e["tid"]] else "compute"].append((e["ts"], e["ts"] + e["dur"]))
            sent = sum(end - begin for begin, end in spans["host"])
            hidden = sum(max(0, min(end, e) - max(begin, b)) for begin, end in spans["host"] for b, e in spans["compute"])
            shares.append(hidden / sent)
    count("the time in which averages travel while a compiled backward pass computes", round(100 * max(shares)), "percent")
    assert max(shares) > 0, shares


def test_a_rank_whose_compiled_backward_fails_is_named(start):
    """Nobody waits for buckets that it has not sent."""
    job = start(2, COMPILED + """
from sluice._compile.averages import Averages
average = Averages._average
def fails(self, *args):
    if rank == 1 and self.sent == 1:
        raise ValueError("no more")
    return average(self, *args)
Averages._average = fails
model = DDP(net(), bucket_cap_mb=8 / 1024)
try:
    train(model, sl.compile(model), 1)
except Exception as error:
    print("told:", type(error).__name__, error)
""")
    status, out, err = job.output()
    told = [next((line for line in out.splitlines() if line.startswith(f"[{r}] told:")), "") for r in range(2)]
    assert "no more" in told[1] and "its backward() has failed" in told[0], out + err
