"""cold_start.NET: from a graph's construction to its first result, in a process that finds on disk what an earlier one has compiled, or
searched for (`search`: convolutions with a trial run; `lengths`: of 16 lengths), against one that does not.

cold_start.plan.NET: until a graph of 50 layers can be called, from the plan that an earlier process has saved (runtime_state_dict), against
that process, which traces and compiles."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from common import report, spread, wanted

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu"))
ROUNDS = 5


def run(name):
    """Prints what the stages until the first result take, in a process of its own."""
    import time

    import sluice as torch
    from nets import resnet50

    torch.manual_seed(0)
    if ".transformer." in name:
        layers = [torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True) for _ in range(50)]
        net, images = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(32 * 256, 1000)), torch.randn(2, 32, 256)
    else:
        net, images = resnet50(torch, (3, 4, 6, 3), 64, 1000), torch.randn(2, 3, 224, 224)
    labels = torch.randint(0, 1000, (2,))

    class Train(torch.nn.Graph):
        def __init__(self):
            super().__init__(name="net")
            self.net = net
            self.add_optimizer(torch.optim.SGD(net.parameters(), lr=0.01))
            self.config.enable_kernel_trial_run("search" in name)

        def build(self, x, y):
            loss = torch.nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            return loss

    class Infer(torch.nn.Graph):
        def __init__(self):
            super().__init__(name="net")
            self.net = net.eval()
            self.config.enable_kernel_trial_run("search" in name)

        def build(self, x):
            return self.net(x)

    begin = time.perf_counter()
    if name.endswith("lengths"):
        return print(json.dumps(lengths(torch)))
    graph, given = (Train(), (images, labels)) if name.endswith("train") else (Infer(), (images,))
    with torch.set_grad_enabled(name.endswith("train")):
        if ".plan." in name:
            return print(json.dumps(until_ready(torch, graph, given)))
        graph(*given).sync()
    first = time.perf_counter() - begin
    stats, trials = torch.cache.stats(), torch.info.kernel_trials()
    print(json.dumps({"first": first, "plan": graph._call.session.compile_seconds, "hits": stats["hits"] + trials["read"] > 0,
                      "misses": stats["misses"] + trials["searches"] > 0}))


def until_ready(torch, graph, given):
    """The first process leaves its plan for those that follow."""
    import time

    path = os.path.join(os.environ["SLUICE_CACHE_DIR"], "plan.pt")
    there, begin = os.path.exists(path), time.perf_counter()
    if there:
        graph.load_runtime_state_dict(torch.load(path))
    else:
        graph.compile(*given)
    ready = time.perf_counter()
    graph(*given).sync()
    result = time.perf_counter()
    if not there:
        torch.save(graph.runtime_state_dict(), path)
    return {"first": ready - begin, "plan": result - begin, "hits": there, "misses": not there}


def lengths(torch):
    """16 lengths of a net of convolutions, each of whose kernels is run to find its fastest implementation."""
    import time

    net = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Conv1d(64, 64, 3, padding=1), torch.nn.Tanh())])

    @torch.nn.Graph.with_dynamic_input_shape(size=16)
    class Lengths(torch.nn.Graph):
        def __init__(self):
            super().__init__(name="net")
            self.net = net
            self.config.enable_kernel_trial_run()

        def build(self, x):
            return self.net(x)

    graph, begin = Lengths(), time.perf_counter()
    with torch.no_grad():
        for length in range(256, 256 + 16 * 32, 32):
            graph(torch.zeros(1, 64, length)).sync()
    counts = torch.info.kernel_trials()
    return {"first": time.perf_counter() - begin, "plan": 0.0, "hits": counts["read"] > 0, "misses": counts["searches"] > 0}


def seconds(name, directory):
    env = {**os.environ, "SLUICE_CACHE": "off" if ".plan." in name else "on", "SLUICE_CACHE_DIR": directory}
    done = subprocess.run([sys.executable, __file__, "--run", name], capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2])
        sys.exit()
    plans = [f"cold_start.plan.{net}" for net in ("resnet50.infer", "resnet50.train", "resnet50.search.infer", "resnet50.search.train",
                                                  "transformer.train", "transformer.infer")]
    for name in ("cold_start.resnet50.infer", "cold_start.resnet50.train", "cold_start.resnet50.search", "cold_start.lengths", *plans):
        if not wanted(name):
            continue
        first, second = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as directory:
                first.append(seconds(name, directory))
                second.append(seconds(name, directory))
        assert all(r["misses"] for r in first) and all(r["hits"] and not r["misses"] for r in second)

        def median(runs, key):
            return statistics.median(r[key] for r in runs)

        also = ("to_result_s", "to_result_compiled_s") if name in plans else ("plan_s", "plan_compiled_s")
        report(name, median(second, "first"), median(first, "first"), "the first process, which compiles", "s", ROUNDS,
               max(spread([r["first"] for r in runs]) for runs in (first, second)),
               also=dict(zip(also, (median(second, "plan"), median(first, "plan")))))
