// The foreign backend "openvino": clusters as models of ONNX, run by OpenVINO on the CPU. Weights that do not change
// are constants there. It is built with OpenVINO's C headers, and loads its library when it is used.
#include <openvino/c/openvino.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "backends/adapter.h"

namespace {

using adapter::guarded;

// The library, once loaded: functions keep their names, with the types of the headers.
class Runtime {
  const adapter::Library library_ =
      adapter::library("SLUICE_OPENVINO_LIBRARY", {SLUICE_OPENVINO_LIBRARY, "libopenvino_c.so"},
                       "install OpenVINO, or name its libopenvino_c.so");

 public:
  static const Runtime& instance() {
    static const Runtime* const runtime = new Runtime;  // models may outlive statics
    return *runtime;
  }

#define SLUICE_OF_OPENVINO(name) \
  decltype(&::name) const name = reinterpret_cast<decltype(&::name)>(library_.symbol(#name, "OpenVINO"))
  SLUICE_OF_OPENVINO(ov_get_last_err_msg);
  SLUICE_OF_OPENVINO(ov_core_create);
  SLUICE_OF_OPENVINO(ov_core_read_model_from_memory_buffer);
  SLUICE_OF_OPENVINO(ov_core_compile_model);
  SLUICE_OF_OPENVINO(ov_model_free);
  SLUICE_OF_OPENVINO(ov_compiled_model_free);
  SLUICE_OF_OPENVINO(ov_compiled_model_create_infer_request);
  SLUICE_OF_OPENVINO(ov_compiled_model_output_by_name);
  SLUICE_OF_OPENVINO(ov_const_port_get_shape);
  SLUICE_OF_OPENVINO(ov_port_get_element_type);
  SLUICE_OF_OPENVINO(ov_output_const_port_free);
  SLUICE_OF_OPENVINO(ov_shape_free);
  SLUICE_OF_OPENVINO(ov_infer_request_free);
  SLUICE_OF_OPENVINO(ov_infer_request_set_tensor);
  SLUICE_OF_OPENVINO(ov_infer_request_infer);
  SLUICE_OF_OPENVINO(ov_tensor_create_from_host_ptr);
  SLUICE_OF_OPENVINO(ov_tensor_free);
#undef SLUICE_OF_OPENVINO
  // Names of properties are variables of the library.
  const char* property(const char* name) const {
    return *static_cast<const char* const*>(library_.symbol(name, "OpenVINO"));
  }

  void check(ov_status_e status, const char* what) const {
    if (status == OK) return;
    const char* const why = ov_get_last_err_msg();
    std::string text = why == nullptr ? "" : why;
    std::replace(text.begin(), text.end(), '\n', ' ');
    throw std::runtime_error(std::string("OpenVINO: ") + what + ": " + (text.empty() ? std::to_string(status) : text));
  }
  const ov_core_t* core() const { return core_; }

 private:
  Runtime() { check(ov_core_create(&core_), "a core"); }
  ov_core_t* core_ = nullptr;
};

// An object of the library that is let go at the end of a scope.
template <class Object, auto Close>
struct Closer {
  void operator()(Object* object) const { (Runtime::instance().*Close)(object); }
};
template <class Object, auto Close>
using Owned = std::unique_ptr<Object, Closer<Object, Close>>;
using Model = Owned<ov_model_t, &Runtime::ov_model_free>;
using CompiledModel = Owned<ov_compiled_model_t, &Runtime::ov_compiled_model_free>;
using Request = Owned<ov_infer_request_t, &Runtime::ov_infer_request_free>;
using Port = Owned<ov_output_const_port_t, &Runtime::ov_output_const_port_free>;
using Tensor = Owned<ov_tensor_t, &Runtime::ov_tensor_free>;

// OpenVINO's CPU computes doubles as floats and long integers as short ones, so it gets neither.
ov_element_type_e element_of(const std::string& dtype) {
  if (dtype == "float32") return F32;
  if (dtype == "bool") return BOOLEAN;
  if (dtype == "uint8") return U8;
  if (dtype == "int8") return I8;
  if (dtype == "int32") return I32;
  throw std::runtime_error("no " + dtype + " in OpenVINO's CPU as Sluice has it");
}

struct Value {
  std::string name, dtype;
  std::vector<int64_t> shape;
  ov_element_type_e element;
  sluice_offload_type type;

  Value(std::string given, const sluice_offload_type& from)
      : name(std::move(given)),
        dtype(from.dtype),
        shape(from.shape, from.shape + from.rank),
        element(element_of(dtype)),
        type(from) {}
  Tensor tensor(void* at) const {
    ov_tensor_t* made = nullptr;
    const ov_shape_t of{static_cast<int64_t>(shape.size()), const_cast<int64_t*>(shape.data())};
    Runtime::instance().check(Runtime::instance().ov_tensor_create_from_host_ptr(element, of, at, &made), "a tensor");
    return Tensor(made);
  }
};

std::string precision_of(const sluice_offload_graph& graph) {
  std::map<std::string, std::string> none;
  const std::string precision = adapter::options(graph, {"fp32", "bf16", "fp16"}, none);
  return precision == "fp32" ? "f32" : precision == "bf16" ? "bf16" : "f16";
}

class Compiled {
 public:
  explicit Compiled(const sluice_offload_graph& graph) {
    for (size_t n = 0; n < graph.num_nodes; ++n)
      for (size_t i = 0; i < graph.nodes[n]->num_inputs; ++i)
        if (graph.nodes[n]->inputs[i] >= 0) element_of(graph.values[graph.nodes[n]->inputs[i]]->dtype);
    for (size_t i = 0; i < graph.num_inputs; ++i)
      if (adapter::constant(graph, i) == nullptr) varying_.push_back(i);
    for (const size_t i : varying_) inputs_.emplace_back("i" + std::to_string(i), *graph.values[i]);
    for (size_t o = 0; o < graph.num_outputs; ++o)
      outputs_.push_back(std::make_unique<Value>("o" + std::to_string(o), *graph.values[graph.outputs[o]]));
    const std::string precision = precision_of(graph), threads = std::to_string(std::max(graph.threads, 1));
    ov_model_t* model = nullptr;
    runtime_.check(runtime_.ov_core_read_model_from_memory_buffer(runtime_.core(), static_cast<const char*>(graph.onnx),
                                                                  graph.onnx_bytes, nullptr, &model),
                   "a model");
    const Model owner(model);
    ov_compiled_model_t* compiled = nullptr;
    runtime_.check(runtime_.ov_core_compile_model(runtime_.core(), model, "CPU", 8, &compiled,
                                                  runtime_.property("ov_property_key_inference_num_threads"),
                                                  threads.c_str(), runtime_.property("ov_property_key_num_streams"),
                                                  "1", runtime_.property("ov_property_key_hint_enable_cpu_pinning"),
                                                  "NO", runtime_.property("ov_property_key_hint_inference_precision"),
                                                  precision.c_str()),
                   "a compilation");
    compiled_.reset(compiled);
    for (const auto& output : outputs_) look_at(*output);
    give_back(take());  // so that what cannot be made is said here
  }

  const sluice_offload_type* output_type(size_t o) const { return &outputs_[o]->type; }

  void run(const void* const* inputs, void* const* outputs) {
    Request request = take();
    std::vector<Tensor> tensors;
    const auto set = [&](const Value& value, void* at) {
      tensors.push_back(value.tensor(at));
      runtime_.check(runtime_.ov_infer_request_set_tensor(request.get(), value.name.c_str(), tensors.back().get()),
                     "a tensor");
    };
    for (size_t i = 0; i < inputs_.size(); ++i) set(inputs_[i], const_cast<void*>(inputs[varying_[i]]));
    for (size_t o = 0; o < outputs_.size(); ++o) set(*outputs_[o], outputs[o]);
    runtime_.check(runtime_.ov_infer_request_infer(request.get()), "a run");
    give_back(std::move(request));
  }

 private:
  // The type of an output as OpenVINO has it.
  void look_at(Value& output) const {
    ov_output_const_port_t* port = nullptr;
    runtime_.check(runtime_.ov_compiled_model_output_by_name(compiled_.get(), output.name.c_str(), &port), "an output");
    const Port owner(port);
    ov_element_type_e element = DYNAMIC;
    runtime_.check(runtime_.ov_port_get_element_type(port, &element), "an output's type");
    if (element != output.element) throw std::runtime_error("OpenVINO: an output is no " + output.dtype);
    ov_shape_t shape{};
    runtime_.check(runtime_.ov_const_port_get_shape(port, &shape), "an output's shape");
    output.shape.assign(shape.dims, shape.dims + shape.rank);
    runtime_.ov_shape_free(&shape);
    output.type = {sizeof output.type, output.dtype.c_str(), output.type.item_bytes, output.shape.data(),
                   output.shape.size()};
  }

  Request take() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        Request request = std::move(free_.back());
        free_.pop_back();
        return request;
      }
    }
    ov_infer_request_t* made = nullptr;
    runtime_.check(runtime_.ov_compiled_model_create_infer_request(compiled_.get(), &made), "a request");
    return Request(made);
  }
  void give_back(Request request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(request));
  }

  const Runtime& runtime_ = Runtime::instance();
  std::vector<size_t> varying_;  // inputs that are no constants
  std::vector<Value> inputs_;    // these
  std::vector<std::unique_ptr<Value>> outputs_;
  CompiledModel compiled_;
  std::mutex mutex_;
  std::vector<Request> free_;  // that nobody runs
};

// OpenVINO says by compiling whether it has the op.
const char* supports(const sluice_offload_graph* one) {
  static adapter::Answers answers;
  if (one->onnx == nullptr) return "no model of ONNX";
  return answers.of({static_cast<const char*>(one->onnx), one->onnx_bytes}, [&] {
    sluice_offload_graph plain = *one;  // options are for compile
    plain.num_options = 0;
    Compiled{plain};
  });
}

const char* compile(const sluice_offload_graph* cluster, void** handle) {
  return guarded([&] { *handle = new Compiled(*cluster); });
}

const sluice_offload_type* output_type(void* handle, size_t output) {
  return static_cast<Compiled*>(handle)->output_type(output);
}

const char* run(void* handle, const void* const* inputs, void* const* outputs) {
  return guarded([&] { static_cast<Compiled*>(handle)->run(inputs, outputs); });
}

void destroy(void* handle) { delete static_cast<Compiled*>(handle); }

}  // namespace

extern "C" const sluice_offload_backend* sluice_offload(void) {
  static const sluice_offload_backend backend = {
      SLUICE_OFFLOAD_ABI, sizeof backend, "openvino",  "1", SLUICE_OFFLOAD_ONNX | SLUICE_OFFLOAD_CONSTANTS,
      supports,           compile,        output_type, run, destroy};
  return &backend;
}
