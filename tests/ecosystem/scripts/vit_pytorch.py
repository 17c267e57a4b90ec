import torch
from vit_pytorch import SimpleViT, ViT

torch.manual_seed(0)
images, results = torch.rand(2, 3, 32, 32), {}
for name, net in {"vit": ViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64),
                  "simple": SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=2, mlp_dim=64)}.items():
    said = net.eval()(images)
    said.square().sum().backward()
    results.update({name: said.detach().numpy(), f"{name}.gradient": next(net.parameters()).grad.numpy()})
