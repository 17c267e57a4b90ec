"""Fixtures of the tests with several processes: programs are written to files and started by the launcher."""

import os
import re
import sys
import textwrap

import pytest

import sluice as sl
from jobs import Job

HEADER = """
import os, signal, sys, time
import numpy as np
import sluice as sl
import sluice.distributed as dist
from rank_talk import let_go, rank, size, tell, wait_to_go
"""


@pytest.fixture
def environment():
    """The environment of a program started away from this one: no variable of a launcher."""
    names = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|MASTER_|SLUICE_(TOKEN|LAUNCHER|CORES)|SLURM_|OMPI_|TORCHELASTIC_)")
    path = os.pathsep.join([os.path.dirname(os.path.dirname(sl.__file__)), *sys.path])
    return {**{k: v for k, v in os.environ.items() if not names.match(k)}, "PYTHONPATH": path}


@pytest.fixture
def start(tmp_path, environment):
    """start(n, source, *options, **variables): a Job of n processes that run `source`."""
    jobs = []

    def begin(n, source, *options, arguments=(), **variables):
        script = tmp_path / "script.py"
        script.write_text(HEADER + textwrap.dedent(source))
        command = [sys.executable, "-m", "sluice.distributed.launch", "--nproc_per_node", str(n), *options, str(script), *arguments]
        jobs.append(Job(command, {**environment, **variables}, tmp_path))
        return jobs[-1]

    yield begin
    for job in jobs:
        job.close()


@pytest.fixture
def ranks(start):
    """ranks(n, source): runs it on n ranks; asserts that all end well; returns their lines of output, by rank."""

    def run(n, source, *options, **variables):
        status, out, err = start(n, source, *options, **variables).output()
        assert status == 0, out + err
        return [[line.removeprefix(f"[{r}] ") for line in out.splitlines() if line.startswith(f"[{r}] ")] for r in range(n)]

    return run
