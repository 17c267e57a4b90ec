"""Peers of serve.*: a net behind FastAPI and uvicorn, with the bodies of the same protocol.

    serve_peer.py NET THREADS torch|onnxruntime

Tuned as one would: uvloop and httptools, no access log, bodies as bytes, tensors without a copy, no validation of what is
not needed; small nets run on the event loop, large ones on a thread, so that it goes on answering. ONNX Runtime gets the
net from torch's exporter, with all optimisations and no threads that spin. Prints its port.
"""
import asyncio
import concurrent.futures
import io
import json
import socket
import sys
import warnings

import numpy as np
import torch
import uvicorn
from fastapi import FastAPI, Request, Response

from serve_nets import SHAPES, net_of

NAME, THREADS, BY = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(THREADS)
net, shape = net_of(torch, NAME).eval(), SHAPES[NAME]
large = NAME == "resnet50"
pool = concurrent.futures.ThreadPoolExecutor(1)
app = FastAPI()


def forward_by_torch():
    def forward(data):
        with torch.inference_mode():
            return net(torch.frombuffer(bytearray(data), dtype=torch.float32).view(shape)).numpy().tobytes()
    return forward


def forward_by_onnxruntime():
    import onnxruntime

    warnings.simplefilter("ignore")
    model = io.BytesIO()
    torch.onnx.export(net, (torch.zeros(shape),), model, input_names=["x"], dynamo=False)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model.getvalue(), options)
    return lambda data: session.run(None, {"x": np.frombuffer(data, np.float32).reshape(shape)})[0].tobytes()


forward = {"torch": forward_by_torch, "onnxruntime": forward_by_onnxruntime}[BY]()


@app.get("/v2/health/ready")
async def ready():
    return Response()


@app.get(f"/v2/models/{NAME}")
async def metadata():
    return {"name": NAME, "versions": ["1"], "platform": BY, "outputs": [],
            "inputs": [{"name": "INPUT_0", "datatype": "FP32", "shape": list(shape)}]}


@app.get(f"/v2/models/{NAME}/config")
async def config():
    return {"name": NAME, "max_batch_size": 0}


@app.get(f"/v2/models/{NAME}/stats")
async def stats():
    return {"model_stats": []}


@app.post(f"/v2/models/{NAME}/infer")
async def infer(request: Request):
    body = await request.body()
    length = int(request.headers["inference-header-content-length"])
    json.loads(body[:length])
    data = memoryview(body)[length:]
    values = await asyncio.get_running_loop().run_in_executor(pool, forward, data) if large else forward(data)
    head = json.dumps({"model_name": NAME, "model_version": "1", "outputs": [
        {"name": "OUTPUT_0", "datatype": "FP32", "shape": [1, len(values) // 4], "parameters": {"binary_data_size": len(values)}}]}).encode()
    return Response(head + values, media_type="application/octet-stream", headers={"Inference-Header-Content-Length": str(len(head))})


if __name__ == "__main__":
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, loop="uvloop", http="httptools", access_log=False, log_level="error")).run(sockets=[listener])
