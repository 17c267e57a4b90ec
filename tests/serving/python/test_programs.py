"""sluice-serve and sluice-perf as programs: their options, refusals, `check`, and the extensions that change a server."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from xml.etree import ElementTree

import grpc
import numpy as np
import pytest

import sluice as sl
from programs import PATIENCE, ROOT, Net, expected, save, served
from sluice._base.tools import find_tool
from test_load import Client, body_of

GOLDEN = ROOT / "tests/golden"


def run(*arguments, program="sluice-serve"):
    done = subprocess.run([find_tool(program), *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def ask(url, data=None, method=None):
    """Status and body of a request; JSON where it is some."""
    request = urllib.request.Request(f"http://{url}", None if data is None else json.dumps(data).encode(), method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as e:
        status, body = e.code, e.read()
    return status, json.loads(body) if body.startswith((b"{", b"[")) else body.decode()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return folder, save(folder)


@pytest.mark.parametrize("program", ["sluice-serve", "sluice-perf", "sluice-run", "sluice-info", "sluice-bench"])
def test_programs_tell_their_version(program):
    status, out, err = run("--version", program=program)
    assert status == 0 and sl.__version__ in out, (out, err)


@pytest.mark.parametrize("program", ["sluice-serve", "sluice-perf"])
def test_help_is_as_golden(program, request):
    status, out, _ = run("--help", program=program)
    assert status == 0
    golden = GOLDEN / f"{program}-help.txt"
    if os.environ.get("SLUICE_UPDATE_GOLDEN"):
        golden.write_text(out)
    assert words(out) == words(golden.read_text()), "SLUICE_UPDATE_GOLDEN=1 rewrites it"


def words(text):
    """Without what versions of CLI11 do differently: defaults as TEXT=x or TEXT [x], and where columns begin."""
    return re.sub(r"(?<=[A-Z}\]]) \[([^\]]*)\]", r"=\1", text).split()


@pytest.mark.parametrize("arguments, status, text", [
    ([], 2, "no models: say where they are, as in sluice-serve --model-repository models"),
    (["--model-store", "/no/such/folder"], 1, "/no/such/folder"),
    (["--model-repository", "{models}", "--enable-tensorrt", "net"], 2, "--enable-tensorrt net: Sluice runs models by its own kernels"),
    (["--model-store", "{models}", "--enable-openvino", "net"], 2, "--enable-openvino net: Sluice runs models by its own kernels"),
    (["--model-repository", "{models}", "--memory-limit", "2 elephants"], 2, "--memory-limit: '2 elephants'; it must be a number of bytes"),
    (["--model-repository", "{models}", "--load-model", "net"], 2, "--load-model: it needs --model-control-mode explicit"),
    (["--model-repository", "{models}", "--rate-limit-resource", "disk"], 2, "--rate-limit-resource: 'disk'; it must be NAME:COUNT"),
    (["--model-repository", "{models}", "--trace-config", "opentelemetry,url=localhost:4318/v1/traces"], 2, "traces are written to a file only"),
    (["--model-repository", "{models}", "--trace-config", "rate=0"], 2, "--trace-config rate: '0'; it must be a whole number of at least 1"),
    (["--model-repository", "{models}", "--trace-config", "file=/no/such/folder/t"], 1, "/no/such/folder/t"),
    (["--model-repository", "{models}", "--allow-http", "false", "--allow-grpc", "false"], 2, "neither HTTP nor gRPC"),
    (["--model-repository", "{models}", "--http-address", "nowhere.invalid"], 1, "nowhere.invalid"),
    (["--model-repository", "{models}", "--management-token-file", "{models}"], 1, "--management-token-file"),
    (["--model-repository", "{models}", "--http-use-ssl"], 1, "http: TLS needs the server's certificate and its key"),
    (["--model-repository", "{models}", "--grpc-server-cert", "x"], 1, "grpc: there is a certificate or a key, and TLS is off"),
    (["--model-repository", "{models}", "--http-restricted-api", "all:k=v"], 2, "--http-restricted-api: 'all:k': 'all' is no group of calls"),
    (["--model-repository", "{models}", "--grpc-restricted-protocol", "health"], 2, "it must be APIS:HEADER=VALUE"),
    (["--model-repository", "{models}", "--metrics-config", "summary_quantiles=2"], 2, "--metrics-config summary_quantiles: '2'"),
    (["--model-repository", "{models}", "--log-file", "/no/such/folder/log"], 1, "/no/such/folder/log"),
    (["--model-repository", "{models}", "--model-control-mode", "explicit", "--load-model", "ghost", *"--http-port 0 --grpc-port 0 --metrics-port 0".split()], 1, "ghost"),
])
def test_what_cannot_be_done_is_said_in_a_sentence(repository, arguments, status, text):
    got, out, err = run(*[a.replace("{models}", str(repository[0])) for a in arguments])
    assert got == status and text in err, (got, out, err)
    assert "terminate" not in err and "0x" not in err


@pytest.mark.parametrize("name", ["http", "grpc", "metrics"])
def test_a_port_in_use_is_named(repository, name):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = [a for other in ("http", "grpc", "metrics") for a in (f"--{other}-port", port if other == name else "0")]
        status, _, err = run("--model-repository", repository[0], *ports)
    assert status == 1 and port in err and "use" in err, err


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


def test_metrics_have_their_own_port(repository, tmp_path):
    """TFS-05, CLI-21: the page parses as Prometheus' text, and counts requests."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    with served(repository[0], "--metrics-port", port, folder=tmp_path) as server:
        assert server.metrics.endswith(":" + port)
        def success():
            _, page = ask(f"{server.metrics}/metrics")
            sample = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*(\{([a-zA-Z_]\w*="([^"\\\n]|\\.)*",?)*\})? [-+0-9.eE]+( \d+)?')
            types = {}
            for line in page.splitlines():
                if line.startswith("# TYPE "):
                    _, _, name, kind = line.split(" ", 3)
                    assert kind in ("counter", "gauge", "histogram", "summary") and name not in types
                    types[name] = kind
                elif line and not line.startswith("#"):
                    assert sample.fullmatch(line), line
                    assert re.match(r"[\w:]+", line)[0] in types, line
            return int(float(re.search(r'nv_inference_request_success\{model="net",version="1"\} (\S+)', page)[1]))

        client, x = Client(server.http), np.ones((1, 16), np.float32)
        before = success()
        for _ in range(10):
            client.infer("net", x)
        assert success() == before + 10
        assert ask(f"{server.http}/metrics")[0] == 404


def test_plan_viz_shows_what_serves_a_model(tmp_path):
    """The queues, the batcher and the instances before the plans, as text, JSON and a picture."""
    models = tmp_path / "models"
    (models / "many/1").mkdir(parents=True)
    graph = Net(16)
    graph.config.set_dims({"x": {0: sl.Dim("batch", max=4, buckets=[1, 2, 4])}})
    graph(sl.zeros(4, 16))
    sl.save(graph, models / "many/1/model")
    (models / "many/config.pbtxt").write_text("""max_batch_size: 4 instance_group { count: 2 } instance_group { }
        dynamic_batching { preferred_batch_size: [2, 4] max_queue_delay_microseconds: 300 preserve_ordering: true
            priority_levels: 2 default_priority_level: 2 default_queue_policy { max_queue_size: 7 }
            priority_queue_policy { key: 1 value { default_timeout_microseconds: 5000 timeout_action: DELAY } } }""")
    save(models, "one")
    status, out, err = run("check", "--json", models)
    assert status == 0, out + err
    assert json.loads(out)["problems"] == []
    (tmp_path / "served.json").write_text(out)
    shown = ("served", tmp_path / "served.json")

    status, text, err = run(*shown, program="plan-viz")
    assert status == 0, text + err
    wanted = [r"model 'many' version 1", r"requests +INPUT_0 FP32\[<=4,16\]", r"queue +priority 1: 256 places, after 5 ms behind the others; beyond, refused",
              r"queue +priority 2: 7 places; beyond, refused", r"batcher +requests share steps of 4 rows at most", r"2, 4 rows do not wait for more",
              r"others wait for more, 300 us at most", r"answers come in the order of requests", r"instance 0 +\S+/many/1/model",
              r"batch 1 .*actors.*kernels.*in flight.*of slots", r"batch 4 .*actors", r"instance 1 ", r"instance 2 ", r"answers +OUTPUT_0 FP32\[<=4,3\]",
              r"model 'one' version 1", r"queue +256 places; beyond, refused", r"batcher +one request a step", r"instance 0 ", r"every step .*actors"]
    assert re.search(".*".join(wanted), text, re.S), text

    many, = json.loads(run(*shown, "--model", "many", "--json", program="plan-viz")[1])["models"]
    assert many["instances"] == 3 and [plan["sizes"] for plan in many["plans"]] == [f"batch {n}" for n in (1, 2, 4)]
    assert [queue["places"] for queue in many["queues"]] == [256, 7] and all(plan["bytes"] > 0 for plan in many["plans"])

    status, out, err = run(*shown, "-o", tmp_path / "served.svg", program="plan-viz")
    assert status == 0, out + err
    drawn = [node.text for node in ElementTree.parse(tmp_path / "served.svg").iter() if node.text and node.text.strip()]
    for text in ("many 1", "one 1", "batcher", "instance 2", "priority 2: 7 places", "batch 4", "2, 4 rows do not wait for more"):
        assert text in drawn, drawn

    status, _, err = run(*shown, "--model", "ghost", program="plan-viz")
    assert status == 2 and "no model 'ghost'; it has many, one" in err
    (tmp_path / "served.json").write_text('{"models": [{"name": 3}]}')
    status, _, err = run(*shown, program="plan-viz")
    assert status == 2 and "give what `sluice-serve check --json` prints" in err
    (models / "one/1/model/plan.json").write_text("{")
    status, out, _ = run("check", "--json", models)
    assert status == 1 and len(json.loads(out)["models"]) == 1 and "'one'" in json.loads(out)["problems"][0]


def test_perf_tunes_a_model(tmp_path):
    """TRI-15: every candidate is measured, and the best of what was measured is loaded."""
    save(tmp_path / "models", "many", batch=4, config="max_batch_size: 4\n")
    arguments = "--tune --concurrency 4,8 --tune-delays 300 --warmup-secs 0.05 --window-secs 0.1 --windows 1 --max-windows 1".split()
    with served(tmp_path / "models", "--model-control-mode", "explicit", "--load-model", "many", folder=tmp_path) as server:
        status, out, err = run("-m", "many", "-u", server.http, "--json", tmp_path / "levels.json", *arguments, program="sluice-perf")
        assert status == 0, out + err
        names = re.findall(r"^(\d+ instances?.*)$", out, re.M)
        assert names == [f"{n}{more}" for n in ("1 instance", "2 instances") for more in ("", ", batching", ", batching, delay 300 us")]
        levels = json.loads((tmp_path / "levels.json").read_text())["levels"]
        assert len(levels) == 12 and all(level["throughput_per_s"] > 0 for level in levels)
        best = max(range(12), key=lambda i: levels[i]["throughput_per_s"])
        said = re.search(r"^best: (.*), ([\d.]+) requests a second; in config.pbtxt:\ninstance_group { count: (\d) }\n(.*)", out, re.M)
        assert said and said[1] == names[best // 2] and abs(float(said[2]) - levels[best]["throughput_per_s"]) < 0.1
        config = ask(f"{server.http}/v2/models/many/config")[1]
        assert config["instance_group"][0]["count"] == int(said[3])
        assert ("dynamic_batching" in config) == ("dynamic_batching" in said[4]) == ("batching" in said[1])
        assert run("--tune", "--get", "/v2", "-u", server.http, program="sluice-perf")[0] == 2
    with served(tmp_path / "models", folder=tmp_path) as server:
        status, _, err = run("-m", "many", "-u", server.http, *arguments, program="sluice-perf")
        assert status == 2 and "explicit" in err


def test_malformed_messages_write_no_lines(repository, tmp_path):
    """What is no message is refused, and the log is not the client's to fill."""
    with served(repository[0], folder=tmp_path) as server, grpc.insecure_channel(server.grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", lambda sent: sent, lambda got: got)
        for message in (b"\x0a\x01\xff", b"\x1a\x02\xc3\x28", b"\xff" * 20):
            with pytest.raises(grpc.RpcError):
                call(message, timeout=PATIENCE)
        assert ask(f"{server.http}/v2/health/ready")[0] == 200
        assert server.stop() == 0
        assert "protobuf" not in server.errors() and "UTF-8" not in server.errors()


def test_every_metric_is_explained(repository, tmp_path):
    """TRI-08: the page of metrics and its table in the docs name the same."""
    with served(repository[0], folder=tmp_path) as server:
        page = ask(f"{server.metrics}/metrics")[1]
    told = re.findall(r"^# TYPE (\S+)", page, re.M)
    table = (ROOT / "docs/serving-more.md").read_text().partition("| metric | counts |")[2].partition("\n\n")[0]
    names = [name for line in table.splitlines() for name in re.findall(r"`(nv_\w+)`", line.split("|")[1] if "|" in line else "")]
    assert sorted(names) == sorted(told)


def test_one_of_ten_requests_is_traced(repository, tmp_path):
    """TRI-10."""
    trace = tmp_path / "trace.json"
    with served(repository[0], "--trace-config", f"file={trace}", "--trace-config", "level=TIMESTAMPS,rate=10", folder=tmp_path) as server:
        client, x = Client(server.http), np.ones((1, 16), np.float32)
        for _ in range(100):
            client.infer("net", x)
        status, told = ask(f"{server.http}/v2/models/net/trace/setting")
        assert status == 200 and told["trace_rate"] == "10" and told["trace_level"] == ["TIMESTAMPS"]
        assert ask(f"{server.http}/v2/trace/setting", {"trace_rate": "0"})[0] == 400
        assert ask(f"{server.http}/v2/models/ghost/trace/setting")[0] in (400, 404)
        assert ask(f"{server.http}/v2/trace/setting", {"trace_level": ["OFF"]}) == (200, told | {"trace_level": ["OFF"]})
        client.infer("net", x)
        assert ask(f"{server.http}/v2/trace/setting", {"trace_level": None})[1]["trace_level"] == ["TIMESTAMPS"]
        assert server.stop() == 0
    records = json.loads(trace.read_text())
    stamped = [record for record in records if "timestamps" in record]
    assert len(stamped) == 10
    wanted = ["HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END",
              "COMPUTE_OUTPUT_START", "COMPUTE_END", "INFER_RESPONSE_COMPLETE", "HTTP_SEND_START", "HTTP_SEND_END", "REQUEST_END"]
    for record in stamped:
        at = {stamp["name"]: stamp["ns"] for stamp in record["timestamps"]}
        assert set(at) == set(wanted), set(wanted) ^ set(at)
        assert [at[name] for name in wanted[2:9]] == sorted(at[name] for name in wanted[2:9])
    steps = [record["step"] for record in records if "step" in record]
    assert len(steps) == len(set(steps)) == 10  # the steps of the session, by which the engine's trace knows them
    check_joined(repository[0], trace, {record["id"]: dict((s["name"], s["ns"]) for s in record["timestamps"]) for record in stamped}, tmp_path)


def check_joined(models, trace, stamps, folder):
    """Each request joins the actor timeline by its id in plan-viz: every actor fired for it, while it was computed."""
    bundle = next(models.glob("net/*/model"))
    members = sorted(bundle.glob("members/*")) or [bundle]
    status, out, errors = run("requests", members[0], trace, "--json", program="plan-viz")
    assert status == 0, errors
    told = json.loads(out)
    assert [request["id"] for request in told["requests"]] == sorted(stamps)
    actors = {actor["name"] for actor in json.loads((members[0] / "plan.json").read_text())["actors"]}
    for request in told["requests"]:
        (step,) = (told["steps"][i] for i in request["steps"])
        assert request["id"] in step["ids"]
        assert {event["actor"] for event in step["events"] if event["kind"] == "firing"} == actors
        assert any(event["kind"] == "kernel" for event in step["events"])
        at = request["stamps"]
        for event in step["events"]:
            assert at["COMPUTE_START"] <= event["begin_ns"] <= at["COMPUTE_END"]
    status, out, errors = run("requests", members[0], trace, program="plan-viz")
    assert status == 0 and out.startswith("plan 'net") and len(out.splitlines()) == 12, out
    page = folder / "net.html"
    assert run("html", members[0], "--trace", trace, "-o", page, program="plan-viz")[0] == 0
    assert page.read_text().count('{"n":') >= 10 and '"requests":[{' in page.read_text()
    status, _, errors = run("requests", members[0], trace, "--model", "other", program="plan-viz")
    assert status == 2 and "none of its 10 requests ran plan" in errors and "as model 'other'" in errors


def test_traces_in_the_form_of_opentelemetry(repository, tmp_path):
    """TRI-10: a span for the request, under that of its client, and in it what the engine did."""
    trace = tmp_path / "trace.jsonl"
    client, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with served(repository[0], "--trace-config", f"opentelemetry,file={trace},level=TIMESTAMPS,rate=1,mode=opentelemetry",
                folder=tmp_path) as server:
        body, headers = body_of(np.ones((1, 16), np.float32))
        for above in (f"00-{client}-{parent}-01", "nonsense"):
            request = urllib.request.Request(f"http://{server.http}/v2/models/net/infer", body, headers | {"traceparent": above})
            assert urllib.request.urlopen(request, timeout=PATIENCE).status == 200
        assert ask(f"{server.http}/v2/trace/setting")[1]["trace_mode"] == "opentelemetry"
        assert server.stop() == 0
    ids = []
    for line in trace.read_text().splitlines():
        spans = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        (whole,) = (span for span in spans if span["kind"] == 2)
        (compute,) = (span for span in spans if span["name"] == "compute")
        assert whole["name"] == "infer net" and compute["parentSpanId"] == whole["spanId"]
        assert len({span["traceId"] for span in spans}) == 1 and len({span["spanId"] for span in spans}) == len(spans)
        fired = [span for span in spans if span.get("parentSpanId") == compute["spanId"]]
        assert {"sluice.stream", "sluice.actor"} <= {attribute["key"] for attribute in fired[0]["attributes"]}
        for span in spans:
            assert int(whole["startTimeUnixNano"]) <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        ids.append((whole["traceId"], whole.get("parentSpanId")))
    assert ids[0] == (client, parent)
    assert ids[1][0] != client and len(ids[1][0]) == 32 and ids[1][1] is None


def test_log_settings_act_at_once(repository, tmp_path):
    """TRI-11."""
    log = tmp_path / "log"
    with served(repository[0], "--log-file", log, folder=tmp_path) as server:
        assert ask(f"{server.http}/v2/logging")[1] == {"log_file": "log", "log_info": True, "log_warning": True, "log_error": True,
                                                       "log_verbose_level": 0, "log_format": "default"}
        assert ask(f"{server.http}/v2/logging", {"log_file": "/tmp/x"})[0] in (400, 501)
        assert ask(f"{server.http}/v2/logging", {"log_verbose_level": -1})[0] == 400
        status, told = ask(f"{server.http}/v2/logging", {"log_verbose_level": 1, "log_format": "ISO8601"})
        assert status == 200 and told["log_verbose_level"] == 1 and told["log_format"] == "ISO8601"
        lines = len(log.read_text().splitlines())
        ask(f"{server.http}/v2/logging", {"log_info": False})
        os.rename(log, tmp_path / "old")
        server.process.send_signal(signal.SIGHUP)  # as logrotate does
        assert server.stop() == 0
        assert lines > 0
    assert re.match(r"[IWEV]\d{4} \d\d:\d\d:\d\d\.\d{6} ", (tmp_path / "old").read_text())


def test_the_served_config_is_told(repository, tmp_path):
    """TRI-11: what the server made of a model without a config."""
    with served(repository[0], folder=tmp_path) as server:
        status, config = ask(f"{server.http}/v2/models/net/config")
        assert status == 200
        assert config["input"][0] | {"name": "INPUT_0", "data_type": "TYPE_FP32", "dims": [1, 16]} == config["input"][0]
        assert config["max_batch_size"] == 0 and config["instance_group"][0]["count"] == 1


def test_requests_kept_for_audit_can_be_sent_again(repository, tmp_path):
    """TFS-08."""
    log = tmp_path / "requests.log"
    x = np.ones((1, 16), np.float32)
    with served(repository[0], "--request-log", log, "--request-log-share", "0.1", folder=tmp_path) as server:
        client = Client(server.http)
        for _ in range(1000):
            client.infer("net", x)
        assert server.stop() == 0
    kept = len(re.findall(rb'^{"model":"net"', log.read_bytes(), re.M))
    assert 50 <= kept <= 150  # of 100; others have a chance of less than one in a million
    with served(repository[0], folder=tmp_path) as server:
        status, out, err = run("--replay", log, "-u", server.http, "--expect", "--warmup-secs", "0.1", "--window-secs", "0.2",
                               "--max-windows", "3", program="sluice-perf")
        assert status == 0 and f"{kept} requests in turn" in out, out + err
        assert "errors:" not in out


def test_perf_measures_levels_and_draws_them(repository, tmp_path):
    """CLI-22, TRI-15."""
    files = {name: tmp_path / f"load.{name}" for name in ("svg", "csv", "json")}
    with served(repository[0], folder=tmp_path) as server:
        quick = ["-u", server.http, "--warmup-secs", "0.1", "--window-secs", "0.2", "--max-windows", "3", "--expect"]
        status, out, err = run("-m", "net", "--concurrency", "1:8", *quick, "--picture", files["svg"], "--csv", files["csv"], "--json",
                               files["json"], program="sluice-perf")
        assert status == 0, out + err
        levels = json.loads(files["json"].read_text())["levels"]
        assert [level["concurrency"] for level in levels] == list(range(1, 9))
        for level in levels:
            t = level["latency_us"]
            assert t["p50"] <= t["p90"] <= t["p95"] <= t["p99"] <= t["max"] and level["errors"] == {} and level["different"] == 0
            assert level["throughput_per_s"] == pytest.approx(t["count"] / level["seconds"], rel=1e-3)
            assert level["server"]["requests"] >= t["count"] and level["server"]["compute_infer_us"] > 0
        assert files["csv"].read_text().count("\n") == 9
        assert files["svg"].read_text().count("<circle") == 24
        status, out, err = run("-m", "net", "--request-rate", "50,100", "--constant", *quick, program="sluice-perf")
        assert status == 0 and "50/s" in out and "100/s" in out, out + err
        status, _, err = run("-m", "ghost", *quick, program="sluice-perf")
        assert status == 2 and "ghost" in err
        status, _, err = run("-m", "net", "--batch", "3", *quick, program="sluice-perf")
        assert status == 2 and "batch 3" in err
        address = server.http
    status, _, err = run("-m", "net", "-u", address, program="sluice-perf")
    assert status == 2 and "is sluice-serve running there?" in err


def test_the_entry_script_of_the_container_serves(repository, tmp_path):
    """SRV-13: the script that the Dockerfile installs, outside of a container."""
    script = ROOT / "examples/serving/deploy/entrypoint.sh"
    env = os.environ | {"SLUICE_SERVE": find_tool("sluice-serve"), "SLUICE_MODELS": str(repository[0]), "SLUICE_ADDRESS": "127.0.0.1"}
    process = subprocess.Popen(["sh", script, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"], env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        http = ""
        for line in process.stdout:
            if line.startswith("http "):
                http = line.split()[1].removeprefix("http://")
            if line.startswith("ready"):
                break
        client = subprocess.run([sys.executable, "-c", (
            "import sys, numpy as np, tritonclient.http as h\nc = h.InferenceServerClient(sys.argv[1])\n"
            "x = h.InferInput('INPUT_0', (1, 16), 'FP32'); x.set_data_from_numpy(np.ones((1, 16), np.float32))\n"
            "print(c.infer('net', [x]).as_numpy('OUTPUT_0').tolist())"), http], capture_output=True, text=True, timeout=PATIENCE)
        x = np.ones((1, 16), np.float32)
        assert np.allclose(json.loads(client.stdout), expected(repository[1], x), atol=1e-5), client.stderr
        process.send_signal(signal.SIGTERM)  # as docker stop does; the script has become the server
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()


def test_the_files_for_deployment_fit_the_server(tmp_path):
    """Their options exist, their paths are those of the packages, and the dashboard asks for metrics that are there."""
    deploy = ROOT / "examples/serving/deploy"
    _, help_text, _ = run("--help")
    for name in ("sluice-serve.service", "entrypoint.sh"):
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", (deploy / name).read_text()):
            assert option in help_text or option.startswith("--now"), (name, option)
    dockerfile = (deploy / "Dockerfile").read_text()
    for line in re.findall(r"^(\w+)", dockerfile, re.M):
        assert line in ("FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"), line
    for source in re.findall(r"^COPY (\S+)", dockerfile, re.M):
        assert source == "*.deb" or (deploy / source).exists()
    dashboard = json.loads((deploy / "dashboard.json").read_text())
    metrics = {name for panel in dashboard["panels"] for target in panel["targets"] for name in re.findall(r"nv_\w+", target["expr"])}
    told = (ROOT / "serving/execution/metrics.cpp").read_text()
    assert metrics and all(f'"{name}"' in told for name in metrics), metrics
    fresh = subprocess.run([sys.executable, "-c", "import json, make_dashboard as m; print(json.dumps(m.dashboard()))"], cwd=deploy,
                           env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True)
    assert json.loads(fresh.stdout) == dashboard, "run make_dashboard.py"
