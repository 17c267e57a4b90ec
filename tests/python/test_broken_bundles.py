"""Bundles whose files are damaged or from elsewhere: errors of ours that name the file, and a word where a plan is not used."""

import json
import os
import random
import shutil
import warnings

import pytest

import sluice as sl
import sluice.nn as nn

FILES = ["plan.json", "graph.txt", "meta.json", "weights.safetensors"]


class Net(nn.Graph):
    def __init__(self):
        super().__init__(name="net")
        sl.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())

    def build(self, x, scale=2):
        y = self.model(x["of"][0]) * scale
        return {"y": y, "sums": [y.sum(1), y.sum()]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory, without_digest):
    directory = tmp_path_factory.mktemp("bundles") / "good"
    graph = Net()
    graph({"of": [sl.ones(2, 4)]})
    sl.save(graph, directory)
    without_digest(directory)  # which would find each change before anything else does
    return directory


@pytest.fixture
def bundle(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "bundle")


def load(directory):
    """The error's text, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sl.load_graph(directory)
    except sl.Error as error:
        return str(error)
    return None


def test_text_that_is_not_utf8_is_refused_with_its_place(bundle):
    for name in FILES[:3]:
        good = (bundle / name).read_bytes()
        for at in (0, len(good) // 2, len(good)):
            (bundle / name).write_bytes(good[:at] + b"\xff" + good[at:])
            assert str(bundle / name) in load(bundle), (name, at)
        (bundle / name).write_bytes(good)
    (bundle / "graph.txt").write_bytes(b"gr\xffph")
    assert load(bundle).startswith(f"{bundle}/graph.txt: byte 2 is no UTF-8")


SIGNATURES = ["{}", "null", "{", "[]", "1", '{"parameters": []}', "[" * 5000, '"\\ud800"',
              '{"parameters": ["x"], "arguments": null, "results": null}',
              '{"parameters": ["x"], "arguments": {"kind": "tensor", "children": []}, "results": {"kind": "tensor", "children": []}}',
              '{"parameters": 3, "arguments": {"kind": "dict", "value": ["x"], "children": [{"kind": "tensor", "children": []}]},'
              ' "results": {"kind": "tensor", "children": []}}']


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s[:12])
def test_a_wrong_signature_is_refused_by_name(bundle, signature):
    meta = json.loads((bundle / "meta.json").read_text())
    (bundle / "meta.json").write_text(json.dumps({**meta, "signature": signature}))
    assert load(bundle).startswith(f"{bundle}/meta.json: signature: ")


@pytest.mark.parametrize("kind", ["cube", 3, None, []])
@pytest.mark.parametrize("field", ["kind", "value", "children"])
def test_every_field_of_a_signature_is_checked(bundle, field, kind):
    meta = json.loads((bundle / "meta.json").read_text())
    signature = json.loads(meta["signature"])
    nodes = [signature["arguments"], signature["results"]]
    for node in nodes:
        nodes.extend(node["children"])
    refused = 0
    for i in range(len(nodes)):
        changed = json.loads(meta["signature"])
        copies = [changed["arguments"], changed["results"]]
        for node in copies:
            copies.extend(node["children"])
        copies[i][field] = kind
        (bundle / "meta.json").write_text(json.dumps({**meta, "signature": json.dumps(changed)}))
        error = load(bundle)
        assert error is None or error.startswith(f"{bundle}/meta.json: signature: "), (i, error)
        refused += error is not None
    assert refused > 0


def test_shapes_that_cannot_be_read_are_named(bundle, tmp_path):
    for text in (b"\xff", b"{", b"[" * 100000, b"null", b'{"schema_version": 1, "bundles": true}'):
        (bundle / "shapes.json").write_bytes(text)
        assert load(bundle).startswith(f"{bundle}/shapes.json: "), text[:10]
    os.remove(bundle / "shapes.json")
    os.mkdir(bundle / "shapes.json")
    assert load(bundle).startswith(f"{bundle}/shapes.json: cannot be read: ")


def test_a_plan_that_is_not_used_says_so(bundle):
    plan = json.loads((bundle / "plan.json").read_text())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sl.load_graph(bundle)
    (bundle / "plan.json").write_text(json.dumps({**plan, "target": "another machine"}))
    with pytest.warns(UserWarning, match=r"plan.json was made for 'another machine'; here is 'cpu:0.*': compiled anew from graph.txt"):
        graph = sl.load_graph(bundle)
    assert graph({"of": [sl.ones(2, 4)]})["y"].shape == (2, 3)


def test_what_a_plan_says_wrong_is_said_with_its_file(bundle):
    plan = json.loads((bundle / "plan.json").read_text())
    plan["registers"][0]["producer"] = 99
    (bundle / "plan.json").write_text(json.dumps(plan))
    assert load(bundle).startswith(f"{bundle}/plan.json: plan 'net': structure: ")


def mutant(data, draw):
    """The bytes with a change: of a bit, a byte, a piece, a number, a word."""
    data, at = bytearray(data), draw.randrange(len(data))
    kind = draw.randrange(7)
    if kind == 0:
        data[at] ^= 1 << draw.randrange(8)
    elif kind == 1:
        data[at] = draw.choice([0, 0xff, 0x80, ord('"'), ord("{"), ord("-"), ord("9")])
    elif kind == 2:
        del data[at:at + draw.randrange(1, 40)]
    elif kind == 3:
        data[at:at] = data[draw.randrange(len(data)):][:draw.randrange(1, 40)]
    elif kind == 4:
        data = data[:at]
    else:
        digits = [i for i, c in enumerate(data) if chr(c).isdigit()]
        at = draw.choice(digits)
        data[at:at + 1] = draw.choice([b"0", b"1", b"7", b"-1", b"99999999999999999999", b"null", b"{}", b"1e9", b"2"])
    return bytes(data)


@pytest.mark.soak
def test_soak_mutants_of_a_bundle_load_or_are_refused_by_file(bundle, repetitions, count):
    draw, good, refused = random.Random(5), {name: (bundle / name).read_bytes() for name in FILES}, dict.fromkeys(FILES, 0)
    mutants = repetitions(2000, 40000)
    for i in range(mutants):
        name = FILES[i % 4]
        (bundle / name).write_bytes(mutant(good[name], draw))
        error = load(bundle)
        assert error is None or str(bundle) + "/" in error, (i, name, error)
        refused[name] += error is not None
        (bundle / name).write_bytes(good[name])
    count("mutants of bundles", mutants, "bundles, loaded or refused by file")
    assert min(refused.values()) > mutants / 20, refused
