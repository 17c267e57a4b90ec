import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
graphs = Batch.from_data_list([Data(x=torch.rand(4, 5), edge_index=edges), Data(x=torch.rand(4, 5), edge_index=edges[:, :4])])
results = {}
for name, layer in {"gcn": GCNConv(5, 3), "sage": SAGEConv(5, 3), "gat": GATConv(5, 3, heads=2, concat=False)}.items():
    said = global_mean_pool(layer(graphs.x, graphs.edge_index), graphs.batch)
    said.square().sum().backward()
    results.update({name: said.detach().numpy(), f"{name}.gradient": next(layer.parameters()).grad.numpy()})
