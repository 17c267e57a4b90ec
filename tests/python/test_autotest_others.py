"""Generated calls, compared with torch: functions of linalg and special, and methods that are no functions."""

from autotest_shards import holds, of


@of(lambda op: op.startswith(("linalg.", "special.", "fft.", "Tensor.")))
def test_generated_calls_are_torchs(op):  # OPS-49, OPS-50
    holds(op)
