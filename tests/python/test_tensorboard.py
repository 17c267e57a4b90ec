"""SummaryWriter: event files whose check sums hold and that say what was added; read here without TensorBoard's code."""

import io
import struct
import subprocess
import sys
import threading
import wave

import numpy as np
import pytest
from event_files import doubles, events, fields, files, records, scalars, values
from PIL import Image

import sluice as sl
from sluice import nn
from sluice.utils.tensorboard import SummaryWriter


def test_no_other_package_is_imported_for_it(tmp_path):
    program = "import sys; from sluice.utils.tensorboard import SummaryWriter; SummaryWriter(sys.argv[1]).close(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert not {"tensorboardX", "tensorboard", "tensorflow", "google.protobuf"} & set(done.stdout.split()) and len(records(files(tmp_path)[0])) == 1


def test_the_curve_of_a_loss(tmp_path):
    net, losses = nn.Linear(4, 1), []
    optimizer, x, y = sl.optim.SGD(net.parameters(), lr=0.1), sl.randn(32, 4), sl.randn(32, 1)
    with SummaryWriter(tmp_path) as writer:
        for step in range(50):
            loss = ((net(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            writer.add_scalar("train/loss", loss, sl.tensor(step), walltime=1000.0 + step)
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert scalars(tmp_path) == [("train/loss", step, pytest.approx(loss, rel=1e-7)) for step, loss in enumerate(losses)]
    assert [e[1][0] for e in events(tmp_path)] == [1000.0 + step for step in range(50)]


def test_what_was_added_is_in_the_file_when_it_is_flushed(tmp_path):
    writer = SummaryWriter(tmp_path, max_queue=5, flush_secs=1e9)
    for step in range(7):
        writer.add_scalar("a", 1.0, step)
    assert len(scalars(tmp_path)) == 5, "so many wait at most"
    writer.flush()
    assert len(scalars(tmp_path)) == 7
    writer.close()
    with pytest.raises(ValueError, match="is closed; make another writer"):
        writer.add_scalar("a", 1.0)


def test_scalars_of_other_kinds(tmp_path):
    with SummaryWriter(tmp_path, purge_step=5) as writer:
        writer.add_scalar("float", sl.tensor([2.5], dtype=sl.bfloat16), -1)
        writer.add_scalar("new", np.float64(0.1), new_style=True)
        writer.add_scalar("double", 0.1, double_precision=True)
        with pytest.raises(ValueError, match=r"add_scalar: a value of shape \(2,\); must be a number"):
            writer.add_scalar("two", sl.ones(2))
    restart, *_ = events(tmp_path)
    assert restart[2] == [5] and fields(restart[7][0]) == {1: [1]}
    (_, step, plain), (_, _, new), (_, _, double) = values(tmp_path)
    assert plain[2] == [2.5] and step == (1 << 64) - 1, "-1 in two's complement"
    for value in (new, double):
        assert fields(fields(value[9][0])[1][0])[1] == [b"scalars"] and fields(value[9][0])[4] == [1]
    assert struct.unpack("<f", fields(new[8][0])[5][0]) == (pytest.approx(0.1, rel=1e-7),) and doubles(fields(double[8][0])[6][0]) == [0.1]


def test_curves_in_one_picture_are_runs_beside_it(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalars("losses", {"train": step, "test": 2 * step}, step)
    assert scalars(tmp_path / "losses_test") == [("losses", step, 2.0 * step) for step in range(3)]
    assert len(scalars(tmp_path / "losses_train")) == 3 and scalars(tmp_path) == []


@pytest.mark.parametrize("bins", ["tensorflow", "auto", 10])
def test_histograms_count_each_value_once(tmp_path, bins):
    sl.manual_seed(0)
    x = sl.cat([sl.randn(1000) * 3, sl.zeros(5)])
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("weight", x, 7, bins=bins)
        writer.add_histogram("few", x, 7, bins=bins, max_bins=4)
        with pytest.raises(ValueError, match="1 of 2 values are not finite"):
            writer.add_histogram("bad", sl.tensor([1.0, float("nan")]))
        with pytest.raises(ValueError, match="no values"):
            writer.add_histogram("bad", sl.zeros(0))
    array = x.numpy().astype("float64")
    for tag, step, value in values(tmp_path):
        proto = fields(value[5][0])
        limits, counts = doubles(proto[6][0]), doubles(proto[7][0])
        assert step == 7 and len(limits) == len(counts) and limits == sorted(set(limits)) and sum(counts) == len(array) == proto[3][0]
        assert (proto[1][0], proto[2][0]) == (array.min(), array.max()) and proto[4][0] == pytest.approx(array.sum()) and proto[5][0] == pytest.approx((array ** 2).sum())
        assert np.abs(np.cumsum(counts)[:-1] - [(array < limit).sum() for limit in limits[:-1]]).max(initial=0) <= 5, "zeros lie on a limit"
        assert tag == "weight" or len(counts) <= 6


def test_a_histogram_that_is_known(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram_raw("raw", 0, 4, 6, 10, 30, [1, 2, 4], [1, 2, 3])
        with pytest.raises(ValueError, match="2 limits and 1 counts"):
            writer.add_histogram_raw("raw", 0, 4, 6, 10, 30, [1, 2], [1])
    (_, _, value), = values(tmp_path)
    proto = fields(value[5][0])
    assert [proto[i][0] for i in range(1, 6)] == [0, 4, 6, 10, 30] and (doubles(proto[6][0]), doubles(proto[7][0])) == ([1, 2, 4], [1, 2, 3])


def test_images(tmp_path):
    picture = sl.rand(3, 5, 7)
    grey = (sl.arange(35).reshape(5, 7) * 7).to(sl.uint8)
    with SummaryWriter(tmp_path) as writer:
        writer.add_image("colours", picture)
        writer.add_image("grey", grey, dataformats="HW")
        writer.add_images("ten", sl.ones(10, 1, 4, 6))
        with pytest.raises(ValueError, match=r"an image of shape \(3, 5, 7\) with dataformats 'HW'"):
            writer.add_image("bad", picture, dataformats="HW")
    shown = {tag: fields(value[4][0]) for tag, _, value in values(tmp_path)}
    decoded = {tag: np.asarray(Image.open(io.BytesIO(image[4][0]))) for tag, image in shown.items()}
    for tag, image in shown.items():
        assert (image[1][0], image[2][0]) == decoded[tag].shape[:2]
    np.testing.assert_array_equal(decoded["colours"], (picture.permute(1, 2, 0).numpy().astype("float64") * 255).astype("uint8"))
    np.testing.assert_array_equal(decoded["grey"], grey.numpy())
    assert decoded["ten"].shape == (8, 48) and (decoded["ten"][:4] == 255).all() and not decoded["ten"][4:, 12:].any()


def test_sounds_and_texts(tmp_path):
    sound = sl.sin(sl.arange(800) / 800 * 440 * 6.283)
    with SummaryWriter(tmp_path) as writer:
        writer.add_audio("tone", sound, sample_rate=8000)
        writer.add_text("note", "**bold** ä")
    (_, _, tone), (tag, _, note) = values(tmp_path)
    audio = fields(tone[6][0])
    with wave.open(io.BytesIO(audio[4][0])) as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 800) == (audio[1][0], audio[3][0])
        np.testing.assert_allclose(np.frombuffer(file.readframes(800), "<i2") / 32767, sound.numpy(), atol=1e-4)
    assert tag == "note/text_summary" and fields(note[8][0])[8] == ["**bold** ä".encode()] and fields(fields(note[9][0])[1][0])[1] == [b"text"]


def test_the_graph_of_a_model(tmp_path):
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, sl.ones(2, 4))
        with pytest.raises(ValueError, match="input_to_model is None"):
            writer.add_graph(net)
    event, = events(tmp_path)
    nodes = [fields(node) for node in fields(event[4][0])[1]]
    by_op = {node[2][0].decode(): node for node in nodes}
    assert {"input", "variable", "linear", "relu", "output"} <= by_op.keys()
    names = [node[1][0] for node in nodes]
    assert len(set(names)) == len(names) and {i for node in nodes for i in node.get(3, [])} <= set(names)
    assert by_op["relu"][3] == by_op["linear"][1] and len(by_op["linear"][3]) == 3
    assert any(name.endswith(b"0/weight") for name in names) and b"/0/" in by_op["linear"][1][0]


def test_settings_and_what_they_came_to(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_hparams({"lr": 0.1, "net": "small", "bn": True, "none": None}, {"accuracy": sl.tensor(0.9)}, {"net": ["small", "large"]}, run_name="first")
    found = values(tmp_path / "first")
    assert [tag for tag, _, _ in found] == ["_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info", "accuracy"]
    start = fields(fields(fields(fields(found[1][2][9][0])[1][0])[2][0])[3][0])
    settings = {fields(entry)[1][0]: fields(fields(entry)[2][0]) for entry in start[1]}
    assert settings == {b"lr": {2: [0.1]}, b"net": {3: [b"small"]}, b"bn": {4: [1]}}
    experiment = fields(fields(fields(fields(found[0][2][9][0])[1][0])[2][0])[2][0])
    assert [fields(info)[4][0] for info in experiment[4]] == [3, 1, 2] and fields(fields(experiment[5][0])[1][0])[2] == [b"accuracy"]


def test_figures_of_matplotlib(tmp_path):
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2, 3])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("plot", figure, 3, close=False)
    (_, step, value), = values(tmp_path)
    assert step == 3 and (fields(value[4][0])[1], fields(value[4][0])[2]) == ([50], [100])


def test_threads_write_whole_records(tmp_path):
    def write(n):
        for step in range(100):
            writer.add_scalar(f"thread{n}", n, step)

    with SummaryWriter(tmp_path, max_queue=3) as writer:
        threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = scalars(tmp_path)
    assert len(found) == 400 and {(tag, step) for tag, step, _ in found} == {(f"thread{n}", step) for n in range(4) for step in range(100)}


def test_writers_of_one_folder_have_files_of_their_own(tmp_path):
    for _ in range(2):
        SummaryWriter(tmp_path, filename_suffix=".mine").close()
    assert len(files(tmp_path)) == 2 and all(path.name.endswith(".mine") and len(records(path)) == 1 for path in files(tmp_path))


def test_what_is_not_written_says_who_does(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(NotImplementedError, match=r"add_embedding: is not written here; tensorboardX.SummaryWriter has it \(pip install tensorboardX\)"):
            writer.add_embedding(sl.ones(2, 2))
        with pytest.raises(AttributeError, match="no attribute 'add_nothing'"):
            writer.add_nothing()
