"""jit.to_static: what a function calls is translated with it; the switch, the source, and what it tells."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import sluice as sl
from sluice import jit, nn


def shrunk(x):
    if x.abs().max() > 1:
        return x / 2
    return x


def kept_small(x, times):
    for _ in range(times):
        x = shrunk(x)
    return x


class Signed(nn.Module):
    def forward(self, x):
        if x.mean() > 0:
            x = kept_small(x, 2)
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential(nn.Linear(3, 3), Signed())

    @jit.to_static
    def forward(self, x):
        x = self.parts(x)
        return self.last(x) + super().extra_repr().count("x")

    def last(self, x):
        return -x if x.sum() < 0 else shrunk(x)


def values():
    rng = np.random.default_rng(0)
    return [sl.tensor(rng.normal(shift, 4, (2, 3)).astype(np.float32)) for shift in (-5, 0, 1, 5, 20)]


def test_functions_methods_and_modules_that_are_called_are_translated():  # PS-02
    sl.manual_seed(0)
    net = Net()
    graph = nn.Graph.trace(net)
    for x in values():
        assert sl.equal(graph(x), net(x))
    assert "forward" not in vars(net.parts[1]) and len({round(graph(x).sum().item(), 5) for x in values()}) > 2


def test_what_is_left_or_of_a_library_is_not(tmp_path, monkeypatch):
    @jit.not_to_static
    def alone(x):
        return x * 2 if x.sum() > 0 else x

    def calls(x):
        return alone(x)

    with pytest.raises(RuntimeError, match="traced and has no value"):
        nn.Graph.trace(jit.to_static(calls))(sl.ones(3))
    place = tmp_path / "site-packages"
    place.mkdir()
    (place / "a_library.py").write_text("def double(x):\n    return x * 2 if x.sum() > 0 else x\n")
    monkeypatch.syspath_prepend(str(place))
    import a_library

    with pytest.raises(RuntimeError, match="traced and has no value"):
        nn.Graph.trace(jit.to_static(lambda_free(a_library)))(sl.ones(3))


def lambda_free(library):
    def calls(x):
        return library.double(x)

    return calls


def odd(x):
    for _ in range(1):
        pass
    else:
        x = x + 1
    return x


def test_what_has_no_translation_runs_as_it_is():
    x = sl.ones(3)
    assert sl.equal(nn.Graph.trace(jit.to_static(kept_odd))(x), sl.ones(3) * 2)


def kept_odd(x):
    return odd(x)


def test_the_switch_runs_functions_as_they_were_written():  # PS-05
    seen = []

    @jit.to_static
    def function(x):
        seen.append(function_frame())
        if x.sum() > 0:
            x = x + 1
        return x

    def function_frame():
        import inspect

        return "flow" in str(inspect.stack()[1].frame.f_code.co_freevars)

    x = sl.ones(2)
    assert function(x).tolist() == [2, 2] and seen == [True]
    jit.enable_to_static(False)
    try:
        assert function(x).tolist() == [2, 2] and seen == [True, False]
        with pytest.raises(RuntimeError, match="traced and has no value"):
            nn.Graph.trace(function)(x)
    finally:
        jit.enable_to_static(True)
    assert nn.Graph.trace(function)(x).tolist() == [2, 2]


def clipped(x):
    while x.max() > 1:
        x = shrunk(x)
    return x


SOURCE = """def clipped(x):

    def test_1(x):
        return x.max() > 1

    def step_2(x):
        x = shrunk(x)
        return (x,)
    x, = flow.while_(test_1, step_2, (x,))
    return x"""


def test_the_source_is_readable():  # PS-06
    assert jit.code(clipped) == SOURCE
    assert jit.code(jit.to_static(clipped)) == SOURCE


def test_levels_say_more_and_show_the_source(capsys):  # PS-07
    lengths = []
    for level in range(4):
        jit.set_verbosity(level)
        try:
            exec_fresh()
        finally:
            jit.set_verbosity(0)
        lengths.append(len(capsys.readouterr().err))
    assert lengths[0] == 0 and lengths == sorted(set(lengths)), lengths
    jit.set_code_level(1)
    try:
        jit.to_static(shrunk)
    finally:
        jit.set_code_level(0)
    assert "def shrunk(x):" in capsys.readouterr().err
    with pytest.raises(ValueError, match="set_verbosity: 4; must be 0 to 3"):
        jit.set_verbosity(4)


def exec_fresh():
    """Functions that were never translated: one that can be, and one that cannot."""
    def can(x):
        return x * 2 if x.sum() > 0 else cannot(x)

    def cannot(x):
        for _ in range(1):
            pass
        else:
            x = x + 1
        return x

    nn.Graph.trace(jit.to_static(can))(sl.ones(2))


def test_a_model_that_is_half_static_trains_as_torchs():  # PS-04
    digits = load_digits()
    x, y = (digits.data[:64] / 16).astype(np.float32), digits.target[:64]

    def net_of(lib):
        class Features(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden = lib.nn.Linear(64, 16)

            def forward(self, x):
                x = self.hidden(x)
                if x.mean() > 0:
                    x = x * 0.5
                return lib.tanh(x)

        if lib is sl:
            Features.forward = jit.to_static(Features.forward)

        class Whole(lib.nn.Module):
            def __init__(self):
                super().__init__()
                self.features, self.head = Features(), lib.nn.Linear(16, 10)
                self.first = sl.compile(self.features) if lib is sl else self.features

            def forward(self, x):
                return self.head(self.first(x))

        return Whole()

    torch.manual_seed(0)
    theirs = net_of(torch)
    state = {k: v.numpy().copy() for k, v in theirs.state_dict().items()}
    losses = {}
    for name, lib in (("torch", torch), ("half", sl)):
        net = theirs if lib is torch else net_of(sl)
        net.load_state_dict({k: lib.tensor(state[k.replace("first.", "features.")]) for k in net.state_dict()})
        optimizer = lib.optim.SGD(net.parameters(), lr=0.5)
        losses[name] = []
        for _ in range(8):
            optimizer.zero_grad()
            loss = lib.nn.functional.cross_entropy(net(lib.tensor(x)), lib.tensor(y))
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    np.testing.assert_allclose(losses["half"], losses["torch"], rtol=1e-4)
