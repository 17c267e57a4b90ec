"""Tests what init() reads from the launchers' variables, and its errors for wrong ones."""

import os
import socket
import subprocess
import sys

import pytest

from rank_programs import environment, ranks, start  # noqa: F401: fixtures

from sluice.distributed import _environment

TORCH = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
SLURM = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_JOB_ID": "77",
         "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "node[07-08]", "SLURM_STEP_TASKS_PER_NODE": "4,3", "SLUICE_TOKEN": "secret"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "3", "PMIX_NAMESPACE": "prterun-1"}


def place(variables, **changed):
    return _environment.find({k: v for k, v in {**variables, **changed}.items() if v is not None})


def brief(p):
    return p.source, p.rank, p.world_size, p.local_rank, p.local_world_size, p.master


def test_each_launcher_is_understood_and_named():
    assert brief(place({})) == ("alone", 0, 1, 0, 1, "")
    assert brief(place(TORCH)) == ("environment", 1, 4, 1, 2, "127.0.0.1:29500")
    assert brief(place(TORCH, SLUICE_LAUNCHER="sluice.distributed.launch"))[0] == "sluice.distributed.launch"
    # torchrun's own store listens at MASTER_PORT.
    assert brief(place(TORCH, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_USE_AGENT_STORE="True")) == (
        "torchrun", 1, 4, 1, 2, "127.0.0.1:29501")
    assert brief(place(TORCH, TORCHELASTIC_RUN_ID="none", TORCHELASTIC_USE_AGENT_STORE="False"))[5] == "127.0.0.1:29500"
    assert brief(place(SLURM, MASTER_PORT="4000")) == ("Slurm", 5, 7, 1, 3, "node07:4000")
    assert brief(place(SLURM, SLURM_STEP_TASKS_PER_NODE="4(x2)", SLURM_STEP_NUM_TASKS="8", MASTER_PORT="4000"))[4] == 4
    assert brief(place(OPEN_MPI, MASTER_PORT="4000")) == ("OpenMPI", 2, 3, 2, 3, "127.0.0.1:4000")


def test_ranks_of_one_job_agree_on_port_and_token_and_other_jobs_differ():
    one = place(OPEN_MPI)
    other_rank = place(OPEN_MPI, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_RANK="0")
    other_job = place(OPEN_MPI, PMIX_NAMESPACE="prterun-2")
    assert (one.master, one.token) == (other_rank.master, other_rank.token)
    assert one.master != other_job.master and one.token != other_job.token
    assert 20000 <= int(one.master.rpartition(":")[2]) < 40000
    assert place(SLURM).master == place(SLURM, SLURM_PROCID="0", SLURM_LOCALID="0", SLURM_NODEID="0").master
    assert place(TORCH).token != place(TORCH, MASTER_PORT="29501").token
    assert place(TORCH, SLUICE_TOKEN="mine").token == "mine"
    assert "mine" not in repr(place(TORCH, SLUICE_TOKEN="mine"))


@pytest.mark.parametrize("hosts, first", [("node[03-07,9],other", "node03"), ("a,b", "a"), ("gpu7", "gpu7"), ("n[1,5]x", "n1"),
                                          ("rack1-[010-012]", "rack1-010")])
def test_first_host_of_a_slurm_list(hosts, first):
    assert _environment.first_host(hosts) == first


@pytest.mark.parametrize("variables, changed, text", [
    (TORCH, {"WORLD_SIZE": None}, "WORLD_SIZE is not set; the launcher must set it"),
    (TORCH, {"RANK": "one"}, "RANK is 'one'; it must be a whole number"),
    (TORCH, {"RANK": "-1"}, "RANK is -1; it must be at least 0"),
    (TORCH, {"RANK": "4"}, "RANK is 4, WORLD_SIZE is 4; ranks are 0 to 3"),
    (TORCH, {"WORLD_SIZE": "0"}, "WORLD_SIZE is 0; it must be from 1 to 1000000"),
    (TORCH, {"WORLD_SIZE": "9" * 30}, "it must be a whole number"),
    (TORCH, {"LOCAL_RANK": "2"}, "LOCAL_RANK is 2, LOCAL_WORLD_SIZE is 2, WORLD_SIZE is 4"),
    (TORCH, {"LOCAL_WORLD_SIZE": "5"}, "LOCAL_RANK is 1, LOCAL_WORLD_SIZE is 5, WORLD_SIZE is 4"),
    (TORCH, {"MASTER_PORT": None}, "MASTER_PORT is not set"),
    (TORCH, {"MASTER_PORT": "70000"}, "MASTER_PORT is 70000; it must be from 1 to 65535"),
    (TORCH, {"MASTER_PORT": "http"}, "MASTER_PORT is 'http'"),
    (TORCH, {"MASTER_ADDR": "10.0.0.1"}, "SLUICE_TOKEN is not set; with a master at 10.0.0.1, other hosts can reach rank 0"),
    (SLURM, {"SLUICE_TOKEN": None}, "SLUICE_TOKEN is not set; with a master at node07"),
    (SLURM, {"SLURM_STEP_NUM_TASKS": None}, "SLURM_NTASKS is not set"),
    (SLURM, {"SLURM_STEP_NODELIST": "[", "SLURM_JOB_NODELIST": None}, "it must be a list of hosts, or set MASTER_ADDR"),
    (OPEN_MPI, {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "MASTER_ADDR is not set"),
    (OPEN_MPI, {"OMPI_COMM_WORLD_SIZE": "many"}, "OMPI_COMM_WORLD_SIZE is 'many'"),
])
def test_wrong_variables_are_errors_by_name(variables, changed, text):
    with pytest.raises(ValueError) as error:
        place(variables, **changed)
    assert text in str(error.value) and "distributed.init: " in str(error.value)


def test_init_says_where_it_read_the_place(ranks):
    out = ranks(2, """
    p = dist.init()
    print(p.source, p.rank, p.world_size, p.local_rank, p.local_world_size, p.master == f"127.0.0.1:{os.environ['MASTER_PORT']}")
    print(os.environ["SLUICE_TOKEN"] in repr(p), len(os.environ["SLUICE_TOKEN"]))
    """)
    assert out == [[f"sluice.distributed.launch {r} 2 {r} 2 True", "False 32"] for r in range(2)]


def test_alone_it_is_rank_0_of_1(environment, tmp_path):
    script = "import sluice as sl, sluice.distributed as d; p = d.init(); x = sl.ones(2); d.all_reduce(x); print(p.source, x.tolist())"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "alone [1.0, 1.0]\n"), done.stderr


def test_arguments_replace_the_environment(ranks):
    out = ranks(2, """
    try:
        dist.init(rank=0)
    except ValueError as e:
        print(str(e)[:60])
    p = dist.init(rank=1 - rank, world_size=2, master=f"127.0.0.1:{os.environ['MASTER_PORT']}", token="t", timeout=30, heartbeat=3)
    print(p.source, dist.get_rank())
    """)
    assert out == [["distributed.init: rank is 0, world_size is None, master is N", f"arguments {1 - r}"] for r in range(2)]


def test_torchrun_starts_it_too(environment, tmp_path):
    # Each rank writes a file of its own: torchrun passes its ranks' outputs through unordered, even within a line.
    script = tmp_path / "script.py"
    script.write_text("import sys, sluice as sl, sluice.distributed as d\np = d.init()\nx = sl.ones(1)\nd.all_reduce(x)\n"
                      "open(f'{sys.argv[1]}/{p.rank}.out', 'w').write(f'{p.source} {p.rank} {x.item()}')\n")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1",
                           f"--master_port={port}", str(script), str(tmp_path)],
                          env={**environment, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in sorted(tmp_path.glob("*.out"))] == ["torchrun 0 2.0", "torchrun 1 2.0"]


def test_open_mpis_variables_work_without_more(environment, tmp_path):
    script = "import sluice as sl, sluice.distributed as d; p = d.init(); x = sl.ones(1); d.all_reduce(x); print(p.source, x.item())"
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True,
                                  env={**environment, **OPEN_MPI, "OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
                                       "PMIX_NAMESPACE": f"test-{os.getpid()}"}) for r in range(3)]
    assert [p.communicate(timeout=60)[0] for p in processes] == ["OpenMPI 3.0\n"] * 3
