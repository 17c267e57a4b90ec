import torch
from torchdiffeq import odeint, odeint_adjoint

torch.manual_seed(0)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, t, y):
        return self.net(y)


field, start, times = Field(), torch.tensor([[1.0, 0.5]]), torch.linspace(0, 1, 5)
results = {method: odeint(field, start, times, method=method).detach().numpy() for method in ("dopri5", "rk4", "euler")}
odeint_adjoint(field, start, times, method="rk4").sum().backward()
results["adjoint"] = field.net[0].weight.grad.numpy().copy()
