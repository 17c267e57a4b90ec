import kornia
import torch

torch.manual_seed(0)
images = torch.rand(2, 3, 16, 16, requires_grad=True)
blurred = kornia.filters.gaussian_blur2d(images, (3, 3), (1.5, 1.5))
turned = kornia.geometry.transform.rotate(blurred, torch.tensor([30.0, -10.0]))
edges = kornia.filters.sobel(turned)
edges.sum().backward()
results = {"gray": kornia.color.rgb_to_grayscale(images).detach().numpy(), "lab": kornia.color.rgb_to_lab(images).detach().numpy(),
           "turned": turned.detach().numpy(), "edges": edges.detach().numpy(), "gradient": images.grad.numpy(),
           "ssim": kornia.metrics.ssim(images, blurred, 5).detach().numpy()}
