"""The manifests of examples/kubernetes: ranks meet when they are started with the variables that such a job sets, and with no others."""

import json
import pathlib
import subprocess
import sys

import pytest
import yaml

from hosts import Hosts
from jobs import LIMIT
from rank_programs import environment  # noqa: F401: fixture

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/kubernetes"
# Kubernetes tells every container this besides, here of a service called "digits" and of its own one.
ALWAYS = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_PORT": "tcp://10.96.0.1:443",
          "DIGITS_SERVICE_HOST": "10.96.0.7", "DIGITS_PORT": "tcp://10.96.0.7:29500", "DIGITS_PORT_29500_TCP_ADDR": "10.96.0.7"}


def variables(container, annotations):
    """What the manifest says of a container's variables, as Kubernetes reads it."""
    def value(entry):
        if "value" in entry:
            return entry["value"]
        (kind, source), = entry["valueFrom"].items()
        if kind == "fieldRef":
            name = source["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
            return annotations[name]
        if kind == "resourceFieldRef":
            return container["resources"]["limits"][source["resource"].removeprefix("limits.")]
        assert kind == "secretKeyRef" and source == {"name": "digits", "key": "token"}
        return "0123456789abcdef0123456789abcdef"

    return {entry["name"]: value(entry) for entry in container["env"]}


def jobset():
    """(host name that others know, variables, command) of each pod, by what JobSet and Jobs with an index say of them."""
    (manifest,) = yaml.safe_load_all((EXAMPLES / "jobset.yaml").read_text())
    assert manifest["apiVersion"] == "jobset.x-k8s.io/v1alpha2" and manifest["kind"] == "JobSet"
    name, (replicated,) = manifest["metadata"]["name"], manifest["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    assert replicated["replicas"] == 1 and job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"]
    (container,) = job["template"]["spec"]["containers"]
    for i in range(job["completions"]):
        pod = f"{name}-{replicated['name']}-0-{i}"
        own = variables(container, {"batch.kubernetes.io/job-completion-index": str(i)})
        yield f"{pod}.{name}", {**own, "HOSTNAME": pod, "JOB_COMPLETION_INDEX": str(i)}, container["command"]


def pytorchjob():
    """The same by the Training Operator, which adds variables of its own."""
    (manifest,) = yaml.safe_load_all((EXAMPLES / "pytorchjob.yaml").read_text())
    assert manifest["apiVersion"] == "kubeflow.org/v1" and manifest["kind"] == "PyTorchJob"
    name, replicas = manifest["metadata"]["name"], manifest["spec"]["pytorchReplicaSpecs"]
    assert replicas["Master"]["replicas"] == 1
    size = 1 + replicas["Worker"]["replicas"]
    for rank in range(size):
        kind = "Worker" if rank else "Master"
        (container,) = replicas[kind]["template"]["spec"]["containers"]
        assert container["name"] == "pytorch"
        (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == "pytorchjob-port")
        pod = f"{name}-{kind.lower()}-{max(0, rank - 1)}"
        yield pod, {**variables(container, {}), "HOSTNAME": pod, "PYTHONUNBUFFERED": "0", "MASTER_PORT": str(port),
                    "MASTER_ADDR": f"{name}-master-0", "WORLD_SIZE": str(size), "RANK": str(rank)}, container["command"]


@pytest.fixture
def started(environment, tmp_path):  # noqa: F811
    """started(pods, command): a process of each pod, on hosts of their own. Names are known once the others have asked for rank 0's."""
    running, hosts = [], []

    def start(pods, change):
        hosts.append(Hosts(len(pods), tmp_path / "hosts"))
        for i, (_, own, command) in enumerate(pods):
            given = {**{name: environment[name] for name in ("PATH", "PYTHONPATH", "HOME", "SLUICE_CACHE") if name in environment},
                     **ALWAYS, **own, "SLUICE_CORES": "1"}
            running.append(hosts[0].start(i, change(command), cwd=tmp_path, env=given))
        for process in running[1:]:
            lines = iter(process.stderr.readline, "")
            assert any("has no address yet" in line for line in lines), process.wait()
        for i, (name, _, _) in enumerate(pods):
            hosts[0].name(i, name)
        outs = []
        for process in running:
            out, err = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, out + err
            outs.append(out)
        return outs

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate()
    for one in hosts:
        one.close()


def test_a_jobset_trains(started, tmp_path):
    """The command of the manifest itself, with folders of this machine and few steps."""
    def here(command):
        at = {"python": sys.executable, "/job/digits.yaml": str(ROOT / "examples/trainer/digits.yaml")}
        return [at.get(word, word.replace("/checkpoints", str(tmp_path))) for word in command] + ["train.steps=3"]

    outs = started(list(jobset()), here)
    result = json.loads(outs[0])
    assert result["step"] == 3 and "top1" in result and not any(outs[1:])
    assert (tmp_path / "digits/checkpoints/step-00000003/checkpoint.json").exists()


def test_a_pytorchjob_meets(started):
    program = ("import sluice as sl, sluice.distributed as d; p = d.init(); x = sl.ones(1) * p.rank; d.all_reduce(x); "
               "print(p.source, p.rank, p.local_rank, p.local_world_size, p.master, x.item())")
    outs = started(list(pytorchjob()), lambda command: [sys.executable, "-c", program])
    assert outs == [f"environment {r} 0 1 digits-master-0:23456 6.0\n" for r in range(4)]


def test_without_its_secret_a_pod_says_what_is_missing(environment, tmp_path):  # noqa: F811
    _, own, _ = list(jobset())[1]
    del own["SLUICE_TOKEN"]
    done = subprocess.run([sys.executable, "-c", "import sluice.distributed as d; d.init()"], capture_output=True, text=True, timeout=LIMIT,
                          env={**{name: environment[name] for name in ("PATH", "PYTHONPATH")}, **ALWAYS, **own})
    assert done.returncode == 1 and "SLUICE_TOKEN is not set; with a master at digits-ranks-0-0.digits" in done.stderr, done.stderr
