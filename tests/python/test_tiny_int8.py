"""Networks of 8-bit integers that train: integers against numpy, gradients against floats, and the same bits in C."""

import re

import numpy as np
import pytest

import sluice as sl
from sluice.tiny import Scheme, TrainStep, quantize
from sluice.tiny._int8 import layers_of
from sluice.tiny._steps import int8_sgd
from test_tiny import arm, check, pictures


def network(seed=0):
    sl.manual_seed(seed)
    return sl.nn.Sequential(sl.nn.Conv2d(1, 8, 3, padding=1), sl.nn.ReLU(), sl.nn.Conv2d(8, 16, 3, stride=2, padding=1),
                            sl.nn.ReLU(), sl.nn.Flatten(), sl.nn.Linear(256, 10))


def integers(seed=0):
    return quantize(network(seed), [x for x, _ in pictures(20)])


def stepped(param, grad, lr, step, rounding, seed):
    """int8_sgd in numpy, with sums of float32 and a hash of 32-bit words."""
    v = param.astype(np.float32) - grad * np.float32(lr)
    if rounding == "nearest":
        v = np.rint(v)
    else:
        words = 0xffffffff
        places = np.arange(param.size, dtype=np.uint64).reshape(param.shape)
        h = (places * 0x9e3779b1 + np.uint64(step) * 0x85ebca77 + np.uint64(seed) * 0x27d4eb2f) & words
        h = ((h ^ (h >> 16)) * 0x7feb352d) & words
        h = ((h ^ (h >> 15)) * 0x846ca68b) & words
        h = (h ^ (h >> 16)) >> 8
        v = np.floor(v + h.astype(np.float32) * np.float32(2.0 ** -24))
    return np.clip(v, -127, 127).astype(np.int8)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_steps_of_integers_are_exact(rounding):
    random = np.random.default_rng(0)
    for step in range(4):
        param = random.integers(-127, 128, (5, 7, 3)).astype(np.int8)
        grad = random.normal(0, 3, param.shape).astype(np.float32)
        got = int8_sgd(sl.tensor(param), sl.tensor(grad), sl.tensor(0.5), sl.tensor(step), rounding=rounding, seed=step)
        np.testing.assert_array_equal(got.numpy(), stepped(param, grad, 0.5, step, rounding, step))


def test_stochastic_rounding_has_no_bias(count):
    many = int8_sgd(sl.zeros(100, 100).to(sl.int8), sl.full((100, 100), -0.3), sl.tensor(1.0), sl.tensor(1))
    count("weights of 10,000 that a step of 0.3 has moved", int(many.to(sl.float32).sum().item()), "by stochastic rounding")
    assert abs(many.to(sl.float32).mean().item() - 0.3) < 0.02


def test_a_wrong_rounding_is_refused():
    with pytest.raises(ValueError, match='rounding is "up"; must be nearest, stochastic or carry'):
        TrainStep(integers(), lr=0.1, rounding="up")


def test_results_and_gradients_are_near_to_those_of_floats(count):
    """Where a ReLU's operand rounds to 0, its gradient is another one: gradients point the same way, and are as long."""
    net, floats, angles = integers(), network(), []
    for x, _ in pictures(4):
        np.testing.assert_allclose(net(x).detach().numpy(), floats(x).detach().numpy(), atol=0.01)
        slopes = []
        for model in (net, floats):
            given = x.clone().requires_grad_(True)
            model(given).sum().backward()
            slopes.append(given.grad.numpy().ravel())
        ours, theirs = slopes
        np.testing.assert_allclose(np.linalg.norm(ours), np.linalg.norm(theirs), rtol=0.1)
        angles.append(float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)))
    count("least cosine between gradients of integers and of floats", min(angles), f"of {len(angles)}")
    assert min(angles) > 0.95


def train_floats(net, steps, seed):
    optimizer, losses = sl.optim.SGD(net.parameters(), lr=0.05), []
    for x, y in pictures(steps, seed):
        optimizer.zero_grad()
        loss = sl.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_scaled_gradients_train_and_others_do_not(count):
    """A network that has learned four classes learns four others: as integers with scaling nearly as it does as floats."""
    net = network()
    train_floats(net, 100, seed=0)
    start = {name: value.clone() for name, value in net.state_dict().items()}

    def of_integers(qas):
        net.load_state_dict(start)
        seen = [x for seed in (0, 1) for x, _ in pictures(20, seed)]
        step = TrainStep(quantize(net, seen), lr=0.05, qas=qas)
        return [step(*sample).item() for sample in pictures(100, seed=1)]

    scaled, plain = of_integers(True), of_integers(False)
    net.load_state_dict(start)
    floats = train_floats(net, 100, seed=1)
    ends = [float(np.mean(values[-20:])) for values in (floats, scaled, plain)]
    count("loss at the end of floats", ends[0], f"{ends[1]:.3f} of integers with scaling, {ends[2]:.3f} without")
    assert ends[1] < 1.3 * ends[0] + 0.1 and ends[2] > 2 * ends[1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    step = TrainStep(integers(), lr=0.05)
    first = {name: value.clone() for name, value in step.net.state_dict().items()}
    step(*next(pictures(1)))
    step.net.load_state_dict(first)
    return sl.tiny.export(step, tmp_path_factory.mktemp("int8"), name="int8", samples=pictures(50))


def test_bits_of_integers_are_the_engines_on_this_machine(exported):
    assert check(exported.directory, "sanitized") == 50


@arm
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_bits_of_integers_are_the_engines_on_a_microcontroller(exported, core):
    assert check(exported.directory, f"run-{core}") == 50


def test_weights_are_a_quarter_and_no_activation_is_kept_as_floats(exported, count):
    weights = 4 * (72 + 1152 + 2560)
    state = sum(t.bytes for t in exported.tensors if t.kind == "state" and t.name.endswith("weight"))
    assert state == weights // 4
    count("bytes of memory and state of a step of integers", exported.memory, exported.state)


def test_gradients_that_wait_change_no_loss():
    losses = []
    for late in (False, True):
        step = TrainStep(integers(), lr=0.05, late=late)
        losses.append([step(*sample).item() for sample in pictures(5)])
    assert losses[0] == losses[1]


def test_inputs_may_be_integers_of_the_first_layer():
    """An image of a camera needs no copy as floats: its bytes are what the first layer would make of them."""
    images = [sl.tensor(np.random.default_rng(i).integers(0, 256, (1, 1, 8, 8)).astype(np.uint8)) for i in range(4)]
    floats = [image.to(sl.float32) / 255 for image in images]
    net = quantize(network(), [sl.ones(1, 1, 8, 8), *floats])
    for image, x in zip(images, floats):
        np.testing.assert_array_equal(net(image).detach().numpy(), net(x).detach().numpy())


def test_what_stays_takes_a_byte_in_flash_and_no_ram(tmp_path, count):
    """A part of a weight changes; the rest of it, and a layer behind it, through which gradients go, lie in flash once, as int8."""
    step = TrainStep(integers(), lr=0.05, scheme="weights 0: 1\nweights 2: 0.25\nbiases: 0 2\n")
    first = {name: value.clone() for name, value in step.net.state_dict().items()}
    step(*next(pictures(1)))
    step.net.load_state_dict(first)
    made = sl.tiny.export(step, tmp_path, name="sparse", samples=pictures(10))
    assert check(made.directory, "sanitized") == 10
    of = {kind: {t.name: t.bytes for t in made.tensors if t.kind == kind} for kind in ("state", "constant", "memory")}
    assert of["state"]["net.0.weight"] == 72 and of["state"]["net.2.weight"] == 2 * 16 * 9
    assert of["constant"]["net.2.weight_stays"] == 6 * 16 * 9 and of["constant"]["net.5.weight"] == 2560
    assert max(bytes for name, bytes in of["constant"].items() if name != "net.5.weight") <= 6 * 16 * 9
    count("bytes of what stays", made.constants, f"{made.state} of what changes")


def changed(scheme):
    net = integers()
    step = TrainStep(net, lr=0.5, scheme=scheme)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for sample in pictures(3):
        step(*sample)
    return {name: (value != before[name]).numpy() for name, value in net.state_dict().items()
            if name.endswith(("weight", "bias")) and (value != before[name]).any().item()}


@pytest.mark.parametrize("scheme, weights, biases", [
    ("full", "0 2 5", "0 2 5"), ("last-only", "5", "5"), ("bias-only", "5", "0 2 5"),
    ("n_bias_update: 2\nmanual_weight_idx: 1\nweight_update_ratio: 0.5\n", "2", "2 5"),
    ("weights 2: 0.25  # a quarter\nbiases: 5\n", "2", "5"),
])
def test_a_scheme_says_which_tensors_change(scheme, weights, biases):
    found = changed(scheme)
    assert set(found) == {f"{n}.weight" for n in weights.split()} | {f"{n}.bias" for n in biases.split()}
    ratio = {"n": 0.5, "w": 0.25}.get(scheme[0])
    if ratio is not None and ":" in scheme:
        columns = found["2.weight"].any((0, 2, 3))
        assert not columns[round(8 * ratio):].any() and columns[:round(8 * ratio)].any()


def test_a_part_changes_as_it_does_when_all_of_the_weight_does():
    """Only the part's gradient is computed, and it is the same."""
    made, shapes = [], []
    for ratio in (1, 0.5, 0.125):
        net = integers()
        step = TrainStep(net, lr=5.0, rounding="nearest", scheme=f"weights 2: {ratio}")
        before = net.get_submodule("2").whole().numpy()
        step(*next(pictures(1)))
        shapes += [k["outputs"][0]["shape"] for k in step.plan["kernels"] if k["op"] == "conv_weight_grad"]
        made.append(net.get_submodule("2").whole().numpy())
    assert shapes == [[16, 8, 3, 3], [16, 4, 3, 3], [16, 1, 3, 3]]
    for part, columns in zip(made[1:], (4, 1)):
        np.testing.assert_array_equal(part[:, :columns], made[0][:, :columns])
        np.testing.assert_array_equal(part[:, columns:], before[:, columns:])
        assert (part[:, :columns] != before[:, :columns]).any()


@pytest.mark.parametrize("text, told", [
    ("# no such\nweights 7: 0.5\n", r"scheme:2: unknown layers \['7'\]; the network has \['0', '2', '5'\]"),
    ("biases: 2 x 5\n", r"scheme:1: unknown layers \['x'\]; the network has \['0', '2', '5'\]"),
    (Scheme({"7": 1.0}), r"scheme: unknown layers \['7'\]; the network has \['0', '2', '5'\]"),
    ("weights 2: 1.5\n", r"scheme:1: ratio '1.5'; must be above 0, and 1 at most"),
    ("\nmanual_weight_idx: 3\n", r"scheme:2: '3'; must be numbers of layers below 3"),
    ("manual_weight_idx: 0-1\nweight_update_ratio: 1-1-1\n", r"scheme:1: 2 layers and 3 ratios"),
    ("weight_update_ratio: 1\n", "scheme:1: weight_update_ratio without manual_weight_idx"),
    ("n_bias_update: 4\n", "scheme:1: '4'; must be a number of layers, of which there are 3"),
    ("layers: 2\n", "scheme:1: 'layers'; must be weights LAYER, biases"),
    ("weights 0: 0.5\n", "scheme: 0: ratio 0.5; its weight has one input channel"),
    ("nowhere.txt", "scheme: 'nowhere.txt'; no such file|scheme: 'nowhere.txt': no such file"),
])
def test_a_wrong_scheme_is_refused_with_its_line(text, told):
    with pytest.raises(ValueError, match=told):
        TrainStep(integers(), lr=0.1, scheme=text)


def test_schemes_are_read_from_files(tmp_path):
    (tmp_path / "sparse.txt").write_text("weights 5: 1\nbiases: 5\n")
    net = integers()
    assert Scheme.of(net, tmp_path / "sparse.txt") == Scheme.of(net, "last-only")
    for scheme in ("full", "weights 2: 0.3333333333\nbiases: 5 0\n"):
        assert Scheme.of(net, str(Scheme.of(net, scheme))) == Scheme.of(net, scheme)
    assert list(layers_of(net)) == ["0", "2", "5"]


def test_the_memory_of_schemes(exported, count):
    table = sl.tiny.memory_table(network(), [x for x, _ in pictures(20)], next(pictures(1)),
                                 {"full": "full", "bias-only": "bias-only", "half of one": "weights 2: 0.5\nbiases: 2",
                                  "last-only": "last-only"})
    rows = {row.scheme: row for row in table}
    assert (rows["full"].memory, rows["full"].state) == (exported.memory, exported.state)
    assert rows["full"].ram > rows["bias-only"].ram > rows["last-only"].ram
    assert rows["half of one"].state < rows["full"].state
    full = rows["full"]
    assert str(table).splitlines()[1].split() == ["full", str(full.flash), str(full.state), str(full.late_ram), str(full.ram), "1.0x",
                                                  f"{full.late_ram / full.ram:.1f}x"]
    assert full.late_ram > full.ram
    count("bytes of RAM under schemes", rows["full"].ram, [(row.scheme, row.ram) for row in table[1:]])


def test_scales_are_text_and_read_again_give_the_same_bits(tmp_path):
    path, net = tmp_path / "scales.txt", integers()
    sl.tiny.write_scales(net, path)
    x = next(pictures(1))[0]
    again = quantize(network(), [x], scales=path)
    np.testing.assert_array_equal(again(x).detach().numpy(), net(x).detach().numpy())
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name].numpy(), value.numpy())
    lines = [line.split() for line in path.read_text().splitlines()[1:]]
    assert [line[:3] for line in lines[:3]] == [["0", "input", "uint8"], ["0", "output", "uint8"], ["0", "weight", "int8"]]
    assert {line[0]: len(line) - 3 for line in lines if line[1] == "weight"} == {"0": 8, "2": 16, "5": 10}
    assert lines[-2] == ["5", "output", "float32"]


@pytest.mark.parametrize("line, becomes, told", [
    (2, "7 input uint8 0.1", "scales.txt:2: unknown layer '7'; the network has ['0', '2', '5']"),
    (2, "0 input int16 0.1", "scales.txt:2: dtype int16; must be uint8 or int8"),
    (3, "0 output uint8 -0.1", "scales.txt:3: scale '-0.1'; must be a number above 0"),
    (3, "0 output uint8 0.1 0.2", "scales.txt:3: 2 scales; '0 output' has 1"),
    (3, "0 input uint8 0.1", "scales.txt:3: '0 input' is there twice; must be once"),
    (4, "0 weight int8 0.1 0.2", "scales.txt:4: 2 scales; the weight of '0' has 8"),
    (4, "0 weight float32 0.1", "scales.txt:4: a weight of float32; must be of int8"),
    (5, "2 inputs uint8 0.1", "scales.txt:5: '2 inputs uint8 0.1'; must be LAYER, one of input, output, weight"),
    (10, "", "scales.txt:11: no line '5 weight'; the network has this tensor"),
])
def test_scales_that_do_not_match_are_refused_with_their_line(line, becomes, told, tmp_path):
    path = tmp_path / "scales.txt"
    sl.tiny.write_scales(integers(), path)
    lines = path.read_text().splitlines()
    lines[line - 1] = becomes
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=re.escape(told)):
        quantize(network(), [sl.zeros(1, 1, 8, 8)], scales=path)


class Blocks(sl.nn.Module):
    """What is behind a convolution is seen from a call, not from containers; a ReLU that is called twice stays."""

    def __init__(self, shared=False):
        super().__init__()
        self.conv1, self.bn1 = sl.nn.Conv2d(1, 4, 3, bias=False), sl.nn.BatchNorm2d(4)
        self.conv2, self.relu, self.shared = sl.nn.Conv2d(4, 4, 3, padding=1), sl.nn.ReLU(inplace=True), shared
        self.last, self.clip = sl.nn.Conv2d(4, 3, 1), sl.nn.ReLU6()
        for value in (self.bn1.weight, self.bn1.bias, self.bn1.running_mean):
            value.data.copy_(sl.randn(4))

    def forward(self, x):
        first = self.conv1(x)
        y = self.relu(self.bn1(first))
        y = self.relu(self.conv2(y)) + (first if self.shared else y)
        return self.clip(self.last(y)).mean((2, 3))


def test_norms_and_activations_are_found_by_a_call():
    sl.manual_seed(0)
    net, images = Blocks().eval(), [sl.rand(1, 1, 8, 8) for _ in range(4)]
    made = quantize(net, images)
    kinds = {name: type(module).__name__ for name, module in made.named_modules()}
    assert kinds["bn1"] == "Identity" and kinds["relu"] == "ReLU" and kinds["clip"] == "Identity"
    for x in images:
        np.testing.assert_allclose(made(x).detach().numpy(), net(x).detach().numpy(), atol=0.03)


class InPlace(sl.nn.Module):
    """A sum in place makes another value of what the norm has given, so that the ReLU is behind the sum alone."""

    def __init__(self, padding="same"):
        super().__init__()
        self.conv = sl.nn.Conv2d(2, 2, (3, 5), padding=padding, dilation=(2, 1))
        self.norm, self.relu = sl.nn.BatchNorm2d(2), sl.nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.relu(y)


def test_sums_in_place_and_padding_by_name():
    sl.manual_seed(0)
    images = [sl.randn(1, 2, 8, 8) for _ in range(4)]
    net = InPlace().eval()
    made = quantize(net, images)
    assert type(made.norm).__name__ == "Identity" and type(made.relu).__name__ == "ReLU"
    for x in images:
        np.testing.assert_allclose(made(x).detach().numpy(), net(x).detach().numpy(), atol=0.06)
    uneven = sl.nn.Sequential(sl.nn.Conv2d(2, 2, 2, padding="same"))
    with pytest.raises(ValueError, match="its padding must be zeros, as many on either side"):
        quantize(uneven.eval(), images)


@pytest.mark.parametrize("made, batches, told", [
    (lambda: sl.nn.ReLU(), [1], "the network has no Conv2d and no Linear"),
    (network, [], "there are no batches"),
    (lambda: Blocks(shared=True).eval(), [1], "reads a result of a Conv2d both with and without the BatchNorm2d or ReLU behind it"),
])
def test_what_cannot_become_integers_is_refused(made, batches, told):
    sl.manual_seed(0)
    with pytest.raises(ValueError, match=told):
        quantize(made(), [sl.rand(1, 1, 8, 8) for _ in batches])
