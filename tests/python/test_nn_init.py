"""torch.nn.init against torch's: first values, gains, refusals."""

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from conftest import assert_same

import sluice as sl
import sluice.nn as nn

pytestmark = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning",
                                        "ignore:`torch.nn.utils.stateless:FutureWarning")

INITS = [("uniform_", (-2, 3)), ("normal_", (1, 2)), ("constant_", (4,)), ("xavier_uniform_", (2.0,)), ("xavier_normal_", ()),
         ("kaiming_uniform_", (0.1, "fan_out")), ("kaiming_normal_", (0, "fan_in", "relu")), ("ones_", ()), ("zeros_", ()), ("eye_", ()),
         ("orthogonal_", ()), ("orthogonal_", (2.0,)), ("sparse_", (0.3,)), ("sparse_", (0.1, 1.0)), ("dirac_", ()), ("dirac_", (2,)),
         ("trunc_normal_", ()), ("trunc_normal_", (0, 1, -0.5, 1.0)), ("trunc_normal_", (1, 2, 3, 3.5)), ("trunc_normal_", (0, 1, 1, 3))]


@pytest.mark.parametrize("name, args", INITS, ids=str)
def test_first_values_are_torchs(name, args):
    shapes = [(4, 3, 5), (2, 2, 3, 4), (4, 1, 2, 2, 3)] if name == "dirac_" else [(8, 30), (30, 8), (5, 5)]
    if name not in ("eye_", "sparse_", "dirac_"):
        shapes.append((6, 4, 3))
    for shape in shapes:
        torch.manual_seed(1), sl.manual_seed(1)
        a, x = torch.empty(shape), nn.Parameter(sl.empty(shape))
        assert getattr(nn.init, name)(x, *args) is x and x.requires_grad and x.is_leaf
        getattr(torch.nn.init, name)(a, *args)
        assert_same(x, a, 1e-4 if name == "orthogonal_" else 2e-6)
        assert sl.rand(1).item() == pytest.approx(torch.rand(1).item())  # as many draws


def test_gains_and_refusals_of_init():
    for name, param in [("linear", None), ("conv2d", None), ("conv_transpose3d", None), ("sigmoid", None), ("tanh", None), ("relu", None),
                        ("leaky_relu", None), ("leaky_relu", 0.3), ("selu", None)]:
        assert nn.init.calculate_gain(name, param) == torch.nn.init.calculate_gain(name, param)
    calls = [("calculate_gain", ("x",)), ("calculate_gain", ("leaky_relu", "x")), ("eye_", ((2, 2, 2),)), ("dirac_", ((2, 2),)),
             ("dirac_", ((3, 2, 2), 2)), ("xavier_normal_", ((3,),)), ("kaiming_normal_", ((3, 2), 0, "x")), ("orthogonal_", ((3,),)),
             ("sparse_", ((3, 2, 2), 0.1)), ("kaiming_uniform_", ((3, 2), 0, "fan_in", "x"))]
    for name, args in calls:
        errors = []
        for lib in (torch, sl):
            given = [lib.empty(args[0]) if isinstance(args[0], tuple) else args[0], *args[1:]]
            with pytest.raises(ValueError) as error:
                getattr(lib.nn.init, name)(*given)
            errors.append(str(error.value))
        assert errors[1].endswith(": " + errors[0])
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        nn.init.kaiming_normal_(sl.empty(0, 3))
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        nn.init.trunc_normal_(sl.empty(3), 5.0, 1.0, -1.0, 1.0)
    with pytest.warns(FutureWarning, match="`nn.init.uniform` is now deprecated in favor of `nn.init.uniform_`"):
        nn.init.uniform(sl.empty(3))
    g = sl.Generator().manual_seed(3)
    assert sl.equal(nn.init.normal_(sl.empty(4), generator=g), nn.init.normal_(sl.empty(4), generator=sl.Generator().manual_seed(3)))
    assert nn.init.orthogonal_(sl.empty(0, 3)).shape == (0, 3)
    q = nn.init.orthogonal_(sl.empty(3, 5, dtype=sl.float64)).numpy()
    assert np.allclose(q @ q.T, np.eye(3))
