"""A chain of pointwise ops on a GPU, and the memory that its copies use, on the driver without a GPU (test_cuda_fake.py)."""

import pytest

from test_cuda_fake import BACKEND, COMMON, run_on_gpu

pytestmark = pytest.mark.skipif(not BACKEND.exists(), reason="built without the CUDA backend")
__all__ = ["run_on_gpu"]

CHAIN = COMMON + """
class Chain(nn.Graph):
    def __init__(self, device, graphs=True):
        super().__init__(name="chain")
        configure(self, device, graphs)
    def build(self, x, y):
        return sl.sigmoid(((x * 2 + y).tanh() - 0.5).abs().sqrt() * y.exp() / 3 + x.sin() * x).relu()

random = np.random.default_rng(0)
x, y = (sl.from_numpy(random.normal(size=(7, 33)).astype(np.float32)) for _ in range(2))
graph = Chain("cuda:0")
result = graph(x, y).numpy()
for _ in range(3):
    graph(x, y)
"""


def test_a_chain_of_pointwise_ops_is_one_kernel(run_on_gpu):
    """The trace has one kernel a step on the compute stream, and its text has each op once."""
    assert run_on_gpu(CHAIN + """
np.testing.assert_allclose(result, Chain("cpu")(x, y).numpy(), rtol=1e-6)
[kernel] = [k for k in graph.plan["kernels"] if k["op"] != "copy"]
assert kernel["op"] == "fused" and launches(graph, 3) == 1
[text] = graph.kernel_sources().values()
assert text.count("__global__") == 1
assert text.count("rounded<float>(Step") == len(kernel["attrs"]["body"]["graph"]["calls"]) == 14, text
for call in ("tanh(a)", "fabs(a)", "sqrt(a)", "exp(a)", "sin(a)"):
    assert text.count(f"return {call};") == 1, (call, text)
print("equal")
""").endswith("equal\n")


def test_copies_of_a_gpu_use_pinned_memory_that_plan_viz_shows(run_on_gpu):
    told = run_on_gpu(CHAIN + """
import subprocess, os
sl.save(graph, "bundle")
spaces = {space["kind"] for space in graph.plan["spaces"]}
assert spaces == {"host", "pinned", "device"} or spaces == {"pinned", "device"}, spaces
print(subprocess.run([os.path.join(os.environ["SLUICE_BUILD"], "tools/plan-viz"), "mem", "bundle"], capture_output=True, text=True, check=True).stdout)
""", SLUICE_BUILD=str(BACKEND.parent))
    assert "pinned:cuda:0" in told and "registers/pinned:cuda:0" in told
