"""The launcher: what processes are told, what it prints, how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys

import pytest

from jobs import LIMIT, PID, alive, gone
from rank_programs import environment, ranks, start  # noqa: F401: fixtures


def run(environment, *arguments, **variables):
    return subprocess.run([sys.executable, "-m", "sluice.distributed.launch", *map(str, arguments)], capture_output=True, text=True,
                          timeout=LIMIT, env={**environment, **variables})


def test_lines_come_behind_their_rank_and_both_streams_are_passed_on(start):
    status, out, err = start(2, """
    print("one"); print("two", file=sys.stderr)
    sys.stdout.write("no newline at the end")
    """).output()
    assert status == 0
    assert sorted(out.splitlines()) == sorted(f"[{r}] {text}" for r in range(2) for text in ("one", "no newline at the end"))
    assert sorted(err.splitlines()) == ["[0] two", "[1] two"]


def test_arguments_and_variables_of_each_process(ranks, start):
    out = ranks(3, """
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "SLUICE_CORES"]
    print([os.environ[n] for n in names])
    print(os.environ["MASTER_PORT"], os.environ["SLUICE_TOKEN"])
    """)
    cores = max(1, len(os.sched_getaffinity(0)) // 3)
    assert [o[0] for o in out] == [str([str(r), "3", str(r), "3", "127.0.0.1", str(cores)]) for r in range(3)]
    assert len({o[1] for o in out}) == 1 and re.fullmatch(r"\d+ [0-9a-f]{32}", out[0][1])
    status, out, _ = start(1, "print(sys.argv[1:])", arguments=["--lr", "0.1", "--nnodes", "x"], SLUICE_CORES="7").output()
    assert (status, out) == (0, "[0] ['--lr', '0.1', '--nnodes', 'x']\n")


def test_modules_run_as_with_python_m(environment, tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/train.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    done = run({**environment, "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"}, "-m", "package.train", "-x")
    assert (done.returncode, done.stdout) == (0, "[0] __main__ ['-x']\n"), done.stderr


def test_output_goes_to_files_when_asked(start, tmp_path):
    status, out, err = start(2, "print('one', rank); print('two', file=sys.stderr)", "--redirect_stdout_and_stderr", "--logdir",
                             str(tmp_path / "logs")).output()
    assert (status, out, err) == (0, "", "")
    for r in range(2):
        assert (tmp_path / f"logs/rank_{r}/stdout").read_text() == f"one {r}\n"
        assert (tmp_path / f"logs/rank_{r}/stderr").read_text() == "two\n"


def test_two_hosts_on_loopback(environment, tmp_path):  # GT-26
    script = tmp_path / "script.py"
    script.write_text("import sluice as sl, sluice.distributed as d\np = d.init()\nx = sl.ones(1) * p.rank\nd.all_reduce(x)\n"
                      "print(p.rank, p.local_rank, p.world_size, x.item())\n")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    hosts = [subprocess.Popen([sys.executable, "-m", "sluice.distributed.launch", "--nproc-per-node", "2", "--nnodes", "2", "--node_rank",
                               str(n), "--master_addr", "127.0.0.1", "--master_port", port, str(script)], stdout=subprocess.PIPE,
                              text=True, env={**environment, "SLUICE_TOKEN": "the same on both"}) for n in range(2)]
    outs = [sorted(h.communicate(timeout=LIMIT)[0].splitlines()) for h in hosts]
    assert outs == [[f"[{r}] {r} {r % 2} 4 6.0" for r in (2 * n, 2 * n + 1)] for n in range(2)]


@pytest.mark.parametrize("end, words, status", [
    ("sys.exit(3)", "exit status 3", 3),
    ("raise LookupError('not here')", "exit status 1", 1),
    ("os.kill(os.getpid(), signal.SIGKILL)", r"killed by SIGKILL \(signal 9\)", 137),
    ("os.abort()", r"killed by SIGABRT \(signal 6\)", 134),
])
def test_the_first_failure_is_named_with_its_stderr_and_ends_the_others(start, end, words, status):
    job = start(3, PID + f"""
for i in range(30):
    print("line", i, file=sys.stderr)
if rank == 1:
    {end}
signal.pause()
""")
    got, _, err = job.output()
    report = [line for line in err.splitlines() if line.startswith("sluice.distributed.launch: ")]
    assert got == status
    assert re.fullmatch(rf"sluice.distributed.launch: rank 1 failed first: {words}", report[0]), err
    pids = [int(pid) for pid in job.heard("pid").values()]
    assert re.search(r"its pid was \d+; the end of its stderr:", report[1])
    assert "sluice.distributed.launch:     line 29" in report and "sluice.distributed.launch:     line 5" not in report
    assert report[-1] == "sluice.distributed.launch:   ranks still running then were ended: 0, 2"
    assert gone(pids)


def test_processes_that_ignore_sigterm_are_killed_after_the_grace_time(start):
    job = start(2, PID + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if rank == 1:
    wait_to_go()
    sys.exit(1)
let_go()
signal.pause()
""", "--grace", "0.3")
    assert job.output()[0] == 1
    assert gone([int(job.heard("pid")[0])])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_all(start, number):
    job = start(2, PID + "signal.pause()\n")
    pids = job.pids(2)
    job.process.send_signal(number)
    status, _, err = job.output()
    assert status == 128 + number and f"ended by {number.name}; so are its 2 processes" in err
    assert gone(pids)


def test_when_the_launcher_is_killed_nothing_stays(start):
    job = start(2, PID + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.pause()\n")
    pids = job.pids(2)
    assert all(map(alive, pids))
    job.process.kill()
    assert gone(pids)


def test_what_a_failed_process_had_started_ends_too(start):
    job = start(1, """
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
tell("child", child.pid)
sys.exit(1)
""")
    assert job.output()[0] == 1
    assert gone([int(job.heard("child")[0])])


def test_nobody_reads_the_output(start):
    job = start(2, PID + "while True:\n    print('x' * 1000)\n")
    pids = job.pids(2)
    job.process.stdout.close()
    job.process.wait(timeout=LIMIT)
    assert job.process.returncode != 0
    assert gone(pids)


@pytest.mark.parametrize("arguments, words", [
    (["--nproc_per_node", "0", "x.py"], "--nproc_per_node is 0; it must be at least 1"),
    (["--nproc_per_node", "two", "x.py"], "invalid int value: 'two'"),
    (["--nnodes", "2", "--node_rank", "2", "x.py"], "--node_rank is 2, --nnodes is 2; node ranks are 0 to 1"),
    (["--nnodes", "2", "x.py"], "--master_port is missing; with several hosts"),
    (["--nnodes", "2", "--master_port", "4000", "x.py"], "SLUICE_TOKEN is not set; with several hosts"),
    (["--master_port", "70000", "x.py"], "--master_port is 70000; it must be at most 65535"),
    (["no_such_file.py"], "no_such_file.py: no such file; give the path of a Python script, or a module with -m"),
    ([], "the following arguments are required: script"),
])
def test_wrong_options_are_named(environment, arguments, words):
    done = run(environment, *arguments)
    assert done.returncode == 2 and words in done.stderr


def test_a_taken_port_is_named(environment):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen(1)
        port = s.getsockname()[1]
        done = run(environment, "--master_port", port, __file__)
        assert done.returncode == 2 and f"--master_port {port}: the port is taken by another program" in done.stderr
        # The same from init(), without the launcher.
        script = "import sluice.distributed as d; d.init()"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT,
                              env={**environment, "RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(port)})
        assert done.returncode == 1
        assert f"OSError: distributed: port {port} of 127.0.0.1 is taken by another program; choose another MASTER_PORT" in done.stderr


def test_help_teaches(environment):
    done = run(environment, "--help")
    assert done.returncode == 0
    for word in ("--nproc_per_node", "RANK, WORLD_SIZE", "MASTER_ADDR, MASTER_PORT", "SLUICE_TOKEN", "kill -9", "examples:", "two hosts"):
        assert word in done.stdout


def test_a_job_that_fails_is_started_again_also_with_fewer_processes(start):  # MS-10
    program = """
    print(os.environ["SLUICE_RESTARTS"], size)
    if int(os.environ["SLUICE_RESTARTS"]) < int(os.environ["FAILURES"]) and rank == 0:
        sys.exit(4)
    """
    status, out, err = start(3, program, "--max_restarts", "2", "--min_nproc", "2", FAILURES="2").output(starts=3)
    assert status == 0 and {line.split("] ")[1] for line in out.splitlines()} >= {"0 3", "1 2", "2 2"}, out + err
    assert [line for line in err.splitlines() if "starts again" in line] == [
        f"sluice.distributed.launch: starts again: restart {i} of 2" for i in (1, 2)]
    status, out, err = start(2, program, "--max_restarts", "1", FAILURES="9").output()
    assert status == 4 and err.count("starts again") == 1 and err.count("rank 0 failed first: exit status 4") == 2


@pytest.mark.parametrize("options, text", [
    (["--max_restarts", "-1"], "--max_restarts is -1; it must be at least 0"),
    (["--min_nproc", "3"], "--min_nproc is 3; it must be at most --nproc_per_node, 1"),
    (["--nnodes", "2", "--master_port", "1", "--max_restarts", "1"], "--max_restarts is 1, --nnodes is 2; jobs on one host alone are started"),
])
def test_restarts_that_cannot_be_are_refused(environment, options, text):
    done = run(environment, *options, __file__, SLUICE_TOKEN="x")
    assert done.returncode == 2 and text in done.stderr, done.stderr
