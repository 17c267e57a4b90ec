import torch
from accelerate import Accelerator

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
data = torch.utils.data.TensorDataset(torch.rand(24, 4), torch.rand(24, 1))
net, adam, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters(), lr=0.01), torch.utils.data.DataLoader(data, batch_size=8))
losses = []
for _ in range(2):
    for x, y in loader:
        adam.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
results = {"losses": losses, "weight": accelerator.unwrap_model(net)[0].weight.detach().numpy()}
