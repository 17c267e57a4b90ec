"""sluice-serve check: every problem of a repository, and what serving refuses as well."""

import re

import numpy as np

from programs import expected, save, served
from test_load import Client
from program_runs import ask, run


def test_check_lists_models_and_every_problem(tmp_path):
    good = tmp_path / "good"
    save(good, "a", 1), save(good, "a", 2), save(good, "b", 1, batch=4, config="max_batch_size: 4\n")
    status, out, err = run("check", good)
    assert status == 0, out + err
    assert re.search(r"^a +2 +INPUT_0 FP32\[1,16\] +OUTPUT_0 FP32\[1,3\]", out, re.M), out
    assert re.search(r"^b +1 +INPUT_0 FP32\[<=4,16\]", out, re.M), out
    assert run("check", "--load", good)[0] == 0
    status, out, _ = run("check", good, "--memory-limit", "1KiB")
    assert status == 1 and "--memory-limit is 1024" in out

    bad = tmp_path / "bad"
    save(bad, "fine")
    save(bad, "dims", config="input { name: 'INPUT_0' data_type: TYPE_FP32 dims: [1, 17] }\n")
    save(bad, "text", config="max_batch_size: many\n")
    save(bad, "field", config="optimisation { }\n")
    save(bad, "tuned", config="optimization { graph { level: 1 } }\n")
    save(bad, "cut")
    (bad / "cut/1/model/plan.json").write_text("{")
    (bad / "empty").mkdir()
    (bad / "no_bundle/1").mkdir(parents=True)
    save(bad, "sp ace")
    status, out, _ = run("check", bad)
    assert status == 1
    problems = [line for line in out.splitlines() if line.startswith("problem: ")]
    for name in ("dims", "text", "field", "cut", "empty", "no_bundle", "sp ace"):
        assert any(name in problem for problem in problems), (name, out)
    assert not any("'fine'" in problem or "'tuned'" in problem for problem in problems)
    assert str(tmp_path) not in out  # a path of this machine says nothing to who reads the report
    status, out, _ = run("check", bad, "--model", "fine")
    assert status == 0, out


REFUSED = {
    "cache": "response_cache { enable: true }",
    "timeout": "parameters { key: 'step_timeout_ms' value { string_value: 'soon' } }",
    "limits": "instance_group { rate_limiter { resources { name: 'disk' count: 2 } } }",
    "parts": "model_transaction_policy { decoupled: true }",
    "warmup": "model_warmup { name: 'w' inputs { key: 'INPUT_0' value { data_type: TYPE_FP32 dims: [1, 16] } } }",
    "sequences": "sequence_batching { control_input { name: 'START' control { fp32_false_true: [0, 1] } } }",
    "batching": "parameters { key: 'batching_parameters_file' value { string_value: 'none.txt' } }",
    "lengths": "parameters { key: 'string_lengths' value { string_value: 'INPUT_0:n' } }",
    "metrics": "model_metrics { metric_control { metric_identifier { family: 'x' } } }",
    "gpu": "instance_group { kind: KIND_GPU }",
}


def test_check_refuses_what_serving_refuses(tmp_path):
    models = tmp_path / "models"
    for name, config in REFUSED.items():
        save(models, name, config=config)
    save(models, "fine")
    (models / "whole/1").mkdir(parents=True)
    (models / "whole/config.pbtxt").write_text("""ensemble_scheduling { step { model_name: "fine" model_version: -1
        input_map { key: "INPUT_0" value: "x" } output_map { key: "OUTPUT_7" value: "y" } } }
        input { name: "x" data_type: TYPE_FP32 dims: [1, 16] } output { name: "y" data_type: TYPE_FP32 dims: [1, 3] }""")
    limits = ["--rate-limit-resource", "disk:1"]
    status, out, _ = run("check", models, *limits)
    problems = sorted(line.removeprefix("problem: ") for line in out.splitlines() if line.startswith("problem: "))
    assert status == 1
    status, _, err = run("--model-repository", models, *limits, *"--http-port 0 --grpc-port 0 --metrics-port 0".split())
    assert status == 1
    served_problems = sorted(line.removeprefix("sluice-serve: ") for line in err.splitlines() if line.startswith("sluice-serve: "))
    assert problems == served_problems and len(problems) == len(REFUSED) + 1, (problems, served_problems)
    assert not [line for line in run("check", models, "--model", "cache", "--response-cache", "1MiB")[1].splitlines() if "problem" in line]
    assert run("check", models, "--model", "limits", "--rate-limit-resource", "disk:2")[0] == 0


def test_models_that_cannot_be_loaded_end_the_start_unless_told_otherwise(tmp_path):
    graph = save(tmp_path / "models", "fine")
    save(tmp_path / "models", "cut")
    (tmp_path / "models/cut/1/model/plan.json").write_text("{")
    ports = "--http-port 0 --grpc-port 0 --metrics-port 0".split()
    status, _, err = run("--model-repository", tmp_path / "models", *ports)
    assert status == 1 and "cut" in err
    with served(tmp_path / "models", "--exit-on-error", "false", folder=tmp_path) as server:
        assert ask(f"{server.http}/v2/health/ready")[0] != 200
        assert ask(f"{server.http}/v2/models/fine/ready")[0] == 200
        x = np.ones((1, 16), np.float32)
        assert np.allclose(Client(server.http).infer("fine", x), expected(graph, x).ravel(), atol=1e-5)
        assert server.stop() == 0
