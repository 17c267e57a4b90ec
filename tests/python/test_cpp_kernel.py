"""Kernels of C++ text (sluice.library.cpp_kernel): compiled when they are called, eagerly and in graphs."""

import os
import pathlib
import subprocess
import threading

import pytest

import sluice as sl

BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build/release"))
AXPY = "for (int64_t i = 0; i < y_size; ++i) y[i] = static_cast<y_t>(a) * x[i] + b[i];"


@pytest.fixture(scope="module")
def axpy():
    return sl.library.cpp_kernel("axpy", AXPY, inputs=("x", "b"), parameters={"a": 2.0})


def test_a_kernel_is_called_like_a_function(axpy):
    x, b = sl.arange(6.0).reshape(2, 3), sl.ones(2, 3)
    assert axpy(x, b).tolist() == (2 * x + b).tolist()
    assert axpy(x.t(), b.t(), a=0.5).tolist() == (0.5 * x + b).t().tolist(), "what does not lie in order is laid so"
    assert axpy(x.double(), b.double()).dtype is sl.float64
    assert axpy(x.long(), b.long(), a=3.0).tolist() == (3 * x + b).long().tolist()
    assert axpy(sl.ones(0), sl.ones(0)).shape == (0,)


def test_it_is_a_node_of_graphs_and_bundles(axpy, tmp_path):
    class Net(sl.nn.Graph):
        def build(self, x, b):
            return axpy(x.relu(), b, a=4.0) + 1

    graph, x, b = Net(), sl.tensor([-1.0, 2.0]), sl.tensor([10.0, 20.0])
    assert graph(x, b).tolist() == [11, 29]
    sl.save(graph, tmp_path / "net")
    assert sl.load_graph(tmp_path / "net")(x, b).tolist() == [11, 29]
    axpy.save_library(tmp_path / "axpy.so")
    done = subprocess.run([BUILD / "tools/sluice-run", tmp_path / "net", "--extension", tmp_path / "axpy.so", "--input=x=-1,2", "--input=b=10,20"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "11" in done.stdout and "29" in done.stdout, done.stderr


def test_shapes_and_dtypes_of_results_are_given():
    rows = sl.library.cpp_kernel("rows", """
        const int64_t width = x_shape[1];
        for (int64_t r = 0; r < x_shape[0]; ++r) {
          most[r] = *std::max_element(x + r * width, x + (r + 1) * width);
          where[r] = std::max_element(x + r * width, x + (r + 1) * width) - (x + r * width);
        }""", inputs=["x"], outputs=["most", "where"])
    x = sl.tensor([[1.0, 5.0, 2.0], [7.0, 0.0, 3.0]])
    most, where = rows(x, output_shapes=[(2,), (2,)], output_dtypes=[x.dtype, sl.int64])
    assert most.tolist() == [5, 7] and where.tolist() == [1, 0] and where.dtype is sl.int64
    with pytest.raises(ValueError, match="output_shapes: .*; must be a list of one for each of most, where"):
        rows(x, output_shapes=[(2,)])
    with pytest.raises(ValueError, match="output_shapes: .*; must be tuples of sizes of at least 0"):
        rows(x, output_shapes=[(2,), (-1,)])


def test_a_header_stands_before():
    kernel = sl.library.cpp_kernel("clipped", "for (int64_t i = 0; i < x_size; ++i) y[i] = clip(x[i]);",
                                   header="template <class T> T clip(T v) { return v < 0 ? T(0) : v; }")
    assert kernel(sl.tensor([-1.0, 2.0])).tolist() == [0, 2] and kernel(sl.tensor([-1, 2])).tolist() == [0, 2]


def test_the_compilers_message_is_the_errors():
    wrong = sl.library.cpp_kernel("wrong", "int fine = 1;\ny[0] = undeclared_thing;")
    with pytest.raises(RuntimeError, match=r"(?s)cpp_kernel 'wrong': .*wrong:2:.*undeclared_thing"):
        wrong(sl.ones(1))
    assert sl.library.cpp_kernel("wrong", "y[0] = x[0] + 1;")(sl.ones(1)).tolist() == [2], "the name is free for a text that is right"


def test_what_it_throws_fails_the_call():
    kernel = sl.library.cpp_kernel("careful", "if (x_size > 2) throw std::invalid_argument(\"at most two\");\ny[0] = x[0];")
    with pytest.raises(Exception, match="at most two"):
        kernel(sl.ones(3)).tolist()
    assert kernel(sl.ones(1)).tolist() == [1]


def test_a_gradient_is_a_functions(axpy):
    class Twice(sl.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return axpy(x.detach(), sl.zeros_like(x))

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = sl.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="an input requires grad, and C\\+\\+ text has no gradient; call it in the forward"):
        axpy(x, x)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("arguments, error, text", [
    (("1x", ""), ValueError, "must be letters, digits"),
    (("x; system(\"\")", ""), ValueError, "must be letters, digits"),
    (("kernel", 3), TypeError, "source: got int; must be a text of C"),
    (("kernel", "\0"), ValueError, "a character that no source has"),
    (("kernel", "\ud800"), ValueError, "a character that no source has"),
    (("while", ""), ValueError, "must be a name that C"),
])
def test_texts_that_are_none_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        sl.library.cpp_kernel(*arguments)


@pytest.mark.parametrize("options, error, text", [
    ({"inputs": "x"}, TypeError, "inputs: got str; must be a list of names"),
    ({"inputs": ["x", "x"]}, ValueError, "and nothing else here has"),
    ({"inputs": ["x"], "outputs": ["x_size"]}, ValueError, "and nothing else here has"),
    ({"outputs": []}, ValueError, "outputs: none; must be at least one name"),
    ({"parameters": {"a": "2"}}, TypeError, "a is '2'; must be a bool, an int or a finite float"),
    ({"parameters": {"a": float("nan")}}, TypeError, "a is nan; must be a bool"),
    ({"parameters": {"int": 1}}, ValueError, "must be a name that C"),
])
def test_declarations_that_are_none_are_refused(options, error, text):
    with pytest.raises(error, match=text):
        sl.library.cpp_kernel("kernel", "", **options)


def test_calls_that_do_not_fit_are_refused(axpy):
    x = sl.ones(2)
    for call, error, text in [(lambda: axpy(x), TypeError, "must be tensors x, b"), (lambda: axpy(x, 3), TypeError, "must be tensors x, b"),
                              (lambda: axpy(x, x, c=1), TypeError, "got 'c'; its parameters are a"),
                              (lambda: axpy(x, x, a="1"), TypeError, "a: '1'; must be float, as its default 2.0"),
                              (lambda: axpy(x.bfloat16(), x), TypeError, "input: .*bfloat16; must be one of bool")]:
        with pytest.raises(error, match=text):
            call()


CACHED = """
import sluice as sl
kernel = sl.library.cpp_kernel("kept", "for (int64_t i = 0; i < x_size; ++i) y[i] = x[i] + 1;")
print(kernel(sl.ones(2)).tolist())
"""


def test_what_was_compiled_is_kept(run_script, tmp_path):
    compiler = tmp_path / "bin/g++"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\ncase $1 in --version) ;; *) echo x >> {tmp_path}/calls;; esac\nexec /usr/bin/env -u CXX g++ \"$@\"\n")
    compiler.chmod(0o755)
    for _ in range(2):
        done = run_script(CACHED, timeout=600, CXX=str(compiler), SLUICE_CACHE="on", SLUICE_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0 and done.stdout.strip() == "[2.0, 2.0]", done.stderr
    assert (tmp_path / "calls").read_text() == "x\n"


def test_without_a_compiler_the_error_says_so(run_script, tmp_path):
    done = run_script(CACHED, timeout=600, CXX="/no/such/compiler", SLUICE_CACHE="off")
    assert done.returncode != 0 and "cpp_kernel 'kept': generated kernels: no g++; install it, or name it with the variable CXX" in done.stderr


def test_threads_compile_once():
    kernel, results = sl.library.cpp_kernel("shared", "for (int64_t i = 0; i < x_size; ++i) y[i] = x[i] * 3;"), []
    threads = [threading.Thread(target=lambda: results.append(kernel(sl.ones(2)).tolist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[3, 3]] * 4
