"""sluice.tiny: training steps as C, whose bits are the engine's on this machine and on Cortex-M in qemu."""

import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

import sluice as sl

STRICT = "-std=c99 -Wall -Wextra -Wconversion -pedantic -Werror"
ARM = ("arm-none-eabi-gcc", "qemu-system-arm")
arm = pytest.mark.skipif(any(shutil.which(program) is None for program in ARM),
                         reason="needs what tools/setup.sh installs: gcc-arm-none-eabi, qemu-system-arm")
STEPS = 50


class Digits(sl.nn.Module):
    """Two convolutions and a linear layer on pictures of 8 x 8."""

    def __init__(self):
        super().__init__()
        self.a, self.b = sl.nn.Conv2d(1, 8, 3, padding=1), sl.nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.head = sl.nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.b(self.a(x).relu()).relu().flatten(1))


class Step(sl.nn.Graph):
    def __init__(self, net, optimizer=lambda parameters: sl.optim.SGD(parameters, lr=0.1)):
        super().__init__()
        self.net = net
        self.add_optimizer(optimizer(net.parameters()))

    def build(self, x, y):
        loss = sl.nn.functional.cross_entropy(self.net(x), y)
        loss.backward()
        return loss


def pictures(count, seed=0):
    """Noisy prototypes of four classes, one after the other."""
    random = np.random.default_rng(seed)
    classes = (random.random((4, 1, 8, 8)) > 0.6).astype(np.float32)
    for i in range(count):
        x = classes[i % 4] * random.uniform(0.7, 1, (1, 1, 8, 8)) + 0.2 * random.random((1, 1, 8, 8))
        yield sl.tensor(x.astype(np.float32)), sl.tensor([i % 4])


def make(directory, *words, status=0):
    done = subprocess.run(["make", "-s", "-C", str(directory), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check(directory, *words):
    """The folder's own check, which compares every bit; how many steps it ran."""
    return int(re.search(r": (\d+) steps, every bit as in the engine\n", make(directory, *words))[1])


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A training step, exported with its first steps; the losses that the engine's cpu gives for these."""
    sl.manual_seed(0)
    graph = Step(Digits())
    first = {name: value.clone() for name, value in graph.net.state_dict().items()}
    graph(*next(pictures(1)))
    graph.net.load_state_dict(first)
    exported = sl.tiny.export(graph, tmp_path_factory.mktemp("digits"), name="digits", samples=pictures(STEPS))
    return exported, [graph(*sample).item() for sample in pictures(STEPS)]


def losses_in(directory):
    words = re.search(r"out_output\w*\[\] = \{(.*?)\}", (pathlib.Path(directory) / "vectors.h").read_text(), re.S)[1]
    return np.array([int(word, 16) for word in words.replace(",", " ").split()], np.uint32).view(np.float32)


def test_losses_are_near_to_those_of_the_cpu_and_fall(digits, count):
    exported, on_cpu = digits
    losses = losses_in(exported.directory)
    assert len(losses) == STEPS and losses[-10:].mean() < 0.5 * losses[:10].mean()
    np.testing.assert_allclose(losses, on_cpu, rtol=2e-4, atol=2e-4)
    count("largest difference of losses in C", float(np.abs(losses - on_cpu).max()), f"from the cpu's in {STEPS} steps")


def test_bits_are_the_engines_on_this_machine(digits, count):
    directory = digits[0].directory
    clangs = sorted(path.name for folder in os.get_exec_path() for path in pathlib.Path(folder).glob("clang-[0-9]*")
                    if re.fullmatch(r"clang-\d+", path.name))
    compilers = [["cc", "-O3 -march=native -std=gnu11"], *([clang, "-O2 -march=native"] for clang in clangs[-1:])]
    for cc, opt in compilers:
        assert check(directory, "-B", "check", f"CC={cc}", f"CFLAGS={STRICT} {opt}") == STEPS
    assert check(directory, "sanitized") == STEPS
    count("compilers and options with the engine's bits", len(compilers), [" ".join(c) for c in compilers])


@arm
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m7", "cortex-m55"])
def test_bits_are_the_engines_on_a_microcontroller(digits, core, count):
    exported, _ = digits
    assert check(exported.directory, f"run-{core}") == STEPS
    text, data, bss = map(int, subprocess.run(["arm-none-eabi-size", f"{exported.directory}/digits.{core}.elf"],
                                              capture_output=True, text=True, check=True).stdout.split()[6:9])
    count(f"bytes of code and constants on a {core}", text, f"{data} of weights, {bss} of memory and stack")
    assert text + data <= 1 << 20 and data + bss <= 256 << 10


def test_it_calls_no_library(digits):
    """Neither memory is allocated nor mathematics called: what is left undefined is what compilers themselves call."""
    directory = pathlib.Path(digits[0].directory)
    subprocess.run(["cc", *STRICT.split(), "-O2", "-ffreestanding", "-fno-pic", "-c", "digits.c", "-o", "digits.o"], cwd=directory,
                   check=True)
    undefined = subprocess.run(["nm", "-u", "digits.o"], cwd=directory, capture_output=True, text=True, check=True).stdout
    assert set(undefined.split()) <= {"U", "memcpy", "memset"}
    assert "Its results have the same bits on every machine." in (directory / "digits.c").read_text()


def test_the_header_says_what_it_takes(digits):
    exported, _ = digits
    header = (pathlib.Path(exported.directory) / "digits.h").read_text()
    for word, size in (("MEMORY", exported.memory), ("STATE", exported.state), ("CONSTANT", exported.constants)):
        assert f"#define DIGITS_{word}_BYTES {size}\n" in header
    weights = sum(4 * p.numel() for p in Digits().parameters())
    assert exported.state == weights
    values = [t for t in exported.tensors if t.kind == "memory"]
    assert all(t.offset % 8 == 0 and t.offset + t.bytes <= exported.memory for t in values)
    assert any(t.offset % 64 != 0 for t in values)  # no room is left for vectors that the machine has not
    assert exported.memory < sum(t.bytes for t in values)  # values share memory


@arm
def test_a_linker_refuses_what_does_not_fit(digits, tmp_path):
    exported, _ = digits
    shutil.copytree(exported.directory, tmp_path / "small")
    script = tmp_path / "small/memory.ld"
    text = script.read_text()
    for memory, length, needs in (("RAM", f"LENGTH = {256 << 10}", "needs more than 262144 bytes of RAM: values of a step"),
                                  ("FLASH", f"LENGTH = {1 << 20} -", "needs more than 1048576 bytes of flash: weights that stay")):
        assert text.count(length) == 1
        script.write_text(text.replace(length, length.replace(re.search(r"\d+", length)[0], "16384")))
        told = make(tmp_path / "small", "-B", "cortex-m4", status=2)
        assert re.search(rf"region `{memory}' overflowed by \d+ bytes", told), told
        assert needs in told and "head.weight 10240" in told, told


def test_what_does_not_fit_is_refused_with_the_largest_tensors(tmp_path):
    sl.manual_seed(0)
    step = Step(Digits())
    step(*next(pictures(1)))
    with pytest.raises(MemoryError, match=r"'x' as C: RAM of 32768 bytes: \d+ bytes too few, without any code: values of a step "
                                          r"\d+, variables that steps change 15272; the largest: .*net.head.weight 10240"):
        sl.tiny.export(step, tmp_path / "x", name="x", ram="32KB")
    with pytest.raises(MemoryError, match=r"flash of 8192 bytes: \d+ bytes too few"):
        sl.tiny.export(step, tmp_path / "x", name="x", flash=8192)
    with pytest.raises(ValueError, match='flash: \'1 GiB\'; must be a number of bytes, or a text as "256KB"'):
        sl.tiny.export(step, tmp_path / "x", flash="1 GiB")
    assert not (tmp_path / "x").exists()


def test_the_engine_runs_the_plan_on_its_device(digits, tmp_path):
    """The plan of the folder is one of the engine's, with actors and registers: its losses are those of vectors.h."""
    sl.manual_seed(0)
    step = Step(Digits())
    first = {name: value.clone() for name, value in step.net.state_dict().items()}
    step(*next(pictures(1)))
    step.net.load_state_dict(first)
    sl.save(step, tmp_path / "bundle")
    with pytest.warns(UserWarning, match="c:0"):
        loaded = sl.load_graph(tmp_path / "bundle", device="c:0")
    losses = np.array([loaded(*sample).item() for sample in pictures(STEPS)], np.float32)
    np.testing.assert_array_equal(losses, losses_in(digits[0].directory))


def addresses(elf):
    told = subprocess.run(["arm-none-eabi-nm", str(elf)], capture_output=True, text=True, check=True).stdout
    return {line.split()[2]: int(line.split()[0], 16) for line in told.splitlines() if len(line.split()) == 3}


class Answer(sl.nn.Graph):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def build(self, x):
        return self.net(x)


@arm
def test_a_tensor_lies_where_it_is_told_to(tmp_path):
    """Weights that stay lie in flash, but for those whose section is one of RAM, or whose macro says so."""
    sl.manual_seed(0)
    graph = Answer(Digits())
    samples = [(x,) for x, _ in pictures(3)]
    graph(*samples[0])
    made = sl.tiny.export(graph, tmp_path, name="placed", samples=samples, sections={"net.b.*": ".data.fast"})
    assert {t.name for t in made.tensors if t.section} == {"net.b.weight", "net.b.bias"}
    assert "| `net.b.weight` | 4608 | RAM, and in flash what it begins with, section `.data.fast` |" in (tmp_path / "README.md").read_text()
    assert check(tmp_path, "check") == 3 and check(tmp_path, "run-cortex-m4") == 3
    macro = re.search(r"PLACED_(v\d+_net_head_weight)\b", (tmp_path / "placed.c").read_text())[1]
    for options, in_ram in (("", {"net_b_weight", "net_b_bias"}),
                            (f"""-DPLACED_{macro}='__attribute__((section(".data.more")))'""", {"net_b_weight", "net_b_bias", "net_head_weight"})):
        make(tmp_path, "-B", "cortex-m4", f"CFLAGS={STRICT} -O1 {options}")
        found = {re.sub(r"^v\d+_", "", name): at for name, at in addresses(tmp_path / "placed.cortex-m4.elf").items() if re.match(r"v\d+_net", name)}
        assert {name for name, at in found.items() if at >= 0x20000000} == in_ram and len(found) == 6
    with pytest.raises(MemoryError, match=r"RAM of 16384 bytes: \d+ bytes too few"):
        sl.tiny.export(graph, tmp_path, ram="16KB", sections={"*": ".data.fast"})
    with pytest.raises(ValueError, match=r"sections: 'net.c.\*': no such variable; the plan has .*net.head.weight"):
        sl.tiny.export(graph, tmp_path, sections={"net.c.*": ".data"})
    with pytest.raises(ValueError, match=r'sections: "a b" of \'\*\': is none; must be a name as .data.fast'):
        sl.tiny.export(graph, tmp_path, sections={"*": "a b"})


@pytest.mark.parametrize("graph, inputs, told", [
    (lambda x: x.argsort(0), lambda: [sl.ones(3)], r"op argsort: no kernel on device c:0.*\(test_tiny.py:\d+\)"),
    (lambda x: x * 2, lambda: [sl.ones(3, dtype=sl.bfloat16)],
     r"plan 'Refused\w*' as C: .*bfloat16: no form in C; cast it to float32 first  \(test_tiny.py:\d+\)"),
])
def test_what_cannot_be_printed_is_refused_with_its_line(graph, inputs, told, tmp_path):
    class Refused(sl.nn.Graph):
        def build(self, x):
            return graph(x)

    refused = Refused()
    refused(*inputs())
    with pytest.raises(NotImplementedError, match=told):
        sl.tiny.export(refused, tmp_path / "refused")
