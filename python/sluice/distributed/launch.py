"""Starts the processes of a job on this host, and ends them all when one fails.

    python -m sluice.distributed.launch --nproc_per_node 2 train.py --epochs 3
"""

import argparse
import os
import secrets
import socket
import sys
import tempfile

from sluice.distributed import _workers
from sluice.distributed._environment import LOOPBACK, TOKEN
from sluice.distributed._failure import REPORT

EPILOG = """
what each process is told (environment variables):
  RANK, WORLD_SIZE              its number among all processes of the job, and how many there are
  LOCAL_RANK, LOCAL_WORLD_SIZE  the same among those of its host
  MASTER_ADDR, MASTER_PORT      where rank 0 listens for the others
  SLUICE_TOKEN                  the job's secret: who does not know it is not let in
  SLUICE_CORES                  the host's cores divided by its processes, unless it is set already
  SLUICE_RESTARTS               how often the job has been started again
sluice.distributed.init() reads them; so does torch.distributed.

what comes out:
  Lines of a process are printed behind its rank: "[1] ...". The exit status is 0 when all processes ended with 0.
  Else the first that failed is named, with its exit status or signal and the end of its stderr; the others get SIGTERM
  and, after --grace seconds, SIGKILL; its status becomes this one's (128 + n for signal n). When this launcher dies,
  even by kill -9, its processes die with it.
  With --max_restarts the job is then started anew, all of it; the program goes on from its last checkpoint
  (sluice.distributed.checkpoint). With --min_nproc each start has one process less than the one before, down to so many.

examples:
  python -m sluice.distributed.launch --nproc_per_node 4 train.py --lr 0.1
  python -m sluice.distributed.launch --nproc_per_node 2 -m package.train
two hosts (the same secret on both, in SLUICE_TOKEN):
  python -m sluice.distributed.launch --nnodes 2 --node_rank 0 --master_addr 10.0.0.1 --master_port 29500 train.py
  python -m sluice.distributed.launch --nnodes 2 --node_rank 1 --master_addr 10.0.0.1 --master_port 29500 train.py
"""


def parser():
    p = argparse.ArgumentParser(prog="python -m sluice.distributed.launch", description=__doc__.splitlines()[0], epilog=EPILOG,
                                formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(name, **options):
        p.add_argument("--" + name, *(["--" + name.replace("_", "-")] if "_" in name else []), **options)

    add("nproc_per_node", type=int, default=1, metavar="N", help="processes on this host (1)")
    add("nnodes", type=int, default=1, metavar="N", help="hosts; the launcher is started on each (1)")
    add("node_rank", type=int, default=0, metavar="N", help="which of them this is, from 0")
    add("master_addr", default=LOOPBACK, metavar="HOST", help=f"the address of host 0 ({LOOPBACK}, reached from this host alone)")
    add("master_port", type=int, default=0, metavar="PORT", help="where rank 0 listens (one that is free)")
    add("logdir", default="log", metavar="DIR", help="where --redirect_stdout_and_stderr writes (log)")
    add("redirect_stdout_and_stderr", action="store_true", help="write DIR/rank_N/stdout and stderr instead of printing")
    add("max_restarts", type=int, default=0, metavar="N", help="how often a job that has failed is started again (0)")
    add("min_nproc", type=int, default=0, metavar="N", help="processes that a start after a failure may do with (as many as before)")
    add("grace", type=float, default=5.0, metavar="SECONDS", help="between SIGTERM and SIGKILL (5)")
    p.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module, as of python -m")
    p.add_argument("script", help="the program that each process runs")
    p.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return p


def check(p, options):
    for name, low in (("nproc_per_node", 1), ("nnodes", 1), ("node_rank", 0), ("master_port", 0), ("grace", 0),
                      ("max_restarts", 0), ("min_nproc", 0)):
        if getattr(options, name) < low:
            p.error(f"--{name} is {getattr(options, name)}; it must be at least {low}")
    if options.node_rank >= options.nnodes:
        p.error(f"--node_rank is {options.node_rank}, --nnodes is {options.nnodes}; node ranks are 0 to {options.nnodes - 1}")
    if options.master_port > 65535:
        p.error(f"--master_port is {options.master_port}; it must be at most 65535")
    if options.nnodes > 1 and not options.master_port:
        p.error("--master_port is missing; with several hosts it must be given, the same on all")
    if options.nnodes > 1 and options.max_restarts:
        p.error(f"--max_restarts is {options.max_restarts}, --nnodes is {options.nnodes}; jobs on one host alone are started again")
    if options.min_nproc > options.nproc_per_node:
        p.error(f"--min_nproc is {options.min_nproc}; it must be at most --nproc_per_node, {options.nproc_per_node}")
    if options.nnodes > 1 and not os.environ.get(TOKEN):
        p.error(f"{TOKEN} is not set; with several hosts the job needs a secret of 1 to 64 characters, the same on all")
    if not options.module and not os.path.exists(options.script):
        p.error(f"{options.script}: no such file; give the path of a Python script, or a module with -m")
    if options.node_rank == 0 and options.master_port and not _free(options.master_addr, options.master_port):
        p.error(f"--master_port {options.master_port}: the port is taken by another program, or {options.master_addr} is not an address "
                "of this host; choose another port, or leave it out for a free one")


def _free(host, port):
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(address)
            s.listen(1)
            return True
    except OSError:
        return False


def free_port(host):
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as s:
        s.bind(address)
        return s.getsockname()[1]


def environments(options, reports, n, attempt):
    """The environment of each of n local processes."""
    shared = {"WORLD_SIZE": n * options.nnodes, "LOCAL_WORLD_SIZE": n, "MASTER_ADDR": options.master_addr,
              "MASTER_PORT": options.master_port or free_port(options.master_addr), "SLUICE_LAUNCHER": "sluice.distributed.launch",
              TOKEN: os.environ.get(TOKEN) or secrets.token_hex(16),
              "SLUICE_CORES": os.environ.get("SLUICE_CORES") or max(1, len(os.sched_getaffinity(0)) // n),
              "SLUICE_RESTARTS": attempt, "PYTHONUNBUFFERED": "1"}
    for local_rank in range(n):
        rank = options.node_rank * n + local_rank
        own = {"RANK": rank, "LOCAL_RANK": local_rank, REPORT: os.path.join(reports, f"rank_{rank}")}
        yield {**os.environ, **{name: str(value) for name, value in {**shared, **own}.items()}}


def main(arguments=None):
    p = parser()
    options = p.parse_args(arguments)
    check(p, options)
    command = [sys.executable, *(["-m"] if options.module else []), options.script, *options.arguments]
    logdir = options.logdir if options.redirect_stdout_and_stderr else None
    with tempfile.TemporaryDirectory(prefix="sluice_launch_") as reports:
        def workers(attempt, before):
            n = options.nproc_per_node if before is None else max(options.min_nproc or len(before), len(before) - 1)
            folder = os.path.join(reports, str(attempt))
            os.mkdir(folder)
            return [_workers.Worker(int(e["RANK"]), command, e, logdir, again=attempt > 0)
                    for e in environments(options, folder, n, attempt)]

        return _workers.run(workers, options.grace, options.max_restarts)


if __name__ == "__main__":
    sys.exit(main())
