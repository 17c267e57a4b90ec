import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 12)
y = torch.sin(6 * x)


class Model(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, points):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(likelihood)
adam = torch.optim.Adam(model.parameters(), lr=0.1)
marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(5):
    adam.zero_grad()
    loss = -marginal(model(x), y)
    loss.backward()
    adam.step()
    losses.append(loss.item())
model.eval(), likelihood.eval()
with torch.no_grad():
    said = likelihood(model(torch.linspace(0, 1, 7)))
results = {"losses": losses, "mean": said.mean.numpy(), "variance": said.variance.numpy()}
