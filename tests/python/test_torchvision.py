"""torchvision's models on Sluice, within mock_torch: torch's names, shapes, weights and results.

tools/setup.sh keeps a torchvision beside the environment, for these tests alone.
"""

import urllib.error

import numpy as np
import pytest
import torch

import sluice as sl
from torchvision_beside import both, needs_torchvision

pytestmark = needs_torchvision

MODELS = """alexnet convnext_tiny densenet121 densenet169 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_v2_s googlenet
inception_v3 maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_1_6gf regnet_x_400mf
regnet_y_400mf regnet_y_800mf resnet18 resnet34 resnet50 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0 squeezenet1_1 swin_t swin_v2_t
vgg11_bn vit_b_16""".split()


@pytest.fixture(scope="module")
def models():
    with both("models") as modules:
        yield modules


def build(models, name, **options):
    return models[0].get_model(name, **options)


@pytest.mark.parametrize("name", MODELS)
def test_states_have_torchs_names_shapes_and_dtypes(models, name, monkeypatch):  # TV-02
    for lib in (sl, torch):  # what is in them does not count
        for fill in ("normal_", "uniform_"):
            monkeypatch.setattr(lib.Tensor, fill, lambda self, *args, **kwargs: self)
        for fill in [n for n in dir(lib.nn.init) if n.endswith("_") and not n.startswith("_")]:
            monkeypatch.setattr(lib.nn.init, fill, lambda tensor, *args, **kwargs: tensor)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    ours, theirs = build(models, name, **options), models[1].get_model(name, **options)
    described = [[(k, tuple(v.shape), str(v.dtype).rpartition(".")[2]) for k, v in net.state_dict().items()] for net in (ours, theirs)]
    assert described[0] == described[1] and len(described[0]) > 10
    assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
    assert str(ours) == str(theirs)


@pytest.mark.parametrize("name,size", [("resnet18", 64), ("squeezenet1_1", 64), ("mobilenet_v3_small", 64), ("densenet121", 64), ("shufflenet_v2_x0_5", 64),
                                       ("efficientnet_b0", 64), ("regnet_y_400mf", 64), ("swin_t", 64), ("convnext_tiny", 64)])
def test_results_are_torchs(models, name, size):  # OE-10
    torch.manual_seed(0)
    theirs = models[1].get_model(name, num_classes=40).eval()
    for module in theirs.modules():
        if isinstance(module, torch.nn.BatchNorm2d):  # as if trained
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    ours = build(models, name, num_classes=40).eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.rand(2, 3, size, size)
    with torch.no_grad(), sl.no_grad():
        expected = theirs(x).numpy()
        for net in (ours, sl.nn.Graph.trace(ours)):
            got = net(sl.tensor(x.numpy())).numpy()
            assert got.shape == expected.shape == (2, 40)
            assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def differences_of_folding(models, name, size):
    """Of a net as if trained: how far folded results are from unfolded ones, in float32 and bfloat16, by the largest value; and
    how far those in bfloat16 are from float32, folded and not."""
    sl.manual_seed(0)
    options = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    net = build(models, name, num_classes=40, **options).eval()
    norms = [m for m in net.modules() if isinstance(m, sl.nn.BatchNorm2d)]
    with sl.no_grad():
        for module in norms:
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.uniform_(0.5, 1.5)
            module.bias.uniform_(-0.2, 0.2)
        x, results, folds = sl.rand(2, 3, size, size), {}, {}
        for half in (False, True):
            if half:
                net, x = net.bfloat16(), x.bfloat16()
            for fold in (True, False):
                graph = sl.nn.Graph.trace(net)
                graph.config.enable_fold_norms(fold)
                results[half, fold] = graph(x).float().numpy().astype(np.float64)
                folds[half, fold] = graph.config.report()["fold_norms"]
    assert folds[False, True] == folds[True, True] >= min(len(norms), 1) and folds[False, False] == 0
    largest = np.abs(results[False, False]).max()
    far = lambda a, b: np.abs(a - b).max() / largest
    exact = results[False, False]
    return folds[False, True], len(norms), far(results[False, True], exact), far(results[True, True], results[True, False]), far(
        results[True, True], exact), far(results[True, False], exact)


def check_folding(models, name, size):
    folds, norms, single, half, folded, plain = differences_of_folding(models, name, size)
    print(f"count: {name}: {folds} of {norms} norms folded; float32 {single:.1e}, bfloat16 {half:.1e}, from float32 {folded:.1e} for {plain:.1e}")
    assert single <= 1e-5
    # Roundings add up over a net, folded or not: folding adds at most as much as one unit to what they come to.
    assert folded <= 1.5 * plain + 2**-8 and half <= folded + plain


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5"])
def test_folded_norms_differ_in_the_last_bits(models, name):
    check_folding(models, name, 64)


@pytest.mark.soak
@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("alexnet", "convnext", "squeezenet", "swin", "vit"))])
def test_folded_norms_of_every_net_differ_in_the_last_bits(models, name):
    check_folding(models, name, 224 if name in ("inception_v3", "maxvit_t") else 96)


def unreachable(url, **options):
    raise urllib.error.URLError("no way there")


def test_weights_go_over_as_arrays_and_as_files(models, tmp_path, monkeypatch):  # TV-01
    torch.manual_seed(1)
    theirs = models[1].resnet101().eval()
    ours = build(models, "resnet101").eval()
    ours.load_state_dict({name: value.detach().numpy() for name, value in theirs.state_dict().items()})
    x = torch.rand(1, 3, 64, 64)
    with torch.no_grad(), sl.no_grad():
        np.testing.assert_allclose(ours(sl.tensor(x.numpy())).numpy(), theirs(x).numpy(), rtol=1e-3, atol=1e-4 * theirs(x).abs().max().item())
    # A file that is where torch keeps what it has downloaded.
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    with pytest.raises(OSError, match="cannot be had: .*no way there.*put it at .*hub/checkpoints"):
        build(models, "resnet18", weights="IMAGENET1K_V1")
    pretrained = models[1].resnet18()
    file = models[1].ResNet18_Weights.IMAGENET1K_V1.url.rpartition("/")[2]
    torch.save(pretrained.state_dict(), tmp_path / "hub/checkpoints" / file)
    net = build(models, "resnet18", weights="IMAGENET1K_V1")
    for name, value in pretrained.state_dict().items():
        np.testing.assert_array_equal(net.state_dict()[name].numpy(), value.numpy())


def test_a_step_of_training_is_torchs(models):
    torch.manual_seed(0)
    theirs = models[1].resnet18(num_classes=10)
    ours = build(models, "resnet18", num_classes=10)
    ours.load_state_dict(theirs.state_dict())
    x, y = torch.rand(4, 3, 32, 32), torch.tensor([1, 2, 3, 9])
    losses = []
    for net, lib, images, labels in ((theirs, torch, x, y), (ours, sl, sl.tensor(x.numpy()), sl.tensor(y.numpy()))):
        sgd = lib.optim.SGD(net.parameters(), lr=0.01)
        for _ in range(2):
            sgd.zero_grad()
            loss = lib.nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            sgd.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=2e-3)


def test_what_needs_what_is_not_here_says_so(models):
    with sl.mock_torch():
        import torch
        import torchvision

        with pytest.raises(NotImplementedError, match="torch.ops.torchvision._roi_pool_backward: Sluice has no such op; use roi_align or nms"):
            torch.ops.torchvision._roi_pool_backward(sl.ones(1, 1, 4, 4))
