"""benchmarks/peers, so that it does not rot: tiny nets, and that both sides compute the same."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import sluice

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "benchmarks/peers"

pytestmark = pytest.mark.skipif(not PEERS.exists(), reason="the benchmarks are not here")
if PEERS.exists():
    sys.path[:0] = [str(PEERS), str(ROOT / "benchmarks/gpu")]
    from workloads import PROMPT, WORKLOADS, made, optimizer  # noqa: E402

    FULL = [work for work in WORKLOADS if work.precision == "fp32"]
else:
    FULL = []


def run(*arguments):
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sluice.__file__)), *sys.path])
    done = subprocess.run([sys.executable, PEERS / "peers.py", *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": path})
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def test_a_line_says_how_far_the_limits_are(tmp_path):
    table = tmp_path / "peers.md"
    status, lines, told = run("bert.infer.b1", "--tiny", "--rounds", "2", "--seconds", "0.01", "--peers", "eager", "--out", str(table))
    assert status == 0, told
    by_name = {line["name"]: line for line in lines}
    assert set(by_name) == {"peak.fp32", "peak.bf16", "bert.infer.b1.fp32", "bert.infer.b1.bf16"}
    also, peak = by_name["bert.infer.b1.fp32"]["also"], by_name["peak.fp32"]
    assert also["gflops"] > 0 and also["of_peak"] == pytest.approx(also["gflops"] / max(peak["ours"], peak["peer"]), rel=0.1, abs=0.001)
    assert sum(also["parts"].values()) == pytest.approx(1, abs=0.01) and also["parts"]["matrix"] > 0
    rows = table.read_text().splitlines()
    assert len(rows) == 6 and len({row.count("|") for row in rows[2:]}) == 1


def test_flops_of_an_lstm_are_those_of_its_products(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(PEERS))
    import peers
    work = next(work for work in peers.WORKLOADS if work.net == "lstm")
    from torch.utils.flop_counter import FlopCounterMode
    rows, width = 4 * 32, 16  # of the tiny one
    x, weight = torch.randn(rows, width), torch.randn(width, 4 * width, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        (x @ weight).sum().backward()  # by input, of the first layer: nobody asks for the gradient of x
    first = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        (x.requires_grad_() @ weight).sum().backward()
    assert peers.flops(work, tiny=True) == first + 3 * counter.get_total_flops()


def test_other_lines():
    status, lines, told = run("packing.", "--tiny")
    assert status == 0, told
    assert {line["name"] for line in lines} == {f"packing.{net}" for net in ("resnet50.infer", "resnet50.train", "bert.train", "gpt2.train")}
    assert all(line["ratio"] > 0.9 for line in lines)


def test_unknown_peers_are_refused():
    status, _, told = run("--peers", "onnx,eager")
    assert status == 2 and "--peers: got onnx,eager; must be eager and some of eager, channels_last" in told


@pytest.mark.parametrize("work", FULL, ids=lambda work: work.name)
def test_both_sides_compute_the_same(work):
    import sides

    net, x, y = made(torch, work, True)
    graph, inputs = sides.sluice_graph(work, True, search=False)
    second = graph(*inputs)
    if work.kind == "train":
        sgd = optimizer(torch, work, net)
        for _ in range(2):
            sgd.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            sgd.step()
        expected = loss.detach()
    elif work.kind == "infer":
        with torch.no_grad():
            expected = net.eval()(x)
    else:
        tokens, words = x[:, :PROMPT], net.words.weight.shape[0]
        with torch.no_grad():
            while tokens.shape[1] < PROMPT + second.shape[1]:
                rest = tokens.new_zeros(work.batch, x.shape[1] - tokens.shape[1])  # not seen by what is before
                logits = net(torch.cat([tokens, rest], 1)).reshape(work.batch, -1, words)
                tokens = torch.cat([tokens, logits[:, tokens.shape[1] - 1].argmax(1, keepdim=True)], 1)
        expected = tokens[:, PROMPT:]
    assert second.shape == expected.shape
    torch.testing.assert_close(torch.from_numpy(second.detach().numpy()), expected, rtol=1e-4, atol=1e-5)
