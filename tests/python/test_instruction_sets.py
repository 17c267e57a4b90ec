"""SLUICE_MAX_ISA: a limit of the instruction sets holds, whatever is asked meanwhile."""

import pytest

UPDATE = """
import sys
import numpy as np
import sluice as sl
if len(sys.argv) > 1:
    sl.info.as_dict()
numbers = np.random.default_rng(0).normal(size=(2, 4099)).astype(np.float32)
weight = sl.nn.Parameter(sl.from_numpy(numbers[0]))
weight.grad = sl.from_numpy(numbers[1])
optimizer = sl.optim.SGD([weight], lr=0.05, momentum=0.9)
for _ in range(3):
    optimizer.step()
print(weight.detach().numpy().tobytes().hex(), sl.info.as_dict()["instructions"])
"""


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512"])
def test_asking_for_the_instruction_sets_leaves_their_limit(run_script, level):
    """Before Highway has chosen kernels: an update rounds otherwise where there are fused products."""
    plain, asked = (run_script(UPDATE, arguments=arguments, SLUICE_MAX_ISA=level) for arguments in ((), ("ask",)))
    assert plain.returncode == asked.returncode == 0, plain.stderr + asked.stderr
    assert plain.stdout == asked.stdout
