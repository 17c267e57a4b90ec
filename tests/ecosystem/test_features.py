"""Feature extractors of torchvision and timm, which are made by torch.fx: nodes, values and gradients are torch's."""

import contextlib
import copy
import warnings

import numpy as np
import pytest
import torch

import sluice as sl
from ecosystem import beside

pytestmark = pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")
LIBS = (sl, torch)


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nodes of training and of evaluation may differ
        yield


@pytest.fixture(scope="module")
def vision():
    return beside.modules("torchvision.models")


@pytest.fixture(scope="module")
def extraction():
    return beside.modules("torchvision.models.feature_extraction")


NETS = {
    "resnet18": (lambda m: m.resnet18(num_classes=7), {"layer1": "a", "layer3.0.relu_1": "b", "fc": "c"}, 32),
    "mobilenet_v2": (lambda m: m.mobilenet_v2(num_classes=7, width_mult=0.25), {"features.3": "a", "features.10.conv": "b", "classifier": "c"}, 32),
    "mobilenet_v3_small": (lambda m: m.mobilenet_v3_small(num_classes=7), {"features.1": "a", "features.6.block.2": "b", "flatten": "c"}, 32),
    "vit": (lambda m: m.VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, num_classes=7),
            {"encoder.layers.encoder_layer_0": "a", "encoder.ln": "b", "heads": "c"}, 32),
    "swin": (lambda m: m.swin_transformer.SwinTransformer([2, 2], 8, [1, 1], [2, 2], [4, 4], num_classes=7, stochastic_depth_prob=0.0),
             {"features.1": "a", "features.2": "b", "head": "c"}, 32),
    "googlenet": (lambda m: m.googlenet(num_classes=7, init_weights=False, aux_logits=False), {"inception3a": "a", "dropout": "b"}, 64),
    "densenet": (lambda m: m.DenseNet(4, (2, 2), 8, bn_size=2, num_classes=7), {"features.denseblock1": "a", "features.norm5": "b"}, 32),
    "shufflenet": (lambda m: m.shufflenet_v2_x0_5(num_classes=7), {"stage2": "a", "mean": "b"}, 64),
    "efficientnet_b0": (lambda m: m.efficientnet_b0(num_classes=7), {"features.2": "a", "flatten": "b"}, 32),
    "regnet": (lambda m: m.regnet_y_400mf(num_classes=7), {"trunk_output.block1": "a", "flatten": "b"}, 32),
    "convnext": (lambda m: m.convnext_tiny(num_classes=7), {"features.1": "a", "classifier": "b"}, 32),
}
FEW = ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "vit", "swin")


def pair(vision, name):
    """The net on both with torch's weights, in evaluation, and an input."""
    build, nodes, size = NETS[name]
    with quiet():
        torch.manual_seed(0)
        ours, theirs = (build(m).eval() for m in vision)
    ours.load_state_dict({key: sl.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    return ours, theirs, nodes, np.random.default_rng(0).random((2, 3, size, size), np.float32)


def rows(graph):
    return [(n.op, n.name, n.target if isinstance(n.target, str) else n.target.__name__, [a.name for a in n.all_input_nodes]) for n in graph.nodes]


@pytest.mark.parametrize("name", NETS)
def test_nodes_are_torchs(vision, extraction, name):
    (ours, theirs, _, _) = pair(vision, name)
    with quiet():
        found = [e.get_graph_node_names(net) for e, net in zip(extraction, (ours, theirs))]
    assert found[0] == found[1] and len(found[0][1]) > 20
    tracers = [e.NodePathTracer(**e._set_default_tracer_kwargs(None)) for e in extraction]
    graphs = [tracer.trace(net) for tracer, net in zip(tracers, (ours, theirs))]
    assert rows(graphs[0]) == rows(graphs[1])


def with_gradients(lib, net, x):
    x = lib.tensor(x, requires_grad=True)
    results = net(x)
    sum((value.square()).mean() for value in results.values()).backward()
    grads = {name: p.grad.numpy() for name, p in net.named_parameters() if p.grad is not None}
    return {key: value.detach().numpy() for key, value in results.items()}, {"input": x.grad.numpy(), **grads}


def close(found, expected, relative):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.abs(found[name] - value).max() <= relative * np.abs(value).max() + 1e-7, name


@pytest.mark.parametrize("name", FEW)
def test_features_and_gradients_are_torchs(vision, extraction, name):
    ours, theirs, nodes, x = pair(vision, name)
    with quiet():
        extractors = [e.create_feature_extractor(net, dict(nodes)) for e, net in zip(extraction, (ours, theirs))]
    (values, grads), (expected, wanted) = (with_gradients(lib, net, x) for lib, net in zip(LIBS, extractors))
    assert list(values) == list(nodes.values())
    close(values, expected, 1e-4)
    close(grads, wanted, 2e-3)
    with sl.no_grad():
        for called in (sl.compile(extractors[0]), sl.nn.Graph.trace(extractors[0])):
            close({key: value.numpy() for key, value in called(sl.tensor(x)).items()}, expected, 1e-4)


def test_an_extractor_has_a_graph_for_training_and_one_for_evaluation(vision, extraction):
    ours, _, nodes, x = pair(vision, "resnet18")
    extractor = extraction[0].create_feature_extractor(ours.train(), {"layer1": "a"})
    names = {name for name, _ in extractor.named_modules()}
    assert "layer1.0.conv1" in names and not any(name.startswith("layer2") for name in names)
    assert extractor.training and extractor.graph is extractor.train_graph and extractor.eval().graph is extractor.eval_graph
    copied = copy.deepcopy(extractor).eval()
    assert type(copied).__name__ == "GraphModule" and isinstance(copied, extraction[0].DualGraphModule)
    with sl.no_grad():
        assert sl.equal(copied(sl.tensor(x))["a"], extractor(sl.tensor(x))["a"])
    with sl.no_grad():
        compiled = sl.compile(copied)
        for mode in (False, True, False):
            copied.train(mode)
            copied.layer1.apply(lambda m: setattr(m, "momentum", 0.0) if isinstance(m, sl.nn.BatchNorm2d) else None)
            assert sl.allclose(compiled(sl.tensor(x))["a"], copied(sl.tensor(x))["a"], rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="node: 'nowhere' is not present in model"):
        extraction[0].create_feature_extractor(ours, ["nowhere"])


TIMM = {
    "resnet10t": {"out_indices": (1, 3)}, "mobilenetv3_small_050": {"out_indices": (0, 2)},
    "vit_tiny_patch16_224": {"img_size": 64, "out_indices": (2, 4)},
    "efficientnet_lite0": {"out_indices": (1, 4)}, "regnetx_002": {"out_indices": (1, 2)},
}


@pytest.mark.parametrize("name", TIMM)
def test_timms_features_by_fx_are_torchs(name):
    options, libs = TIMM[name], beside.modules("timm")
    torch.manual_seed(0)
    with quiet():
        made = [timm.create_model(name, features_only=True, feature_cls="fx", **options).eval() for timm in libs]
    ours, theirs = made
    assert type(ours).__name__ == "FeatureGraphNet" == type(theirs).__name__
    assert rows(ours.graph_module.graph) == rows(theirs.graph_module.graph)
    assert ours.feature_info.channels() == theirs.feature_info.channels()
    ours.load_state_dict({key: sl.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    x = np.random.default_rng(1).random((1, 3, 64, 64), np.float32)
    with torch.no_grad(), sl.no_grad():
        expected = theirs(torch.tensor(x))
        for called in (ours, sl.nn.Graph.trace(ours)):
            for got, want in zip(called(sl.tensor(x)), expected, strict=True):
                assert np.abs(got.numpy() - want.numpy()).max() <= 1e-4 * np.abs(want.numpy()).max()
