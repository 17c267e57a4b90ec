"""Every node, kernel and trace event says which module and line it belongs to, and in which role."""

import inspect
import json

import pytest

import sluice as sl
from sluice import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        x = sl.exp(-x)
        x = sl.tanh(x)
        return self.second(x)


def line_of(text):
    lines, start = inspect.getsourcelines(Net.forward)
    return f"test_provenance.py:{start + next(i for i, line in enumerate(lines) if text in line)}"


class Train(nn.Graph):
    def __init__(self, n=1):
        super().__init__()
        self.net = Net()
        self.add_optimizer(sl.optim.AdamW(self.net.parameters(), lr=0.1))
        self.config.set_gradient_accumulation_steps(n)

    def build(self, x, y):
        with sl.stream("host"):
            x = x * 2
        x = nn.functional.dropout(x, 0.25)
        loss = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        return loss


def compiled(n=1, **kwargs):
    sl.manual_seed(0)
    graph = Train(n, **kwargs)
    graph(sl.ones(4 * n, 4), sl.ones(4 * n, 3))
    return graph


@pytest.mark.parametrize("n", [1, 2])
def test_gradients_belong_to_the_layer_and_line_of_their_forward(n):
    nodes = compiled(n)._captured.nodes()
    forward = {(node["module"], node["source"]) for node in nodes if node["role"] == "forward"}
    backward = [node for node in nodes if node["role"] == "backward"]
    assert {("net.first", line_of("self.first")), ("net", line_of("sl.exp")), ("net.second", line_of("self.second"))} <= forward
    assert backward and {(node["module"], node["source"]) for node in backward} <= forward
    by_op = {node["op"]: (node["module"], node["source"]) for node in backward}
    assert by_op["tanh_backward"] == ("net", line_of("sl.tanh"))
    products = {(node["module"], node["source"]) for node in backward if node["op"] == "matmul"}
    assert products == {("net.first", line_of("self.first")), ("net.second", line_of("self.second"))}


@pytest.mark.parametrize("n", [1, 2])
def test_roles_say_what_work_is_for(n):
    nodes = compiled(n)._captured.nodes()
    roles = {}
    for node in nodes:
        roles.setdefault(node["role"], set()).add(node["op"])
        assert node["source"], node
    assert roles["data"] == {"mul"}
    assert any("adam" in op for op in roles["update"]) and not any("adam" in op for op in roles["forward"] | roles["backward"])
    assert {"linear", "tanh", "dropout"} <= roles["forward"]
    if n > 1:
        assert "accumulate" in roles["update"]


def test_host_functions_prepare_data():
    class Load(nn.Graph):
        def build(self, x):
            return sl.host_function(lambda a: a + 1, x, out=((2,), sl.float32))

    graph = Load()
    graph(sl.ones(2))
    assert [node["role"] for node in graph._captured.nodes() if node["op"] == "host_function"] == ["data"]


@pytest.mark.parametrize("granularity", ["op", "program"])
def test_plans_bundles_and_traces_say_it_too(tmp_path, granularity):
    graph = Train()
    graph.config.set_granularity(granularity)
    graph.compile(sl.ones(4, 4), sl.ones(4, 3))
    graph.set_trace()
    graph(sl.ones(4, 4), sl.ones(4, 3))
    graph.synchronize()
    kernels = {k["name"]: k for k in graph.plan["kernels"]}
    tanh = [k for k in kernels.values() if k["op"] == "tanh_backward" or "tanh_backward" in str(k["attrs"])]
    assert {(k["module"], k["role"]) for k in tanh} == {("net", "backward")}
    assert {k.get("role", "forward") for k in kernels.values()} == {"forward", "backward", "update", "data"}
    events = [e for e in json.loads(graph._call.session.take_trace())["traceEvents"] if e.get("cat") == "kernel"]
    assert events
    for event in events:
        kernel = kernels[event["name"].split(" and ")[0]]
        args = event["args"]
        assert (args["module"], args["role"]) == (kernel["module"], kernel.get("role", "forward"))
        assert args["line"] == (f"{kernel['file']}:{kernel['line']}" if kernel["line"] else "")
    sl.save(graph, str(tmp_path / "bundle"))
    text = (tmp_path / "bundle" / "graph.txt").read_text()
    assert 'role "backward", module "net"' in text and 'role "update", module "optimizer0"' in text
    assert json.loads((tmp_path / "bundle" / "plan.json").read_text())["kernels"] == graph.plan["kernels"]


def test_an_error_of_a_gradient_names_the_layer_and_the_role(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the value that is not finite is written

    class Broken(nn.Graph):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def build(self, x):
            sl.sqrt(self.net(x) * 0).sum().backward()  # whose gradient is infinite
            return self.net.first.weight.grad

    graph = Broken()
    graph.config.enable_check_numerics()
    with pytest.raises(sl.Error, match=r"test_provenance.py:\d+, backward, kernel '"):
        graph(sl.ones(4, 4)).numpy()
