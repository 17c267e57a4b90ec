import einx
import torch

torch.manual_seed(0)
images, weight = torch.rand(2, 4, 4, 3), torch.rand(3, 5, requires_grad=True)
said = einx.dot("b h w [c], [c] o -> b h w o", images, weight)
means = einx.mean("b (h [p]) (w [q]) o -> b h w o", said, p=2, q=2)
einx.multiply("b h w o, o -> b h w o", means, weight.sum(0)).sum().backward()
results = {"product": said.detach().numpy(), "means": means.detach().numpy(), "gradient": weight.grad.numpy(),
           "parts": einx.rearrange("b (h p) (w q) c -> b (h w) (p q c)", images, p=2, q=2).numpy()}
