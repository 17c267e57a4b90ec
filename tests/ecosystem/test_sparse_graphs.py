"""torch_geometric's convolutions over sparse adjacencies train as on torch."""

import numpy as np
import pytest

from ecosystem import beside

pytestmark = pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")


def losses(T, nn, utils, layout, steps=5):
    rng, count = np.random.default_rng(0), 12
    edges = np.argwhere(np.triu(rng.random((count, count)) < 0.3, 1)).T
    edges = T.tensor(np.concatenate([edges, edges[::-1]], 1).tolist())
    x = T.tensor(rng.standard_normal((count, 4)).tolist(), dtype=T.float64)
    labels = T.tensor(rng.integers(0, 3, count).tolist())
    layers = T.nn.ModuleList([nn.GCNConv(4, 8), nn.GCNConv(8, 3)]).double()
    with T.no_grad():
        for p in layers.parameters():
            p.copy_(T.tensor((rng.standard_normal(tuple(p.shape)) * 0.4).tolist(), dtype=T.float64))
    if layout != "edges":
        edges = getattr(utils, f"to_torch_{layout}_tensor")(edges, size=(count, count)).to(T.float64)
    optim, found = T.optim.Adam(layers.parameters(), lr=0.05), []
    for _ in range(steps):
        optim.zero_grad()
        loss = T.nn.functional.cross_entropy(layers[1](T.relu(layers[0](x, edges)), edges), labels)
        loss.backward()
        optim.step()
        found.append(loss.item())
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["edges", "coo", "csr"])
def test_gcn_trains_with_torchs_losses(layout):
    import sluice as sl
    import torch

    (ours, theirs), (our_utils, their_utils) = beside.modules("torch_geometric.nn"), beside.modules("torch_geometric.utils")
    with sl.mock_torch(lazy=True):
        found = losses(sl, ours, our_utils, layout)
    np.testing.assert_allclose(found, losses(torch, theirs, their_utils, layout), rtol=1e-9)
    assert found[-1] < found[0]
