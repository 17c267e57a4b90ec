"""The plan of a graph, saved and gone on with in another process, which neither traces nor compiles (OneFlow's runtime_state_dict)."""

import json
import textwrap

import numpy as np
import pytest

import sluice as sl
import sluice.nn.functional as F
from sluice import nn

# Nets of 50 layers whose weights are computed, those of a convolutional one as ResNet-50 has them, if smaller.
PROGRAM = textwrap.dedent("""
    import functools, json
    import sluice as sl
    import sluice.nn.functional as F
    from sluice import nn

    class Bottleneck(nn.Module):
        def __init__(self, inner, outer, stride, before):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(before, inner, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv3, self.bn3 = nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer)
            shortcut = [nn.Conv2d(before, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)]
            self.shortcut = nn.Sequential(*shortcut) if stride > 1 or before != outer else nn.Identity()

        def forward(self, x):
            y = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
            return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))

    def resnet50(width=8, classes=10):
        layers, before = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], width
        for i, blocks in enumerate((3, 4, 6, 3)):
            for j in range(blocks):
                layers.append(Bottleneck(width * 2**i, width * 2**i * 4, 2 if i and not j else 1, before))
                before = width * 2**i * 4
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))

    class Infer(nn.Graph):
        def __init__(self, net, trials=False):
            super().__init__(name="infer")
            self.net = net.eval()
            self.config.enable_kernel_trial_run(trials)

        def build(self, x):
            return self.net(x)

    class Train(nn.Graph):
        def __init__(self, net, momentum=0.9, device=None):
            super().__init__(name="train")
            self.net, self.scale = net, sl.ones(())
            optim = sl.optim.SGD(net.parameters(), lr=0.01, momentum=momentum)
            self.add_optimizer(optim, lr_sch=sl.optim.lr_scheduler.StepLR(optim, 2, 0.5))
            if device is not None:
                self.config.set_device(device)

        def build(self, x, y):
            loss = F.cross_entropy(self.net(x), y) * self.scale
            loss.backward()
            return loss

    def sealed(graph):
        # Its build() must not run again.
        @functools.wraps(graph.build)
        def never(*args):
            raise AssertionError("build() was traced")

        graph.build = never
        return graph

    def batch(size=32):
        g = sl.Generator().manual_seed(1)
        return sl.randn(2, 3, size, size, generator=g), sl.randint(0, 10, (2,), generator=g)

    def mlp(dropout=0.0):
        return nn.Sequential(*[layer for _ in range(50) for layer in (nn.Linear(16, 16), nn.ReLU(), nn.Dropout(dropout))])
""")
exec(PROGRAM)


def mlp_batch():
    return sl.ones(4, 16), sl.randint(0, 10, (4,))


def saved(graph, path, **options):
    sl.save(graph.runtime_state_dict(**options), path)
    return path


# In a process of its own: what the graph gives, whether anything was traced, and what the compiler said.
LOAD = PROGRAM + textwrap.dedent("""
    sl.manual_seed(0)
    {make}
    sealed(graph)
    before = sl.info.kernel_trials()
    graph.load_runtime_state_dict(sl.load({path!r}))
    assert graph.is_compiled and graph._call.session.passes() == [] and not graph._call.session.replanned
    assert sl.info.kernel_trials() == before, "a kernel was searched for"
    print(json.dumps([t.numpy().tolist() for t in ({call},)]))
""")


def in_new_process(run_script, path, make, call):
    done = run_script(LOAD.format(path=str(path), make=make, call=call), SLUICE_LOG="compiler=debug", SLUICE_CACHE="off", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " compiler: " not in done.stderr, done.stderr  # it was not called
    return [np.array(values, np.float32) for values in json.loads(done.stdout.splitlines()[-1])]


def saved_by_another(run_script, source):
    """The text that that program, which saves, prints. This process may have kernels of other tests, for which no plan of
    another is made."""
    done = run_script(PROGRAM + "sl.manual_seed(0)\n" + textwrap.dedent(source), SLUICE_CACHE="off", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return np.array(json.loads(done.stdout.splitlines()[-1]), np.float32)


def test_the_log_tells_when_the_compiler_is_called(run_script):  # what the tests below rest on
    source = PROGRAM + "Infer(nn.Sequential(nn.Linear(4, 4))).compile(sl.ones(1, 4))\n"
    done = run_script(source, SLUICE_LOG="compiler=debug")
    assert done.returncode == 0 and " compiler: plan 'infer': 1 kernels" in done.stderr, done.stderr


@pytest.mark.parametrize("trials", [False, True])
def test_a_new_process_traces_and_compiles_nothing(trials, tmp_path, run_script):  # NG-16
    path = tmp_path / "state.pt"
    expected = saved_by_another(run_script, f"""
        graph, (x, _) = Infer(resnet50(), {trials}), batch()
        with sl.no_grad():
            print(json.dumps(graph(x).numpy().tolist()))
        sl.save(graph.runtime_state_dict(with_eager=True), {str(path)!r})
    """)
    make, call = f"sl.manual_seed(5); graph = Infer(resnet50(), {trials})", "graph(batch()[0])"
    [got] = in_new_process(run_script, path, make, call)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("with_eager", [False, True])
def test_training_goes_on_with_the_same_losses(with_eager, tmp_path, run_script):  # NG-16
    path = tmp_path / "state.pt"
    # Without, the plan alone: the new process has weights of its own.
    goes_on = "graph" if with_eager else "fresh"
    expected = saved_by_another(run_script, f"""
        graph, (x, y) = Train(resnet50()), batch()
        graph(x, y)
        sl.manual_seed(0)
        fresh = Train(resnet50())
        sl.save(graph.runtime_state_dict(with_eager={with_eager}), {str(path)!r})
        print(json.dumps([{goes_on}(x, y).item() for _ in range(5)]))
    """)
    got = in_new_process(run_script, path, "graph = Train(resnet50())", "*[graph(*batch()) for _ in range(5)]")
    np.testing.assert_array_equal(np.array(got), expected)


def test_random_numbers_are_those_of_the_process(tmp_path):
    def made():
        sl.manual_seed(3)
        return Train(mlp(0.1))

    x, y = mlp_batch()
    first = made()
    expected = [first(x, y).item() for _ in range(4)]
    state = first.runtime_state_dict()
    again = sealed(made())
    again.load_runtime_state_dict(state)
    assert [again(x, y).item() for _ in range(4)] == expected


def test_what_is_loaded_is_a_graph_like_others(tmp_path):
    x, y = batch()
    first, second = Train(resnet50()), Train(resnet50())
    first.compile(x, y)
    second.load_runtime_state_dict(first.runtime_state_dict())
    second.load_state_dict(first.state_dict())
    assert second.inputs == first.inputs and second.outputs == first.outputs and second.memory() == first.memory()
    assert second.plan == first.plan and str(second.config) == str(first.config)
    second.scale.fill_(2)  # a tensor that the plan read: it is compiled again
    with pytest.raises(RuntimeError, match="the plan is of before a change of a tensor that build.. has captured; call the graph first"):
        second.runtime_state_dict()
    assert second(x, y).item() == pytest.approx(2 * first(x, y).item())
    state = second.runtime_state_dict()
    with pytest.raises(ValueError, match=r"graph 'train': Train.scale was float32\(\) with the content \w+ when its plan was made, and"):
        Train(resnet50()).load_runtime_state_dict(state)
    sl.save(second, tmp_path / "bundle")
    third = Train(resnet50())
    third.scale = sl.tensor(2.0)
    third.load_runtime_state_dict(state)
    third.load_state_dict(second.state_dict())
    assert third(x, y).item() == second(x, y).item()
    third._optimizers[0][0].param_groups[0]["momentum"] = 0.5  # a constant of the plan
    second._optimizers[0][0].param_groups[0]["momentum"] = 0.5
    assert [third(x, y).item() for _ in range(3)] == [second(x, y).item() for _ in range(3)]


def test_a_plan_for_each_shape(tmp_path):
    @nn.Graph.with_dynamic_input_shape(size=4)
    class Shapes(Infer):
        pass

    net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    first, second = Shapes(net), Shapes(net)
    xs = [sl.randn(n, 3) for n in (8, 2, 4)]
    with sl.no_grad():
        expected = [first(x).numpy() for x in xs]
        second.load_runtime_state_dict(sl.load(saved(first, tmp_path / "state.pt")))
        sealed(second)
        for x, y in zip(xs, expected, strict=True):
            np.testing.assert_array_equal(second(x).numpy(), y)
        assert second.members == first.members
        del second.build
        assert second(sl.randn(6, 3)).shape == (6, 2)  # a new one is compiled as ever
    with pytest.raises(ValueError, match=r"graph 'infer': with_dynamic_input_shape\(\) must be used where the plan was made"):
        Infer(net).load_runtime_state_dict(first.runtime_state_dict())


def test_another_device_of_the_same_kind_needs_no_compiling():  # NG-16
    x, y = mlp_batch()

    def made(device):
        sl.manual_seed(0)
        return Train(mlp(), device=device)

    first, there = made("sim:0"), made("sim:1")
    first.compile(x, y), there.compile(x, y)
    moved = nn.Graph.runtime_state_dict_to(first.runtime_state_dict(), "sim:1")
    again = sealed(made("sim:0"))
    again.load_runtime_state_dict(moved)
    assert again._call.session.passes() == [] and not again._call.session.replanned
    assert again.plan == there.plan  # what compiling for it makes
    assert {s["device"] for s in again.plan["streams"] if s["kind"] == "compute"} == {"sim:1"}
    assert [again(x, y).item() for _ in range(3)] == [there(x, y).item() for _ in range(3)]
    back = made("sim:0")
    back.load_runtime_state_dict(nn.Graph.runtime_state_dict_to(moved, "sim:0"))
    assert back.plan == first.plan


def test_a_device_of_another_kind_needs_no_tracing():  # NG-16
    x, y = mlp_batch()
    sl.manual_seed(0)
    first = Train(mlp())
    expected = [first(x, y).item() for _ in range(3)]
    moved = nn.Graph.runtime_state_dict_to(first.runtime_state_dict(), "sim:0")
    sl.manual_seed(0)
    again = sealed(Train(mlp()))
    with pytest.warns(UserWarning, match="runtime state of graph 'train'/plan.json was made for 'cpu:0.*': compiled anew from graph.txt"):
        again.load_runtime_state_dict(moved)
    assert {s["device"] for s in again.plan["streams"] if s["kind"] == "compute"} == {"sim:0"}
    assert [again(x, y).item() for _ in range(3)] == expected


class Wide(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.fc, self.drop, self.factor = nn.Linear(4, 4), nn.Dropout(0.5), factor

    def forward(self, x):
        return self.drop(self.fc(x)) * self.factor


def other(make):
    """A state of Infer(Wide(2)) after its first call, given to a graph that `make` makes."""
    first = Infer(Wide(2))
    first(sl.ones(2, 4))
    make().load_runtime_state_dict(first.runtime_state_dict())


def configured(graph, configure):
    configure(graph.config)
    return graph


WRONG = {
    "attribute": (lambda: other(lambda: Infer(Wide(3))), ValueError,
                  "graph 'infer': net.factor was 2 when its plan was made, and it is 3; make it so again, or compile the graph anew"),
    "mode": (lambda: other(lambda: (g := Infer(Wide(2)), g.net.train(), g)[-1]), ValueError,
             r"graph 'infer': net.drop was in evaluation mode when its plan was made, and is in training mode; call eval\(\) first"),
    "class": (lambda: other(lambda: Infer((w := Wide(2), setattr(w, "drop", nn.Identity()), w)[-1])), ValueError,
              "graph 'infer': net.drop was Dropout when its plan was made, and is Identity now; make it so again, or compile"),
    "option": (lambda: other(lambda: configured(Infer(Wide(2)), lambda c: c.set_granularity("op"))), ValueError,
               "option 'granularity' of graph.config was the default when its plan was made, and it is 'op'; set the same"),
    "shape": (lambda: other(lambda: Infer((w := Wide(2), setattr(w, "fc", nn.Linear(4, 5)), w)[-1])), ValueError,
              r"runtime state of graph 'infer': variable 'net.fc.\w+' is float32\(.*\) now; the plan was made for float32\(.*\)|"
              "net.fc.out_features was 4 when its plan was made, and it is 5"),
    "compiled": (lambda: other(lambda: Infer(Wide(2)).compile(sl.ones(2, 4))), RuntimeError,
                 "load_runtime_state_dict: graph 'infer' is compiled; load before its first call"),
    "no state": (lambda: Infer(Wide(2)).load_runtime_state_dict({"plan": 1}), TypeError,
                 "load_runtime_state_dict: graph 'infer': got a dict with 'plan'; must be what runtime_state_dict"),
    "not compiled": (lambda: Infer(Wide(2)).runtime_state_dict(), RuntimeError, "runtime_state_dict: graph 'infer' is not compiled"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_plan_that_compiling_would_not_make_is_refused(what):
    call, error, message = WRONG[what]
    with pytest.raises(error, match=message), sl.no_grad():
        call()


def test_constants_of_optimizers_must_be_the_same():
    x, y = mlp_batch()
    first = Train(mlp())
    first.compile(x, y)
    with pytest.raises(ValueError, match="graph 'train': momentum of parameter group 0 of optimizer 0: 0.9 when its plan was made; it is "
                                         "0.5 now: make it so again"):
        Train(mlp(), momentum=0.5).load_runtime_state_dict(first.runtime_state_dict())


def test_a_region_of_mixed_precision_is_part_of_the_plan():
    first, x = Infer(Wide(2)), sl.ones(2, 4)
    with sl.autocast("cpu", sl.bfloat16):
        first(x)
        state = first.runtime_state_dict()
        second = Infer(first.net)
        second.load_runtime_state_dict(state)
        assert second(x).tolist() == first(x).tolist()
    with pytest.raises(ValueError, match="its plan was made in another region of mixed precision"):
        Infer(first.net).load_runtime_state_dict(state)


def test_what_has_no_such_state_says_what_to_use():
    def ones():
        return np.ones(3, np.float32)

    class Data(nn.Graph):
        def build(self):
            return sl.host_function(ones, out=((3,), sl.float32)) + 1

    graph = Data(name="data")
    graph.compile()
    with pytest.raises(NotImplementedError, match=r"host functions \(ones\) are known once build\(\) is traced; use sluice.save"):
        graph.runtime_state_dict()
    infer = Infer(Wide(2))
    infer.config.set_dims({"x": {0: sl.Dim("n", max=4)}})
    infer.compile(sl.ones(2, 4))
    with pytest.raises(NotImplementedError, match=r"a graph with named dims \(set_dims\) has a family of plans; use sluice.save"):
        infer.runtime_state_dict()
    off = Infer(Wide(2)).compile(sl.ones(2, 4))
    off.enable_save_runtime_state_dict(False)
    with pytest.raises(RuntimeError, match=r"enable_save_runtime_state_dict\(False\) was called"):
        off.runtime_state_dict()


def test_warming_up_runs_a_step_that_changes_nothing():
    first = Infer(Wide(2)).compile(sl.ones(2, 4))
    second = Infer(Wide(2))
    second.load_runtime_state_dict(first.runtime_state_dict(), warmup_with_run=True)
    assert second.stats()["finished"] == 1
    x, y = mlp_batch()
    train = Train(mlp())
    train.compile(x, y)
    with pytest.raises(NotImplementedError, match="warmup_with_run: a step of graph 'train' changes variables; leave it out"):
        Train(mlp()).load_runtime_state_dict(train.runtime_state_dict(), warmup_with_run=True)


def test_a_destination_is_filled():
    destination = {"mine": 1}
    assert Infer(Wide(2)).compile(sl.ones(2, 4)).runtime_state_dict(destination) is destination
    assert destination["mine"] == 1 and destination["graph_name"] == "infer"
    second = Infer(Wide(2))
    second.load_runtime_state_dict(destination)
    assert second.is_compiled


DAMAGED = {
    "a state with kind 'many'": lambda s: s.update(kind="many"),
    "a state with no plans": lambda s: s.update(plans=[]),
    "a state with plans of type NoneType": lambda s: s.update(plans=None),
    r"a state with plans\[0\].inputs\[0\]\[2\] of type str": lambda s: s["plans"][0].update(inputs=[["x", "float32", "24"]]),
    r"a state with 2 items as plans\[0\].inputs\[0\]": lambda s: s["plans"][0].update(inputs=[["x", "float32"]]),
    r"a state with plans\[0\].tensors of type list": lambda s: s["plans"][0].update(tensors=[]),
    r"a state with eager\['net.fc.weight'\] of type int": lambda s: s["eager"].update({"net.fc.weight": 3}),
    "a state with watched.autocast of type NoneType": lambda s: s["watched"].pop("autocast"),
    "a dict with 'format', 'kind', 'graph_name', 'device', 'options'": lambda s: s.pop("eager"),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_damaged_state_says_which_part(message):
    state = Infer(Wide(2)).compile(sl.ones(2, 4)).runtime_state_dict(with_eager=True)
    DAMAGED[message](state)
    told = f"load_runtime_state_dict: graph 'infer': got {message}; must be what runtime_state_dict"
    with pytest.raises(TypeError, match=told):
        Infer(Wide(2)).load_runtime_state_dict(state)


@pytest.mark.parametrize("damage, message", [
    (lambda plan: plan.update(inputs=[["x", "float33", [2, 4]]]), "an input has dtype 'float33'; must be a dtype's name"),
    (lambda plan: plan["files"].update({"meta.json": "{}"}), "None; must be an object of parameters, arguments and results")])
def test_a_damaged_plan_says_what_is_wrong(damage, message):
    state = Infer(Wide(2)).compile(sl.ones(2, 4)).runtime_state_dict()
    damage(state["plans"][0])
    with pytest.raises(ValueError, match=f"runtime state of graph 'infer': {message}"):
        Infer(Wide(2)).load_runtime_state_dict(state)
