"""The primitive ops: what every other op is made of, held by generated calls that run by them alone (PT-16)."""

import pytest
from autotest_shards import holds

import sluice as sl
from sluice import nn

PRIMS = set(sl.prims.list())
TABLE = sl.prims.decompositions()


def test_every_op_is_primitive_or_made_of_what_is():  # PT-16
    assert PRIMS | set(TABLE) == {name for name in sl._C.ops.__all__ if name in sl._C.composition()} and not PRIMS & set(TABLE)
    assert {"matmul", "add", "exp", "where", "sum"} <= PRIMS and {"conv", "softmax", "lstm_cell"} <= set(TABLE) and len(PRIMS) < 250
    closed = set(PRIMS)
    while more := {op for op, parts in TABLE.items() if op not in closed and set(parts) <= closed}:
        closed |= more
    assert closed == PRIMS | set(TABLE), set(TABLE) - closed
    assert TABLE["linear"] and set(TABLE["linear"]) <= {"matmul", "add", "permute", "reshape", "relu", "tanh", "gelu", "sigmoid", "silu"}


class Net(nn.Graph):
    def __init__(self, prims):
        super().__init__()
        sl.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Linear(64, 8), nn.LayerNorm(8))
        self.add_optimizer(sl.optim.AdamW(self.net.parameters(), lr=0.01))
        self.config.decompose_to_prims(prims)

    def build(self, x, y):
        loss = nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def test_a_graph_computes_by_primitive_ops_alone():  # PT-16
    graph, plain, x, y = Net(True), Net(False), sl.randn(5, 3, 6, 6), sl.arange(5)
    for _ in range(3):
        assert graph(x, y).item() == pytest.approx(plain(x, y).item(), rel=1e-4)
    moves = {"copy", "reorder"}
    assert {k["op"] for k in graph.plan["kernels"]} <= PRIMS | moves and not {k["op"] for k in plain.plan["kernels"]} <= PRIMS | moves
    assert graph.config.report()["decompose_to_prims"] > 5


# Functions that call ops which are not primitive.
@pytest.mark.parametrize("op", [
    "softmax", "nn.functional.log_softmax", "nn.functional.linear", "nn.functional.layer_norm", "nn.functional.batch_norm",
    "nn.functional.cross_entropy", "nn.functional.gelu", "nn.functional.silu", "nn.functional.scaled_dot_product_attention",
    "nn.functional.hardswish", "nn.functional.group_norm", "std", "logsumexp", "nn.LSTM", "nn.GRU", "nn.functional.interpolate"])
def test_generated_calls_by_primitive_ops_are_torchs(op):  # PT-16
    holds(op, decomposed=True)
