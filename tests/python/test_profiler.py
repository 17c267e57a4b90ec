"""sluice.profiler: what is recorded, how it is summed, and torch's ways of asking for it. Nothing here judges by time."""

import copy
import gzip
import json
import threading
import warnings

import pytest
import torch

import sluice as sl
from sluice.profiler import (ProfilerAction, ProfilerActivity, profile, profiler_start, profiler_stop, range_pop, range_push,
                             record_function,
                             schedule, tensorboard_trace_handler)


def work(x):
    return (x @ x + 1).relu().sum()


def names(prof):
    return [e.name for e in prof.events()]


def test_calls_of_ops_are_recorded():
    x = sl.ones(8, 8, requires_grad=True)
    with profile(record_shapes=True) as prof:
        with record_function("forward"):
            y = work(x)
        y.backward()
        sl.nn.functional.softmax(x, -1)
        sl.linalg.norm(x)
    assert names(prof)[:6] == ["forward", "matmul", "add", "relu", "sum", "backward"]
    assert {"softmax", "norm"} & set(names(prof)) and x.grad is not None
    forward, product = prof.events()[:2]
    assert product.cpu_parent is forward and product in forward.cpu_children and product.input_shapes == [[8, 8], [8, 8]]
    assert 0 <= product.time_range.start <= product.time_range.end and product.cpu_time_total > 0
    inside = sum(c.cpu_time_total for c in forward.cpu_children)
    assert forward.self_cpu_time_total == pytest.approx(forward.cpu_time_total - inside) and forward.self_cpu_time_total >= 0
    assert forward.is_user_annotation and not product.is_user_annotation


def test_functions_that_layers_hold():
    x = sl.ones(2, 3, 6, 6)
    layers = [sl.nn.Conv2d(3, 4, 3), sl.nn.ReLU(), sl.nn.GELU(), sl.nn.MaxPool2d(2), sl.nn.Flatten(), sl.nn.Linear(16, 2),
              sl.nn.Softmax(-1)]
    plain = sl.nn.Sequential(*layers)(x)
    with profile() as prof:
        again = sl.nn.Sequential(*layers)(x)
        kept, copied = sl.nn.functional.relu, copy.deepcopy(sl.nn.functional.relu)
    assert again.tolist() == plain.tolist()
    assert kept(sl.ones(1)).item() == 1 and copied is sl.nn.functional.relu
    assert [n for n in names(prof) if n != "reshape"] == ["conv2d", "relu", "gelu", "max_pool2d", "flatten", "linear",
                                                          "softmax"]
    assert sl.nn.Sequential(*layers)(x).tolist() == plain.tolist()


def test_steps_of_optimizers():
    def train(lib, prof):
        net = lib.nn.Linear(3, 2)
        adam = lib.optim.Adam(net.parameters())
        with prof as recorded:
            net(lib.ones(4, 3)).sum().backward()
            adam.step()
            adam.zero_grad()
        return [e.name for e in recorded.events() if e.name.startswith("Optimizer.")]

    ours = train(sl, profile())
    assert ours == train(torch, torch.profiler.profile()) == ["Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"]
    before = sl.optim.Optimizer.step
    lbfgs = sl.optim.LBFGS([sl.ones(2, requires_grad=True)])
    with profile() as prof:
        lbfgs.step(lambda: sl.ones(1).sum())
    assert sl.optim.Optimizer.step is before and "Optimizer.step#LBFGS.step" in names(prof)


def test_nothing_is_recorded_or_replaced_outside():
    before = sl.Tensor.__dict__["__add__"], sl.add, sl.nn.functional.relu, sl.nn.Graph.__call__, sl._C.backward
    with profile() as prof:
        assert sl.add is not before[1]
    work(sl.ones(2, 2))
    assert prof.events() == []
    assert before == (sl.Tensor.__dict__["__add__"], sl.add, sl.nn.functional.relu, sl.nn.Graph.__call__, sl._C.backward)
    with pytest.raises(ZeroDivisionError), profile():
        raise ZeroDivisionError
    assert sl.add is before[1]
    with record_function("alone"):  # no profile runs
        pass


def test_values_are_the_same_and_errors_come_through():
    x = sl.arange(4.0).reshape(2, 2)
    plain = work(x).item()
    with profile() as prof:
        assert work(x).item() == plain and (2 - x).tolist() == [[2, 1], [0, -1]] and sl.Tensor.add(x, x).sum() == 12
        y = x.clone()
        y += 1
        assert y.sum() == 10
        with pytest.raises(ValueError, match="inner dimensions differ"):
            x @ sl.ones(3)
        assert sl.add(x, 1, out=sl.zeros(2, 2)).sum() == 10
    assert names(prof).count("matmul") == 2


def test_sums_and_the_table():
    x = sl.ones(4, 4)
    with profile(record_shapes=True, with_stack=True, profile_memory=True) as prof:
        for _ in range(3):
            x.relu()
        kept = sl.ones(64, 64).relu()
    by_name = {a.key: a for a in prof.key_averages()}
    assert by_name["relu"].count == 4 and by_name["relu"].cpu_time == pytest.approx(by_name["relu"].cpu_time_total / 4)
    by_shape = [(a.count, a.input_shapes) for a in prof.key_averages(group_by_input_shape=True) if a.key == "relu"]
    assert by_shape == [(3, [[4, 4]]), (1, [[64, 64]])]
    assert len([a for a in prof.key_averages(group_by_stack_n=1) if a.key == "relu"]) == 2  # two lines
    assert any(e.cpu_memory_usage >= 64 * 64 * 4 for e in prof.events() if e.name == "relu") and kept.sum() == 64 * 64
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=1)
    with torch.profiler.profile() as theirs:
        torch.ones(2).relu()
    title = theirs.key_averages().table().splitlines()[1].split("  ")
    for column in filter(None, map(str.strip, title)):
        assert column in table
    assert table.count("\n") == 6 and "Self CPU time total: " in table
    assert "Input Shapes" in prof.key_averages(group_by_input_shape=True).table() and "test_profiler.py" in prof.key_averages(group_by_stack_n=1).table()
    totals = [a.cpu_time_total for a in sorted(prof.key_averages(), key=lambda a: -a.cpu_time_total)]
    assert totals == sorted(totals, reverse=True)
    with pytest.raises(AttributeError, match="nope"):
        prof.key_averages().table(sort_by="nope")
    with pytest.raises(ValueError, match="time_unit"):
        prof.key_averages().table(time_unit="h")
    assert prof.key_averages().total_average().count == len(prof.events())


def test_a_function_that_calls_itself_counts_once():
    @record_function("down")
    def down(n):
        return n if n == 0 else down(n - 1)

    with profile() as prof:
        down(3)
    (average,) = prof.key_averages()
    assert average.count == 4 and average.cpu_time_total == prof.events()[0].cpu_time_total
    assert average.self_cpu_time_total == pytest.approx(average.cpu_time_total)


def test_kernels_of_graphs():
    class Net(sl.nn.Graph):
        def build(self, x):
            return work(x)

    net = Net()
    with profile() as prof:
        for _ in range(3):
            y = net(sl.ones(8, 8))
    assert y.item() == 8 * 8 * 9
    kernels = [e for e in prof.events() if e.is_kernel]
    assert [e.name for e in kernels].count("matmul") == 3 and all("Net" in e.thread for e in kernels)
    calls = [e for e in prof.events() if e.name.startswith("Graph Net")]
    assert len(calls) == 3 and all(e.begin_ns >= calls[0].begin_ns for e in kernels)
    assert "add" not in [e.name for e in prof.events() if not e.is_kernel]  # tracing is no call
    net(sl.ones(8, 8))
    with profile() as prof:
        net(sl.ones(8, 8))
    assert [e.name for e in prof.events() if e.is_kernel].count("matmul") == 1


def test_threads_and_ranges():
    x = sl.ones(4)
    with profile() as prof:
        assert range_push("outer") == 0 and range_push("inner") == 1
        thread = threading.Thread(target=x.exp)
        thread.start()
        thread.join()
        x.sin()
        assert range_pop() == 1 and range_pop() == 0
    events = {e.name: e for e in prof.events()}
    assert events["inner"].cpu_parent is events["outer"] and events["sin"].cpu_parent is events["inner"]
    assert events["exp"].cpu_parent is None and events["exp"].thread != events["sin"].thread
    with pytest.raises(RuntimeError, match="no range was begun"):
        range_pop()
    with pytest.raises(TypeError, match="must be str"):
        record_function(3)


def test_one_profile_at_a_time():
    with profile(), pytest.raises(RuntimeError, match="already enabled"), profile():
        pass
    profiler_start()
    with pytest.raises(RuntimeError, match="runs already"):
        profiler_start()
    sl.ones(2).exp()
    assert "exp" in names(profiler_stop())
    with pytest.raises(RuntimeError, match="no profile runs"):
        profiler_stop()


@pytest.mark.parametrize("options", [
    {"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 1}, {"wait": 2, "warmup": 1, "active": 1}, {"wait": 0,
                                                                                                                 "warmup": 1, "active": 3, "repeat": 2},
    {"wait": 2, "warmup": 1, "active": 1, "skip_first": 2, "skip_first_wait": 1}])
def test_schedules_are_torchs(options):
    ours, theirs = schedule(**options), torch.profiler.schedule(**options)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]


def test_schedules_that_cannot_be():
    for bad in ({"wait": -1, "warmup": 1, "active": 1}, {"wait": 1, "warmup": 1, "active": 0}):
        with pytest.raises(AssertionError, match="Invalid profiler schedule"):
            schedule(**bad)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=1, warmup=0, active=1)
    with pytest.raises(TypeError, match="must be a ProfilerAction"):
        profile(schedule=lambda step: 1)


def test_steps_of_a_schedule():
    def steps(lib, prof_of, act):
        saved = []

        def ready(prof):
            saved.append([e.name for e in prof.events() if "ProfilerStep" in e.name])

        with prof_of(schedule=lib.schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=ready) as prof:
            for _ in range(10):
                act()
                prof.step()
        return saved, prof.step_num

    ours = steps(sl.profiler, profile, lambda: sl.ones(2).exp())
    theirs = steps(torch.profiler, torch.profiler.profile, lambda: torch.ones(2).exp())
    assert ours[1] == theirs[1] and [len(cycle) for cycle in ours[0]] == [len(cycle) for cycle in theirs[0]]
    assert ours[0] == [["ProfilerStep#2", "ProfilerStep#3"], ["ProfilerStep#6", "ProfilerStep#7"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = schedule(wait=0, warmup=0, active=1)
    with profile(schedule=again, acc_events=True) as prof:
        for _ in range(3):
            sl.ones(2).exp()
            prof.step()
    assert names(prof).count("exp") == 3


def test_files(tmp_path):
    with profile(with_stack=True, record_shapes=True, on_trace_ready=tensorboard_trace_handler(str(tmp_path / "logs"), "me",
                                                                                               use_gzip=True)) as prof:
        with record_function("mine"):
            sl.ones(4, 4).exp()
        prof.add_metadata("who", "me")
        prof.add_metadata_json("numbers", "[1, 2]")
    (written,) = (tmp_path / "logs").iterdir()
    assert written.name.startswith("me.") and written.name.endswith(".pt.trace.json.gz")
    with gzip.open(written, "rt") as file:
        document = json.load(file)
    assert document["who"] == "me" and document["numbers"] == [1, 2]
    events = {e["name"]: e for e in document["traceEvents"] if e["ph"] == "X"}
    assert events["mine"]["cat"] == "user_annotation" and events["exp"]["cat"] == "cpu_op" and events["exp"]["args"] == {"Input Dims": [[4, 4]]}
    assert events["mine"]["ts"] <= events["exp"]["ts"] and events["exp"]["ts"] + events["exp"]["dur"] <= events["mine"]["ts"] + events["mine"]["dur"] + 1e-3
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    with profile(with_stack=True) as longer:
        sl.ones(300, 300) @ sl.ones(300, 300)
    longer.export_stacks(str(tmp_path / "stacks"))
    assert any("test_files;matmul " in line and line.rpartition(" ")[2].strip().isdigit() for line in (tmp_path / "stacks").read_text().splitlines())
    with pytest.raises(ValueError, match="metric should be one of"):
        longer.export_stacks(str(tmp_path / "stacks"), "count")


def test_what_a_profile_does_not_do():
    prof = profile()
    for ask in (prof.key_averages, prof.events):
        with pytest.raises(AssertionError, match="must be initialized"):
            ask()
    with pytest.raises(AssertionError, match="requires with_stack=True"):
        prof.export_stacks("nowhere")
    with pytest.raises(NotImplementedError, match="operations are not counted"):
        profile(with_flops=True)
    with pytest.raises(NotImplementedError, match="of torch's own tools"):
        profile(experimental_config=1)
    with pytest.raises(TypeError, match="must be of ProfilerActivity"):
        profile(activities=["cpu"])
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])
    with pytest.warns(UserWarning, match="CUDA"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    assert not sl.profiler.kineto_available() and sl.profiler.supported_activities() == {ProfilerActivity.CPU}
    assert [a.name for a in ProfilerAction] == [a.name for a in torch.profiler.ProfilerAction]


def test_pausing_and_the_older_names():
    with profile() as prof:
        sl.ones(2).exp()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        sl.ones(2).sin()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        sl.ones(2).cos()
    assert [n for n in names(prof) if n in ("exp", "sin", "cos")] == ["exp", "cos"]
    with sl.autograd.profiler.profile() as old, sl.autograd.profiler.record_function("mine"):
        sl.ones(2).exp()
    assert "mine" in old.table(sort_by="cpu_time_total") and old.total_average().count == len(old.function_events)
    with sl.autograd.profiler.profile(enabled=False):
        assert sl.profiler._record.recorder is None
