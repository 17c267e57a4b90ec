"""sluice.compile: backends, modes, options, their errors, and torch's other names for it."""

import subprocess
import sys

import pytest
import torch

import sluice as sl
from sluice import nn
from sluice._compile import autotune


@pytest.fixture(autouse=True)
def anew():
    sl.compile.reset()


def test_a_callable_gets_the_graph_and_example_inputs_and_its_options():
    got = []

    def backend(graph, inputs, **asked):
        got.append((graph.ops(), [tuple(t.shape) for t in inputs], asked))
        assert 'input "tensors.0" : float32(1, 4)' in graph.text() and graph.text() == str(graph)
        return graph.forward

    net, x = nn.Linear(4, 2), sl.ones(1, 4)
    compiled = sl.compile(net, backend=backend, options={"foo": 1})
    assert sl.allclose(compiled(x), net(x), atol=1e-6)
    compiled(x).sum().backward()
    assert got == [(["linear"], [(1, 4)], {"options": {"foo": 1}})] and net.weight.grad is not None


def test_what_a_backend_gives_is_what_calls_give():
    compiled = sl.compile(lambda x: x + 1, backend=lambda graph, inputs: lambda x: [x * 10])
    assert compiled(sl.ones(1)).item() == 10


@pytest.mark.parametrize("backend, message", [
    (lambda graph, inputs: None, "compile: backend '<lambda>': returned NoneType; must return a callable"),
    (lambda graph, inputs: lambda *given: [], "compile: backend '<lambda>': its callable gave 0 outputs; the graph has 1"),
    (lambda graph: None, "compile: backend '<lambda>': raised TypeError: ")])
def test_what_a_backend_does_wrong_is_told(backend, message):
    with pytest.raises(RuntimeError) as error:
        sl.compile(lambda x: x + 1, backend=backend)(sl.ones(1))
    assert str(error.value).startswith(message)


def test_backends_have_names():
    assert set(sl.compile.list_backends()) >= {"plan", "eager", "debug"} and sl.compiler.list_backends() == sl.compile.list_backends()

    @sl.compile.register_backend(name="tenfold")
    def other(graph, inputs):
        return lambda *given: [t * 10 for t in graph(*given)]

    assert "tenfold" in sl.compile.list_backends()
    assert sl.compile(lambda x: x + 1, backend="tenfold")(sl.ones(1)).item() == 20
    eager = sl.compile(lambda x: x + x.sum().item(), backend="eager", fullgraph=True)
    assert eager(sl.ones(1)).item() == 2 and sl.compile.stats(eager)["compiles"] == 0
    assert sl.compile(lambda x: x + 1, backend="inductor")(sl.ones(1)).item() == 2


ERRORS = [({"backend": "nope"}, ValueError, "compile: backend: got 'nope'; must be a callable or one of 'debug', 'eager', 'plan'"),
          ({"mode": "fast"}, ValueError, "compile: mode: got 'fast'; must be one of 'default', 'reduce-overhead', 'max-autotune'"),
          ({"options": {"nope": 1}}, ValueError, "compile: options: got 'nope'; keys are 'recompile_limit', 'max_size', 'fallback_random', "
                                                 "'outputs_buffer_size', 'cores'"),
          ({"options": {"recompile_limt": 1}}, ValueError, "(did you mean 'recompile_limit'?)"),
          ({"options": {"recompile_limit": 0}}, ValueError, "compile: options: recompile_limit is 0; must be an int of at least 1"),
          ({"options": [1]}, TypeError, "compile: options: got list; must be a dict"),
          ({"dynamic": 1}, TypeError, "compile: dynamic: got 1; must be True, False or None"),
          ({"fullgraph": "yes"}, TypeError, "compile: fullgraph: got 'yes'; must be a bool")]


@pytest.mark.parametrize("given, kind, message", ERRORS, ids=[m[:40] for _, _, m in ERRORS])
def test_wrong_arguments_are_named(given, kind, message):
    for compile in (lambda **given: sl.compile(**given), lambda **given: sl.compile(lambda x: x, **given)):
        with pytest.raises(kind) as error:
            compile(**given)
        assert message in str(error.value)
    with pytest.raises(kind, match="Module.compile: "):
        nn.Linear(1, 1).compile(**given)


def test_only_functions_and_modules_are_compiled():
    for model, what in ((3, "int"), (nn.Linear, "the class Linear")):
        with pytest.raises(TypeError, match=f"compile: model: got {what}; must be a function or a module"):
            sl.compile(model)
    with pytest.raises(TypeError, match=r"compile.stats: got int; must be what compile\(\) returned"):
        sl.compile.stats(3)
    with pytest.raises(TypeError, match="explain: model: got int; must be a function or a module"):
        sl.compile.explain(3, 4)


def test_disable_gives_the_model_itself():
    net = nn.Linear(1, 1)
    assert sl.compile(net, disable=True) is net

    @sl.compile(disable=True)
    def f(x):
        return x.sum().item()

    assert f(sl.ones(1)) == 1
    again = sl.compile(sl.compile(lambda x: x + 1))
    assert again(sl.ones(1)).item() == 2 and sl.compile.stats()["compiles"] == 1


class Wrong(nn.Module):
    def forward(self, x):
        return x * (2 if sl.jit.is_tracing() else 1)


def test_debug_compares_every_call():
    net = sl.compile(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()), backend="debug")
    for n in range(1, 4):
        net(sl.randn(3, 4)).sum().backward()
        assert net[1].num_batches_tracked == n


def test_debug_names_the_first_module_that_differs():
    net = sl.compile(nn.Sequential(nn.Linear(4, 4), Wrong(), nn.Tanh()), backend="debug")
    with pytest.raises(RuntimeError, match=r"compile: backend='debug': 'Sequential': result 0 of the plan differs from eager code by "
                                           r"0\.\d+; the first module whose result differs is 1 \(Wrong\)"):
        net(sl.ones(1, 4))
    with pytest.raises(RuntimeError, match="'<lambda>': result 0 of the plan differs from eager code by .*; it calls no module whose"):
        sl.compile(lambda x: x * (2 if sl.jit.is_tracing() else 1), backend="debug")(sl.ones(1))


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune"])
def test_modes_compute_the_same(mode):
    net = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    compiled = sl.compile(net, mode=mode)
    for step in range(3):
        x = sl.randn(5, 6)
        before = {k: v.clone() for k, v in net.state_dict().items()}
        made = compiled(x)
        ours = sl.autograd.grad(made.sum(), list(net.parameters()))
        after = {k: v.clone() for k, v in net.state_dict().items()}
        net.load_state_dict(before)
        assert sl.allclose(made, net(x), atol=1e-5)
        assert all(sl.allclose(after[k].float(), v.float()) for k, v in net.state_dict().items())
        theirs = sl.autograd.grad(net(x).sum(), list(net.parameters()))
        assert all(sl.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs))
    assert sl.compile.stats(compiled)["compiles"] == 1


def test_reduce_overhead_copies_no_result():
    x, f = sl.randn(64, 64), lambda x: (x + 1, x * 2)
    memory = []
    for mode in ("default", "reduce-overhead"):
        compiled = sl.compile(f, mode=mode)
        results = [compiled(x) for _ in range(5)]
        assert all(sl.equal(a, x + 1) and sl.equal(b, x * 2) for a, b in results)
        (program,) = compiled._region.all_programs()
        memory.append(program._graph._call.session.session_memory()[0])
        exchanged = memory[-1]["inputs"] + memory[-1]["outputs"]
        told = f"memory of the forward plan beside weights: {memory[-1]['arenas'] + exchanged} bytes, {exchanged} of them for inputs and results"
        assert any(note.startswith(told) for note in program.notes())
    assert memory[1]["arenas"] < memory[0]["arenas"] and memory[1]["outputs"] > memory[0]["outputs"]


def test_max_autotune_lists_what_it_tried_and_takes_the_default_unless_another_is_faster(monkeypatch):
    seconds = iter([1.0, 0.98, 0.5, 2.0])
    monkeypatch.setattr(autotune, "candidates", lambda: [("default", {}), ("a", {"pack_weights": False}), ("b", {"in_place": False})])
    monkeypatch.setattr(autotune, "_seconds", lambda *args: next(seconds))
    notes = str(sl.compile.explain(sl.compile(nn.Linear(2, 2), mode="max-autotune"), sl.ones(1, 2)))
    assert "tried: default: 1000000.0 us\n" in notes and "tried: b: 500000.0 us, taken" in notes
    seconds = iter([1.0, 0.98, 0.99])
    notes = str(sl.compile.explain(sl.compile(nn.Linear(2, 2), mode="max-autotune"), sl.ones(1, 2)))
    assert "tried: default: 1000000.0 us, taken" in notes


def test_torchs_names():
    assert sl.compiler.compile is sl.compile and sl._dynamo.reset is sl.compile.reset and sl._dynamo.explain is sl.compile.explain
    compiled = sl._dynamo.optimize("plan", nopython=True)(lambda x: x + 1)
    assert compiled(sl.ones(1)).item() == 2 and compiled._region.settings.fullgraph
    told = sl._dynamo.explain(lambda x: x + 1)(sl.ones(1))
    assert told.graph_count == 1 and told.graph_break_count == 0 and told.op_count == 1
    sl.compiler.reset()
    assert not sl.compiler.is_compiling() and sl.compiler.allow_in_graph(abs) is abs
    sl.compiler.cudagraph_mark_step_begin()


def test_saved_bytes_are_at_most_those_of_eager_code():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(288, 5))
    x, kept = sl.randn(2, 3, 8, 8), {}

    def pack(t):
        kept[t.data_ptr()] = t.numel() * t.element_size()
        return t

    with sl.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        net(x)
    known = {t.data_ptr() for t in (x, *net.parameters())}
    (graph,) = sl.compile.explain(net, x).graphs
    assert 0 < graph["saved_bytes"] <= sum(n for at, n in kept.items() if at not in known)
    assert "conv_weight_grad" in graph["backward_ops"]


def test_a_program_of_torch_is_compiled_by_its_own_line():
    program = """
import TORCH as torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
net = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.arange(12.0).reshape(3, 4) / 12
for _ in range(5):
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
print(f"{loss.item():.5f}")
"""
    outputs = [subprocess.run([sys.executable, "-c", program.replace("TORCH", name).replace("torch.compile(net)", call)], capture_output=True,
                              text=True, check=True).stdout for name, call in (("sluice", "torch.compile(net)"), ("torch", "net"))]
    assert outputs[0] == outputs[1] and torch.__version__
