"""Writes dashboard.json, for Grafana: what each model does, how long it takes, and what it refuses."""

import json
import pathlib

PANELS = [  # title, unit, ((legend, query), ...)
    ("Requests answered", "reqps", (("{{model}}", "sum by (model) (rate(nv_inference_request_success[1m]))"),)),
    ("Requests refused or failed", "reqps",
     (("{{model}} {{reason}}", "sum by (model, reason) (rate(nv_inference_request_failure[1m]))"),)),
    ("Time of a request, on average", "µs",
     (("{{model}}", "sum by (model) (rate(nv_inference_request_duration_us[1m])) / "
       "sum by (model) (rate(nv_inference_request_success[1m]))"),)),
    ("of which it waits", "µs",
     (("{{model}}", "sum by (model) (rate(nv_inference_queue_duration_us[1m])) / "
       "sum by (model) (rate(nv_inference_request_success[1m]))"),)),
    ("of which the model computes", "µs",
     (("{{model}}", "sum by (model) (rate(nv_inference_compute_infer_duration_us[1m])) / "
       "sum by (model) (rate(nv_inference_request_success[1m]))"),)),
    ("Rows of a step: what batching does", "short",
     (("{{model}}", "sum by (model) (rate(nv_inference_count[1m])) / sum by (model) (rate(nv_inference_exec_count[1m]))"),)),
    ("Requests that wait", "short", (("{{model}}", "sum by (model) (nv_inference_pending_request_count)"),)),
    ("Answers from the cache", "reqps", (("{{model}}", "sum by (model) (rate(nv_cache_num_hits_per_model[1m]))"),)),
]


def panel(number: int, title: str, unit: str, queries: tuple) -> dict:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(65 + i), "legendFormat": legend, "expr": query} for i, (legend, query) in enumerate(queries)],
    }


def dashboard() -> dict:
    return {
        "uid": "sluice-serve",
        "title": "Sluice: served models",
        "schemaVersion": 38,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": [panel(i, *entry) for i, entry in enumerate(PANELS)],
    }


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("dashboard.json")
    path.write_text(json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n")
