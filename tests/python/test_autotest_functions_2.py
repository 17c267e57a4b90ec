"""Generated calls, compared with torch: second half of the functions."""

from autotest_shards import holds, of


@of(lambda op: op.count(".") == 0 and op >= "j")
def test_generated_calls_are_torchs(op):  # OPS-49, OPS-50
    holds(op)
