"""backends.LIBRARY.NET: inference as a graph whose clusters a foreign backend computes, against the library alone on the same
model (of ONNX Runtime and OpenVINO, by their Python), or against our own kernels (of oneDNN Graph, which has no front end). NET is
resnet50, one image at a time, or mlp, three layers of 256 on 32 rows. `difference` is the largest of the outputs over their largest
value, by our own kernels.

backends.first.NET: from the file model.onnx to the first result, each time in a process of its own that has imported its library, against
ONNX Runtime; `also` has seconds of the whole process, and of a graph whose clusters ONNX Runtime computes."""
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from common import measure, report, Side, spread, wanted

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
THREADS = len(os.sched_getaffinity(0))
PEERS = {"onnxruntime": "ONNX Runtime alone", "openvino": "OpenVINO alone", "onednn_graph": "our own kernels"}
BESIDE = {"onnxruntime": ".venv/onnx", "openvino": ".venv/openvino"}


def net_and_input(net):
    import sluice as sl

    sl.manual_seed(0)
    if net == "mlp":
        layers = [sl.nn.Linear(256, 256), sl.nn.ReLU(), sl.nn.Linear(256, 256), sl.nn.ReLU(), sl.nn.Linear(256, 256)]
        return sl.nn.Sequential(*layers).eval(), sl.randn(32, 256)
    sys.path.append(str(HERE / "gpu"))
    from nets import resnet50

    return resnet50(sl, (3, 4, 6, 3), 64, 1000).eval(), sl.randn(1, 3, 224, 224)


def graph_of(net, adapter):
    """(graph, its input), after the first call."""
    import sluice as sl

    if adapter in BESIDE:
        sys.path.append(str(ROOT / BESIDE[adapter]))
    module, x = net_and_input(net)

    class Infer(sl.nn.Graph):
        def __init__(self):
            super().__init__()
            self.module = module
            self.config.set_cores(THREADS)
            if adapter:
                getattr(self.config, f"enable_{adapter}")()

        def build(self, x):
            return self.module(x)

    graph = Infer()
    with sl.no_grad():
        graph(x).sync()
    return graph, x


def ours(net, adapter):
    import sluice as sl

    graph, x = graph_of(net, adapter)

    def run(steps):  # each answer is waited for, as a caller with one batch does
        with sl.no_grad():
            for _ in range(steps):
                graph(x).sync()
    return run


@functools.cache
def exported(net, folder):
    import sluice as sl

    module, x = net_and_input(net)
    path = os.path.join(folder, f"{net}.onnx")
    sl.onnx.export(module, (x,), path)
    return path, x.numpy()


def onnxruntime_session(onnxruntime, path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = THREADS, 1, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def onnxruntime_alone(net, folder):
    sys.path.append(str(ROOT / BESIDE["onnxruntime"]))
    import onnxruntime

    path, x = exported(net, folder)
    session = onnxruntime_session(onnxruntime, path)
    given = {session.get_inputs()[0].name: x}

    def run(steps):
        for _ in range(steps):
            session.run(None, given)
    return run


def openvino_alone(net, folder):
    sys.path.append(str(ROOT / BESIDE["openvino"]))
    import openvino

    path, x = exported(net, folder)
    options = {"INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": "1", "ENABLE_CPU_PINNING": False, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", options).create_infer_request()

    def run(steps):
        for _ in range(steps):
            request.infer([x], share_inputs=True)
    return run


def difference(net, adapter):
    """By how much the outputs differ, over the largest."""
    import numpy as np
    import sluice as sl

    with sl.no_grad():
        theirs, own = ((graph(x).numpy()) for graph, x in (graph_of(net, adapter), graph_of(net, "")))
    return float(np.abs(theirs - own).max() / np.abs(own).max())


def first_result(way, path):
    """Prints what the way from a file to its first result takes, here, on an input of zeros."""
    import time

    import numpy as np

    shape = json.loads(pathlib.Path(path).with_suffix(".json").read_text())
    if way == "alone":
        sys.path.append(str(ROOT / BESIDE["onnxruntime"]))
        import onnxruntime
    else:
        import sluice as sl
        import sluice.onnx  # modules that are loaded when they are first asked for, which ONNX Runtime's import has behind it

        sl.nn.Graph
    begin = time.perf_counter()
    if way == "alone":
        result = onnxruntime_session(onnxruntime, path).run(None, {"input": np.zeros(shape, np.float32)})[0]
    else:
        module = sl.onnx.load(path).eval()

        class Infer(sl.nn.Graph):
            def __init__(self):
                super().__init__()
                self.module = module
                self.config.set_cores(THREADS)
                if way == "within":
                    sys.path.append(str(ROOT / BESIDE["onnxruntime"]))
                    self.config.enable_onnxruntime()

            def build(self, x):
                return self.module(x)

        with sl.no_grad():
            result = Infer()(sl.tensor(np.zeros(shape, np.float32))).numpy()
    print(json.dumps({"first": time.perf_counter() - begin, "result": float(np.abs(result).sum())}))


def first_results(name, net, rounds):
    """backends.first.NET: the ways in turn, once before that for the disk's sake."""
    import time

    times = {way: [] for way in ("ours", "alone", "within")}
    wholes, results = {way: [] for way in times}, {}
    with tempfile.TemporaryDirectory() as folder:
        path, x = exported(net, folder)
        pathlib.Path(path).with_suffix(".json").write_text(json.dumps(x.shape))
        for turn in range(rounds + 1):
            for way in times:
                begin = time.perf_counter()
                done = subprocess.run([sys.executable, __file__, "--first", way, path], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(done.stderr)
                found = json.loads(done.stdout.splitlines()[-1])
                results[way] = found["result"]
                if turn > 0:
                    times[way].append(found["first"])
                    wholes[way].append(time.perf_counter() - begin)
    apart = max(abs(result - results["alone"]) for result in results.values()) / results["alone"]
    assert apart < 1e-3, f"{name}: other results: {results}"
    middle = {way: statistics.median(t) for way, t in times.items()}
    report(name, middle["ours"], middle["alone"], PEERS["onnxruntime"], "s", rounds, max(map(spread, times.values())),
           also={"within_s": middle["within"], **{f"process_{way}_s": statistics.median(t) for way, t in wholes.items()}})


def main():
    for net in ("resnet50", "mlp"):
        if wanted(name := f"backends.first.{net}"):
            first_results(name, net, 7)
    for adapter, peer in PEERS.items():
        for net in ("resnet50", "mlp"):
            name = f"backends.{adapter}.{net}"
            if not wanted(name):
                continue
            with tempfile.TemporaryDirectory() as folder:
                alone = {"onnxruntime": (onnxruntime_alone, net, folder), "openvino": (openvino_alone, net, folder),
                         "onednn_graph": (ours, net, "")}[adapter]
                times = measure([Side(ours, net, adapter), Side(*alone)], seconds=1 if net == "resnet50" else 0.3)
            mine, theirs = (statistics.median(t) * 1e3 for t in times)
            report(name, mine, theirs, peer, "ms", len(times[0]), max(map(spread, times)), difference=difference(net, adapter))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        first_result(*sys.argv[2:])
    else:
        main()
