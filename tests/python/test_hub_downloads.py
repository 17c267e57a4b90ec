"""States from an address: downloaded once, checked, and either there as a whole or not at all. The server is on this machine."""

import hashlib
import http.server
import io
import os
import threading

import pytest

import sluice as sl


class _Server(http.server.ThreadingHTTPServer):
    files: dict = {}
    asked: list = []


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path.partition("?")[0])
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + (10 if "short" in self.path else 0)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    state = io.BytesIO()
    sl.save({"a": sl.arange(3)}, state)
    with _Server(("127.0.0.1", 0), _Handler) as running:
        running.asked, data = [], state.getvalue()
        running.sha256 = hashlib.sha256(data).hexdigest()
        running.files = {"/net.pt": data, f"/net-{running.sha256[:8]}.pt": data, "/net-00000000.pt": data, "/short.pt": data}
        running.at = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_a_state_is_downloaded_once_and_kept(server, tmp_path):
    for _ in range(2):
        got = sl.hub.load_state_dict_from_url(f"{server.at}/net.pt?x=1", tmp_path / "deep/er", sha256=server.sha256, progress=False)
        assert got["a"].tolist() == [0, 1, 2]
    assert server.asked == ["/net.pt?x=1"] and os.listdir(tmp_path / "deep/er") == ["net.pt"]


def test_torchs_function_is_the_same(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with sl.mock_torch():
        from torch.hub import load_state_dict_from_url
        from torch.utils.model_zoo import load_url

        for load in (load_state_dict_from_url, load_url):
            assert load(f"{server.at}/net.pt", map_location="cpu", progress=False)["a"].tolist() == [0, 1, 2]
    assert server.asked == ["/net.pt"] and os.listdir(tmp_path / "hub/checkpoints") == ["net.pt"]


def test_the_name_says_how_the_sum_begins(server, tmp_path):
    load = sl.hub.load_state_dict_from_url
    assert load(f"{server.at}/net-{server.sha256[:8]}.pt", tmp_path, check_hash=True)["a"].shape == (3,)
    with pytest.raises(ValueError, match=f"its sha256 is {server.sha256}; must begin with 00000000"):
        load(f"{server.at}/net-00000000.pt", tmp_path, check_hash=True)
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("path,options,error,message", [
    ("/net.pt", {"sha256": "0" * 64}, ValueError, "must begin with 0000"),
    ("/short.pt", {}, OSError, r"got \d+ bytes; the server has announced|cannot be had"),
    ("/none.pt", {}, OSError, "none.pt cannot be had: HTTP Error 404.*put it at "),
])
def test_a_failed_download_leaves_nothing(server, tmp_path, path, options, error, message):
    with pytest.raises(error, match=message):
        sl.hub.load_state_dict_from_url(server.at + path, tmp_path, progress=False, **options)
    assert os.listdir(tmp_path) == []


def test_a_failed_download_leaves_what_was_there(server, tmp_path):
    (tmp_path / "net.pt").write_bytes(b"mine")
    with pytest.raises(ValueError, match="must begin with ffff"):
        sl.hub.download_url_to_file(f"{server.at}/net.pt", tmp_path / "net.pt", "ffff", progress=False)
    assert (tmp_path / "net.pt").read_bytes() == b"mine" and os.listdir(tmp_path) == ["net.pt"]
    sl.hub.download_url_to_file(f"{server.at}/net.pt", tmp_path / "net.pt", server.sha256.upper(), progress=False)
    assert (tmp_path / "net.pt").read_bytes() == server.files["/net.pt"]


def test_a_kept_file_that_is_damaged_is_told(server, tmp_path):
    (tmp_path / "net.pt").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="the sha256 of .*net.pt is .*remove the file, and it is downloaded again"):
        sl.hub.load_state_dict_from_url(f"{server.at}/net.pt", tmp_path, sha256=server.sha256)
    assert server.asked == []


def test_a_server_that_is_not_there_is_told(tmp_path):
    with http.server.HTTPServer(("127.0.0.1", 0), _Handler) as gone:
        url = f"http://127.0.0.1:{gone.server_port}/net.pt"
    with pytest.raises(OSError, match="net.pt cannot be had: .*fetch it with a tool of yours and put it at"):
        sl.hub.load_state_dict_from_url(url, tmp_path)
    with pytest.raises(ValueError, match="must be an http or https address"):
        sl.hub.load_state_dict_from_url("file:///etc/hostname", tmp_path)
    assert os.listdir(tmp_path) == []
