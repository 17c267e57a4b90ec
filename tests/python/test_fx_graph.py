"""Graphs of sluice.fx are built, changed, checked and printed as torch's are."""

import collections
import enum
import operator
import pickle

import pytest
import torch
import torch.fx

import sluice as sl

FX = {"sluice": (sl, sl.fx), "torch": (torch, torch.fx)}


@pytest.fixture(params=FX)
def both(request):
    """Assertions of these tests hold on torch, too."""
    return FX[request.param]


def built(lib, fx):
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", default_value=2)
    added = graph.call_function(lib.add, (x, y))
    method = graph.call_method("clamp", (added,), {"min": 0})
    graph.output((method, [added]))
    return graph


def names(graph):
    return [n.name for n in graph.nodes]


def test_nodes_are_a_list_in_both_directions(both):
    graph = built(*both)
    x, y, added, method, output = graph.nodes
    assert names(graph) == ["x", "y", "add", "clamp", "output"] and len(graph.nodes) == 5
    assert [n.name for n in reversed(graph.nodes)] == ["output", "clamp", "add", "y", "x"]
    assert added.next is method and added.prev is y and output.prev is method
    assert added.all_input_nodes == [x, y] and list(added.users) == [method, output]
    assert graph.find_nodes(op="placeholder") == [x, y] and graph.find_nodes(op="call_method", target="clamp") == [method]
    assert (repr(added), x.op, y.args, method.kwargs["min"]) == ("add", "placeholder", (2,), 0)


def test_arguments_are_set_as_a_whole(both):
    graph = built(*both)
    x, y, added, method, output = graph.nodes
    added.args = (x, x)
    assert list(y.users) == [] and added.all_input_nodes == [x]
    added.update_arg(1, 5)
    added.update_kwarg("alpha", 2)
    added.insert_arg(0, y)
    assert added.args == (y, x, 5) and added.kwargs == {"alpha": 2} and list(y.users) == [added]
    output.replace_input_with(added, x)
    assert output.args == ((method, [x]),)
    with pytest.raises((NotImplementedError, TypeError)):
        output.args[0][1].append(3)
    with pytest.raises((NotImplementedError, TypeError)):
        added.kwargs["alpha"] = 3


def test_uses_are_replaced(both):
    lib, fx = both
    graph = built(lib, fx)
    x, y, added, method, output = graph.nodes
    with graph.inserting_after(added):
        neg = graph.call_function(lib.neg, (added,))
        relu = graph.call_function(lib.relu, (added,))
    assert names(graph) == ["x", "y", "add", "relu", "neg", "clamp", "output"]
    assert added.replace_all_uses_with(neg, lambda user: user is method) == [method]
    assert method.args == (neg,) and list(neg.users) == [method] and output.args == ((method, [added]),)
    assert set(added.replace_all_uses_with(x)) == {neg, relu, output} and not added.users
    graph.erase_node(added)
    with pytest.raises(RuntimeError, match="Tried to erase Node x but it still had 3 users"):
        graph.erase_node(x)
    with graph.inserting_before(method):
        graph.call_function(lib.sin, (x,))
    with graph.inserting_before():
        graph.placeholder("first")
    graph.call_method("last", (x,))
    assert names(graph) == ["first", "x", "y", "relu", "neg", "sin", "clamp", "output", "last"]


def test_nodes_move(both):
    graph = built(*both)
    x, y, added, method, output = graph.nodes
    x.prepend(y)
    assert names(graph) == ["y", "x", "add", "clamp", "output"]
    y.append(method)
    assert names(graph) == ["y", "clamp", "x", "add", "output"]
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        graph.lint()


def test_nodes_can_be_erased_while_they_are_walked(both):
    lib, fx = both
    graph = fx.symbolic_trace(lambda x: ((x + 1) * 2, x - 3)[1]).graph
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users:
            graph.erase_node(node)
    assert names(graph) == ["x", "sub", "output"]


def test_dead_code_goes_and_effects_stay(both):
    lib, fx = both

    def f(x, unused):
        y = lib.sin(x) + 1
        lib.cos(y)
        return x.exp()

    graph = fx.symbolic_trace(f).graph
    assert graph.eliminate_dead_code() and names(graph) == ["x", "unused", "exp", "output"]
    assert not graph.eliminate_dead_code()
    kept = fx.Graph()
    x = kept.placeholder("x")
    kept.call_function(fx.has_side_effect(noted), (x,))
    kept.call_function(print, (x,))
    kept.output(x)
    kept.eliminate_dead_code()
    assert names(kept) == ["x", "noted", "output"]
    assert kept.eliminate_dead_code(lambda node: node.op in ("placeholder", "output")) and names(kept) == ["x", "output"]


def noted(x):
    return x


@pytest.mark.parametrize("break_it,message", [
    (lambda g, n: setattr(n[2], "name", "x"), "Node redefined name x!"),
    (lambda g, n: setattr(n[2], "graph", type(g)()), "does not belong to this Graph!"),
    (lambda g, n: n[2].prepend(n[3]), "was used before it has been defined"),
])
def test_graphs_that_are_not_whole_are_found(both, break_it, message):
    graph = built(*both)
    graph.lint()
    break_it(graph, list(graph.nodes))
    with pytest.raises(RuntimeError, match=message):
        graph.lint()


def test_missing_targets_are_found(both):
    lib, fx = both
    gm = fx.symbolic_trace(lib.nn.Sequential(lib.nn.Linear(2, 2)))
    gm.graph.lint()
    next(n for n in gm.graph.nodes if n.op == "call_module").target = "0.other"
    with pytest.raises(RuntimeError, match="references nonexistent attribute other"):
        gm.graph.lint()


def test_nodes_of_wrong_kinds_are_refused():
    graph = sl.fx.Graph()
    with pytest.raises(ValueError, match="op: 'call'; must be one of placeholder, call_method"):
        graph.create_node("call", "f")
    with pytest.raises(ValueError, match="target f has type str but a Callable is expected"):
        graph.create_node("call_function", "f")
    with pytest.raises(ValueError, match="a node of another graph; must be of this one"):
        graph.inserting_before(next(iter(built(sl, sl.fx).nodes)))
    with pytest.raises(ValueError, match="'a.b'; must be a submodule of the graph's owning_module"):
        sl.fx.symbolic_trace(sl.nn.ReLU()).graph.call_module("a.b")


@pytest.mark.parametrize("wanted", [["relu"] * 4, ["a_1", "a", "a_1", "a_1"], ["x.0", "x.0", "x_0"], ["for", "1", "max", "torch", "inf", "a-b"],
                                    ["", "_", "__"], ["a_1_1", "a_1_1", "a_1"]], ids=str)
def test_names_are_torchs(wanted):
    found = []
    for lib, fx in FX.values():
        graph = fx.Graph()
        for name in wanted:
            graph.create_node("get_attr", "target", name=name)
        found.append(names(graph))
    assert found[0] == found[1] and len(set(found[0])) == len(wanted)


@pytest.mark.parametrize("target", ["CamelCase", "ABc", "layer1.0.Conv2dBN", "__add__", "_private", "a__B", "x1Y2"])
def test_names_of_targets_are_torchs(target):
    found = []
    for lib, fx in FX.values():
        graph = fx.Graph()
        graph.create_node("get_attr", target)
        found.append(names(graph))
    assert found[0] == found[1]


def test_graphs_are_copied_into_others(both):
    lib, fx = both
    graph, other = built(lib, fx), fx.Graph()
    a, b = other.placeholder("a"), other.placeholder("b")
    x, y, *_ = graph.nodes
    result = other.graph_copy(graph, {x: a, y: b})
    other.output(result)
    assert names(other) == ["a", "b", "add", "clamp", "output"]
    assert [u.name for u in a.users] == ["add"] and [u.name for u in x.users] == ["add"]
    copied = other.node_copy(list(graph.nodes)[2], lambda n: a)
    assert copied.name == "add_1" and copied.args == (a, a)


def test_texts_are_torchs():
    texts = [str(built(lib, fx)) for lib, fx in FX.values()]
    assert texts[0] == texts[1]
    lines = texts[0].splitlines()
    assert lines[2:4] == ["    %y : [num_users=1] = placeholder[target=y](default=2)",
                          "    %add : [num_users=2] = call_function[target=torch.add](args = (%x, %y), kwargs = {})"]


def test_a_table_is_printed(capsys):
    built(sl, sl.fx).print_tabular()
    head, line, *nodes = capsys.readouterr().out.splitlines()
    assert head.split() == ["opcode", "name", "target", "args", "kwargs"] and set(line) == {"-", " "}
    assert len(nodes) == 5 and nodes[3].split()[:3] == ["call_method", "clamp", "clamp"]


def test_proxies_add_to_a_graph_that_there_is(both):
    lib, fx = both
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    graph.output(((x + 1).relu() * x[0]).node)
    assert names(graph) == ["x", "add", "relu", "getitem", "mul", "output"]
    assert fx.GraphModule({}, graph)(lib.tensor([2.0, -3.0])).tolist() == [6.0, 0.0]


def test_graphs_are_pickled():
    graph = built(sl, sl.fx)
    again = pickle.loads(pickle.dumps(graph))
    assert str(again) == str(graph) and list(again.nodes)[2].target is sl.add
    again.lint()


class Color(enum.Enum):
    RED = 1


Pair = collections.namedtuple("Pair", "a b")


def same(value, **named):
    return named or value


VALUES = [1, 2.5, -1, True, None, "it's", b"x", 1j, float("inf"), float("-inf"), (1,), (), [1, [2]], {"a": (1, None)}, slice(1, None), ...,
          range(2, 9, 3), Color.RED, Pair(1, [2]), int, Color, sl.float32, sl.int64, sl.device("cpu"), sl.channels_last,
          sl.Size([2, 3]), sl.Tensor, same, sl.relu]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: getattr(value, "__name__", repr(value)))
def test_arguments_are_the_same_in_the_code(value):
    graph = sl.fx.Graph()
    graph.output(graph.call_function(same, (value,)))
    made = sl.fx.GraphModule({}, graph)
    for module in (made, pickle.loads(pickle.dumps(made))):
        assert module() == value and type(module()) in (type(value), tuple, sl.fx.immutable_collections.immutable_list,
                                                        sl.fx.immutable_collections.immutable_dict)


def test_names_that_code_cannot_have():
    graph = sl.fx.Graph()
    x = graph.placeholder("x")
    inner = graph.call_module("class.a-b.0.it\"s", (x,))
    graph.output(graph.call_function(same, (1,), {"in": inner, "a b": graph.get_attr("for"), "c": 2}))
    made = sl.fx.GraphModule({"class.a-b.0.it\"s": sl.nn.ReLU(), "for": sl.ones(1)}, graph)
    assert {name: value.item() if name != "c" else value for name, value in made(sl.tensor([-1.0])).items()} == {"in": 0, "a b": 1, "c": 2}
    for op, target in (("call_method", "a b"), ("call_method", "if"), ("placeholder", "x=print()"), ("placeholder", "*")):
        with pytest.raises(ValueError, match=f"target of a {op}: .*; must be a name that code may have"):
            graph.create_node(op, target, (x,))


def test_operators_that_write_are_written_so():
    codes = []
    for lib, fx in FX.values():
        graph = fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        graph.output(graph.call_function(operator.imul, (graph.call_function(operator.iadd, (x, y)), 3)))
        made = fx.GraphModule({}, graph)
        assert made(lib.ones(1), 2).item() == 9
        codes.append(made.code)
    assert codes[0] == codes[1]
