"""Schedules against torch: misuse, odd settings, fractional epochs, rates that are tensors."""

import warnings

import pytest
import torch
from optimizing import Training, assert_close, batches, ours_of, quadratic, train

import sluice as sl
import sluice.nn as nn
from scheduling import CASES, L, assert_settings, optimizers, resumed, s, series, settings

pytestmark = pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # torch, too, of schedules in schedules


def test_misuse_is_torchs():
    for lib in (sl, torch):
        _, optimizer = optimizers(lib)
        _, other = optimizers(lib)
        S = s(lib)
        e = S.ExponentialLR(optimizer, 0.9)
        for wrong, kind, message in [
            (lambda: S.StepLR(None, 1), TypeError, "is not an Optimizer"),
            (lambda: S.ConstantLR(optimizer, 1.5), ValueError, "between 0 and 1"),
            (lambda: S.LinearLR(optimizer, 0.0), ValueError, "greater than 0"),
            (lambda: S.LinearLR(optimizer, 0.5, 2), ValueError, "Ending"),
            (lambda: S.LambdaLR(optimizer, [abs]), ValueError, "Expected 2 lr_lambdas, but got 1"),
            (lambda: S.MultiplicativeLR(optimizer, 3), TypeError, "lr_lambda should be a function, but got int"),
            (lambda: S.CosineAnnealingWarmRestarts(optimizer, 0), ValueError, "Expected positive integer T_0, but got 0"),
            (lambda: S.CosineAnnealingWarmRestarts(optimizer, 3, 0), ValueError, "Expected integer T_mult >= 1"),
            (lambda: S.OneCycleLR(optimizer, 0.1), ValueError, "You must define either total_steps OR"),
            (lambda: S.OneCycleLR(optimizer, 0.1, 5, pct_start=2.0), ValueError, "pct_start, but got 2.0"),
            (lambda: S.OneCycleLR(optimizer, 0.1, 5, anneal_strategy="x"), ValueError, "must be (one of )?'cos' or 'linear'"),
            (lambda: S.CyclicLR(optimizer, 0.1, [0.2]), ValueError, "same length"),
            (lambda: S.CyclicLR(optimizer, 0.1, 0.2, mode="x"), ValueError, "mode"),
            (lambda: S.CyclicLR(lib.optim.Adagrad(optimizer.param_groups[0]["params"]), 0.1, 0.2), ValueError,
             "must support momentum or beta1"),
            (lambda: S.SequentialLR(optimizer, [], []), ValueError, "at least one scheduler"),
            (lambda: S.SequentialLR(optimizer, [e, S.StepLR(other, 1)], [1]), ValueError, "belong to the same optimizer"),
            (lambda: S.SequentialLR(optimizer, [e], [1]), ValueError, "one more than the number of milestone points"),
            (lambda: S.ChainedScheduler([]), ValueError, "at least one scheduler"),
            (lambda: S.ChainedScheduler([e, S.ReduceLROnPlateau(optimizer)]), ValueError, "does not support `Reduce"),
            (lambda: S.StepLR(lib.optim.SGD([lib.nn.Parameter(lib.ones(1))], lr=1), 1, last_epoch=3), KeyError, "initial_lr"),
            (lambda: lib.optim.swa_utils.SWALR(optimizer, 0.1, -1), ValueError,
             "anneal_epochs must be equal or greater than 0"),
        ]:
            with pytest.raises(kind, match=message):
                wrong()
        with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
            e.step()
        with pytest.warns(UserWarning, match="please use `get_last_lr"):
            e.get_lr()
    with pytest.raises(TypeError, match="give OneFlow's by keyword"):
        L.PolynomialLR(sl.optim.SGD([nn.Parameter(sl.ones(1))], lr=1), 100, 0.0001, 2.0, True)


def test_fractional_epochs_and_epochs_given():
    found = []
    for lib in (sl, torch):
        _, optimizer = optimizers(lib)
        restarts = s(lib).CosineAnnealingWarmRestarts(optimizer, 4, 2)
        optimizer.step()
        found.append([])
        for epoch in (0.25, 0.5, 3.75, 4.5, 13.0, 2.0, None, None, None):
            restarts.step(epoch) if epoch is not None else restarts.step()
            found[-1].append(settings(optimizer))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in ("step", "cosine", "linear", "polynomial", "constant"):
                _, optimizer = optimizers(lib)
                schedule = CASES[name](lib, optimizer)
                schedule.step(17)
                found[-1].append(settings(optimizer))
    assert_settings(*found)


def test_rates_that_are_tensors_are_written_in_place():
    for name in ("exponential", "cosine", "lambda", "restarts_double", "sequential"):
        made = []
        for lib in (sl, torch):
            module = quadratic(lib)
            lr = lib.tensor(0.05, dtype=lib.float64)
            optimizer = lib.optim.SGD([{"params": [module.a], "lr": lr}, {"params": [module.b, module.c]}], lr=0.02,
                                      momentum=0.5)
            schedule = CASES[name](lib, optimizer)
            made.append((module, optimizer, schedule, lr))
        (ours, optimizer, schedule, lr), (theirs, other, reference, their_lr) = made
        inputs = [x * 0.1 for x in batches(16)]
        train(ours, optimizer, ours_of(inputs[:8]), schedule)
        graph = Training(ours, optimizer, schedule)
        for x in ours_of(inputs[8:]):
            graph(x)
        train(theirs, other, inputs, reference)
        assert lr is optimizer.param_groups[0]["lr"] and lr.item() == pytest.approx(their_lr.item(), rel=1e-9)
        assert_close(ours, theirs, 1e-9)


EDGES = {
    "milestones": lambda lib, o: s(lib).MultiStepLR(o, [7, 3], 0.1), "no milestones": lambda lib, o: s(lib).MultiStepLR(o, []),
    "milestone between": lambda lib, o: s(lib).MultiStepLR(o, [2.5, 3]), "no iterations": lambda lib,
    o: s(lib).ConstantLR(o, 0.5, 0), "no line": lambda lib, o: s(lib).LinearLR(o, 0.5, total_iters=0),
    "no polynomial": lambda lib, o: s(lib).PolynomialLR(o, 0), "shortest cosine": lambda lib, o: s(lib).CosineAnnealingLR(o, 1),
    "cosine upwards": lambda lib, o: s(lib).CosineAnnealingLR(o, 5, eta_min=1.0), "shortest restarts": lambda lib,
    o: s(lib).CosineAnnealingWarmRestarts(o, 1), "short restarts": lambda lib, o: s(
        lib).CosineAnnealingWarmRestarts(o, 1, 2), "one up": lambda lib, o: s(lib).CyclicLR(o, 0.1, 1, 1),
        "up and down": lambda lib, o: s(
            lib).CyclicLR(o, 0.1, 1, 3, 1), "no warm-up": lambda lib, o: s(lib).OneCycleLR(o, 1.0, 40, pct_start=0.0),
    "only warm-up": lambda lib, o: s(lib).OneCycleLR(o, 1.0, 40, pct_start=1.0),
    "at once": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9)], [0]),
    "never": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9),
                                                    s(lib).StepLR(o, 2)], [3, 3]),
    "tuple": lambda lib, o: s(lib).LambdaLR(o, (lambda e: 0.5 ** e, lambda e: 1.0)),
    "later": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5), s(lib).ExponentialLR(o, 0.9)], [3],
                                                last_epoch=1),
    **{f"resumed {name}": lambda lib, o, name=name: resumed(lib, o, name) for name in
       ["step", "exponential", "constant", "linear", "polynomial", "cosine", "lambda", "multiplicative", "multi_step", "cyclic",
        "one_cycle"]},
}


@pytest.mark.parametrize("name", EDGES)
def test_odd_settings_equal_torchs(name):
    ours, theirs = (series(lib, EDGES[name], 30)[0] for lib in (sl, torch))
    assert_settings(ours, theirs)
    (module, optimizer), found = optimizers(sl), []
    schedule = EDGES[name](sl, optimizer)
    graph = Training(module, optimizer, schedule)
    for x in ours_of(batches(12)):
        found.append(settings(optimizer))
        graph(x * 0.01)
    assert_settings(found, theirs[:12])


@pytest.mark.parametrize("name", CASES)
def test_states_have_torchs_keys(name):
    states = [CASES[name](lib, optimizers(lib)[1]).state_dict() for lib in (sl, torch)]
    assert not states[1].keys() - states[0].keys()
    assert states[0].keys() - states[1].keys() <= {"end_lr", "cycle", "_begun", "_step_count", "_is_initial",
                                                   "_scale_fn_custom"}
