"""The environment variables in which the launchers of this world tell a process its place."""

import dataclasses
import hashlib
import os
import re

from sluice.errors import ValueError  # noqa: A004

TOKEN = "SLUICE_TOKEN"
LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Place:
    """Which rank this process is, and where rank 0 is to be found."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    source: str  # who said so: "sluice.distributed.launch", "torchrun", "Slurm", "OpenMPI", "environment" or "alone"
    master: str  # "host:port"; rank 0 listens there
    token: str = dataclasses.field(repr=False)


def find(environment=None):
    """The place that the environment gives this process.

    Looked at in this order: RANK (sluice.distributed.launch, torchrun, or set by hand), OMPI_COMM_WORLD_RANK (OpenMPI),
    SLURM_PROCID (Slurm). Without any of them this process is alone: rank 0 of 1. Errors name the variable.
    """
    env = _Variables(os.environ if environment is None else environment)
    if "RANK" in env:
        return _torch_style(env)
    if "OMPI_COMM_WORLD_RANK" in env:
        return _open_mpi(env)
    if "SLURM_PROCID" in env:
        return _slurm(env)
    return Place(0, 1, 0, 1, "alone", "", "")


class _Variables:
    """Environment variables, with errors that name them."""

    def __init__(self, environment):
        self.environment = environment

    def __contains__(self, name):
        return bool(self.environment.get(name))

    def text(self, *names, default=None):
        for name in names:
            if name in self:
                return self.environment[name]
        if default is None:
            raise ValueError(f"distributed.init: {names[0]} is not set; the launcher must set it, or you do")
        return default

    def number(self, *names, low=0, high=None, default=None):
        name = next((n for n in names if n in self), names[0])
        text = self.text(*names, default=None if default is None else str(default))
        if not re.fullmatch(r"-?\d{1,9}", text.strip()):
            raise ValueError(f"distributed.init: {name} is {text!r}; it must be a whole number")
        number = int(text)
        if number < low or (high is not None and number > high):
            raise ValueError(f"distributed.init: {name} is {number}; it must be {f'from {low} to {high}' if high is not None else f'at least {low}'}")
        return number


def _place(env, source, rank_name, size_name, local_names, local_size_names, master, port, job):
    size = env.number(size_name, low=1, high=1_000_000)
    rank = env.number(rank_name)
    if rank >= size:
        raise ValueError(f"distributed.init: {rank_name} is {rank}, {size_name} is {size}; ranks are 0 to {size - 1}")
    local_rank = env.number(*local_names, default=rank if master == LOOPBACK else 0)
    local_size = env.number(*local_size_names, low=1, default=size if master == LOOPBACK else local_rank + 1)
    if local_rank >= local_size or local_size > size:
        raise ValueError(f"distributed.init: {local_names[0]} is {local_rank}, {local_size_names[0]} is {local_size}, {size_name} is "
                         f"{size}; a host has at most all ranks, and local ranks are below their number")
    return Place(rank, size, local_rank, local_size, source, f"{master}:{port}", _token(env, master, size, job))


def _token(env, master, size, job):
    if TOKEN in env:
        return env.text(TOKEN)
    if size > 1 and master not in (LOOPBACK, "localhost", "::1"):
        raise ValueError(f"distributed.init: {TOKEN} is not set; with a master at {master}, other hosts can reach rank 0, so all ranks "
                         "need the same secret of 1 to 64 characters (python -c 'import secrets; print(secrets.token_hex(16))')")
    # On one host it keeps jobs apart; it is no secret from this user's other processes.
    return hashlib.sha256(repr(("sluice", os.getuid(), *job)).encode()).hexdigest()[:32]


def _torch_style(env):
    master, port = env.text("MASTER_ADDR", default=LOOPBACK), env.number("MASTER_PORT", low=1, high=65535)
    source = "environment"
    if "SLUICE_LAUNCHER" in env:
        source = env.text("SLUICE_LAUNCHER")
    elif "TORCHELASTIC_RUN_ID" in env:
        source = "torchrun"
        if env.text("TORCHELASTIC_USE_AGENT_STORE", default="False") == "True":
            port += 1  # torchrun itself listens at MASTER_PORT
    return _place(env, source, "RANK", "WORLD_SIZE", ["LOCAL_RANK"], ["LOCAL_WORLD_SIZE"], master, port,
                  (port, env.text("TORCHELASTIC_RUN_ID", default="none")))


def _open_mpi(env):
    size, local = env.number("OMPI_COMM_WORLD_SIZE", low=1), env.number("OMPI_COMM_WORLD_LOCAL_SIZE", low=1, default=1)
    job = env.text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri", default="none")
    if local == size:  # all on this host
        master, port = env.text("MASTER_ADDR", default=LOOPBACK), env.number("MASTER_PORT", low=1, high=65535, default=_port(job))
    else:
        master, port = env.text("MASTER_ADDR"), env.number("MASTER_PORT", low=1, high=65535)
    return _place(env, "OpenMPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ["OMPI_COMM_WORLD_LOCAL_RANK"],
                  ["OMPI_COMM_WORLD_LOCAL_SIZE"], master, port, (job,))


def _slurm(env):
    job = (env.text("SLURM_JOB_ID"), env.text("SLURM_STEP_ID", default="0"))
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"
    nodes = env.number("SLURM_STEP_NUM_NODES", "SLURM_NNODES", low=1, default=1)
    first = LOOPBACK if nodes == 1 else first_host(env.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    master, port = env.text("MASTER_ADDR", default=first), env.number("MASTER_PORT", low=1, high=65535, default=_port("/".join(job)))
    # "4(x2),3": tasks of each node, in the order of nodes
    tasks = [int(n) for n, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", env.text("SLURM_STEP_TASKS_PER_NODE", default=""))
             for _ in range(int(times or 1))]
    node = env.number("SLURM_NODEID", default=0)
    local_size = {"SLURM_TASKS_PER_NODE": str(tasks[node])} if node < len(tasks) else {}
    env = _Variables({**env.environment, "SLURM_TASKS_PER_NODE": "", **local_size})
    return _place(env, "Slurm", "SLURM_PROCID", size_name, ["SLURM_LOCALID"], ["SLURM_TASKS_PER_NODE"], master, port, job)


def first_host(hosts):
    """The first host of Slurm's lists: "node[03-07,9],other" is node03."""
    match = re.match(r"([^,\[\]]+)(?:\[(\d+))?", hosts)
    if not match:
        raise ValueError(f"distributed.init: SLURM_JOB_NODELIST is {hosts!r}; it must be a list of hosts, or set MASTER_ADDR")
    return match[1] + (match[2] or "")


def _port(job):
    """A port that all ranks of a job agree on, and other jobs probably do not."""
    return 20000 + int(hashlib.sha256(job.encode()).hexdigest()[:8], 16) % 20000
