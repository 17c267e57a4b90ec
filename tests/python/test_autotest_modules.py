"""Generated calls, compared with torch: modules."""

from autotest_shards import holds, of


@of(lambda op: op.startswith("nn.") and op.count(".") == 1)
def test_generated_calls_are_torchs(op):  # OPS-49, OPS-50
    holds(op)
