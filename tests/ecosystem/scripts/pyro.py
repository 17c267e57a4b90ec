import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoNormal

pyro.set_rng_seed(0)
data = torch.tensor([1.0, 0.6, 1.4, 0.9, 1.1])


def model(seen):
    mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 0.5))
    with pyro.plate("data", len(seen)):
        pyro.sample("seen", dist.Normal(mean, scale), obs=seen)


svi = SVI(model, AutoNormal(model), pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
losses = [svi.step(data) for _ in range(10)]
results = {"losses": losses, "mean": pyro.param("AutoNormal.locs.mean").detach().numpy()}
