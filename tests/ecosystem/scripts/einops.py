import torch
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce

torch.manual_seed(0)
images = torch.rand(2, 3, 8, 8)
net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Reduce("b c (h 2) (w 2) -> b c h w", "max"), Rearrange("b c h w -> b (c h w)"),
                          torch.nn.Linear(36, 5))
net(images).sum().backward()
results = {"patches": rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4).numpy(),
           "means": reduce(images, "b c h w -> b c", "mean").numpy(), "twice": repeat(images, "b c h w -> b (r c) h w", r=2).numpy(),
           "gradient": net[0].weight.grad.numpy()}
