"""What the tests of optimizers' state and steps share."""

from optimizing import quadratic
from test_optimizers import FIRST


FIRST = [case for case in FIRST if case[0] != "Adagrad"] + [("Adagrad", {"lr": 0.1, "lr_decay": 0.05})]


def quadratic_of(lib):
    def make(other, dtype):
        return quadratic(other, dtype if other is lib else "float32")

    return make
