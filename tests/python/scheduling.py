"""What the tests of schedules share: optimizers, and series of their rates."""

import numpy as np
from optimizing import quadratic

import sluice as sl

STEPS = 100


def s(lib):
    return lib.optim.lr_scheduler


CASES = {
    "step": lambda lib, o: s(lib).StepLR(o, 7, 0.5),
    "multi_step": lambda lib, o: s(lib).MultiStepLR(o, [3, 30, 30, 71], 0.3),
    "exponential": lambda lib, o: s(lib).ExponentialLR(o, 0.97),
    "constant": lambda lib, o: s(lib).ConstantLR(o, 0.4, 9),
    "linear": lambda lib, o: s(lib).LinearLR(o, 0.1, 0.7, 33),
    "linear_default": lambda lib, o: s(lib).LinearLR(o),
    "polynomial": lambda lib, o: s(lib).PolynomialLR(o, 80, 2.5),
    "cosine": lambda lib, o: s(lib).CosineAnnealingLR(o, 20, 0.001),
    "cosine_down": lambda lib, o: s(lib).CosineAnnealingLR(o, 100),
    "restarts": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 10),
    "restarts_double": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 5, 2, 0.01),
    "restarts_triple": lambda lib, o: s(lib).CosineAnnealingWarmRestarts(o, 3, T_mult=3),
    "lambda": lambda lib, o: s(lib).LambdaLR(o, [lambda t: 0.95 ** t, lambda t: 1 / (t + 1)]),
    "multiplicative": lambda lib, o: s(lib).MultiplicativeLR(o, lambda t: 0.99 + 0.0001 * t),
    "cyclic": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, step_size_up=6, cycle_momentum=False),
    "cyclic_momentum": lambda lib, o: s(lib).CyclicLR(o, [0.01, 0.02], [0.1, 0.3], 5, 8, mode="triangular2", base_momentum=0.5),
    "cyclic_range": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, 4, mode="exp_range", gamma=0.98),
    "cyclic_own": lambda lib, o: s(lib).CyclicLR(o, 0.01, 0.1, 4, scale_fn=lambda x: 1 / (x + 1), scale_mode="iterations"),
    "one_cycle": lambda lib, o: s(lib).OneCycleLR(o, 0.5, STEPS),
    "one_cycle_three": lambda lib, o: s(lib).OneCycleLR(o, [0.5, 0.3], epochs=10, steps_per_epoch=10, three_phase=True,
                                                        anneal_strategy="linear", pct_start=0.25),
    "sequential": lambda lib, o: s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.1, 20), s(lib).ExponentialLR(o, 0.9)], [20]),
    "sequential_three": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).LinearLR(o, 0.1, 1.0, 5), s(lib).CosineAnnealingLR(o, 30), s(lib).StepLR(o, 5, 0.5)], [5, 40]),
    "sequential_carries_on": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).ExponentialLR(o, 0.9), s(lib).MultiplicativeLR(o, lambda t: 1.01), s(lib).CosineAnnealingWarmRestarts(o, 4)],
        [10, 50]),
    "chained": lambda lib, o: s(lib).ChainedScheduler([s(lib).ConstantLR(o, 0.1, 2), s(lib).ExponentialLR(o, 0.9)]),
    "chained_over_absolute": lambda lib, o: s(lib).ChainedScheduler([s(lib).LambdaLR(o, lambda t: 0.9 ** t),
                                                                     s(lib).ExponentialLR(o, 0.9),
                                                                    s(lib).CosineAnnealingLR(o, 15, 0.001)]),
    "chained_of_sequential": lambda lib, o: s(lib).ChainedScheduler(
        [s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5, 4), s(lib).ExponentialLR(o, 0.95)], [6]),
         s(lib).StepLR(o, 10, 0.5)]),
    "sequential_of_sequential": lambda lib, o: s(lib).SequentialLR(
        o, [s(lib).SequentialLR(o, [s(lib).ConstantLR(o, 0.5, 4), s(lib).ExponentialLR(o, 0.95)], [6]),
            s(lib).ExponentialLR(o, 0.9)], [30]),
    "swa": lambda lib, o: lib.optim.swa_utils.SWALR(o, [0.05, 0.001], anneal_epochs=12),
    "swa_linear": lambda lib, o: lib.optim.swa_utils.SWALR(o, 0.05, 5, "linear"),
    "swa_at_once": lambda lib, o: lib.optim.swa_utils.SWALR(o, 0.05, 0),
}


def optimizers(lib, name="SGD", **options):
    module = quadratic(lib)
    options = options or {"lr": 0.1, "momentum": 0.9} if name == "SGD" else options or {"lr": 0.1}
    return module, getattr(lib.optim, name)([{"params": [module.a]}, {"params": [module.b, module.c], "lr": 0.02}], **options)


def settings(optimizer):
    return [[g["lr"], g.get("momentum"), g.get("betas")] for g in optimizer.param_groups]


def series(lib, make, steps=STEPS, name="SGD", meanwhile=None):
    """Rates, and momenta, of all steps."""
    _, optimizer = optimizers(lib, name)
    schedule = make(lib, optimizer)
    found = []
    for i in range(steps):
        found.append(settings(optimizer))
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        optimizer.step()
        if meanwhile:
            meanwhile(i, optimizer)
        schedule.step()
    return found, schedule, optimizer


def assert_settings(ours, theirs, tolerance=1e-9):
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        for x, y in zip(a, b, strict=True):
            flat = [[v for part in (z if isinstance(z, (list, tuple)) else [z]) if part is not None
                     for v in (part if isinstance(part, tuple) else [part])] for z in (x, y)]
            np.testing.assert_allclose(*flat, rtol=tolerance, atol=1e-15, err_msg=f"step {step}")


L = sl.optim.lr_scheduler


def resumed(lib, optimizer, name):
    """A schedule that is made with last_epoch, of an optimizer that has been scheduled before."""
    CASES[name](lib, optimizer)
    made = CASES[name].__code__.co_names
    kind = next(getattr(s(lib), n) for n in made if n.endswith("LR"))
    arguments = {"step": (4, 0.5), "exponential": (0.9,), "constant": (0.4, 4), "linear": (0.1, 0.7, 9), "polynomial": (9, 2.0),
                 "cosine": (
        7, 0.001), "lambda": (lambda e: 0.9 ** e,), "multiplicative": (lambda e: 0.9,), "multi_step": ([3, 4, 8],),
                 "cyclic": (0.01, 0.1, 5),
        "one_cycle": (0.5, 60)}[name]
    return kind(optimizer, *arguments, last_epoch=2)
