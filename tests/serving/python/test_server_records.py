"""What a server writes: metrics, logs, traces, requests kept for audit."""

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request

import grpc
import numpy as np
import pytest

from programs import PATIENCE, ROOT, served
from test_load import Client, body_of
from program_runs import ask, repository, run  # noqa: F401


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
