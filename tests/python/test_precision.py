"""How exactly float32 matrices are multiplied: settings of the process and of a graph, kept in the plan."""

import numpy as np
import pytest

import sluice as sl
import sluice.nn as nn


@pytest.fixture(autouse=True)
def highest():
    yield
    sl.set_float32_matmul_precision("highest")
    sl.backends.cudnn.allow_tf32 = False


class Net(nn.Graph):
    def __init__(self, dtype=sl.float32):
        super().__init__(name="net")
        self.model = nn.Linear(3, 3).to(dtype)

    def build(self, x):
        return self.model(x) @ x.transpose(0, 1) + x.sum()


def compiled(graph, dtype=sl.float32):
    graph.compile(sl.ones(2, 3, dtype=dtype))
    plan = graph.plan
    return plan["options"].get("float32_matmul_precision"), {k["op"]: k["attrs"].get("precision") for k in plan["kernels"]}


def test_what_is_set_is_part_of_the_plan():
    assert compiled(Net()) == (None, {"linear": None, "matmul": None, "sum": None, "add": None})
    sl.backends.cuda.matmul.allow_tf32 = True
    graph = Net()
    assert compiled(graph) == ("high", {"linear": "high", "matmul": "high", "sum": None, "add": None})
    assert graph.config.options == {"float32_matmul_precision": "high"}
    sl.set_float32_matmul_precision("medium")
    assert compiled(Net())[1]["linear"] == "medium"
    graph = Net()
    graph.config.set_float32_matmul_precision("highest")
    assert compiled(graph)[0] is None


def test_attention_is_products_too():
    class Attention(nn.Graph):
        def __init__(self):
            super().__init__(name="net")
            self.model = nn.Linear(4, 4)
            self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.1))

        def build(self, x):
            q = self.model(x)
            loss = nn.functional.scaled_dot_product_attention(q, q, q).sum()
            loss.backward()
            return loss

    def of(graph):
        graph.compile(sl.ones(1, 2, 3, 4))
        return {k["op"]: k["attrs"].get("precision") for k in graph.plan["kernels"] if "attention" in k["op"]}

    assert of(Attention()) == {"attention": None, "attention_backward": None}
    sl.set_float32_matmul_precision("high")
    assert of(Attention()) == {"attention": "high", "attention_backward": "high"}


def test_convolutions_have_a_setting_of_their_own():
    class Train(nn.Graph):
        def __init__(self):
            super().__init__(name="net")
            self.model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3), nn.Flatten(), nn.Linear(8, 1))
            self.add_optimizer(sl.optim.SGD(self.model.parameters(), lr=0.1))

        def build(self, x):
            loss = self.model(x).sum()
            loss.backward()
            return loss

    def of(graph):
        graph.compile(sl.ones(2, 1, 6, 6))
        return {k["op"]: k["attrs"].get("precision") for k in graph.plan["kernels"] if "conv" in k["op"] or k["op"] in ("linear", "matmul")}

    assert sl.backends.cudnn.allow_tf32 is False
    assert set(of(Train()).values()) == {None}
    sl.backends.cudnn.allow_tf32 = True
    graph = Train()
    assert of(graph) == {"conv": "high", "conv_input_grad": "high", "conv_weight_grad": "high", "linear": None, "matmul": None}
    assert graph.plan["options"]["float32_conv_precision"] == "high"
    graph = Train()
    graph.config.set_float32_conv_precision("highest")
    assert set(of(graph).values()) == {None} and "float32_conv_precision" not in graph.plan["options"]
    with pytest.raises(ValueError, match="set_float32_conv_precision: got 'medium'; must be one of highest, high"):
        Train().config.set_float32_conv_precision("medium")


def test_other_dtypes_are_not_concerned():
    sl.set_float32_matmul_precision("high")
    for dtype in (sl.float64, sl.bfloat16):
        option, attrs = compiled(Net(dtype), dtype)
        assert option == "high" and set(attrs.values()) == {None}


def test_names_are_torchs():
    assert sl.get_float32_matmul_precision() == "highest" and sl.backends.cuda.matmul.allow_tf32 is False
    for precision, tf32 in (("high", True), ("medium", True), ("highest", False)):
        sl.set_float32_matmul_precision(precision)
        assert sl.get_float32_matmul_precision() == precision and sl.backends.cuda.matmul.allow_tf32 is tf32
    sl.backends.cuda.matmul.allow_tf32 = True
    assert sl.get_float32_matmul_precision() == "high"
    sl.backends.cuda.matmul.allow_tf32 = False
    assert sl.get_float32_matmul_precision() == "highest"


def test_unknown_precisions_are_refused():
    message = "set_float32_matmul_precision: got 'low'; must be one of highest, high, medium"
    for setter in (sl.set_float32_matmul_precision, Net().config.set_float32_matmul_precision):
        with pytest.raises(ValueError, match=message):
            setter("low")
    with pytest.raises(AttributeError):
        sl.backends.cuda.matmul.allow_tf16 = True


def test_a_bundle_keeps_it(tmp_path):
    graph = Net()
    graph.config.set_float32_matmul_precision("high")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = graph(sl.from_numpy(x)).numpy()
    sl.save(graph, tmp_path / "net")
    loaded = sl.load_graph(tmp_path / "net")
    assert (loaded(sl.from_numpy(x)).numpy() == expected).all()
    assert "\"precision\": \"high\"" in (tmp_path / "net" / "plan.json").read_text()


def test_flags_of_cudnn_hold_within_their_block():
    with sl.backends.cudnn.flags(enabled=True, allow_tf32=True):
        assert sl.backends.cudnn.allow_tf32 is True
        with sl.backends.cudnn.flags(enabled=False):
            assert sl.backends.cudnn.allow_tf32 is False, "without the library products are float32's"
        with sl.backends.cudnn.flags(enabled=True, fp32_precision="ieee"):
            assert sl.backends.cudnn.allow_tf32 is False
        assert sl.backends.cudnn.allow_tf32 is True
    assert sl.backends.cudnn.allow_tf32 is False
    with pytest.raises(ValueError, match="cudnn.flags: fp32_precision: 'half'; must be 'none', 'ieee' or 'tf32'"):
        with sl.backends.cudnn.flags(fp32_precision="half"):
            pass
