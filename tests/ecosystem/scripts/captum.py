import torch
from captum.attr import DeepLift, FeatureAblation, GradientShap, InputXGradient, IntegratedGradients, LayerConductance, Saliency

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
x = torch.rand(4, 6)
ways = {"integrated": IntegratedGradients(net), "saliency": Saliency(net), "product": InputXGradient(net), "lift": DeepLift(net),
        "ablation": FeatureAblation(net)}
results = {name: way.attribute(x.clone().requires_grad_(), target=1).detach().numpy() for name, way in ways.items()}
results["conductance"] = LayerConductance(net, net[0]).attribute(x, target=1).detach().numpy()
assert GradientShap(net).attribute(x, baselines=torch.zeros(1, 6), target=1).shape == x.shape
