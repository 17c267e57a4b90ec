"""onnx's own tests of nodes, on Sluice: which pass, which are refused and why, which are wrong.

usage: PYTHONPATH=build/release/python:tests/python .venv/bin/python -m onnx_nodes [--graph] [--peers] [--every N] [--only PART] [--table]

--graph: each case also as an nn.Graph, which must give the same or be refused. --peers: ONNX Runtime and OpenVINO on the same cases.
--table: the exclusions as docs/onnx.md has them.
"""

import argparse
import collections
import re
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ROOT / ".venv/onnx"
PAGE = ROOT / "docs/onnx.md"
for folder in (BESIDE, ROOT / ".venv/openvino"):
    if folder.is_dir():
        sys.path.append(str(folder))

# Cases whose expected values are one draw of random numbers, which no definition fixes: their shapes and dtypes count.
RANDOM = re.compile(r"test_(bernoulli|randomuniformlike|training_dropout(_default)?(_mask)?$)")
REASONS = (  # of what is refused; the first that its message fits
    ("strings", r"type string|of strings"),
    ("float8, 4-bit and 2-bit numbers", r"type (float8|float4|float6|u?int[24]\b)"),
    ("uint16, uint32, uint64", r"type uint(16|32|64)"),
    ("opset before 7 or unknown", r"opset \d+; Sluice reads"),
    ("an op that Sluice has not", r"has no such op"),
    ("a seed of its own", r"a seed of its own"),
    ("Scan of opset 8", r"its form since opset 9"),
    ("depends on what a step computes", r"depends on what a step computes|as long as|NonZero|nonzero|of a graph|in a graph"),
)


def cases(every=1, only=""):
    """onnx's cases; every N-th of those whose name has `only` in it."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [c for c in collect_testcases(None) if only in c.name][::every]


def reason(error):
    message = str(error)
    return next((name for name, pattern in REASONS if re.search(pattern, message)), "other: " + message[:160])


def differs(case, got, wanted):
    """What is wrong with the outputs; None if nothing."""
    import numpy as np
    from onnx import TensorProto, numpy_helper

    if isinstance(wanted, (list, tuple)):
        if got is None or len(got) != len(wanted):
            return f"{'nothing' if got is None else len(got)} of {len(wanted)}"
        return next(filter(None, (differs(case, g, w) for g, w in zip(got, wanted))), None)
    if wanted is None:
        return None if got is None else "a value where there is none"
    wanted = np.asarray(numpy_helper.to_array(wanted) if isinstance(wanted, TensorProto) else wanted)
    if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{None if got is None else (got.dtype, got.shape)} instead of {(wanted.dtype, wanted.shape)}"
    if RANDOM.match(case.name):
        return None
    rtol = max(case.rtol, {"float16": 2e-3, "bfloat16": 1.6e-2}.get(got.dtype.name, 1e-3))  # two units in the last place
    if got.dtype.kind not in "biufc":
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    if wanted.dtype.kind in "biu":
        return None if (got == wanted).all() else f"{(got != wanted).sum()} of {wanted.size} whole numbers differ"
    if not np.allclose(got, wanted, rtol=rtol, atol=max(case.atol, 1e-5), equal_nan=True):
        return f"differs by {np.nanmax(np.abs(got.astype(np.complex128) - wanted)):.3g}"
    return None


def run(case):
    """("pass" | "refused" | "wrong", why)."""
    import sluice as sl
    from sluice.onnx import backend

    try:
        rep = backend.prepare(case.model)
        for inputs, wanted in case.data_sets:
            why = differs(case, list(rep.run(list(inputs))), list(wanted))
            if why:
                return "wrong", why
    except (sl.NotImplementedError if hasattr(sl, "NotImplementedError") else NotImplementedError) as e:
        return "refused", reason(e)
    except Exception as e:  # noqa: BLE001: whatever it is, the case is not right
        return "wrong", f"{type(e).__name__}: {e}"[:200]
    return "pass", ""


def run_as_graph(case):
    """The same of the model as an nn.Graph of the case's first inputs."""
    import sluice as sl
    from sluice.onnx import backend, load

    try:
        module = load(case.model)
        inputs, wanted = case.data_sets[0]
        given = [backend.from_numpy(v) for v in inputs]
        if any(isinstance(v, list) or v is None for v in given):
            return "refused", "sequences and optionals as inputs of a graph"

        class Graph(sl.nn.Graph):
            def __init__(self):
                super().__init__()
                self.module = module

            def build(self, *tensors):
                return self.module(*tensors)

        made = Graph()(*given)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        why = differs(case, [backend.to_numpy(v) for v in made], list(wanted))
    except NotImplementedError as e:
        return "refused", reason(e)
    except Exception as e:  # noqa: BLE001
        return "wrong", f"{type(e).__name__}: {e}"[:200]
    return ("wrong", why) if why else ("pass", "")


def run_by_peer(case):
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:  # noqa: BLE001
        return "refused", type(e).__name__
    try:
        for inputs, wanted in case.data_sets:
            feed = {p.name: np.asarray(v) if isinstance(v, np.generic) else v for p, v in zip(session.get_inputs(), inputs)}
            why = differs(case, session.run(None, feed), list(wanted))
            if why:
                return "wrong", why
    except Exception as e:  # noqa: BLE001
        return "refused", type(e).__name__
    return "pass", ""


def run_by_openvino(case):
    import numpy as np
    import openvino

    try:
        core = openvino.Core()
        model = core.read_model(case.model.SerializeToString())
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        compiled = core.compile_model(model, "CPU", options)
        for inputs, wanted in case.data_sets:
            said = compiled([np.asarray(v) for v in inputs])
            why = differs(case, [said[i] for i in range(len(compiled.outputs))], list(wanted))
            if why:
                return "wrong", why
    except Exception as e:  # noqa: BLE001
        return "refused", type(e).__name__
    return "pass", ""


PEERS = [("ONNX Runtime", run_by_peer), ("OpenVINO", run_by_openvino)]


def documented():
    """Reads docs/onnx.md: how many cases there are, how many are right, and {reason: cases} of the others."""
    text = PAGE.read_text()
    said = re.search(r"Of the ([\d,]+) tests of nodes that onnx [\d.]+ has, ([\d,]+) are right and none is wrong", text)
    table = text[said.end():].partition("| why | cases |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| (\d+) \|$", table, re.M)
    return *(int(number.replace(",", "")) for number in said.groups()), {why: int(n) for why, n in rows}


def summary(results):
    return collections.Counter(state for _, state, _ in results)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = False
    of = [("eager", run)] + [("graph", run_as_graph)] * options.graph + PEERS * options.peers
    chosen = cases(options.every, options.only)
    for name, runner in of:
        start = time.monotonic()
        results = [(case, *runner(case)) for case in chosen]
        counts = summary(results)
        print(f"count: onnx nodes, {name}: {counts['pass']} of {len(results)} pass, {counts['refused']} refused, {counts['wrong']} wrong "
              f"({time.monotonic() - start:.0f} s)", flush=True)
        why = collections.Counter(w for _, state, w in results if state == "refused")
        for text, n in why.most_common():
            print(f"| {text} | {n} |" if options.table else f"  refused: {n} {text}")
        if runner in (run, run_as_graph):
            for case, state, w in results:
                if state == "wrong":
                    failed = True
                    print(f"  WRONG {case.name}: {w}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
