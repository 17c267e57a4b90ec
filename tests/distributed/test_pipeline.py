"""Steps of several micro-batches on ranks: the bits of one process, and stages at work at the same time."""

import json
import pathlib

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

STAGES = """
from sluice import nn
dist.init()

class Train(nn.Graph):
    def __init__(self, kind, count, n=8, width=64):
        super().__init__(name="pipeline")
        sl.manual_seed(0)
        self.stages = nn.ModuleList(nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(width, width), nn.Tanh())]) for _ in range(count))
        self.add_optimizer(sl.optim.SGD(self.stages.parameters(), lr=0.1, momentum=0.9))
        self.config.set_gradient_accumulation_steps(n)
        self.config.set_cores(1)
        for i, stage in enumerate(self.stages):
            place = sl.placement(kind, [i])
            stage.to_global(place, sl.sbp.broadcast)
            stage.config.set_stage(i, place)

    def build(self, x, y):
        for stage in self.stages:
            x = stage(x)
        loss = nn.functional.mse_loss(x, y)
        loss.backward()
        return loss

def batch(rows, width):
    rng = np.random.default_rng(0)
    return [sl.tensor(rng.normal(size=(rows, width)).astype(np.float32)) for _ in range(2)]
"""

TRAINING = STAGES + """
for kind in KINDS:
    graph = Train(kind, N)
    for step in range(5):
        print(*[value.item().hex() for value in graph(*batch(32, 64)).numpy()])
"""


@pytest.mark.parametrize("n", [2, 4])
def test_stages_on_ranks_compute_the_bits_of_one_process(ranks, n):  # NG-30
    one = ranks(1, f"N, KINDS = {n}, ['sim']\n" + TRAINING)[0]
    kinds = ["sim", "cpu"] if n == 2 else ["sim"]
    assert len(one) == 5 and ranks(n, f"N, KINDS = {n}, {kinds}\n" + TRAINING) == [one * len(kinds)] * n


OVERLAP = STAGES + """
graph = Train("cpu", 2, width=512)
data = batch(8 * 192, 512)
graph(*data).numpy()
graph.set_trace()
for step in range(30):  # the best of them counts: others may want the machine, too
    dist.barrier()
    graph(*data).numpy()
graph.save_trace(f"rank{rank}.json")
dist.barrier()
if rank == 0:
    sl.utils.merge_traces(["rank0.json", "rank1.json"], "trace.json")
"""


def test_two_stages_work_at_the_same_time(ranks, tmp_path):  # NG-30: 8 micro-batches; >= 60 % of a step both compute
    ranks(2, OVERLAP)
    trace = json.loads((tmp_path / "trace.json").read_text())
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    names = {e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {1: "sluice rank 0", 2: "sluice rank 1"}
    steps = {}  # number -> rank -> times at which its kernels run
    for e in trace["traceEvents"]:
        if e.get("cat") == "kernel" and "/compute0" in lanes[e["pid"], e["tid"]]:
            ranks_of_step = steps.setdefault(e["args"]["step"], {1: [], 2: []})
            ranks_of_step[e["pid"]].append((e["ts"], e["ts"] + e["dur"]))
    assert len(steps) == 30
    shares = [overlap(step) for step in steps.values()]
    print(f"count: both stages of a pipeline at work (2 ranks, 8 micro-batches): {max(shares):.2f} of a step")
    assert max(shares) >= 0.6, shares


def overlap(step):
    """The part of a step, from its first kernel to its last, in which both ranks compute."""
    edges = sorted([(t, r, 1) for r in step for t, _ in step[r]] + [(t, r, -1) for r in step for _, t in step[r]])
    busy, both, since = {1: 0, 2: 0}, 0.0, 0.0
    for t, r, change in edges:
        both += (t - since) * (busy[1] > 0 and busy[2] > 0)
        busy[r] += change
        since = t
    return both / (edges[-1][0] - edges[0][0])


DATA_PARALLEL = """
from sluice import nn
dist.init()
S, B = sl.sbp.split, sl.sbp.broadcast
W = sl.placement("sim", [0, 1])

class Train(nn.Graph):
    def __init__(self, n):
        super().__init__(name="data")
        sl.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).to_global(W, B)
        self.add_optimizer(sl.optim.AdamW(self.net.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(n)
        self.config.set_cores(1)
        if STAGE:
            self.config.enable_zero(stage=STAGE, shard_min_size=1)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x.to_global(W, S(0))), y.to_global(W, S(0)))
        loss.backward()
        return loss

graphs = [Train(1), Train(4)]
rng = np.random.default_rng(0)
for step in range(4):
    x, y = sl.tensor(rng.normal(size=(16, 12)).astype(np.float32)), sl.tensor(rng.integers(0, 4, 16))
    whole, parts = [graph(x, y).numpy() for graph in graphs]
    assert abs(whole - parts.mean()) < 1e-5
    print(*[value.item().hex() for value in parts])
fired = graphs[1].stats()["firings"]
once = [a for a in graphs[1].plan["actors"] if fired.get(a["name"]) == 4 and "/collective" in graphs[1].plan["streams"][a["stream"]]["name"]]
assert size == 1 or len(once) >= 4, fired  # a parameter's gradient travels once a step
"""


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_data_parallel_gradients_are_added_up_before_they_travel(ranks, stage):
    one = ranks(1, f"STAGE = {stage}\n" + DATA_PARALLEL)[0]
    assert len(one) == 4 and ranks(2, f"STAGE = {stage}\n" + DATA_PARALLEL) == [one] * 2

NETS = """
import sys
from sluice import nn
sys.path[:0] = PATHS
from digits_net import DigitsNet
from test_global import Gpt
dist.init()

class Front(nn.Module):  # of a Gpt
    def __init__(self, net):
        super().__init__()
        self.tokens, self.positions, self.block = net.tokens, net.positions, net.blocks[0]

    def forward(self, ids):
        return self.block(self.tokens(ids) + self.positions(sl.arange(ids.shape[1])))

def digits():
    sl.manual_seed(0)
    net, rng = DigitsNet(width=4), np.random.default_rng(0)
    parts = nn.Sequential(net.stem, net.blocks[0]), nn.Sequential(net.blocks[1], net.blocks[2], net.pool, nn.Flatten(1), net.head)
    return parts, lambda: (rng.normal(size=(32, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 32))

def gpt():
    sl.manual_seed(0)
    net, rng = Gpt(), np.random.default_rng(0)
    text = lambda: rng.integers(0, 20, (16, 9))
    return (Front(net), nn.Sequential(net.blocks[1], net.norm, net.head)), lambda: (lambda t: (t[:, :-1].copy(), t[:, 1:].copy()))(text())

class Train(nn.Graph):
    def __init__(self, parts, places):
        super().__init__(name="train")
        self.parts = nn.ModuleList(parts)
        self.add_optimizer(sl.optim.AdamW(self.parts.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(8)
        self.config.set_cores(1)
        for i, (part, place) in enumerate(zip(parts, places)):
            part.to_global(place, sl.sbp.broadcast)
            part.config.set_stage(i, place)

    def build(self, x, y):
        for part in self.parts:
            x = part(x)
        loss = nn.functional.cross_entropy(x.reshape(-1, x.shape[-1]), y.reshape(-1))
        loss.backward()
        return loss

for net in (digits, gpt):
    for places in LAYS:
        parts, batch = net()
        graph = Train(parts, [sl.placement(*place) for place in places])
        data = batch()
        losses = [graph(*map(sl.tensor, data)).numpy() for _ in range(4)]
        assert losses[-1].mean() < losses[0].mean()
        print(net.__name__, *[value.item().hex() for loss in losses for value in loss])
"""


def test_the_digits_net_and_a_gpt_in_two_stages(ranks):  # GT-20, NG-30: the bits of one device
    tests = pathlib.Path(__file__).parents[1]
    source = f"PATHS = [{str(tests / 'python')!r}, {str(tests.parent / 'examples')!r}]\n" + NETS
    one = ranks(1, "LAYS = [[], [('sim', [0]), ('sim', [1])]]\n" + source)[0]
    assert one[0] == one[1] and one[2] == one[3] and one[0].startswith("digits") and one[2].startswith("gpt")
    several = ranks(2, "LAYS = [[('sim', [0]), ('sim', [1])], [('cpu', [0]), ('cpu', [1])]]\n" + source)
    assert several == [one] * 2


FAILURE = """
from sluice import nn
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # to have time to tell
dist.init()
places = [sl.placement("cpu", [i]) for i in range(2)]

class Train(nn.Graph):
    def __init__(self):
        super().__init__(name="words")
        sl.manual_seed(0)
        self.table = nn.Embedding(10, 8).to_global(places[0], sl.sbp.broadcast)
        self.head = nn.Linear(8, 4).to_global(places[1], sl.sbp.broadcast)
        for i, module in enumerate((self.table, self.head)):
            module.config.set_stage(i, places[i])
        self.add_optimizer(sl.optim.SGD([*self.table.parameters(), *self.head.parameters()], lr=0.1))
        self.config.set_gradient_accumulation_steps(4)

    def build(self, ids, y):
        loss = nn.functional.cross_entropy(self.head(self.table(ids)), y)
        loss.backward()
        return loss

graph, losses = Train(), []
for step in range(4):
    ids = np.arange(8)
    if step == 1:
        ids[5] = 99
    begin = time.monotonic()
    try:
        losses.append(graph(sl.tensor(ids), sl.tensor(np.arange(8) % 4)).numpy().mean())
    except Exception as error:
        print(type(error).__name__, str(error).partition("  (")[0], flush=True)
    assert time.monotonic() - begin < 2
assert len(losses) == 3 and losses[0] > losses[1] > losses[2]
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    graph(sl.tensor(np.arange(8)), sl.tensor(np.arange(8) % 4)).numpy()
except Exception as error:
    print(type(error).__name__, str(error).partition("  (")[0], flush=True)
assert time.monotonic() - begin < 2
"""


def test_a_failing_micro_batch_and_a_rank_that_is_gone(start):
    status, out, err = start(2, FAILURE).output()
    index = "embedding: index is out of range: 99 at position 1; it must be at least 0 and below 10"
    gone = "rank 1 is gone: its connection closed without a goodbye; it crashed or was killed"
    lines = [[line[4:] for line in out.splitlines() if line.startswith(f"[{r}] ") and "Error " in line] for r in range(2)]
    assert lines[1] == [f"RuntimeError transfer: rank 0 takes no part: {index}"], out + err
    assert lines[0] == [f"IndexError {index}", f"RuntimeError transfer: {gone}"], out + err
    assert status != 0 and "rank 1 failed first: killed by SIGKILL" in err
