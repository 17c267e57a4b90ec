"""Inputs whose memory a call takes for good (config.donate_inputs): the result has it, in every kind of call."""

import asyncio
import gc

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn
from test_graph_threads import in_threads
from donating import LOST, Update, donating, kept, pair, refused

MIB = 1 << 20


def test_the_ledger_drops_by_what_is_donated():  # JAX-04
    params, grad = pair(4 * MIB // 4)
    size = {}
    for name, graph in (("kept", Update()), ("donated", donating())):
        graph.compile(params, grad)
        memory, session = graph.memory(), graph._call.session.session_memory()
        assert memory["argument"] + memory["output"] + memory["temp"] + memory["variables"] + memory["constants"] + memory["packed"] == memory["total"]
        size[name] = memory["total"], sum(space["arenas"] + space["inputs"] + space["outputs"] for space in session)
        assert memory["alias"] == (4 * MIB if name == "donated" else 0)
        planned = sum(arena["bytes"] for arena in graph.plan["arenas"])
        size[name] += (planned,)
    for before, after in zip(size["kept"], size["donated"]):
        assert before - after >= 4 * MIB, size
    # For each of two steps in flight two inputs, the result, and what its caller gets; then nothing but the constant.
    constant = 64
    assert size["kept"] == (24 * MIB + constant, 32 * MIB, 24 * MIB)
    assert size["donated"] == (constant, 0, 16 * MIB)


def test_the_result_is_the_donated_memory():  # JAX-04
    graph = donating()
    params, grad = pair(MIB // 4, 100.0)
    memory = params.data_ptr()
    graph.compile(params, grad)
    for i in range(1, 51):
        params = graph(params, grad)
        assert params.data_ptr() == memory
        np.testing.assert_allclose(params[:3].numpy(), 100 - 0.1 * i, rtol=1e-5)
    graph.synchronize()
    counters = graph.counters()
    assert counters["input_copies"] == 50, "grad, each time"
    assert counters["output_copies"] == 0


def test_steady_state_takes_no_memory():  # JAX-04
    graph = Update("params", "grad")
    params, grad = pair(MIB // 4)
    for _ in range(5):
        params = graph(params, grad)
        grad = sl.ones(MIB // 4)
    graph.synchronize()
    before = sl._C.memory_stats("host")
    for _ in range(50):
        params = graph(params, grad)
        grad = sl.ones(MIB // 4)  # takes the memory that the step before has let go of
    graph.synchronize()
    assert params.shape == (MIB // 4,)
    after = sl._C.memory_stats("host")
    assert after["current_bytes"] == before["current_bytes"] and after["peak_bytes"] == before["peak_bytes"]
    assert graph.counters()["input_copies"] == 0


def test_memory_that_no_result_takes_is_free_after_the_step():
    class Norm(nn.Graph):
        def build(self, x):
            return (x * x).sum()

    graph = Norm(name="norm")
    graph.config.donate_inputs("x")
    x = sl.full((MIB,), 2.0)
    assert graph(x).item() == 4 * MIB
    graph.synchronize()
    gc.collect()
    with pytest.raises(RuntimeError, match="was donated to graph 'norm' as argument 'x'"):
        x.sum()
    for _ in range(20):
        assert graph(sl.full((MIB,), 1.0)).item() == MIB
    assert graph.counters()["input_copies"] == 0


def test_a_later_kernel_may_write_where_the_input_lay():
    class Net(nn.Graph):
        def build(self, x, w):
            return (x @ w).softmax(-1) @ w  # no kernel of it works in place of x

    x, w = sl.tensor(np.random.default_rng(0).standard_normal((64, 64), np.float32)), sl.eye(64)
    expected = Net()(x, w).numpy().copy()
    graph = Net(name="net")
    graph.config.donate_inputs("x")
    memory = x.data_ptr()
    y = graph(x, w)
    assert y.data_ptr() == memory
    np.testing.assert_array_equal(y.numpy(), expected)


def test_an_optimizer_by_hand_keeps_all_its_state_in_place():
    class Adam(nn.Graph):
        def build(self, state, grad):
            m = 0.9 * state["m"] + 0.1 * grad
            v = 0.99 * state["v"] + 0.01 * grad * grad
            return {"p": state["p"] - 0.1 * m / (v.sqrt() + 1e-6), "m": m, "v": v}

    def run(graph, steps=20):
        state = {"p": sl.full((4096,), 3.0), "m": sl.zeros(4096), "v": sl.zeros(4096)}
        grad, where = sl.linspace(-1, 1, 4096), sorted(t.data_ptr() for t in state.values())
        for _ in range(steps):
            state = graph(state, grad)
        graph.synchronize()
        return {name: t.tolist() for name, t in state.items()}, where == sorted(t.data_ptr() for t in state.values())

    graph = Adam(name="adam")
    graph.config.donate_inputs("state")
    expected, _ = run(Adam())
    got, same_memory = run(graph)
    assert got == expected and same_memory
    assert graph.counters()["output_copies"] == 0


def test_many_in_flight_each_with_memory_of_its_own():
    graph = donating(setup=lambda c: c.set_outputs_buffer_size(4))
    grad = sl.ones(1024)
    states = [sl.full((1024,), float(i)) for i in range(12)]
    where = [s.data_ptr() for s in states]
    for _ in range(10):
        states = [graph(s, grad) for s in states]
    for i, s in enumerate(states):
        np.testing.assert_allclose(s.numpy(), i - 1, atol=1e-4)
    assert where == [s.data_ptr() for s in states]


def test_threads_donate_different_tensors(count):  # JAX-04
    graph = donating(setup=lambda c: c.set_outputs_buffer_size(3))
    graph.compile(*pair())
    rounds = 100

    def work(k):
        state, grad = sl.full((1024,), 1000.0 * k), sl.ones(1024)
        where = state.data_ptr()
        for i in range(rounds):
            old, state = state, graph(state, grad)
            with pytest.raises(RuntimeError, match=LOST):
                old.tolist()
        assert state.data_ptr() == where
        np.testing.assert_allclose(state.numpy(), 1000 * k - 0.1 * rounds, atol=1e-2)

    in_threads(4, work)
    count("steps with donated inputs of four threads", 4 * rounds, "steps")
    assert graph.counters()["output_copies"] == 0


def test_of_threads_that_donate_one_tensor_one_has_it():  # JAX-04
    graph = donating()
    graph.compile(*pair())
    for _ in range(30):
        params, grad = pair()
        got = []

        def work(k):
            try:
                got.append(graph(params, grad).tolist() == [np.float32(0.9)] * 1024)
            except RuntimeError as error:
                assert "was donated to graph 'update'" in str(error)
                got.append(None)

        in_threads(3, work)
        assert sorted(got, key=str) == [None, None, True]


def test_micro_batches_take_rows_or_say_why_not():
    class Rows(nn.Graph):
        def build(self, x):
            return x * 2

    for row in (16, 3):
        graph = Rows(name="rows")
        graph.config.set_gradient_accumulation_steps(4)
        graph.config.donate_inputs("x")
        x = sl.ones(4, row)
        if row == 3:  # of 12 bytes
            with pytest.raises(NotImplementedError, match="argument 'x' cannot be donated: its parts are not each contiguous at a multiple of 64 bytes"):
                graph(x)
            assert x.tolist() == [[1.0] * 3] * 4
        else:
            assert graph(x).tolist() == [[2.0] * row] * 4
            assert graph.counters()["input_copies"] == 0
            with pytest.raises(RuntimeError, match="was donated"):
                x.tolist()


@pytest.mark.parametrize("shared", [True, False])
def test_a_plan_per_shape(shared):
    @nn.Graph.with_dynamic_input_shape(enable_shared=shared)
    class Any(Update):
        pass

    graph = Any("params")
    for _ in range(3):
        for n in (1024, 64, 256):
            params, grad = pair(n)
            where = params.data_ptr()
            result = graph(params, grad)
            assert result.data_ptr() == where
            kept(result, np.float32(0.9))
            with pytest.raises(RuntimeError, match=LOST):
                params.tolist()
    assert len(graph.members) == 3 and graph.memory()["total"] == 3 * 64, "a constant of each"


def test_families_with_exact_dims_only():
    def with_dims(**fit):
        n = sl.Dim("n", max=64, buckets=[16, 32, 64], **fit)
        return donating(setup=lambda c: c.set_dims({"params": {0: n}, "grad": {0: n}}))

    graph = with_dims(fit="exact")
    for n in (16, 64, 32):
        params, grad = pair(n)
        where = params.data_ptr()
        result = graph(params, grad)
        kept(result, np.float32(0.9))
        assert result.data_ptr() == where
        with pytest.raises(RuntimeError, match=LOST):
            params.tolist()
    for fit, why in (("pad", "its axis 0 is filled up"), ("split", "calls are split along dim 'n'")):
        params, grad = pair(16)
        refused(with_dims(fit=fit), params, grad, why, NotImplementedError)


def test_dims_may_be_of_other_arguments():
    class G(nn.Graph):
        def build(self, state, x):
            return state + 1, x * 2

    graph = G(name="g")
    graph.config.set_dims({"x": {0: sl.Dim("n", max=8, buckets=[3, 5, 8], fit="exact")}})
    graph.config.donate_inputs("state")
    state = sl.zeros(32)
    where = state.data_ptr()
    for i, n in enumerate((3, 8, 5)):
        state, y = graph(state, sl.ones(n))
        assert y.tolist() == [2.0] * n and state.tolist() == [i + 1.0] * 32 and state.data_ptr() == where


def test_a_graph_on_a_device_takes_the_hosts_memory():
    graph = donating(setup=lambda c: c.set_device("sim:0"))
    params, grad = pair()
    kept(graph(params, grad), np.float32(0.9))
    assert graph.counters()["input_copies"] == 1, "grad"
    with pytest.raises(RuntimeError, match=LOST):
        params.tolist()


def test_global_arguments_are_refused():
    mesh = sl.placement("cpu", ranks=[0])
    params, grad = pair()
    with pytest.raises(NotImplementedError, match="argument 'params' cannot be donated: it is global"):
        donating()(params.to_global(mesh, sl.sbp.broadcast), grad)


@pytest.mark.parametrize("sbp", [sl.sbp.broadcast, sl.sbp.split(0)], ids=str)
def test_what_goes_on_to_several_devices_is_donated_by_the_host(sbp):
    class Spread(nn.Graph):
        def build(self, x):
            return x.to_global(sl.placement("sim", [0, 1]), sbp) * 2

    graph = Spread(name="spread")
    graph.config.donate_inputs("x")
    x = sl.ones(63)
    kept(graph(x), 2.0)
    assert graph.counters()["input_copies"] == 0
    with pytest.raises(RuntimeError, match="was donated to graph 'spread'"):
        x.tolist()


def test_awaiting_donates():
    async def run():
        graph, (params, grad) = donating(), pair(1024, 10.0)
        where = params.data_ptr()
        for _ in range(20):
            lost, params = params, await graph.run_async(params, grad)
            with pytest.raises(RuntimeError, match=LOST):
                lost.tolist()
        assert params.data_ptr() == where
        np.testing.assert_allclose(params.numpy(), 8, rtol=1e-5)

    asyncio.run(run())


def test_training_beside_donation():
    """Parameters are updated as ever; what comes and goes is donated."""
    net = nn.Linear(4, 4)

    class Train(nn.Graph):
        def __init__(self):
            super().__init__(name="train")
            self.net = net
            self.add_optimizer(sl.optim.SGD(net.parameters(), lr=0.1))
            self.config.donate_inputs("hidden")

        def build(self, x, hidden):
            hidden = hidden * 0.5 + self.net(x)
            loss = hidden.square().mean()
            loss.backward()
            return loss, hidden.detach()

    graph, hidden = Train(), sl.zeros(8, 4)
    where, losses = hidden.data_ptr(), []
    for _ in range(30):
        loss, hidden = graph(sl.ones(8, 4), hidden)
        losses.append(loss.item())
    assert hidden.data_ptr() == where and losses[-1] < losses[0]


def test_it_is_told():
    graph = donating()
    graph.compile(*pair())
    assert "donated=['params']" in repr(graph)
    assert "(INPUT:params): float32(1024,), donated\n" in repr(graph) and "(INPUT:grad): float32(1024,)\n" in repr(graph)
    assert graph.plan["options"]["donated.params"] is True


def test_a_saved_graph_copies_and_gives_the_same(tmp_path):
    graph = donating()
    params, grad = pair()
    graph.compile(params, grad)
    sl.save(graph, tmp_path / "g")
    loaded = sl.load_graph(tmp_path / "g")
    kept(loaded(params, grad), np.float32(0.9))
    kept(params)
    kept(graph(params, grad), np.float32(0.9))
