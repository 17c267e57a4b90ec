"""The C API keeps up with the C++ one: each function, option and counter of C++ has its counterpart in C, or a reason."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "include/sluice"
LISTED = (ROOT / "tests/packaging/abi/sluice.txt").read_text().splitlines()  # what the library exports
C = (INCLUDE / "sluice.h").read_text()
C_EAGER = (INCLUDE / "sluice_eager.h").read_text()

# C++ function: what C calls instead, or why it has none.
COUNTERPARTS = {
    "DeviceTensor::device": "sluice_device_tensor_device",
    "DeviceTensor::dtype": "sluice_device_tensor_dtype",
    "DeviceTensor::host": "sluice_device_tensor_host",
    "DeviceTensor::shape": "sluice_device_tensor_rank sluice_device_tensor_shape",
    "DeviceTensor::str": "(its parts have functions)",
    "DeviceTensor::to": "sluice_device_tensor_to sluice_device_tensor_destroy",
    "Eager::Eager": "sluice_eager_create sluice_eager_destroy",
    "Eager::call": "sluice_eager_call",
    "Eager::from": "sluice_eager_from_tensor",
    "Eager::from_buffer": "sluice_eager_from_data",
    "Eager::zeros": "sluice_eager_zeros",
    "Engine::Engine": "sluice_engine_create",
    "Engine::~Engine": "sluice_engine_destroy",
    "Engine::operator=": "(handles are copied as they are)",
    "Engine::cores": "sluice_engine_cores",
    "Engine::join": "sluice_engine_join",
    "Engine::load_backend": "sluice_engine_load_backend",
    "Engine::load_extension": "sluice_engine_load_extension",
    "Engine::memory_bytes": "sluice_engine_memory_bytes",
    "Engine::peak_memory_bytes": "sluice_engine_peak_memory_bytes",
    "Plan::actors": "sluice_plan_num_actors sluice_plan_actor",
    "Plan::dims": "(as join: for programs that put families together)",
    "Plan::inputs": "sluice_plan_num_inputs sluice_plan_input",
    "Plan::kernels": "sluice_plan_num_kernels",
    "Plan::load": "sluice_plan_load sluice_plan_load_memory sluice_plan_destroy",
    "Plan::members": "(as Plan::dims)",
    "Plan::memory_bytes": "sluice_plan_memory_bytes",
    "Plan::name": "sluice_plan_name",
    "Plan::outputs": "sluice_plan_num_outputs sluice_plan_output",
    "Plan::verify": "sluice_plan_verify",
    "Port::str": "(its parts are in sluice_port)",
    "Result::cancel": "sluice_step_cancel",
    "Result::get": "sluice_step_outputs sluice_step_wait sluice_step_destroy",
    "Result::ready": "sluice_step_ready",
    "Result::step": "sluice_step_number",
    "Session::Session": "(sessions are loaded)",
    "Session::~Session": "sluice_session_destroy",
    "Session::operator=": "(handles are copied as they are)",
    "Session::counters": "sluice_session_counters sluice_counters_totals sluice_counters_actor sluice_counters_stream "
                         "sluice_counters_register sluice_counters_text sluice_counters_destroy",
    "Session::firings": "sluice_counters_actor",
    "Session::hand_over": "sluice_session_hand_over sluice_session_hand_over_with",
    "Session::inputs": "sluice_session_num_inputs sluice_session_input",
    "Session::load": "sluice_session_load sluice_session_load_memory",
    "Session::outputs": "sluice_session_num_outputs sluice_session_output",
    "Session::reset": "sluice_session_reset",
    "Session::run": "sluice_session_run",
    "Session::run_into": "sluice_session_run_into",
    "Session::set_trace": "sluice_session_set_trace",
    "Session::stop": "sluice_session_stop",
    "Session::submit": "sluice_session_submit sluice_session_submit_with",
    "Session::take_trace": "sluice_session_take_trace sluice_trace_totals sluice_trace_event sluice_trace_step "
                           "sluice_trace_destroy",
    "Session::try_submit": "sluice_session_try_submit sluice_session_try_submit_with",
    "Session::wait_all": "sluice_session_wait_all",
    "SharedArenas::SharedArenas": "sluice_arenas_create sluice_arenas_destroy",
    "SharedArenas::bytes": "sluice_arenas_bytes",
    "SharedArenas::reserve": "sluice_arenas_reserve",
    "Tensor::Tensor": "sluice_tensor_create sluice_tensor_from_memory sluice_tensor_from_device_memory sluice_tensor_destroy",
    "Tensor::bytes": "sluice_tensor_bytes",
    "Tensor::check_dtype": "(C has no types of elements to check)",
    "Tensor::copy_of": "sluice_tensor_from_data",
    "Tensor::data": "sluice_tensor_data",
    "Tensor::device": "sluice_tensor_device",
    "Tensor::dtype": "sluice_tensor_dtype",
    "Tensor::raw": "sluice_tensor_data",
    "Tensor::shape": "sluice_tensor_rank sluice_tensor_shape",
    "Tensor::shared": "(several handles share memory by themselves)",
    "Tensor::size": "sluice_tensor_size",
    "Tensor::str": "(its parts have functions)",
    "Tensor::to": "sluice_tensor_to",
    "Trace::chrome_json": "sluice_trace_chrome_json",
    "call": "sluice_eager_call",
    "compile": "(compiling in C: not yet; a program of C++ writes the bundle)",
    "describe": "sluice_describe sluice_text_data sluice_text_destroy",
    "dtype_name": "sluice_dtype_name",
    "dtype_size": "sluice_dtype_size",
    "join": "(as compile)",
    "load_tensors": "sluice_tensors_load sluice_tensors_count sluice_tensors_name sluice_tensors_get sluice_tensors_destroy",
    "log_spec": "sluice_log_spec",
    "replan": "(as compile)",
    "save_tensors": "sluice_tensors_save",
    "set_log": "sluice_set_log",
    "set_log_sink": "sluice_set_log_sink",
    "version": "sluice_version",
}
ONLY_IN_C = {"sluice_status_kind", "sluice_status_message", "sluice_status_destroy"}  # C++ throws
INLINE = {"Session::inputs", "Session::outputs", *(f"Tensor::{n}" for n in ("bytes", "data", "dtype", "raw", "shape", "shared"))}

# C++ struct: its counterpart, and fields that C calls otherwise or leaves out.
STRUCTS = {
    ("engine.h", "EngineOptions"): ("sluice_engine_options", {"memory": "allocate", **{
        n: None for n in ("record_messages", "replay_messages", "shuffle_messages")}}),  # sluice-run has them
    ("engine.h", "WorldOptions"): ("sluice_world_options", {"size": "ranks"}),
    ("session.h", "SessionOptions"): ("sluice_session_options", {"inline_up_to": "inline_up_to_us", **{
        n: f"{n}_ms" for n in ("submit_timeout", "wait_timeout", "stop_timeout")}}),
    ("session.h", "StepOptions"): ("sluice_step_options", {"deadline": "deadline_ms"}),
    ("plan.h", "Port"): ("sluice_port", {}),
    ("session.h", "Counters"): ("sluice_totals", {"actors": "num_actors", "streams": "num_streams", "registers": "num_registers",
                                                  "text": None}),  # sluice_counters_text
    ("session.h", "Actor"): ("sluice_actor_counters", {}),
    ("session.h", "Stream"): ("sluice_stream_counters", {}),
    ("session.h", "Register"): ("sluice_register_counters", {}),
    ("trace.h", "TraceEvent"): ("sluice_traced_event", {}),
    ("trace.h", "Trace"): ("sluice_trace_counts", {"events": "num_events", "steps": "num_steps", "plans": "num_plans"}),
    ("trace.h", "Step"): ("sluice_traced_step", {}),
}


def bare(symbol):
    """Engine::join of "sluice::api::Engine::join(sluice::api::WorldOptions const&)"."""
    return re.sub(r"\[abi:\w+\]", "", symbol).partition("(")[0].removeprefix("sluice::api::")


def exported():
    return {bare(s) for s in LISTED if s.startswith("sluice::api::")}


def functions_of_c():
    return set(re.findall(r"SLUICE_API [^;(]*?\b(sluice_\w+)\(", C + C_EAGER))


def named(text):
    return set() if text.startswith("(") else set(text.split())


def test_every_function_of_cpp_has_a_counterpart_or_a_reason():
    assert exported() | INLINE == set(COUNTERPARTS)
    for name in INLINE:
        text = (INCLUDE / ("session.h" if name.startswith("Session") else "tensor.h")).read_text()
        assert re.search(rf"\b{name.partition('::')[2]}\(\) const", text), name


def test_counterparts_exist_and_are_exported():
    there = functions_of_c()
    for cpp, text in COUNTERPARTS.items():
        assert named(text) <= there and named(text) <= set(LISTED), cpp
        assert named(text) or re.fullmatch(r"\(.{5,}\)", text), cpp


def test_c_has_nothing_of_its_own():
    of_cpp = set().union(*map(named, COUNTERPARTS.values()))
    assert functions_of_c() == of_cpp | ONLY_IN_C


def fields(header, name):
    """The names of a struct's fields, nested structs and functions apart."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", (INCLUDE / header).read_text(), flags=re.S)
    at = re.search(rf"\bstruct (?:SLUICE_API )?{name} \{{", text).end()
    depth, body = 1, ""
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        body += text[at] if depth == 1 else " " if text[at] != "\n" else "\n"
        at += 1
    found = []
    for statement in body.split(";"):
        if callback := re.search(r"\(\*(\w+)\)", statement):
            found.append(callback[1])
        elif re.match(r"\s*(struct|enum) (class )?\w+", statement) or re.search(r"\) const\s*$", statement):
            continue
        elif statement.strip(" }\n"):
            # std::function<void(uint64_t step)> f: what is in brackets names no field
            plain = re.sub(r"\([^()]*\)", "", statement.strip("} \n"))
            while "<" in plain:
                plain = re.sub(r"<[^<>]*>", "", plain)
            found += [re.search(r"(\w+)\s*(?:=.*|\{.*)?$", part.strip(), re.S)[1] for part in plain.split(",") if part.strip()]
    return found


@pytest.mark.parametrize("where", STRUCTS, ids=lambda where: where[1])
def test_options_and_counters_are_the_same(where):
    c_name, renamed = STRUCTS[where]
    expected = {renamed.get(f, f) for f in fields(*where)} - {None}
    assert len(expected) >= 2
    extra = set(fields("sluice.h", c_name)) - expected
    assert expected <= set(fields("sluice.h", c_name))
    assert extra <= {"size", "num_cpus", "num_weights", "weight_names", "num_data_roots", "num_outputs", "context", "release", "rank",
                     "stream_name", "actor_name", "kernel_name"}  # of the struct, of arrays, of a callback, of a shape, of indices


def test_kinds_of_errors_and_dtypes_are_the_same():
    kinds = re.search(r"enum class ErrorKind \{(.*?)\}", (INCLUDE / "error.h").read_text(), re.S)[1].replace(" ", "").split(",")
    dtypes = re.search(r"enum class DType : uint8_t \{(.*?)\}", (INCLUDE / "dtype.h").read_text(), re.S)[1].replace(" ", "").split(",")

    def screaming(name):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip()[1:]).upper()

    errors = dict(re.findall(r"SLUICE_ERROR_(\w+) = (\d+)", C))
    assert [int(errors[screaming(k).replace("LIN_ALG", "LINALG")]) for k in kinds if k.strip()] == list(range(1, len(errors) + 1))
    numbers = [int(re.search(rf"\bSLUICE_{screaming(d).replace('UINT_', 'UINT').replace('B_FLOAT', 'BFLOAT')} = (\d+)", C)[1])
               for d in dtypes if d.strip()]
    assert numbers == list(range(len(numbers)))


def rows_beside_other_runtimes():
    page = (ROOT / "docs/runtimes.md").read_text()
    rows = [line.strip("| \n").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    return rows[1:]  # without the head


@pytest.mark.parametrize("row", rows_beside_other_runtimes(), ids=lambda row: row[0])
def test_what_the_comparison_names_is_there(row):
    """docs/runtimes.md: a cell of ours names what the headers declare, a program of ours, or begins with no."""
    assert len(row) == 4
    names = [name for name in re.findall(r"`([^`]+)`", row[1]) if not name.startswith(("plan-viz", "sluice-", "std::"))]
    assert names or row[1].startswith("no") or "`sluice-" in row[1], row[1]
    headers = {path.name: re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.S)
               for path in (*INCLUDE.glob("*.h"), *INCLUDE.glob("*.hpp"), INCLUDE / "version.h.in")}
    everything = "\n".join(headers.values())
    for name in names:
        owner, _, member = name.rpartition("::")
        assert re.search(rf"\b{member}\b", everything), name
        if owner:
            home = next(text for text in headers.values() if re.search(rf"\b(class|struct) (SLUICE_API )?{owner} \{{", text))
            assert re.search(rf"\b{member}\b", home), name


def test_the_comparison_is_of_all_that_the_headers_offer():
    told = " ".join(row[1] for row in rows_beside_other_runtimes())
    assert len(rows_beside_other_runtimes()) >= 25
    for function in ("load", "run", "submit", "try_submit", "hand_over", "stop", "reset", "counters", "join", "load_extension",
                     "load_backend", "compile", "replan", "set_log_sink"):
        assert re.search(rf"`(\w+::)?{function}`", told), function
