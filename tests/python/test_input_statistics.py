"""Planned and really used bytes of each stage of a pipeline, and what to do about the difference."""

import io
import re

import numpy as np
import pytest

from sluice import data

Image = pytest.importorskip("PIL.Image")
SIDES = (64, 96, 400, 640)  # pixels of files of very different sizes


def jpeg(side, **options):
    rng, file = np.random.default_rng(side), io.BytesIO()
    Image.fromarray(np.kron(rng.integers(0, 255, (side // 8, side // 8, 3), np.uint8), np.ones((8, 8, 1), np.uint8))).save(file, "JPEG", quality=90, subsampling=0, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A record file with photographs of four sizes, of which the largest comes in several scans."""
    path = tmp_path_factory.mktemp("sizes") / "train.rec"
    contents = [jpeg(side, progressive=side == SIDES[-1]) for side in SIDES for _ in range(4)]
    with data.RecordWriter(path) as records:
        for i, content in enumerate(contents):
            records.write(content, label=i)
    return path, max(map(len, contents))


def rows(pipeline):
    return {(row.stage, row.what): row for row in pipeline.statistics()}


def test_the_table_has_what_was_reserved_and_what_was_used(files):  # DAL-06
    path, longest = files
    pipeline = data.records(path).shuffle(seed=1).batch(4).decode(32, max_decoder_bytes=1 << 26)
    before = rows(pipeline)
    assert all(row.used == 0 for (stage, what), row in before.items() if what not in ("workspaces",))
    for _ in pipeline:
        pass
    after = rows(pipeline)
    assert sum(row.reserved for row in after.values() if row.memory) == pipeline.memory()["total"]
    assert all(row.used <= row.reserved for row in after.values())
    assert after["decode", "largest file"].used == longest
    assert after["decode", "largest image"].used == SIDES[-1] ** 2 and after["decode", "largest image"].unit == "pixels"
    decoders, cores = after["decode", "decoders"], pipeline._cores()
    coefficients = 3 * 2 * SIDES[-1] ** 2  # of three colours, 16 bits each, of all of the image
    assert decoders.reserved == cores << 26 and 1 <= decoders.used / (cores * coefficients) <= 1.5
    register = next(row for (stage, what), row in after.items() if stage.startswith("output0"))
    assert register.what == "slots" and 0 < register.used <= register.reserved and register.reserved % (4 * 3 * 32 * 32) == 0
    lines = str(pipeline.statistics()).splitlines()
    assert len(lines) == len(after) + 1 and lines[0].split() == ["stage", "what", "reserved", "most", "used", "hint"]
    print("\n" + "\n".join(lines))


def test_a_hint_to_lower_or_to_raise_does_what_it_says(files):  # DAL-06
    path, _ = files
    ample = data.records(path).batch(4).decode(32, max_decoder_bytes=1 << 26)
    list(ample)
    hint = rows(ample)["decode", "decoders"].hint
    lower = int(re.fullmatch(r"lower: decode\(max_decoder_bytes=(\d+)\) would do", hint)[1])
    narrow = data.records(path).batch(4).decode(32, max_decoder_bytes=lower)
    assert lower < 1 << 26 and narrow.memory()["total"] < ample.memory()["total"]
    assert [x.tolist() for x, _ in narrow] == [x.tolist() for x, _ in ample]
    assert rows(narrow)["decode", "decoders"].hint == "" and rows(narrow)["decode", "decoders"].used > 0

    tight = data.records(path).batch(4).decode(32, max_decoder_bytes=1 << 20, max_pixels=200 * 200, max_bytes=1 << 20).on_error("skip")
    assert sum(len(x) for x, _ in tight) == 8 and tight.errors.counts == {"broken or too large": 8}
    hints = {what: row.hint for (_, what), row in rows(tight).items()}
    raised = int(re.fullmatch(r"raise: an image was refused; decode\(max_pixels=(\d+)\) would take it", hints["largest image"])[1])
    assert raised >= SIDES[-1] ** 2
    wider = data.records(path).batch(4).decode(32, max_decoder_bytes=1 << 20, max_pixels=raised).on_error("skip")
    list(wider)
    assert wider.errors.counts == {"broken or too large": 4}
    hint = rows(wider)["decode", "decoders"].hint
    raised = int(re.fullmatch(r"raise: an image was refused; decode\(max_decoder_bytes=(\d+)\) would take it", hint)[1])
    enough = data.records(path).batch(4).decode(32, max_decoder_bytes=raised)
    assert len(list(enough)) == 4 and enough.errors.total == 0


def test_pipelines_count_apart(files):
    path, _ = files
    small, large = (data.records(path).filter(keep).batch(4).decode(32) for keep in (lambda s: s[1] < 4, lambda s: s[1] >= 12))
    list(small), list(large)
    assert rows(small)["decode", "largest image"].used == SIDES[0] ** 2
    assert rows(large)["decode", "largest image"].used == SIDES[-1] ** 2


def test_rows_of_padding_that_nobody_needs():
    samples = [np.arange(n, dtype=np.float32) for n in (3, 9, 5, 1)]
    pipeline = data.dataset(samples).padded_batch(2, most=64)
    list(pipeline)
    row = rows(pipeline)["padded_batch", "rows of a slot"]
    assert row.reserved == 2 * 64 * 4 and row.used == 2 * 9 * 4 and row.hint == "lower: padded_batch(most=9) would do"
    list(exact := data.dataset(samples).padded_batch(2, most=9))
    assert rows(exact)["padded_batch", "rows of a slot"].hint == ""
