"""Reports of graphs: debug output, memory, plans, traces, dry runs; and the options that change a plan."""

import html
import json
import os
import subprocess
import threading
import time

import pytest

import sluice as sl
import sluice.nn as nn
import sluice.nn.functional as F
from sluice._base.tools import find_tool


class Small(nn.Graph):
    def __init__(self, name="small", width=16):
        super().__init__(name=name)
        self.model = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))

    def build(self, x):
        return F.softmax(self.model(x), 1)


def debug_output(capsys, level, **options):
    graph = Small()
    graph.debug(level, **options)
    graph(sl.ones(2, 8))
    return capsys.readouterr().err


def test_debug_output_grows_with_the_level(capsys):  # NG-17
    texts = [debug_output(capsys, level) for level in range(4)]
    assert all(len(a) < len(b) for a, b in zip(texts, texts[1:]))
    assert "traced" in texts[0] and "module model.2: 1 ops" in texts[1] and "module" not in texts[0]
    assert "op 0 linear (float32(2, 8), float32(16, 8), float32(16,)) -> (float32(2, 16)) sbp=B" in texts[2]
    assert "attributes: activation" in texts[3] and "pass " in texts[3]
    with pytest.raises(ValueError, match="v_level is 4"):
        Small().debug(4)


def test_debug_of_a_module_goes_for_what_is_in_it(capsys):  # NG-19
    graph = Small()
    graph.model[0].debug(3, max_py_stack_depth=1)
    graph.model[1].debug(1)
    graph(sl.ones(2, 8))
    modules, ops, frames = [], [], []
    for line in capsys.readouterr().err.splitlines():
        (modules if "] module" in line else ops if "] op " in line else frames).append(line)
    assert [line.split()[3] for line in modules] == ["model.0:", "model.1:"]
    assert len(ops) == 1 and "op 0 linear" in ops[0]
    assert len(frames) == 2 and "attributes" in frames[0] and "test_graph_reports.py" in frames[1]
    with pytest.raises(ValueError, match=r"debug: ranks is \[0, -1\]; must be a rank, a list of ranks, or -1 for all"):
        graph.model.debug(1, ranks=[0, -1])


def test_debug_tells_how_values_lie(capsys):  # NG-17
    graph, placement = Small(), sl.placement("sim", [0, 1])
    graph.model.to_global(placement, sl.sbp.broadcast)
    graph.debug(2)
    graph(sl.ones(2, 8).to_global(placement, sl.sbp.split(0)))
    ops = [line for line in capsys.readouterr().err.splitlines() if "] op " in line and "linear" in line]
    assert ops and all("sbp=S(0) on sim:0-1" in line for line in ops)


def test_debug_names_the_users_line_and_stack(capsys):  # NG-18
    def eight_deep(x, n):
        return eight_deep(x, n - 1) if n else x.exp()

    class Deep(nn.Graph):
        def build(self, x):
            return eight_deep(x, 10)

    graph = Deep()
    graph.debug(3, max_py_stack_depth=8)
    graph(sl.ones(1))
    text = capsys.readouterr().err
    frames = [line for line in text.splitlines() if " in eight_deep" in line]
    assert len(frames) == 8 and all("test_graph_reports.py:" in f and "sluice/nn" not in f for f in frames)


def test_errors_while_tracing_name_the_users_line():  # NG-18
    class Wrong(nn.Graph):
        def build(self, x):
            for _ in range(16):
                x = x + 1
            return x @ sl.ones(3, 3)

    with pytest.raises(ValueError, match=r"matmul: .*\(2, 2\).*\(3, 3\).*\(.*test_graph_reports.py:\d+\)"):
        Wrong()(sl.ones(2, 2))


def test_memory_shown_is_what_plan_viz_counts(capsys, tmp_path):  # NG-20
    graph = Small()
    graph.debug(0)
    graph(sl.ones(2, 8))
    shown = int(capsys.readouterr().err.split("memory: ")[1].split(" bytes")[0])
    graph.save_plan(tmp_path / "plan.json")
    out = subprocess.run([find_tool("plan-viz"), "mem", str(tmp_path / "plan.json"), "--json"], capture_output=True, text=True,
                         check=True).stdout
    assert f"{shown}" in out and json.loads(out)["total"] == shown == graph.memory()["total"]


REPR_BEFORE = """Small(
  (CONFIG): config()
  (MODULE:model): Sequential(
    (0): Linear(in_features=8, out_features=2, bias=True)
    (1): ReLU()
    (2): Linear(in_features=2, out_features=2, bias=True)
    (3): Tanh()
    (4): Linear(in_features=2, out_features=4, bias=True)
  )
  (PARAMETER:model.0.weight): float32(2, 8)
  (PARAMETER:model.0.bias): float32(2,)
  (PARAMETER:model.2.weight): float32(2, 2)
  (PARAMETER:model.2.bias): float32(2,)
  (PARAMETER:model.4.weight): float32(4, 2)
  (PARAMETER:model.4.bias): float32(4,)
)"""
REPR_AFTER = """  (OP:linear in model.0): (float32(3, 8), float32(2, 8), float32(2,)) -> (float32(3, 2))
  (OP:relu in model.1): (float32(3, 2)) -> (float32(3, 2))
  (OP:linear in model.2): (float32(3, 2), float32(2, 2), float32(2,)) -> (float32(3, 2))
  (OP:tanh in model.3): (float32(3, 2)) -> (float32(3, 2))
  (OP:linear in model.4): (float32(3, 2), float32(4, 2), float32(4,)) -> (float32(3, 4))
  (OP:softmax): (float32(3, 4)) -> (float32(3, 4))
  (OUTPUT:output): float32(3, 4)
)"""


def test_repr_before_and_after_the_first_call():  # NG-21
    graph = Small(width=2)
    assert repr(graph) == REPR_BEFORE
    graph(sl.ones(3, 8))
    with_input = REPR_BEFORE.replace("  (MODULE", "  (INPUT:x): float32(3, 8)\n  (MODULE")
    assert repr(graph) == with_input[:-1] + REPR_AFTER


def test_a_notebook_shows_the_graph_and_a_picture_of_its_plan():
    graph = Small(width=2)
    assert graph._repr_html_() == f"<pre>{html.escape(REPR_BEFORE)}</pre>"
    graph(sl.ones(3, 8))
    shown = graph._repr_html_()
    assert "<details>" in shown and "<svg" in shown and html.escape("(OP:softmax)") in shown and "compute0" in shown


def test_compile_time_is_near_linear_in_ops():  # NG-34
    class Chain(nn.Graph):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def build(self, x):
            for i in range(self.n):
                x = (x + i).sin() if i % 2 else x * 1.5
            return x

    def seconds(n):
        start = time.process_time()
        Chain(n).compile(sl.ones(4, 4))
        return time.process_time() - start

    small, large = (min(seconds(n) for _ in range(3)) for n in (1000, 16000))
    # A quadratic stage would take 256 times as long. Twice and more per op is the machine: the small graph fits its caches.
    assert large <= 16**1.5 * small and large < 5


def test_outputs_buffer_size_is_the_steps_in_flight_and_its_bytes():  # CFG-17
    gate = threading.Event()

    def stuck(array):
        gate.wait()
        return array

    class Slow(nn.Graph):
        def __init__(self, n):
            super().__init__()
            self.config.set_outputs_buffer_size(n)

        def build(self, x):
            return sl.host_function(stuck, x, out=((256,), sl.float32)) * 2

    output = {}
    for n in (1, 2, 5):
        gate.clear()
        graph, x = Slow(n).compile(sl.ones(256)), sl.ones(256)
        handles = []
        while (y := graph.try_call(x)) is not None:
            handles.append(y)
        assert len(handles) == graph.stats()["in_flight"] == n
        gate.set()
        assert all(h.sum().item() == 512 for h in handles)
        output[n] = graph.memory()["output"]
    assert output[2] - output[1] == 1024 and output[5] - output[2] == 3 * 1024


@pytest.mark.parametrize("option", ["enable_reuse_mem", "enable_inplace"])
def test_memory_sharing_can_be_switched_off(option):  # CFG-24
    shared, plain = Small(), Small()
    plain.model = shared.model
    getattr(plain.config, option)(False)
    x = sl.randn(64, 8)
    assert shared(x).equal(plain(x))
    assert plain.memory()["total"] > shared.memory()["total"] or option == "enable_inplace"
    assert plain.memory()["total"] >= shared.memory()["total"]


def test_granularity_op_gives_an_actor_per_kernel_and_equal_results():
    program, op = Small(), Small()
    op.model = program.model
    op.config.set_granularity("op")
    x = sl.randn(4, 8)
    assert program(x).equal(op(x))
    roles = [a for a in op.plan["actors"] if a["role"] == "normal"]
    assert len(roles) == len(op.plan["kernels"]) > len([a for a in program.plan["actors"] if a["role"] == "normal"])
    with pytest.raises(ValueError, match="granularity: got 'fine'"):
        program.config.set_granularity("fine")


def test_budget_too_small_names_what_works():
    graph = Small()
    graph.config.set_memory_budget(1000)
    with pytest.raises(MemoryError, match=r"(?s)budget.*\d+"):
        graph(sl.ones(2, 8))
    enough = Small().compile(sl.ones(2, 8)).memory()["total"]
    graph = Small()
    graph.config.set_memory_budget(enough)
    graph(sl.ones(2, 8))


def test_memory_report_sums_to_the_ledger():  # JAX-02
    m = Small().compile(sl.ones(2, 8)).memory()
    assert m["argument"] + m["output"] + m["temp"] + m["variables"] + m["constants"] + m["packed"] == m["total"] == sum(m["spaces"].values())
    assert m["argument"] == 2 * 2 * 8 * 4 and m["output"] == 2 * 2 * 4 * 4


def test_trace_holds_every_firing(tmp_path):
    graph = Small()
    graph.config.enable_trace()
    for _ in range(5):
        graph(sl.ones(2, 8))
    graph.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert sum("softmax" in e.get("name", "") for e in events) == 5


def test_dry_run_compiles_writes_and_exits(run_script, tmp_path):  # ACT-15
    source = """
import sluice as sl, sluice.nn as nn
def never(a):
    open("ran", "w")
    return a
class G(nn.Graph):
    def build(self, x):
        return sl.host_function(never, x, out=((2,), sl.float32)) + 1
G(name="dry")(sl.ones(2))
print("not reached")
"""
    result = run_script(source, SLUICE_DRY_RUN="1")
    assert result.returncode == 0 and "not reached" not in result.stdout, result.stderr
    assert not (tmp_path / "ran").exists()
    assert json.loads((tmp_path / "dry.plan.json").read_text())["name"] == "dry"
    assert (tmp_path / "dry.dot").read_text().startswith("digraph")


def test_ir_of_every_pass_is_dumped(tmp_path):  # MF-15
    graph = Small()
    graph.config.set_dump_dir(tmp_path)
    graph(sl.ones(2, 8))
    assert len(os.listdir(tmp_path)) >= 2
    passes = graph._call.session.passes()
    assert sum(t for _, _, t in passes) <= graph._call.session.compile_seconds * 1.01
    other = Small()
    other.config.disable_pass(sl._C.pass_names()[0])
    other(sl.ones(2, 8))
    with pytest.raises(ValueError, match="nonsense"):
        other.config.disable_pass("nonsense")


def test_times_of_passes_make_up_the_compile_time():  # MF-15
    class Deep(nn.Graph):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(*[m for _ in range(60) for m in (nn.Linear(8, 8), nn.Tanh())])

        def build(self, x):
            return self.layers(x)

    shares = []
    while not shares or max(shares) < 0.9 and len(shares) < 20:  # another process may take the core between two passes
        graph = Deep()
        graph(sl.ones(2, 8))
        session = graph._call.session
        shares.append(sum(seconds for _, _, seconds in session.passes()) / session.compile_seconds)
    assert 0.9 <= max(shares) <= 1.001, shares


def test_check_numerics_names_op_and_step(tmp_path, monkeypatch):  # ACT-17
    monkeypatch.chdir(tmp_path)

    class Logs(nn.Graph):
        def __init__(self):
            super().__init__()
            self.config.enable_check_numerics()

        def build(self, x):
            return (x + 1).log().exp()

    graph = Logs()
    assert graph(sl.ones(2)).tolist() == pytest.approx([2, 2])
    with pytest.raises(sl.Error, match=r"(?is)log.*(nan|inf)"):
        graph(sl.tensor([-5.0, 1.0])).tolist()
    assert graph(sl.ones(2)).tolist() == pytest.approx([2, 2])


def test_plans_of_equal_graphs_are_byte_identical():
    sl.manual_seed(0)
    texts = [Small().compile(sl.ones(2, 8))._call.session.plan_json() for _ in range(2)]
    assert texts[0] == texts[1]


def test_a_recorded_trace_holds_more_than_the_rings(tmp_path):
    class Chain(sl.nn.Graph):
        def build(self, x):
            for _ in range(20):
                x = x.tanh() @ x
            return x

    graph, x = Chain(), sl.eye(4)
    graph.config.set_granularity("op")
    graph(x)
    graph.synchronize()
    steps, kernels = 2000, 40
    with graph.record_trace(tmp_path / "trace.json"):
        for _ in range(steps):
            graph(x)
    trace = json.loads((tmp_path / "trace.json").read_text())
    ran = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    assert len(ran) + trace["lostEvents"] >= steps * kernels > 2 * 32768
    assert len(ran) > 32768 or trace["lostEvents"] > 32768
    assert [event["args"]["step"] for event in ran] == sorted(event["args"]["step"] for event in ran)


def test_a_trace_that_cannot_be_written_names_its_file(tmp_path):
    class Twice(sl.nn.Graph):
        def build(self, x):
            return x * 2

    graph = Twice()
    graph(sl.ones(2))
    with pytest.raises(ValueError, match="trace: cannot write '/no/such/place'; its folder must exist"):
        with graph.record_trace("/no/such/place"):
            pass


def test_traces_are_merged_on_one_clock(tmp_path):
    times = {"a.json": (5_000_000, 1.5), "b.json": (2_000_000, 7.25)}
    for name, (begin, ts) in times.items():
        events = [{"ph": "X", "pid": 1, "tid": 0, "ts": ts, "dur": 1.0, "name": name}, {"ph": "M", "pid": 1, "name": "process_name"}]
        (tmp_path / name).write_text(json.dumps({"beginUnixNs": begin, "traceEvents": events}))
    sl.utils.merge_traces([tmp_path / name for name in times], tmp_path / "all.json")
    merged = json.loads((tmp_path / "all.json").read_text())
    assert merged["beginUnixNs"] == 2_000_000
    assert {e["name"]: e["ts"] for e in merged["traceEvents"] if "ts" in e} == {"a.json": 3001.5, "b.json": 7.25}
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(ValueError, match=r"merge_traces: .*b.json is no trace of Sluice: it has no beginUnixNs; pass files that save_trace wrote"):
        sl.utils.merge_traces([tmp_path / name for name in times], tmp_path / "all.json")
    with pytest.raises(ValueError, match="merge_traces: no files; pass those of all ranks"):
        sl.utils.merge_traces([], tmp_path / "all.json")
