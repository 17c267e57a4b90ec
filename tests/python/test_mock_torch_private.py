"""What packages import of torch's private modules: bases of layers are the real ones, nests are taken apart as torch does it, and
names without meaning here refuse when they are used."""

import collections
import importlib
import inspect
import pickle

import pytest
import torch

import sluice as sl


def private_bases():
    """(public class, module and name of a private base) of all of torch.nn's layers."""
    found = set()
    for name in dir(torch.nn):
        layer = getattr(torch.nn, name)
        if inspect.isclass(layer) and issubclass(layer, torch.nn.Module):
            found |= {(name, base.__module__, base.__name__) for base in layer.__mro__ if base.__name__.startswith("_")}
    return sorted(found)


def test_private_bases_of_layers_are_bases_here():
    pairs = private_bases()
    assert len(pairs) > 60
    lacking = []
    with sl.mock_torch():
        for layer, module, name in pairs:
            base = getattr(importlib.import_module(module), name, None)
            if not (inspect.isclass(base) and issubclass(getattr(sl.nn, layer), base)):
                lacking.append(f"{module}.{name} of {layer}")
    assert not lacking


def test_layers_of_other_dims_are_not_each_others():
    """As in torch, where packages ask isinstance(). A lazy layer becomes the other one at its first call."""
    layers = [n for n in dir(torch.nn) if inspect.isclass(getattr(torch.nn, n)) and issubclass(getattr(torch.nn, n), torch.nn.Module)]
    pairs = [(a, b) for a in layers for b in layers if a != b and a[-2:-1].isdigit() and b[-2:-1].isdigit()]
    ours, theirs = ([issubclass(getattr(lib.nn, a), getattr(lib.nn, b)) for a, b in pairs] for lib in (sl, torch))
    assert [pair for pair, here, there in zip(pairs, ours, theirs) if here != there and not pair[0].startswith(("ZeroPad", "Lazy"))] == []


@pytest.mark.parametrize("kind", ["distributions", "nn.modules", "optim"])
def test_modules_of_single_classes_can_be_imported(kind):
    """torch.distributions.normal, and so on, with their public classes."""
    import pkgutil

    package = importlib.import_module(f"torch.{kind}")
    lacking = []
    for entry in pkgutil.iter_modules(package.__path__):
        if entry.name.startswith("_") or entry.name in ("linear_cross_entropy", "linear_cross_entropy_options", "sparse_adam"):
            continue
        theirs = importlib.import_module(f"torch.{kind}.{entry.name}")
        names = [n for n, v in vars(theirs).items() if inspect.isclass(v) and v.__module__ == theirs.__name__ and not n.startswith("_")]
        with sl.mock_torch():
            ours = importlib.import_module(f"torch.{kind}.{entry.name}")
            lacking += [f"{ours.__name__}.{n}" for n in names if hasattr(package, n) and not hasattr(ours, n)]
    assert not lacking


Point = collections.namedtuple("Point", "x y")
NESTS = [1, [], {}, {"a": [1, (2, 3)], "b": None}, Point([1], {"z": 2}), collections.OrderedDict(b=1, a=[2, 3]),
         collections.deque([1, 2], maxlen=3), collections.defaultdict(list, {"k": [5, 6]}), [Point(1, (2,)), {"q": {"r": 7}}]]


@pytest.mark.parametrize("nest", NESTS, ids=str)
def test_nests_are_taken_apart_as_torch_does_it(nest):
    import torch.utils._pytree as theirs

    with sl.mock_torch():
        import torch.utils._pytree as ours
    assert ours is not theirs
    leaves, spec = ours.tree_flatten(nest)
    assert leaves == theirs.tree_leaves(nest) == list(ours.tree_iter(nest))
    again = ours.tree_unflatten([f"<{leaf}>" for leaf in leaves], spec)
    assert again == theirs.tree_map(lambda leaf: f"<{leaf}>", nest) and type(again) is type(theirs.tree_map(str, nest))
    paths = [[(ours.keystr(path), leaf) for path, leaf in ours.tree_flatten_with_path(nest)[0]],
             [(theirs.keystr(path), leaf) for path, leaf in theirs.tree_flatten_with_path(nest)[0]]]
    assert paths[0] == paths[1]
    assert ours.tree_map_only(int, lambda n: -n, nest) == theirs.tree_map_only(int, lambda n: -n, nest)
    assert [ours.key_get(nest, path) for path, _ in ours.tree_flatten_with_path(nest)[0]] == leaves
    assert ours.tree_structure(nest) == spec and spec.num_leaves == len(leaves)
    with pytest.raises(ValueError, match="`leaves` has length"):
        ours.tree_unflatten([*leaves, 1], spec)


def test_names_without_meaning_here_refuse_when_they_are_used():
    with sl.mock_torch():
        import torch.export
        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
        from torch.fx.experimental.proxy_tensor import make_fx

        class Mine(torch.export.UnflattenedModule):
            pass

        with pytest.raises(NotImplementedError, match="torch.fx.experimental.proxy_tensor.make_fx: used.*use sluice.nn.Graph or sluice.compile"):
            make_fx(sl.nn.Linear(1, 1))
        with pytest.raises(NotImplementedError, match="torch.export.UnflattenedModule: used"):
            Mine(None)
        with pytest.raises(NotImplementedError, match="use sluice.distributed, placements and nn.Graph"):
            FullyShardedDataParallel(sl.nn.Linear(1, 1))
        with pytest.raises(AttributeError, match="ShardingStrategy.FULL_SHARD: used, but Sluice has nothing of the kind"):
            ShardingStrategy.FULL_SHARD
        assert not isinstance(3, Mine) and not torch.xpu.is_available() and torch.xpu.device_count() == 0
        with pytest.raises(RuntimeError, match="torch.xpu: there is no device of this kind"):
            torch.xpu.set_device(0)


def test_fx_is_sluices():
    with sl.mock_torch():
        import torch
        from torch.fx._symbolic_trace import Tracer, is_fx_tracing
        from torch.fx.graph_module import _CodeOnlyModule, _copy_attr  # noqa: F401
        from torch.fx.node import Argument, Node, Target  # noqa: F401
        from torch.fx.passes.shape_prop import ShapeProp

        assert torch.fx.Tracer is Tracer is sl.fx.Tracer and torch.fx.node.Node is Node is sl.fx.Node and not is_fx_tracing()

        def checked(x):
            torch._assert(x.shape[0] > 1 and is_fx_tracing(), "too few")
            return torch.nn.functional.relu(x)

        traced = torch.fx.symbolic_trace(lambda x: (torch._assert(x.shape[0] > 1, "too few"), torch.relu(x))[1])
        assert [n.name for n in traced.graph.nodes] == ["x", "getattr_1", "getitem", "gt", "_assert", "relu", "output"]
        assert "torch._assert(gt, 'too few')" in traced.code and ShapeProp(traced).propagate(sl.ones(2)).tolist() == [1, 1]
        with pytest.raises(AssertionError, match="too few"):
            traced(sl.ones(1))
        with pytest.raises(torch.fx.proxy.TraceError):
            torch.fx.symbolic_trace(checked)


def test_random_numbers_within_a_fork_move_nothing():
    with sl.mock_torch():
        import torch

        torch.manual_seed(3)
        first = torch.rand(2)
        torch.manual_seed(3)
        with torch.random.fork_rng():
            torch.rand(5)
        assert torch.equal(torch.rand(2), first)


def test_dtypes_without_tensors_have_torchs_range():
    here = {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}  # see test_float8.py
    names = [n for n in dir(torch) if n.startswith("float8_") and n not in here] + ["uint16", "uint32", "uint64"]
    assert len(names) >= 4
    with sl.mock_torch():
        import torch as ours

        integers = [name for name in names if not name.startswith("float")]
        for name in names:
            dtype, real = getattr(ours, name), getattr(torch, name)
            info, expected = (lib.finfo(d) if d.is_floating_point else lib.iinfo(d) for lib, d in ((ours, dtype), (torch, real)))
            facts = "bits dtype max min" + (" tiny smallest_normal" if dtype.is_floating_point else "")
            facts += "" if name in integers else " eps"
            assert [getattr(info, f) for f in facts.split()] == [getattr(expected, f) for f in facts.split()], name
            assert (str(dtype), dtype.itemsize, dtype.is_signed) == (str(real), real.itemsize, real.is_signed)
            for use in (lambda: ours.zeros(2, dtype=dtype), lambda: ours.ones(2).to(dtype), lambda: ours.nn.Linear(2, 2, dtype=dtype),
                        lambda: ours.zeros(4, dtype=ours.uint8).view(dtype)):
                with pytest.raises(TypeError, match=f"{name}, which no tensor here has: use float16, bfloat16 or int64, or uint8"):
                    use()
            assert pickle.loads(pickle.dumps(dtype)) == dtype and hash(dtype) == hash(getattr(ours, name))
        assert ours.zeros(2).dtype != ours.float8_e4m3fn and ours.zeros(2).layout != ours.sparse_coo
        assert isinstance(ours.finfo(ours.float32), ours.finfo) and ours.finfo(ours.float32).eps == torch.finfo(torch.float32).eps


def test_classes_are_in_the_modules_dict():
    with sl.mock_torch():
        import torch.distributions as ours

        assert vars(ours)["Normal"] is sl.distributions.Normal


def test_a_class_that_wraps_an_optimizer_needs_no_hooks_of_its_own():
    """As accelerate's, whose __init__ is not the base's."""
    class Wrapped(sl.optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

        def step(self, closure=None):
            return self.optimizer.step(closure)

    p = sl.nn.Parameter(sl.ones(2))
    p.sum().backward()
    Wrapped(sl.optim.SGD([p], lr=0.5)).step()
    assert p.tolist() == [0.5, 0.5]


def test_a_models_config_can_be_asked_as_a_mapping():
    net = sl.nn.Linear(1, 1)
    net.config.stage_id = 2
    assert net.config.get("stage_id") == 2 and net.config.get("model_type", "custom") == "custom"


def test_checks_of_values_and_forms_of_to():
    with sl.mock_torch():
        import torch

        torch._assert_async(torch.ones(1))
        with pytest.raises(RuntimeError, match="nothing is one"):
            torch._assert_async(torch.zeros(1), "nothing is one")
        assert torch._C._nn._parse_to("cpu", torch.float16, non_blocking=True) == (sl.device("cpu"), sl.float16, True, None)
        assert torch._shape_as_tensor(torch.zeros(2, 3)).tolist() == [2, 3]


@pytest.mark.parametrize("size", [1, 2, 7])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_associative_scan_combines_all_before(size, reverse):
    with sl.mock_torch(lazy=True):
        from torch._higher_order_ops.associative_scan import associative_scan

    x = sl.randn(3, size)
    sums, (products,) = associative_scan(lambda a, b: (a[0] + b[0], [a[1][0] * b[1][0]]), (x, [x]), dim=1, reverse=reverse)
    turned = x.flip(1) if reverse else x
    for got, expected in ((sums, turned.cumsum(1)), (products, turned.cumprod(1))):
        assert sl.allclose(got, expected.flip(1) if reverse else expected, atol=1e-5)


def test_checks_raise_what_they_are_told():
    with sl.mock_torch():
        import torch as ours

        ours._check_with(ValueError, True)
        ours._check_tensor_all(ours.ones(2) > 0)
        with pytest.raises(KeyError, match="no"):
            ours._check_with(KeyError, False, lambda: "no")
        with pytest.raises(IndexError, match="some"):
            ours._check_tensor_all_with(IndexError, ours.arange(2) > 0, lambda: "some")


def test_older_names_and_types_of_scripts_are_there():
    with sl.mock_torch():
        import torch as ours

        assert ours.legacy_contiguous_format == ours.contiguous_format
        assert ours.ones(2, 3).clone(memory_format=ours.legacy_contiguous_format).is_contiguous()
        for name in ("reset_max_memory_allocated", "reset_max_memory_cached", "memory_cached"):
            assert callable(getattr(ours.cuda, name))
        for name in ("Graph", "Node", "Value", "Block"):  # as annotations name them
            with pytest.raises(NotImplementedError, match=f"torch._C.{name}"):
                getattr(ours._C, name)()


def test_sizes_are_rounded_while_a_graph_is_traced():
    """Packages ask torch.jit.is_tracing(), and take sizes for tensors then."""
    with sl.mock_torch():
        import torch as ours

        def padded(x):
            rows = ours.ceil(x.shape[0] / 4) * 4 if ours.jit.is_tracing() else -(-x.shape[0] // 4) * 4
            columns = ours.floor(x.shape[1] / 2)
            return ours.nn.functional.pad(x, (0, 0, 0, int(rows) - x.shape[0])), ours.ceil(x[:, :int(columns)])

        x = ours.rand(5, 6)
        first, second = sl.nn.Graph.trace(padded)(x)
        assert first.shape == (8, 6) and ours.equal(second, ours.ceil(x[:, :3]))
        with pytest.raises(TypeError, match="must be Tensor, not float"):
            ours.ceil(1.5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_of_softmax_are_had_from_its_result(name, dim):
    x, weights = torch.randn(3, 4, 5, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    output = getattr(torch, name)(x, dim)
    expected = getattr(torch, f"_{name}_backward_data")(weights, output, dim, torch.float64)
    with sl.mock_torch():
        import torch as ours

        got = getattr(ours, f"_{name}_backward_data")(ours.tensor(weights.numpy()), ours.tensor(output.numpy()), dim, ours.float64)
    torch.testing.assert_close(torch.from_numpy(got.numpy()), expected)


def test_names_of_carriers():
    with sl.mock_torch(lazy=True):
        import torch.distributed as dist
    assert dist.Backend.NCCL == "nccl" and dist.Backend("GLOO") == dist.Backend.GLOO and isinstance(dist.Backend("x"), str)
    assert not dist.is_gloo_available() and not dist.is_nccl_available()
    with pytest.raises(ValueError, match="must be string-ish: 3"):
        dist.Backend(3)
    assert dist.ReduceOp.BAND == "bitwise_and"  # a name; collectives refuse it
    with pytest.raises(NotImplementedError, match="You must implement the jvp function"):
        sl.autograd.Function.jvp(None)
    with pytest.raises(NotImplementedError, match="override the vmap staticmethod"):
        sl.autograd.Function.vmap(None, None)
