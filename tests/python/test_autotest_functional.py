"""Generated calls, compared with torch: functions of nn.functional."""

from autotest_shards import holds, of


@of(lambda op: op.startswith("nn.functional."))
def test_generated_calls_are_torchs(op):  # OPS-49, OPS-50
    holds(op)
