"""sluice.testing: actors alone, recorded registers, assert_close."""

import json
import re

import numpy as np
import pytest
import torch

import sluice as sl
import sluice.nn as nn
from sluice.testing import ActorHarness, assert_close, record


def twice(array):
    return array * 2


def test_an_op_alone():  # HOL-04
    ActorHarness(sl.ops.relu).feed(sl.tensor([-1.0, 2.0])).expect([0.0, 2.0]).expect_firings(1)
    ActorHarness(sl.ops.sum, dim=[0], keepdim=False).feed(sl.ones(2, 3)).expect([2.0, 2.0, 2.0])


def test_a_module_alone_takes_tokens_in_order():  # HOL-04
    linear = nn.Linear(3, 2)
    tokens = [sl.rand(4, 3) for _ in range(6)]
    harness = ActorHarness(linear)
    for token in tokens:
        harness.feed(token)
    for token in tokens:
        harness.expect(linear(token), rtol=1e-6, atol=1e-6)
    harness.expect_firings(6)


def test_a_function_alone_and_its_failures():  # HOL-04
    def positive(array):
        if array[0] < 0:
            raise ValueError("negative")
        return array + 1

    harness = ActorHarness(positive, out=((2,), sl.float32))
    harness.feed([1.0, 2.0]).feed([-1.0, 0.0]).feed([3.0, 4.0])
    harness.expect([2.0, 3.0]).expect_error(RuntimeError, "negative").expect([4.0, 5.0])


def test_several_inputs_and_outputs():  # HOL-04
    both = ActorHarness(lambda a, b: (a + b, a * b), name="both")
    both.feed(sl.tensor([1.0, 2.0]), sl.tensor([3.0, 4.0])).expect([4.0, 6.0], [3.0, 8.0])


def test_the_harness_finds_what_is_wrong():
    with pytest.raises(AssertionError, match=r"actor 'relu', result 0: Tensor-likes are not equal![\s\S]*Mismatched elements: 1 / 2"):
        ActorHarness(sl.ops.relu).feed(sl.tensor([-1.0, 2.0])).expect([-1.0, 2.0])
    with pytest.raises(AssertionError, match="fired 1 times; expected 2"):
        ActorHarness(sl.ops.relu).feed(sl.ones(1)).expect_firings(2)
    with pytest.raises(AssertionError, match="the firing succeeded"):
        ActorHarness(sl.ops.relu).feed(sl.ones(1)).expect_error(RuntimeError)
    with pytest.raises(AssertionError, match="no token is left"):
        ActorHarness(sl.ops.relu).expect(1.0)
    with pytest.raises(AssertionError, match="gave 1 values; 2 were expected"):
        ActorHarness(sl.ops.relu).feed(sl.ones(1)).expect(1.0, 1.0)


class Train(nn.Graph):
    """Two actors: a Python function, and a network with its update."""

    def __init__(self):
        super().__init__(name="train")
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        self.add_optimizer(sl.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9))

    def build(self, x):
        y = sl.host_function(twice, x, out=((3, 4), sl.float32))
        loss = self.net(y).square().mean()
        loss.backward()
        return loss


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("recorded")
    graph = Train().compile(sl.ones(3, 4))
    sl.manual_seed(1)
    return directory, record(graph, directory, ["net", "cpu:0/host0"], [sl.rand(3, 4) for _ in range(8)], {"twice": twice})


def test_recorded_registers_replay_into_one_actor_bit_by_bit(recorded, count):  # HOL-04
    directory, steps = recorded
    assert sorted(steps[0]) == ["host_function", "output", "x"]
    assert np.array_equal(steps[0]["host_function"].numpy(), 2 * steps[0]["x"].numpy())
    net = ActorHarness.from_plan(directory / "bundle", actor="net")
    assert net.replay(directory) == 8 and net.firings == 8
    host = ActorHarness.from_plan(directory / "bundle", actor="cpu:0/host0", functions={"twice": twice})
    assert host.replay(directory) == 8
    count("recorded tokens replayed bit by bit", 16, "firings")


def test_replay_notices_a_changed_actor(recorded):
    directory, _ = recorded
    host = ActorHarness.from_plan(directory / "bundle", actor="cpu:0/host0", functions={"twice": lambda a: a * np.float32(2.0000002)})
    with pytest.raises(AssertionError, match="step 0, register 'host_function': Tensor-likes are not equal!"):
        host.replay(directory)


def test_what_cannot_be_recorded_is_named(recorded, tmp_path):
    bundle = recorded[0] / "bundle"
    with pytest.raises(ValueError, match=r"'nothing' is no actor; actors are \['cpu:0/host0', 'cpu:0/compute0'\]"):
        ActorHarness.from_plan(bundle, actor="nothing")
    with pytest.raises(FileNotFoundError, match="no recorded step"):
        ActorHarness.from_plan(bundle, actor="net").replay(tmp_path)
    with pytest.raises(TypeError, match="from_plan"):
        ActorHarness(sl.ops.relu).replay(tmp_path)


def test_an_actor_that_reads_anothers_variables_is_refused(tmp_path, without_digest):
    bundle = tmp_path / "bundle"
    graph = Train().compile(sl.ones(3, 4))
    sl.save(graph, bundle)
    without_digest(bundle)
    plan = json.loads((bundle / "plan.json").read_text())
    writer = next(a for a in plan["actors"] if a["name"] == "cpu:0/compute0")
    other = {**writer, "name": "other", "program": [i for i in writer["program"] if i[0] == "run"]}
    plan["actors"].append(other)
    (bundle / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(NotImplementedError, match="reads variables that other actors write: .*net.0.weight"):
        ActorHarness.from_plan(bundle, actor="other")


# assert_close


def message(check, ours, theirs, **options):
    try:
        check(ours, theirs, **options)
    except AssertionError as error:
        return re.sub(r"torch\.(?=Size|float|int|bool)", "sluice.", str(error))
    return None


PAIRS = [([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]), ([1.0], [1.0 + 1e-7]), ([1.0, 2.0], [1.0]), ([[1.0, 5.0], [0.5, 2.0]], [[1.0, 2.0], [3.0, 4.0]]),
         ([1, 2], [1, 2]), ([1, 5], [1, 2]), ([1, 2], [1.0, 2.0]), ([True, False], [True, True]), (1.0, 2.0), (1, 3),
         ([float("nan")], [float("nan")]), ([0.0, 1.0], [0.0, 1.1]), ([], [])]


@pytest.mark.parametrize("ours, theirs", PAIRS)
def test_assert_close_says_what_torch_says(ours, theirs):
    a, b = sl.tensor(ours), sl.tensor(theirs)
    x, y = torch.tensor(ours), torch.tensor(theirs)
    assert message(assert_close, a, b) == message(torch.testing.assert_close, x, y)
    assert message(assert_close, a, b, rtol=0, atol=0.5) == message(torch.testing.assert_close, x, y, rtol=0, atol=0.5)
    assert (message(assert_close, a, b, equal_nan=True) is None) == (message(torch.testing.assert_close, x, y, equal_nan=True) is None)


def test_assert_close_walks_containers_and_numbers():
    assert_close({"a": [1.0, sl.ones(2)]}, {"a": [1.0, sl.ones(2)]})
    with pytest.raises(AssertionError, match=r"The failure occurred for item \['a'\]\[1\]"):
        assert_close({"a": [1.0, sl.ones(2)]}, {"a": [1.0, sl.zeros(2)]})
    with pytest.raises(AssertionError, match="length of the sequences do not match: 1 != 2"):
        assert_close([1.0], [1.0, 2.0])
    with pytest.raises(AssertionError, match="keys of the mappings"):
        assert_close({"a": 1}, {"b": 1})
    assert message(assert_close, 1.0, 2.0) == message(torch.testing.assert_close, 1.0, 2.0)
    assert message(assert_close, 1, 2, rtol=0, atol=0) == message(torch.testing.assert_close, 1, 2, rtol=0, atol=0)
    with pytest.raises(ValueError, match="rtol and atol must both"):
        assert_close(1.0, 1.0, rtol=1.0)
    with pytest.raises(AssertionError, match="mine"):
        assert_close(1.0, 2.0, msg="mine")
