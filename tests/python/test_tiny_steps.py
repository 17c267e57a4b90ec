"""What steps of integers leave for later ones: rests of rounding, and sums of gradients."""

import numpy as np
import pytest

import sluice as sl
from sluice.tiny import TrainStep
from sluice.tiny._steps import int8_sgd, int8_sgd_carry
from test_tiny import arm, check, pictures
from test_tiny_int8 import integers


def test_carried_steps_are_exact():
    """Against sums of float32 in numpy, also where weights saturate."""
    random = np.random.default_rng(0)
    param, rest = random.integers(-127, 128, (5, 7, 3)).astype(np.int8), np.zeros((5, 7, 3), np.int8)
    for _ in range(6):
        grad = random.normal(0, 30, param.shape).astype(np.float32)
        moved, left = int8_sgd_carry(sl.tensor(param), sl.tensor(rest), sl.tensor(grad), sl.tensor(0.5))
        value = param.astype(np.float32) + rest.astype(np.float32) * np.float32(1 / 256) - grad * np.float32(0.5)
        param = np.clip(np.rint(value), -127, 127).astype(np.int8)
        rest = np.clip(np.rint((value - param) * np.float32(256)), -128, 127).astype(np.int8)
        np.testing.assert_array_equal(moved.numpy(), param)
        np.testing.assert_array_equal(left.numpy(), rest)
    assert np.abs(param).max() == 127


def test_short_steps_add_up_where_they_are_carried(count):
    """Steps of 0.1: to the nearest integer they are lost; carried, twenty of them are the two that they amount to."""
    grad = sl.full((1000,), -0.1)
    nearest = param = sl.zeros(1000, dtype=sl.int8)
    rest = sl.zeros(1000, dtype=sl.int8)
    for step in range(20):
        nearest = int8_sgd(nearest, grad, sl.tensor(1.0), sl.tensor(step), "nearest")
        param, rest = int8_sgd_carry(param, rest, grad, sl.tensor(1.0))
    moved = param.to(sl.float32) + rest.to(sl.float32) / 256
    count("mean of weights after 20 steps of 0.1 that are carried", round(moved.mean().item(), 4), "0 to the nearest")
    assert nearest.abs().max().item() == 0 and abs(moved.mean().item() - 2) < 20 * 2 ** -9


def losses_of(step, samples):
    return [step(*sample).item() for sample in samples]


def test_carried_steps_train_as_stochastic_ones_do(count):
    """With steps so short that many to the nearest integer are lost."""
    ends = {rounding: float(np.mean(losses_of(TrainStep(integers(), lr=0.01, rounding=rounding), pictures(80))[-12:]))
            for rounding in ("stochastic", "carry", "nearest")}
    count("loss at the end by rounding", round(ends["carry"], 4), ends)
    assert abs(ends["carry"] - ends["stochastic"]) < 0.01 and ends["nearest"] > ends["carry"] + 0.03


def state(step):
    return {name: value.numpy().copy() for name, value in step.net.state_dict().items() if name.endswith((".weight", ".bias"))}


def test_weights_change_in_the_last_of_several_steps_by_the_mean_gradient():
    """Of the same picture thrice, the mean gradient is that of one step. Pictures that differ count alike."""
    sample = next(pictures(1))
    once, thrice = TrainStep(integers(), lr=5.0, rounding="nearest"), TrainStep(integers(), lr=5.0, rounding="nearest", accumulate=3)
    before = state(thrice)
    once(*sample)
    for step in range(3):
        now = state(thrice)
        assert all((now[name] == before[name]).all() for name in before), step
        thrice(*sample)
    for name, value in state(once).items():
        np.testing.assert_allclose(state(thrice)[name].astype(np.float32), value.astype(np.float32), atol=1e-4, err_msg=name)
        assert (value != before[name]).any()
    assert all((value.abs().max().item() == 0) for name, value in thrice.net.state_dict().items() if name.endswith("_sum"))


@pytest.mark.parametrize("options", [{"rounding": "carry"}, {"accumulate": 4}, {"rounding": "carry", "accumulate": 3, "scheme": "weights 2: 0.5\nbiases: 5"}])
def test_what_is_left_for_later_steps_has_the_engines_bits_in_c(options, tmp_path, count):
    step = TrainStep(integers(), lr=0.05, **options)
    step.compile(*next(pictures(1)))
    made = sl.tiny.export(step, tmp_path, name="later", samples=pictures(20))
    assert check(made.directory, "sanitized") == 20
    kept = {t.name.rpartition(".")[2]: t.bytes for t in made.tensors if t.kind == "state" and t.name.endswith(("_rest", "_sum"))}
    assert ("weight_rest" in kept) == (options.get("rounding") == "carry") and ("weight_sum" in kept) == ("accumulate" in options)
    count("bytes of state of a step that leaves something", made.state, kept)


@arm
def test_sums_of_steps_have_the_engines_bits_on_a_microcontroller(tmp_path):
    step = TrainStep(integers(), lr=0.05, rounding="carry", accumulate=2)
    step.compile(*next(pictures(1)))
    assert check(sl.tiny.export(step, tmp_path, name="later", samples=pictures(6)).directory, "run-cortex-m4") == 6


@pytest.mark.parametrize("many", [0, -1, 2.0, None])
def test_a_wrong_number_of_steps_is_refused(many):
    with pytest.raises(ValueError, match=r"TrainStep: accumulate is .*; must be a number of steps, 1 or more"):
        TrainStep(integers(), lr=0.1, accumulate=many)
