"""Inputs whose memory a call has taken for good: the tensor has none, and what cannot be donated stays."""

import copy
import pickle

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn
from donating import LOST, Update, donating, kept, pair, refused

USES = {
    "add": lambda t: t + 1,
    "radd": lambda t: sl.ones(1024) * t,
    "in place": lambda t: t.add_(1),
    "copy_": lambda t: t.copy_(sl.ones(1024)),
    "into": lambda t: sl.ones(1024).copy_(t),
    "fill_": lambda t: t.fill_(0),
    "setitem": lambda t: t.__setitem__(0, 1.0),
    "getitem": lambda t: t[0],
    "view": lambda t: t.view(32, 32),
    "reshape": lambda t: t.reshape(32, 32),
    "transpose": lambda t: t.t(),
    "contiguous": lambda t: t.contiguous() + 0,
    "clone": lambda t: t.clone(),
    "detach": lambda t: t.detach(),
    "numpy": lambda t: t.numpy(),
    "asarray": lambda t: np.asarray(t),
    "dlpack": lambda t: torch.from_dlpack(t),
    "tolist": lambda t: t.tolist(),
    "item": lambda t: t.sum().item(),
    "repr": repr,
    "str": str,
    "format": lambda t: f"{t}",
    "bool": lambda t: bool((t > 0).all()),
    "float": lambda t: float(t.mean()),
    "iter": lambda t: list(t),
    "data_ptr": lambda t: t.data_ptr(),
    "sync": lambda t: t.sync(),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "to": lambda t: t.to(sl.float64),
    "cpu": lambda t: t.cpu() + 0,
    "cat": lambda t: sl.cat([t, t]),
    "grad": lambda t: (t.requires_grad_(True) * 2).sum().backward(),
    "pass it on": lambda t: Update()(t, sl.ones(1024)),
    "donate it again": lambda t: donating()(t, sl.ones(1024)),
    "as another argument": lambda t: donating()(sl.ones(1024), t),
    "parameter": lambda t: nn.Parameter(t) + 0,
}


@pytest.mark.parametrize("use", USES, ids=lambda name: name.replace(" ", "_"))
def test_every_use_of_what_was_donated_is_refused(use):  # JAX-04
    params, grad = pair()
    result = donating()(params, grad)
    with pytest.raises(RuntimeError, match=LOST):
        USES[use](params)
    assert params.shape == (1024,) and params.dtype is sl.float32, "what it was is still known"
    kept(result, np.float32(0.9))


def test_the_buffer_protocol_refuses_in_its_own_way():
    params, grad = pair()
    donating()(params, grad)
    with pytest.raises(BufferError, match=LOST):
        memoryview(params)


def test_views_share_the_loss():  # JAX-04
    params, grad = pair()
    views = [params[2:5], params.view(32, 32), params.detach(), params.view(32, 32).t()[1]]
    donating()(params, grad)
    for view in views:
        with pytest.raises(RuntimeError, match=LOST):
            view.tolist()
        with pytest.raises(RuntimeError, match=LOST):
            view.mul_(2)


def test_a_whole_view_donates_for_all():
    params, grad = pair()
    memory = params.data_ptr()
    assert donating()(params.view(32, 32).view(1024), grad).data_ptr() == memory
    with pytest.raises(RuntimeError, match=LOST):
        params.tolist()


def test_what_autograd_has_saved_is_lost():
    params, grad = pair()
    w = sl.ones(1024, requires_grad=True)
    loss = (w * params).sum()
    donating()(params, grad)
    with pytest.raises(RuntimeError, match=LOST):
        loss.backward()


def test_a_clone_and_an_older_copy_live_on():
    params, grad = pair()
    clone = params.clone()
    kept(donating()(params, grad), np.float32(0.9))
    kept(clone)


def test_what_cannot_be_donated_is_refused_and_stays():  # JAX-04
    graph = donating()
    good, grad = pair()
    graph.compile(good, grad)
    refused(graph, sl.ones(1024, requires_grad=True), grad, "it requires grad")
    refused(graph, sl.ones(1024, requires_grad=True) * 1, grad, "it requires grad")
    refused(graph, nn.Parameter(sl.ones(1024)), grad, "it is a parameter")
    refused(graph, nn.Parameter(sl.ones(1024), requires_grad=False), grad, "it is a parameter")
    refused(graph, sl.ones(2048)[:1024], grad, "it is a view")
    refused(graph, sl.ones(2048)[1024:], grad, "it is a view")
    refused(graph, sl.ones(1, 1).expand(1, 1024)[0], grad, "it is a view")
    refused(graph, sl.ones(2048)[:1024].detach(), grad, "it is a view")
    refused(graph, sl.from_numpy(np.ones(1024, np.float32)), grad, "its memory is borrowed")
    refused(graph, sl.from_dlpack(torch.ones(1024)), grad, "its memory is borrowed")
    shared = sl.ones(1024)
    array = shared.numpy()
    refused(graph, shared, grad, "its memory is shared with NumPy")
    del array
    with memoryview(shared):
        refused(graph, shared, grad, "its memory is shared with NumPy")
    refused(graph, good, good, "2 arguments have its memory")
    refused(graph, good, good.view(32, 32).view(1024), "2 arguments have its memory")
    graph.synchronize()
    assert graph.stats()["submitted"] == 0
    kept(graph(shared, grad), np.float32(0.9))


def test_tensors_of_other_devices_are_refused():
    graph = donating()
    params, grad = pair()
    graph.compile(params, grad)
    with pytest.raises(ValueError, match="argument 'params' cannot be donated: it lies on sim:0"):
        graph(params.to("sim:0"), grad)


def test_variables_of_graphs_are_refused():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", sl.ones(1024))

        def forward(self, x):
            return x + self.total

    class G(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = Buffered()

        def build(self, x):
            return self.net(x)

    owner = G()
    owner(sl.ones(1024))
    graph = donating()
    refused(graph, owner.net.total, sl.ones(1024), "a graph has it as a parameter or buffer")


def test_a_call_that_fails_its_checks_takes_nothing():  # JAX-04
    graph = donating()
    params, grad = pair()
    graph.compile(params, grad)
    for bad in (sl.ones(3), sl.ones(1024, dtype=sl.int32), None, [grad]):
        with pytest.raises((ValueError, TypeError)):
            graph(params, bad)
        kept(params)
    with pytest.raises(TypeError):
        graph(params)
    kept(params)
    graph.close()
    with pytest.raises(RuntimeError, match="closed|stopped"):
        graph(params, grad)
    kept(params)


def test_a_call_without_room_takes_nothing():
    import threading

    gate = threading.Event()

    def wait(x):
        assert gate.wait(20)
        return x

    class Slow(nn.Graph):
        def build(self, x):
            return sl.host_function(wait, x, out=((8,), sl.float32)) + 1

    graph = Slow(name="slow")
    graph.config.donate_inputs("x")
    graph.config.set_submit_timeout(0.05)
    first = [sl.ones(8), sl.ones(8)]
    results = [graph(x) for x in first]
    x = sl.full((8,), 5.0)
    assert graph.try_call(x) is None
    kept(x, 5.0)
    with pytest.raises(TimeoutError):
        graph(x)
    kept(x, 5.0)
    gate.set()
    assert [r.tolist() for r in results] == [[2.0] * 8] * 2
    kept(graph(x), 6.0)
    for lost in [*first, x]:
        with pytest.raises(RuntimeError, match="was donated to graph 'slow'"):
            lost.tolist()


def test_names_that_are_no_arguments_are_refused():
    params, grad = pair()
    with pytest.raises(ValueError, match=r"graph 'update': donate_inputs names 'weights'; its arguments are \['params', 'grad'\]"):
        Update("weights")(params, grad)
    kept(params)
    for bad in ((), ("",), (3,), (["params"],)):
        with pytest.raises(TypeError, match="donate_inputs: got"):
            Update().config.donate_inputs(*bad)
    graph = donating()
    graph(params, grad)
    with pytest.raises(RuntimeError, match="'donated' cannot be set after the graph was compiled"):
        graph.config.donate_inputs("grad")


def test_a_step_that_fails_takes_what_it_was_given():
    def picky(x):
        if x[0] == 3:
            raise ValueError("3 is not accepted")
        return x

    class Picky(nn.Graph):
        def build(self, x):
            return sl.host_function(picky, x, out=((8,), sl.float32)) + 1

    graph = Picky(name="picky")
    graph.config.donate_inputs("x")
    given = [sl.full((8,), float(i % 5)) for i in range(20)]
    results = [graph(x) for x in given]
    for i, (x, result) in enumerate(zip(given, results)):
        if i % 5 == 3:
            with pytest.raises(Exception, match="3 is not accepted"):
                result.tolist()
            with pytest.raises(Exception, match="3 is not accepted"):
                graph(result)  # there is nothing to donate
        else:
            kept(result, i % 5 + 1.0)
        with pytest.raises(RuntimeError, match="was donated to graph 'picky'"):
            x.tolist()
