"""`import torch` that gives Sluice: within a block, in a decorated function, in a script of its own process."""

import importlib.metadata
import subprocess
import sys

import numpy as np
import pytest
import torch as real

import sluice as sl

PACKAGE = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.lin(x)) + torch.ones(2)
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "their_nets").mkdir()
    (tmp_path / "their_nets" / "__init__.py").write_text("")
    (tmp_path / "their_nets" / "net.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [n for n in sys.modules if n.startswith("their_nets")]:
        del sys.modules[name]


def test_torch_is_sluice_inside_and_torch_outside():
    with sl.mock_torch():
        import torch
        import torch.nn.functional as F
        from torch import nn

        assert sl.mock_torch.is_enabled()
        assert torch.Tensor is sl.Tensor and nn.Linear is sl.nn.Linear and F.relu is sl.nn.functional.relu
        assert torch.nn is nn and sys.modules["torch.nn.functional"] is F
        assert torch.__version__ == importlib.metadata.version("torch") == sl.mock_torch.TORCH_VERSION
    import torch

    assert torch is real and not sl.mock_torch.is_enabled()
    assert isinstance(torch.nn.Linear(1, 1), real.nn.Module)


def test_star_imports_and_names_of_all_levels():
    with sl.mock_torch():
        names = {}
        exec("from torch.nn import *", names)
        assert names["Linear"] is sl.nn.Linear
        import torch.optim.lr_scheduler as scheduler

        assert scheduler.StepLR is sl.optim.lr_scheduler.StepLR


def test_a_package_is_imported_once_for_each_torch(package):
    import their_nets.net as theirs

    assert issubclass(theirs.Net, real.nn.Module)
    with sl.mock_torch():
        import their_nets.net as ours

        assert issubclass(ours.Net, sl.nn.Module)
        y = ours.Net()(sl.ones(1, 3))
        assert isinstance(y, sl.Tensor)
    import their_nets.net as again

    assert again is theirs
    with sl.mock_torch():
        import their_nets.net as kept

        assert kept is ours
    assert isinstance(ours.Net()(sl.ones(1, 3)), sl.Tensor)  # what was imported inside works outside


def test_what_is_reached_through_dots_stays_sluices_outside(tmp_path, monkeypatch):
    """Modules of torch that are first reached when `import torch` gives torch again, which has them, too."""
    (tmp_path / "their_dots.py").write_text("import torch\n\n\ndef soft(x):\n    return torch.nn.functional.softplus(x), "
                                            "torch.autograd.functional.jacobian(torch.sin, x), torch.utils._pytree.tree_leaves([x])\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with sl.mock_torch():
        import their_dots as ours
    import their_dots as theirs

    try:
        assert ours is not theirs
        for a, b in zip(ours.soft(sl.ones(2)), theirs.soft(real.ones(2)), strict=True):
            a, b = (x[0] if isinstance(x, list) else x for x in (a, b))
            assert isinstance(a, sl.Tensor) and isinstance(b, real.Tensor)
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
    finally:
        sys.modules.pop("their_dots")


def test_nested_and_decorated():
    with sl.mock_torch.enable():
        with sl.mock_torch.disable():
            import torch

            assert torch is real
        import torch

        assert torch is not real

    @sl.mock_torch.enable()
    def inside():
        import torch

        return torch.ones(1)

    assert not sl.mock_torch.is_enabled()
    assert isinstance(inside(), sl.Tensor) and not sl.mock_torch.is_enabled()


def test_an_exception_leaves_the_real_torch():
    with pytest.raises(KeyError):
        with sl.mock_torch():
            raise KeyError
    import torch

    assert torch is real


def test_what_sluice_lacks_is_told():
    with sl.mock_torch():
        import torch

        with pytest.raises(AttributeError, match=r"module 'torch' has no attribute 'no_such_thing'.*no sluice\.no_such_thing"):
            torch.no_such_thing
        assert not hasattr(torch, "_dispatch") and not hasattr(torch._C, "Gradient")  # private names are torch's own, but for a few
        with pytest.raises(ModuleNotFoundError, match="torch.no_such_module"):
            import torch.no_such_module  # noqa: F401


def test_lazy_modules_complain_when_they_are_used(capsys):
    with sl.mock_torch(lazy=True, verbose=True):
        import torch
        from torch.no_such_module import deeper, thing

        assert not hasattr(torch, "no_such_name")
        assert not isinstance(3, thing)
        with pytest.raises(NotImplementedError, match=r"torch\.no_such_module\.thing: used.*extra_dict"):
            thing(3)
        with pytest.raises(NotImplementedError, match=r"torch\.no_such_module\.deeper\.Base"):
            class Mine(deeper.Base):
                pass
        half = torch.complex32  # what Sluice leaves out can be named
        with pytest.raises(NotImplementedError, match=r"torch\.complex32: used"):
            half()
    assert "mock_torch: torch.no_such_module is DummyModule" in capsys.readouterr().out


def test_extra_modules_stand_for_what_is_missing():
    with sl.mock_torch(extra_dict={"torch.no_such_module": sl.nn.init, "torch.another": "sluice.optim"}):
        from torch.another import SGD
        from torch.no_such_module import zeros_

        assert SGD is sl.optim.SGD and zeros_ is sl.nn.init.zeros_


def test_a_script_of_torch_runs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, torch\nprint(torch.ones(2) + 1, sys.argv, __name__, 'sluice' in str(torch))\n")
    done = subprocess.run([sys.executable, "-m", "sluice.mock_torch", str(script), "--flag", "3"], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"tensor([2., 2.]) ['{script}', '--flag', '3'] __main__ True\n"
    told = subprocess.run([sys.executable, "-m", "sluice.mock_torch", "--help"], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0 and "--lazy" in told.stdout


def test_cuda_answers():
    assert sl.cuda.is_available() == (sl.cuda.device_count() > 0)
    sl.cuda.manual_seed_all(3)
    sl.cuda.empty_cache()
    if not sl.cuda.is_available():
        with pytest.raises((RuntimeError, NotImplementedError), match="cuda:0"):
            sl.cuda.synchronize()
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        sl.cuda.synchronize("cpu")
    with pytest.raises(AttributeError, match="sluice.cuda.*Stream.*is_available"):
        sl.cuda.Stream


def test_what_compilers_are_asked():
    assert not sl.jit.is_scripting() and not sl.jit.is_tracing() and not sl.compiler.is_compiling()

    class Asked(sl.nn.Graph):
        def build(self, x):
            self.said = sl.jit.is_tracing(), sl.compiler.is_compiling()
            return x + 1

    graph = Asked()
    graph(sl.ones(1))
    assert graph.said == (True, True)

    def f(x):
        return x

    assert sl.jit.ignore(f) is sl.jit.unused(f) is sl.jit.ignore(drop=True)(f) is f and sl.compiler.disable(f)(3) == 3
    assert sl.jit.script(f) is f
    with pytest.raises(NotImplementedError, match="nn.Graph"):
        sl.jit.trace(f)
    assert sl.version.__version__ == sl.__version__ and sl.version.cuda is None


def test_private_modules_that_packages_import():
    with sl.mock_torch():
        import torch.utils._pytree as pytree
        from torch._dynamo import is_compiling

        class Pair:
            def __init__(self, a, b):
                self.a, self.b = a, b

        pytree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda values, _: Pair(*values))
        doubled = pytree.tree_map(lambda x: 2 * x, {"p": Pair(1, [2]), "q": (3,)})
        assert (doubled["p"].a, doubled["p"].b, doubled["q"]) == (2, [4], (6,))
        assert pytree.tree_leaves({"p": Pair(1, [2]), "q": (3,)}) == [1, 2, 3]
        assert not is_compiling()
