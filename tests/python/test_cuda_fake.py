"""Training and inference on cuda:0 by the backend's own kernels, compiled for the host, on a driver without a GPU (tests/cuda).

The driver executes late and in any order that streams and events allow; what is not ordered, it tells at the end, by exit status 86.
"""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release")).resolve()
BACKEND = BUILD / "libsluice_cuda.so"

pytestmark = pytest.mark.skipif(not BACKEND.exists(), reason="built without the CUDA backend")

COMMON = """
import sys
import numpy as np
import sluice as sl
import sluice.nn as nn
from sluice.nn import functional as F
import json

def configure(graph, device, graphs):
    graph.config.set_device(sl.device(device))
    graph.config.enable_cuda_graphs(graphs)
    graph.config.enable_trace()

def launches(graph, step):
    graph.save_trace("trace.json")
    events = json.load(open("trace.json"))["traceEvents"]
    lane = next(e["tid"] for e in events if e["name"] == "thread_name" and "compute" in e["args"]["name"])
    return sum(e.get("cat") == "kernel" and e["tid"] == lane and e["args"]["step"] == step for e in events)
"""

DIGITS = COMMON + f"""
sys.path.insert(0, {str(ROOT / "examples")!r})
import train_digits
from digits_net import DigitsNet

train_digits.BATCH = 8

def run(device, graphs=True):
    sl.manual_seed(0)
    net = DigitsNet(width=4)
    graph = train_digits.TrainGraph(net, 4, sl.device(device))
    configure(graph, device, graphs)
    random = np.random.default_rng(0)
    images, labels = random.integers(0, 17, (4, 8, 8, 8)).astype(np.uint8), random.integers(0, 10, (4, 8))
    losses = [graph(sl.from_numpy(x), sl.from_numpy(y)).item() for x, y in zip(images, labels)]
    classify = train_digits.ClassifyGraph(net)
    configure(classify, device, graphs)
    return losses, classify(sl.from_numpy(images[0].astype(np.float32)[:, None])).numpy(), launches(graph, 3)
"""

GPT = COMMON + """
class Block(nn.Module):
    def __init__(self, words, width, heads, length):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm1, self.norm2, self.last = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout, self.head = nn.Dropout(0.1), nn.Linear(width, words, bias=False)

    def forward(self, tokens, places, mask):
        n, t = tokens.shape
        x = self.dropout(self.words(tokens) + self.places(places))
        q, k, v = self.qkv(self.norm1(x)).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        weights = F.softmax(sl.where(mask, scores, -1e9), dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, t, -1))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return self.head(self.last(x))

class Train(nn.Graph):
    def __init__(self, net, device, graphs):
        super().__init__(name="train_gpt")
        self.net = net
        self.add_optimizer(sl.optim.AdamW(net.parameters(), lr=0.01))
        configure(self, device, graphs)

    def build(self, tokens, places, mask, targets):
        loss = F.cross_entropy(self.net(tokens, places, mask).reshape(-1, 11), targets.reshape(-1))
        loss.backward()
        return loss

def run(device, graphs=True):
    sl.manual_seed(0)
    net = Block(words=11, width=16, heads=2, length=6)
    graph = Train(net, device, graphs)
    random = np.random.default_rng(0)
    places, mask = np.arange(6), np.tril(np.ones((6, 6), bool))
    losses = []
    for _ in range(4):
        text = random.integers(0, 11, (3, 7))
        losses.append(graph(*map(sl.from_numpy, (text[:, :-1].copy(), places, mask, text[:, 1:].copy()))).item())
    return losses, net.state_dict()["qkv.weight"].cpu().numpy(), launches(graph, 3)
"""

COMPARE = """
expected, got, plain = run("cpu"), run("cuda:0"), run("cuda:0", graphs=False)
print(expected[0], got[0], "launches", plain[2], "->", got[2])
assert plain[0] == got[0]
np.testing.assert_array_equal(plain[1], got[1])
assert got[2] < plain[2] / 10
np.testing.assert_allclose(got[0], expected[0], rtol=0, atol=1e-5)
np.testing.assert_allclose(got[1], expected[1], rtol=0, atol=1e-4)
print("equal")
"""
MODEL = GPT + """
sl.manual_seed(0)
net = Block(words=11, width=16, heads=2, length=6)
class Run(nn.Graph):
    def __init__(self):
        super().__init__(name="run")
        self.net = net
        self.config.set_device(sl.device("cuda:0"))
    def build(self, tokens, places, mask):
        return self.net(tokens, places, mask)
graph = Run()
random = np.random.default_rng(0)
graph(*map(sl.from_numpy, (random.integers(0, 11, (3, 6)), np.arange(6), np.tril(np.ones((6, 6), bool)))))
products = [k["name"] for k in graph.plan["kernels"] if k["op"] in ("matmul", "linear")]
"""


@pytest.fixture
def run_on_gpu(run_script):
    def run(source, **env):
        tests = BUILD / "tests/cuda"
        done = run_script(source, timeout=600, **{
            "SLUICE_CUDA_LIBRARY": str(BACKEND), "SLUICE_CUDA_DRIVER": str(tests / "libfake_cuda.so"),
            "SLUICE_NVRTC": str(tests / "libfake_nvrtc.so"), "SLUICE_CUBLASLT": str(tests / "libfake_cublaslt.so"),
            "SLUICE_CUDNN": str(tests / "libfake_cudnn.so"),
            "SLUICE_CACHE_DIR": str(tests / "programs"), **env})
        assert done.returncode == 0, done.stdout + done.stderr
        assert "not as a CUDA graph" not in done.stderr, done.stderr
        return done.stdout

    return run


FUSED = """
def kernels(**options):
    sl.manual_seed(0)
    net = Block(words=11, width=16, heads=2, length=6)
    graph = Train(net, "cuda:0", graphs=True)
    for name in options.get("without", ()):
        graph.config.disable_pass(name)
    text, mask = np.random.default_rng(0).integers(0, 11, (3, 7)), np.tril(np.ones((6, 6), bool))
    losses = [graph(*map(sl.from_numpy, (text[:, :-1].copy(), np.arange(6), mask, text[:, 1:].copy()))).item() for _ in range(3)]
    return losses, net.state_dict()["qkv.weight"].cpu().numpy(), graph.plan["kernels"]

losses, weight, fused = kernels()
others, same, apart = kernels(without=["fuse_elementwise"])
assert losses == others and np.array_equal(weight, same), (losses, others)
steps = [len(k["attrs"]["body"]["graph"]["calls"]) for k in fused if k["op"] == "fused"]
assert steps and min(steps) >= 2 and len(apart) == len(fused) + sum(steps) - len(steps), (steps, len(apart), len(fused))
assert not any(k["op"] == "fused" for k in apart)
print("equal")
"""


# A gradient that has been added up is told of, so the backward pass is as many launches.
BATCHES = COMMON + """
class Train(nn.Graph):
    def __init__(self, net, device, graphs):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(sl.optim.AdamW(net.parameters(), lr=0.01))
        self.config.set_gradient_accumulation_steps(3)
        configure(self, device, graphs)

    def build(self, x, y):
        scores = self.net(x)
        loss = F.cross_entropy(scores, y)
        loss.backward()
        return loss, scores

def run(device, graphs=True):
    sl.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    graph = Train(net, device, graphs)
    random = np.random.default_rng(0)
    losses = []
    for _ in range(4):
        loss, scores = graph(sl.from_numpy(random.normal(size=(12, 8)).astype(np.float32)), sl.from_numpy(random.integers(0, 4, 12)))
        losses += loss.tolist() + scores.flatten().tolist()
    return losses, net.state_dict()["0.weight"].cpu().numpy(), launches(graph, 3)

expected, got, plain = run("cpu"), run("cuda:0"), run("cuda:0", graphs=False)
assert plain[0] == got[0] and np.array_equal(plain[1], got[1])
assert got[2] < plain[2] / 2, (got[2], plain[2])
np.testing.assert_allclose(got[0], expected[0], rtol=0, atol=1e-5)
np.testing.assert_allclose(got[1], expected[1], rtol=0, atol=1e-4)
print("equal")
"""


def test_gradients_of_micro_batches_are_added_up_on_a_gpu(run_on_gpu):
    assert run_on_gpu(BATCHES).endswith("equal\n")


@pytest.mark.parametrize("source", [DIGITS, GPT], ids=["digits", "gpt"])
def test_training_on_a_gpu_equals_the_cpus(run_on_gpu, source):
    assert run_on_gpu(source + COMPARE).endswith("equal\n")


TRIALS = COMMON + """
from sluice import info

net = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 4, 3)).half()
x = sl.from_numpy(np.random.default_rng(0).normal(size=(2, 4, 7, 6)).astype(np.float16))

class Infer(nn.Graph):
    def __init__(self, **options):
        super().__init__(name="infer")
        self.net = net
        self.config.set_device(sl.device("cuda:0"))
        for name, mode in options.items():
            getattr(self.config, name)(mode)

    def build(self, x):
        return self.net(x)

def run(**options):
    graph = Infer(**options)
    y = graph(x).numpy()
    return y, [k["attrs"] for k in graph.plan["kernels"] if "conv" in k["op"]]

usual, attrs = run(enable_cudnn_conv_heuristic_search_algo=True, cudnn_conv_use_deterministic_algo_only=True)
assert len(attrs) == 2 and not any({"implementation", "deterministic"} & set(a) for a in attrs)
assert info.kernel_trials()["searches"] == 0
mark = sl._C.kernel_trials_used()
tried, attrs = run(enable_cudnn_conv_heuristic_search_algo=False)
np.testing.assert_allclose(tried, usual, rtol=1e-2, atol=1e-3)
trials = sl._C.kernel_trials(mark)
assert info.kernel_trials()["searches"] == len(trials) == 2
for (_, candidates, chosen), kernel in zip(trials, attrs):
    assert [name for name, _ in candidates] == ["engine 67", "engine 1"]
    assert kernel.get("implementation", "") == chosen
    (_, usual_ns), (best, best_ns) = candidates[0], min(candidates, key=lambda c: c[1])
    assert chosen == (best if best_ns < 0.97 * usual_ns else "")  # what is nearer to the usual one may be chance
varying = Infer(cudnn_conv_use_deterministic_algo_only=False)
varying.compile(x)  # the fake's engine that varies computes nonsense
assert [k["attrs"]["deterministic"] for k in varying.plan["kernels"] if "conv" in k["op"]] == [False, False]
print("tried")
"""


def test_convolutions_are_tried_on_a_gpu(run_on_gpu):  # CFG-09, CFG-11
    assert run_on_gpu(TRIALS).endswith("tried\n")


def test_a_graph_tells_which_kernels_are_a_librarys(run_on_gpu):
    told = run_on_gpu(MODEL + 'print(graph.stats()["libraries"] == {name: "cuBLASLt" for name in products}, len(products))')
    assert told == "True 7\n"
    assert run_on_gpu(MODEL + 'print(graph.stats()["libraries"])', SLUICE_CUBLASLT="off") == "{}\n"


def test_info_names_the_libraries_of_a_gpu(run_on_gpu):
    info = "import sluice.info as info; print(info.as_dict()['devices']['cuda:0'])"
    assert run_on_gpu(info).strip().endswith(", cuBLASLt 13.99.0")
    assert run_on_gpu(info, SLUICE_CUBLASLT="off").strip().endswith(", cuBLASLt (absent: generated kernels multiply)")
    missing = run_on_gpu("import sluice.info as info; print(info.as_dict()['devices']['cuda:0'])\n" + COMMON + """
class Net(nn.Graph):
    def build(self, x):
        with sl.device("cuda:0"):
            return x @ x
for _ in range(2):
    try:
        Net()(sl.ones(2, 2))
    except NotImplementedError as error:
        print(error)
""", SLUICE_CUBLASLT="/nonexistent.so")
    assert "cuBLASLt (could not be loaded)" in missing
    assert missing.count("cuBLASLt, which multiplies matrices on the GPU, could not be loaded: /nonexistent.so") == 2


STRIDED = COMMON + """
class Net(nn.Graph):
    def build(self, x):
        with sl.device("cuda:0"):
            y = x[:, ::2].transpose(0, 1) + 1
        return y[:, ::3] * 2

x = np.arange(48, dtype=np.float32).reshape(6, 8)
np.testing.assert_array_equal(Net()(sl.from_numpy(x)).numpy(), (x[:, ::2].T + 1)[:, ::3] * 2)
print("equal")
"""


def test_what_does_not_lie_dense_is_packed_before_it_is_copied(run_on_gpu):
    assert run_on_gpu(STRIDED).endswith("equal\n")


def test_chains_of_elementwise_ops_are_one_kernel_and_give_the_same_bits(run_on_gpu):
    assert run_on_gpu(GPT + FUSED).endswith("equal\n")


# 66 parameters: 64 to an op, whose kernel is two launches.
UPDATES = COMMON + """
OPTIMIZERS = {
    "sgd": lambda p: sl.optim.SGD(p, lr=0.1),
    "momentum": lambda p: sl.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adamw": lambda p: sl.optim.AdamW([{"params": p, "clip_grad_max_norm": 0.1}], lr=0.01),
    "amsgrad": lambda p: sl.optim.Adam(p, lr=0.01, amsgrad=True, maximize=True),
}

class Train(nn.Graph):
    def __init__(self, net, optimizer, amp, options):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(OPTIMIZERS[optimizer](net.parameters()))
        self.config.set_device(sl.device("cuda:0"))
        if amp:
            self.config.enable_amp(dtype=sl.bfloat16)
        for option in options:
            getattr(self.config, option)()

    def build(self, x, y):
        loss = F.cross_entropy(self.net(x), y)
        loss.backward()
        return loss

def run(layers, optimizer, amp, *options):
    sl.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(5, 5) for _ in range(layers)])
    graph = Train(net, optimizer, amp, options)
    random = np.random.default_rng(0)
    losses = [graph(sl.from_numpy(random.normal(size=(12, 5)).astype(np.float32)), sl.from_numpy(random.integers(0, 5, 12))).item()
              for _ in range(3)]
    updates = [k for k in graph.plan["kernels"] if k.get("role") == "update" and k["op"].endswith("update")]
    calls = [[call["op"] for call in k["attrs"]["body"]["graph"]["calls"]] + [k["attrs"]["copy"]] for k in updates
             if k["op"] == "multi_update"]
    return (losses, [p.detach().cpu().numpy().tobytes() for p in net.parameters()]), len(updates), calls

together, scaled, copies = "enable_multi_tensor_update", "allow_fuse_model_update_ops", "enable_fused_model_update_cast"
for optimizer in OPTIMIZERS:
    plain, kernels, none = run(33, optimizer, False)
    got, fewer, calls = run(33, optimizer, False, together, scaled)
    assert got == plain and kernels == 66 and fewer == len(calls) == 2 and not none, (optimizer, kernels, fewer)
    assert all(steps[0] == "mul" for steps in calls) == (optimizer == "adamw"), calls  # clipping
    plain, kernels, none = run(3, optimizer, True)
    got, fewer, calls = run(3, optimizer, True, together, scaled, copies)
    assert got == plain and kernels == fewer == len(calls) == 6 and not none, (optimizer, kernels, fewer, calls)
    assert all(steps[0] in ("cast", "mul") and steps[-1] == "bfloat16" for steps in calls), calls
print("equal")
"""


def test_updates_of_many_parameters_are_one_kernel_and_give_the_same_bits(run_on_gpu):  # CFG-06, CFG-07, CFG-08
    assert run_on_gpu(UPDATES).endswith("equal\n")


ATTENTION = COMMON + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 4)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, 32))

class Train(nn.Graph):
    def __init__(self, net, cudnn):
        super().__init__(name="train")
        self.net = net
        self.add_optimizer(sl.optim.AdamW(net.parameters(), lr=0.01))
        self.config.set_device(sl.device("cuda:0"))
        self.config.enable_amp(dtype=sl.bfloat16)
        self.config.enable_cudnn_attention(cudnn)

    def build(self, x, y):
        loss = F.cross_entropy(self.net(x).reshape(-1, 4), y.reshape(-1))
        loss.backward()
        return loss

def run(cudnn):
    sl.manual_seed(0)
    graph = Train(Net(), cudnn)
    random = np.random.default_rng(0)
    losses = [graph(sl.from_numpy(random.normal(size=(3, 6, 32)).astype(np.float32)), sl.from_numpy(random.integers(0, 4, (3, 6)))).item()
              for _ in range(4)]
    kernels = {k["name"]: k["op"] for k in graph.plan["kernels"]}
    return losses, sorted(kernels[name] for name, library in graph.stats()["libraries"].items() if library == "cuDNN")

(losses, ops), (plain, none) = run(True), run(False)
assert ops == ["attention", "attention_backward"] and none == [], (ops, none)
np.testing.assert_allclose(losses, plain, rtol=2e-3)
print("equal")
"""


def test_attention_is_cudnns_where_asked(run_on_gpu):
    assert run_on_gpu(ATTENTION).endswith("equal\n")


def test_training_without_cudnn_equals_the_cpus(run_on_gpu):
    assert run_on_gpu(DIGITS + COMPARE, SLUICE_CUDNN="off").endswith("equal\n")


def test_what_cudnn_refuses_names_the_op_and_its_line(run_on_gpu):
    told = run_on_gpu(COMMON + """
class Net(nn.Graph):
    def build(self, x, w):
        with sl.device("cuda:0"):
            return F.conv2d(x, w)  # this line
net, x, w = Net(), sl.ones(1, 2, 4, 4), sl.ones(3, 2, 2, 2)
print(net(x, w).numpy().max())
try:
    print(net(x, w).numpy())
except RuntimeError as error:
    print(error)
print(net(x, w).numpy().max())
""", FAKE_CUDNN_FAILS="2")
    first, error, third = told.splitlines()
    assert (first, third) == ("8.0", "8.0")
    assert error.startswith("conv: cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED: ") and "conv" in error and ".py:" in error, error


def test_info_names_cudnn(run_on_gpu):
    info = "import sluice.info as info; print(info.as_dict()['devices']['cuda:0'])"
    assert ", cuDNN 9." in run_on_gpu(info)
    assert ", cuDNN (absent: generated kernels convolve)" in run_on_gpu(info, SLUICE_CUDNN="off")
    assert ", cuDNN (could not be loaded)" in run_on_gpu(info, SLUICE_CUDNN="/nowhere.so")
