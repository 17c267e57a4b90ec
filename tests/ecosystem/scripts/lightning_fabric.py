import torch
from lightning_fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=1)
fabric.launch()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
x, losses = torch.rand(16, 4), []
for _ in range(5):
    optimizer.zero_grad()
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    fabric.backward(loss)
    fabric.clip_gradients(net, optimizer, max_norm=1.0)
    optimizer.step()
    losses.append(loss.item())
fabric.save("state.ckpt", {"net": net, "optimizer": optimizer, "step": 5})
kept = {"net": net, "optimizer": optimizer, "step": 0}
with torch.no_grad():
    net.module[0].weight.zero_()
fabric.load("state.ckpt", kept)
results = {"losses": losses, "step": kept["step"], "weight": net.module[0].weight.detach().numpy()}
