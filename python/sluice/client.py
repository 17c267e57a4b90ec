"""A small client of the Open Inference Protocol (KServe v2) over HTTP, for sluice-serve and servers like it.

    from sluice.client import Client

    with Client("127.0.0.1:8000") as client:
        logits = client.infer("digits", {"INPUT_0": images})["OUTPUT_0"]

Tensors go and come as bytes. Triton's own client (`tritonclient`) works as well; this one needs only NumPy.
"""

from __future__ import annotations

import http.client
import json
import struct
import threading
import urllib.parse
from typing import Any, Mapping, Sequence

import numpy as np

__all__ = ["Client", "ServingError"]

_NAMES = {"bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8", "int16": "INT16",
          "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64"}
_DTYPES = {name: np.dtype(dtype) for dtype, name in _NAMES.items()}


class ServingError(RuntimeError):
    """A request that the server refused. `status` is HTTP's; `retry_after` the seconds to wait, where the server says."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def _array(value: Any) -> Any:
    """A contiguous array of what may be a tensor of Sluice's or PyTorch's, an array or a nest of numbers."""
    for step in ("detach", "cpu"):
        value = getattr(value, step, lambda: value)()  # noqa: B023  called at once
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value, order="C")


def _packed(name: str, array: Any) -> tuple[str, bytes]:
    """The protocol's datatype and bytes."""
    if array.dtype.kind in "OSU":
        items = [item if isinstance(item, bytes) else str(item).encode() for item in array.ravel().tolist()]
        return "BYTES", b"".join(struct.pack("<I", len(item)) + item for item in items)
    datatype = _NAMES.get(array.dtype.name)
    if datatype is None:
        raise TypeError(f"Client.infer: input '{name}' has dtype {array.dtype}; the protocol has {', '.join(_NAMES)} and bytes")
    return datatype, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _unpacked(datatype: str, shape: Sequence[int], data: bytes) -> Any:
    if datatype == "BYTES":
        items, at = [], 0
        while at < len(data):
            size, = struct.unpack_from("<I", data, at)
            items.append(data[at + 4:at + 4 + size])
            at += 4 + size
        return np.array(items, object).reshape(shape)
    if datatype == "BF16":  # the upper half of float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").reshape(shape)
    return np.frombuffer(data, _DTYPES[datatype].newbyteorder("<")).reshape(shape)


class Client:
    """Speaks to one server; connections are kept. Any number of threads may use it, each over a connection of its own.

    url: "host:port", "http://host:port" or "http://host:port/base"; token: for calls that manage the server, where that wants
    one; timeout: seconds that a call may take. Every call throws ServingError with what the server says, and OSError where
    there is no answer.
    """

    def __init__(self, url: str = "127.0.0.1:8000", *, token: str | None = None, timeout: float = 60) -> None:
        parts = urllib.parse.urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"Client: url is {url!r}; it must be like '127.0.0.1:8000' or 'http://host:8000/base'")
        self._address, self._base = (parts.hostname, parts.port or 80), parts.path.rstrip("/")
        self._token, self._timeout = token, timeout
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; a later call opens one anew."""
        with self._lock:
            connections, self._connections, self._local = self._connections, [], threading.local()
        for connection in connections:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if known is None:
            known = self._local.connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
            with self._lock:
                self._connections.append(known)
        return known

    def _ask(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> tuple[Any, bytes]:
        headers = dict(headers or {})
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        fresh = connection.sock is None
        try:
            connection.request(method, self._base + path, body, headers)
            response = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            connection.close()
            if fresh:
                raise
            connection.request(method, self._base + path, body, headers)  # the server had closed an idle connection
            response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            try:
                text = json.loads(data)["error"]
            except (ValueError, KeyError, TypeError):
                text = f"{method} {path}: the server answered {response.status} {response.reason}"
            retry = response.headers.get("Retry-After")
            raise ServingError(response.status, text, float(retry) if retry else None)
        return response.headers, data

    def _json(self, method: str, path: str, body: Any = None) -> Any:
        data = self._ask(method, path, None if body is None else json.dumps(body).encode())[1]
        return json.loads(data) if data else None

    @staticmethod
    def _model(model: str, version: str | int) -> str:
        path = "/v2/models/" + urllib.parse.quote(model, safe="")
        return path + (f"/versions/{urllib.parse.quote(str(version), safe='')}" if version != "" else "")

    def is_live(self) -> bool:
        return self._is("/v2/health/live")

    def is_ready(self, model: str = "", version: str | int = "") -> bool:
        """Tells whether the server, or a model, is ready."""
        return self._is(self._model(model, version) + "/ready" if model else "/v2/health/ready")

    def _is(self, path: str) -> bool:
        try:
            self._ask("GET", path)
        except ServingError:
            return False
        return True

    def metadata(self, model: str = "", version: str | int = "") -> Any:
        """Names, datatypes and shapes of a model's inputs and outputs, or what the server says of itself."""
        return self._json("GET", self._model(model, version) if model else "/v2")

    def config(self, model: str, version: str | int = "") -> Any:
        return self._json("GET", self._model(model, version) + "/config")

    def statistics(self, model: str = "", version: str | int = "") -> Any:
        return self._json("GET", (self._model(model, version) if model else "/v2/models") + "/stats")["model_stats"]

    def index(self) -> list[dict[str, str]]:
        """Every model that there is: name, version, state, reason."""
        models: list[dict[str, str]] = self._json("POST", "/v2/repository/index", {})
        return models

    def load(self, model: str, config: Mapping[str, Any] | None = None) -> None:
        parameters = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        self._json("POST", f"/v2/repository/models/{urllib.parse.quote(model, safe='')}/load", parameters)

    def unload(self, model: str, *, dependents: bool = False) -> None:
        self._json("POST", f"/v2/repository/models/{urllib.parse.quote(model, safe='')}/unload",
                   {"parameters": {"unload_dependents": dependents}})

    def infer(self, model: str, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None, *, version: str | int = "",
              classes: int = 0, id: str = "", parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Results by name, as NumPy arrays.

        inputs: by name; tensors of Sluice or PyTorch, arrays, numbers, or lists of bytes. outputs: names, all when None.
        classes: > 0: of each output the so many largest, as b"value:index[:label]". parameters: of the request, such as
        priority, timeout (microseconds) and sequence_id.
        """
        described, packed = [], []
        for name, value in inputs.items():
            array = _array(value)
            datatype, data = _packed(name, array)
            described.append({"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": {"binary_data_size": len(data)}})
            packed.append(data)
        head: dict[str, Any] = {"inputs": described, "parameters": {"binary_data_output": True, **(parameters or {})}}
        if id:
            head["id"] = id
        if outputs is None and classes:
            outputs = [output["name"] for output in self.metadata(model, version)["outputs"]]
        if outputs is not None:
            head["outputs"] = [{"name": name, **({"parameters": {"classification": classes}} if classes else {})} for name in outputs]
        text = json.dumps(head).encode()
        headers, data = self._ask("POST", self._model(model, version) + "/infer", b"".join([text, *packed]),
                                  {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))})
        length = int(headers.get("Inference-Header-Content-Length", len(data)))
        results, at = {}, length
        for output in json.loads(data[:length])["outputs"]:
            size = output["parameters"]["binary_data_size"]
            results[output["name"]] = _unpacked(output["datatype"], output["shape"], data[at:at + size])
            at += size
        return results
