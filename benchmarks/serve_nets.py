"""The nets of serve.*, for Sluice and for torch."""
import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(FOLDER, "gpu"), os.path.join(os.path.dirname(FOLDER), "examples")]

SHAPES = {"digits": (1, 1, 8, 8), "resnet50": (1, 3, 224, 224), "copy": (1, 3, 224, 224), "chain": (32, 512)}


def net_of(torch, name):
    torch.manual_seed(0)
    nn = torch.nn
    if name == "resnet50":
        from nets import resnet50
        return resnet50(torch, (3, 4, 6, 3), 64, 1000)
    if name == "digits":
        def block(i, o, s):  # as examples/digits_net.py, written for both
            class Block(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.body = nn.Sequential(nn.Conv2d(i, o, 3, s, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(),
                                              nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o))
                    self.relu = nn.ReLU()
                    self.shortcut = nn.Identity() if i == o and s == 1 else nn.Conv2d(i, o, 1, s, bias=False)

                def forward(self, x):
                    return self.relu(self.body(x) + self.shortcut(x))
            return Block()
        return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), block(16, 16, 1),
                             block(16, 32, 2), block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    if name == "copy":  # an image in, a few numbers out: what is left is the server
        class Corner(nn.Module):
            def forward(self, x):
                return x[:, :, 0, :8] + 1
        return Corner()
    return nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)])
