"""A program as its author wrote it for PyTorch: a ResNet-101 looks at images, takes the gradient of its answer by them, and looks
again. `ladder.py` changes the import below and nothing else."""
import torch

from nets import resnet50


def classifier(tiny=False):
    torch.manual_seed(0)
    return resnet50(torch, (1, 1, 1, 1), 4, 10).eval() if tiny else resnet50(torch, (3, 4, 23, 3), 64, 1000).eval()


def images(batch, side=224):
    return torch.randn(batch, 3, side, side)


def look(net, x):
    """The answer, its gradient by the images, and what the net says of them."""
    answer = net(x)
    torch.nn.functional.cross_entropy(answer, answer.detach().argmax(1)).backward()
    return answer, x.grad, net(x).softmax(1)


def step(net, x):
    x = x.detach().requires_grad_()
    net.zero_grad()
    return look(net, x)
