"""A save replaces bundles and nothing else, at once; whatever was there otherwise stays as it was."""

import os
import re
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

import sluice as sl
import sluice.nn as nn


class Scale(nn.Graph):
    """A plan, or with dims a family."""

    def __init__(self, by, dims=False):
        super().__init__(name="scale")
        self.weight = nn.Parameter(sl.full((4,), float(by)))
        if dims:
            self.config.set_dims({"x": {0: sl.Dim("batch", max=2)}})

    def build(self, x):
        return x * self.weight


def graph_of(by, rows=2, dims=False):
    graph = Scale(by, dims)
    graph.compile(sl.ones(rows, 4))
    return graph


SAVED = {"plan": lambda: graph_of(3), "family": lambda: graph_of(3, dims=True), "shapes": lambda: [graph_of(3), graph_of(3, 1)]}
EARLIER = {"plan": lambda: graph_of(2), "family": lambda: graph_of(2, dims=True), "shapes": lambda: [graph_of(2), graph_of(2, 1)]}


@pytest.fixture(scope="module")
def graphs():
    return {kind: made() for kind, made in SAVED.items()}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A folder with a bundle of each kind, of other weights."""
    folder = tmp_path_factory.mktemp("earlier")
    for kind, made in EARLIER.items():
        sl.save(made(), folder / kind)
    return folder


def told(folder):
    """The content of a folder: of files the bytes, of links where to, of the rest the kind."""
    found = {}
    for at, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                what = os.readlink(path)
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    what = file.read()
            else:
                what = (stat.S_IFMT(mode), os.lstat(path).st_rdev)
            found[os.path.relpath(path, folder)] = what
    return found


def copied(earlier, kind, to):
    subprocess.run(["cp", "-r", earlier / kind, to], check=True)
    return to


def file(path, text="mine"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def link(path, to):
    os.symlink(to, path)
    return path


def made_node(path, mode, device=0):
    os.mknod(path, mode, device)
    return path


def bound(path):
    with socket.socket(socket.AF_UNIX) as s:
        here = os.getcwd()
        os.chdir(path.parent)  # such an address is short
        try:
            s.bind(path.name)
        finally:
            os.chdir(here)
    return path


# Objects that PATH may be: each makes it in an empty folder, and returns it. Another name: where the bundle is then.
TAKEN = {
    "nothing": lambda r, e: r / "m",
    "an empty folder": lambda r, e: (r / "m").mkdir() or r / "m",
    "a bundle": lambda r, e: copied(e, "plan", r / "m"),
    "a family": lambda r, e: copied(e, "family", r / "m"),
    "shapes": lambda r, e: copied(e, "shapes", r / "m"),
    "a bundle without weights": lambda r, e: os.remove(copied(e, "plan", r / "m") / "weights.safetensors") or r / "m",
    "a link to a bundle": lambda r, e: link(r / "l", copied(e, "plan", r / "m").name),
    "a link to an empty folder": lambda r, e: (r / "m").mkdir() or link(r / "l", r / "m"),
    "a slash at the end": lambda r, e: f"{copied(e, 'plan', r / 'm')}//",
    "a dot at the end": lambda r, e: f"{copied(e, 'plan', r / 'm')}/.",
    "a slash at the end of nothing": lambda r, e: f"{r / 'm'}/",
    "dots within": lambda r, e: (r / "a").mkdir() or f"{r}/a/../m",
    "no parent": lambda r, e: r / "a" / "b" / "m",
    "the longest name": lambda r, e: r / ("m" * 255),
    "beside .new and .old": lambda r, e: (file(r / "m.new"), file(r / "m.old" / "f")) and copied(e, "plan", r / "m"),
    "beside folders .new and .old": lambda r, e: (copied(e, "plan", r / "m.new"), copied(e, "shapes", r / "m.old")) and r / "m",
}
REFUSED = {
    "a file": (lambda r, e: file(r / "m"), "it is a file; give a folder that is a bundle, or empty, or not there"),
    "an empty file": (lambda r, e: file(r / "m", ""), "it is a file"),
    "a link to a file": (lambda r, e: link(r / "m", file(r / "f")), "it is a file"),
    "a link to nothing": (lambda r, e: link(r / "m", r / "f"), "it is a symbolic link to nothing"),
    "a link to itself": (lambda r, e: link(r / "m", r / "m"), "(it is a symbolic link to nothing|Too many levels)"),
    "a pipe": (lambda r, e: os.mkfifo(r / "m") or r / "m", "it is a pipe"),
    "a socket": (lambda r, e: bound(r / "m"), "it is a socket"),
    "versions": (lambda r, e: copied(e, "plan", (r / "m/1").mkdir(parents=True) or r / "m/1/model") and file(r / "m/config.pbtxt").parent,
                 "it is a folder that has '1' and is no whole bundle"),
    "a folder with a file": (lambda r, e: file(r / "m" / "notes").parent, "has 'notes' and is no whole bundle"),
    "a bundle and a file": (lambda r, e: file(copied(e, "plan", r / "m") / "notes").parent, "has 'notes', which is no part of a bundle"),
    "a bundle and a hidden file": (lambda r, e: file(copied(e, "plan", r / "m") / ".notes").parent, "has '.notes', which is no part"),
    "a bundle and a folder": (lambda r, e: file(copied(e, "plan", r / "m") / "1/f").parents[1], "has '1', which is no part of a bundle"),
    "a bundle and a link": (lambda r, e: link(copied(e, "plan", r / "m") / "l", "plan.json").parent, "has 'l', which is no part"),
    "a bundle with a link for a file": (lambda r, e: os.rename(copied(e, "plan", r / "m") / "plan.json", r / "p") or link(r / "m/plan.json", "../p").parent,
                                        "has 'plan.json', which is no part"),
    "a family and a file": (lambda r, e: file(copied(e, "family", r / "m") / "members/0/notes").parents[2],
                            "has 'members/0/notes', which is no part of a bundle"),
    "a family and another member": (lambda r, e: file(copied(e, "family", r / "m") / "members/7/notes").parents[2], "has 'members/7/notes' and is no"),
    "shapes and a file": (lambda r, e: file(copied(e, "shapes", r / "m") / "1/notes").parents[1], "has '1/notes', which is no part of a bundle"),
    "half a bundle": (lambda r, e: os.remove(copied(e, "plan", r / "m") / "meta.json") or r / "m", "has 'graph.txt' and is no whole bundle"),
    "weights alone": (lambda r, e: file(r / "m" / "weights.safetensors").parent, "has 'weights.safetensors' and is no whole bundle"),
    "a parent that is a file": (lambda r, e: file(r / "f") / "m", "cannot be saved: .*(Not a directory|File exists)"),
    "a folder in a file": (lambda r, e: file(r / "f") / "a" / "m", "cannot be saved: .*(Not a directory|File exists)"),
    "a name that is too long": (lambda r, e: r / ("m" * 256), "File name too long"),
    "nothing, with dots": (lambda r, e: f"{r}/a/..", "it is not there"),
    "no name": (lambda r, e: "", "no path"),
}
if os.geteuid() == 0:
    REFUSED["a device"] = (lambda r, e: made_node(r / "m", stat.S_IFCHR | 0o666, os.makedev(1, 3)), "it is a device")
    REFUSED["a link to a device"] = (lambda r, e: link(r / "m", "/dev/null"), "it is a device")


def test_how_many_paths_are_tried(count):
    count("saves to all that a path may be", (len(TAKEN) + len(REFUSED)) * len(SAVED), "saves from Python")


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("what", TAKEN)
def test_a_bundle_takes_the_place_of(what, kind, graphs, earlier, tmp_path):
    path = TAKEN[what](tmp_path, earlier)
    before = told(tmp_path)
    sl.save(graphs[kind], path)
    place = os.path.relpath(os.path.realpath(path), tmp_path)
    after = told(tmp_path)

    def others(names):
        return {n: w for n, w in names.items() if not (n + "/").startswith(place + "/") and not place.startswith(n + "/")}

    assert others(after) == others(before)  # among them no trace of the save
    loaded = sl.load_graph(path)
    assert sl.equal(loaded(sl.ones(2, 4)), sl.full((2, 4), 3.0))
    sl.save(graphs[kind], path)
    assert told(tmp_path) == after  # and the same once more: byte by byte


@pytest.mark.parametrize("kind", SAVED)
@pytest.mark.parametrize("what", REFUSED)
def test_a_save_refuses_and_leaves(what, kind, graphs, earlier, tmp_path):
    made, why = REFUSED[what]
    path = made(tmp_path, earlier)
    before = told(tmp_path)
    with pytest.raises(OSError, match=f"bundle '{'' if what == 'no name' else path}': .*{why}"):
        sl.save(graphs[kind], path)
    assert told(tmp_path) == before


def test_the_working_directory_is_not_taken_away(graphs, earlier, tmp_path, monkeypatch):
    for folder in (tmp_path / "empty", copied(earlier, "plan", tmp_path / "m")):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        before = told(folder)
        for path in (".", "./", str(folder)):
            with pytest.raises(OSError, match="it is the working directory of this process, or around it.*give a folder in it"):
                sl.save(graphs["plan"], path)
        assert told(folder) == before
        sl.save(graphs["plan"], "in_it")
        assert sl.load_graph("in_it").inputs


UNPRIVILEGED = """
import os, sys
import sluice as sl, sluice.nn as nn
from sluice._graph.bundle import save_graph  # now, since another user may not read where Python's modules are
class Scale(nn.Graph):
    def build(self, x):
        return x * 2
graph = Scale()
graph.compile(sl.ones(2))
if os.geteuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    save_graph(graph, sys.argv[1])
except OSError as error:
    print(error)
"""


@pytest.fixture
def open_folder():
    """One that every user may look into, as no folder of pytest's is."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


@pytest.mark.parametrize("what, why", [("a folder", "Permission denied"), ("a bundle", "Permission denied"),
                                       ("a bundle to read", r"it is a folder that may not be written to \(Permission denied\)")])
def test_a_parent_that_may_not_be_written_to(what, why, earlier, open_folder, run_script):
    home = open_folder / "home"
    home.mkdir()
    path = home / "m" if what == "a folder" else copied(earlier, "plan", home / "m")
    os.chmod(home, 0o777 if what == "a bundle to read" else 0o555)
    if what == "a bundle":
        os.chmod(path, 0o777)
    before = told(home)
    process = run_script(UNPRIVILEGED, arguments=[str(path)])
    assert f"bundle '{path}': cannot be saved" in process.stdout and re.search(why, process.stdout), process
    assert told(home) == before


LARGE = """
import resource, sys
import sluice as sl, sluice.nn as nn
class Large(nn.Graph):
    def __init__(self):
        super().__init__(name="large")
        self.weight = nn.Parameter(sl.ones(1 << 20))
    def build(self, x):
        return x * self.weight
graph = Large()
graph.compile(sl.ones(1))
if sys.argv[2] == "limited":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
for what in (graph, [graph], {"w": sl.ones(1 << 20)}):
    try:
        sl.save(what, sys.argv[1] + (".pt" if isinstance(what, dict) else ""))
    except OSError as error:
        print(error)
"""


def small_disk(folder):
    return subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True).returncode == 0


@pytest.mark.parametrize("how", ["limited", "full"])
def test_a_disk_that_is_full_keeps_what_was_there(how, earlier, tmp_path, run_script):
    folder = tmp_path / "disk"
    folder.mkdir()
    if how == "full" and not small_disk(folder):
        pytest.skip("no file system can be mounted here; the other case writes up to a limit")
    try:
        copied(earlier, "plan", folder / "m")
        file(folder / "m.pt")
        before = told(folder)
        process = run_script(LARGE, arguments=[str(folder / "m"), how])
        lines = process.stdout.splitlines()
        reason = "File too large" if how == "limited" else "No space left on device"
        assert len(lines) == 3 and all(reason in line for line in lines), process
        assert all(line.startswith(f"{folder}/m/") and ".sluice" not in line for line in lines[:2]), lines
        assert told(folder) == before
    finally:
        if how == "full":
            subprocess.run(["umount", "-l", folder], check=True)


KILLED = """
import os, signal, sys
from sluice import _C
def write(folder):
    os.mkdir(folder + "/members"), os.mkdir(folder + "/members/0")
    for name in ("plan.json", "members/0/graph.txt"):
        open(os.path.join(folder, name), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
_C.replace_bundle(sys.argv[1], write)
"""


def test_what_a_killed_process_has_left_goes_with_the_next_save(graphs, earlier, tmp_path, run_script):
    copied(earlier, "plan", tmp_path / "m")
    before = told(tmp_path / "m")
    kept = file(tmp_path / ".sluice-saving-0123456789abcde" / "f"), file(tmp_path / ".sluice-saving-mine")
    assert run_script(KILLED, arguments=[str(tmp_path / "m")]).returncode == -9
    assert told(tmp_path / "m") == before and len([p for p in os.listdir(tmp_path) if p.startswith(".sluice-saving")]) == 3
    sl.save(graphs["plan"], tmp_path / "other")
    assert {p for p in os.listdir(tmp_path) if p.startswith(".sluice-saving")} == {kept[0].parent.name, kept[1].name}


def test_what_is_being_written_by_another_is_left_alone(graphs, tmp_path):
    def write(folder):
        file(tmp_path.__class__(folder) / "graph.txt")
        sl.save(graphs["plan"], tmp_path / "other")
        assert os.path.exists(os.path.join(folder, "graph.txt"))
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sl._C.replace_bundle(str(tmp_path / "m"), write)
    assert os.listdir(tmp_path) == ["other"]


def test_what_comes_into_a_bundle_meanwhile_is_not_lost(earlier, tmp_path):
    copied(earlier, "plan", tmp_path / "m")
    with pytest.raises(OSError, match="has 'notes', which is no part of a bundle"):
        sl._C.replace_bundle(str(tmp_path / "m"), lambda folder: file(tmp_path / "m" / "notes"))
    assert (tmp_path / "m" / "notes").read_text() == "mine" and sl.load_graph(tmp_path / "m").inputs
    with pytest.raises(OSError, match="it is a file"):
        sl._C.replace_bundle(str(tmp_path / "n" / "m"), lambda folder: file(tmp_path / "n" / "m"))
    assert sorted(os.listdir(tmp_path)) == ["m", "n"] and os.listdir(tmp_path / "n") == ["m"]


def test_rights_of_a_bundle_stay(graphs, earlier, tmp_path):
    os.chmod(copied(earlier, "plan", tmp_path / "m"), 0o2750)
    sl.save(graphs["plan"], tmp_path / "m")
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o2750


def savers_of_files():
    yield "checkpoint", lambda path: sl.save({"w": sl.ones(3)}, path)
    yield "safetensors", lambda path: sl.utils.safetensors.save_file({"w": sl.ones(3)}, path)


@pytest.mark.parametrize("save", [s for _, s in savers_of_files()], ids=[n for n, _ in savers_of_files()])
def test_a_file_is_replaced_whole_and_nothing_beside_it(save, tmp_path):
    for suffix in (".new", ".old", f".{os.getpid()}.part", f".{os.getpid()}"):
        file(tmp_path / f"x{suffix}")
    file(tmp_path / "x", "old")
    os.chmod(tmp_path / "x", 0o640)
    before = told(tmp_path)
    save(tmp_path / "x")
    after = told(tmp_path)
    assert before.pop("x") != after.pop("x") and before == after and sl.load(tmp_path / "x")["w"].shape == (3,)
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    link(tmp_path / "l", "x")
    file(tmp_path / "x", "old")
    save(tmp_path / "l")
    assert os.readlink(tmp_path / "l") == "x" and sl.load(tmp_path / "x")["w"].shape == (3,)
    with pytest.raises(OSError):
        save(tmp_path)
