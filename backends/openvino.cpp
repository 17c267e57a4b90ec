// The foreign backend "openvino": clusters as models of ONNX, run by OpenVINO on the CPU. Weights that do not change
// are constants there. It is built with OpenVINO's C headers, and loads its library when it is used.
#include <openvino/c/openvino.h>

#include <algorithm>

#include "backends/adapter.h"

namespace {

using adapter::Owned;
using adapter::owned;

// The library, once loaded: functions keep their names, with the types of the headers.
class Runtime {
  const adapter::Library library_ =
      adapter::library("SLUICE_OPENVINO_LIBRARY", {SLUICE_OPENVINO_LIBRARY, "libopenvino_c.so"}, "OpenVINO",
                       "install OpenVINO, or name its libopenvino_c.so");

 public:
  static const Runtime& instance() {
    static const Runtime* const runtime = new Runtime;  // models may outlive statics
    return *runtime;
  }

  SLUICE_ADAPTED(ov_get_last_err_msg);
  SLUICE_ADAPTED(ov_core_create);
  SLUICE_ADAPTED(ov_core_read_model_from_memory_buffer);
  SLUICE_ADAPTED(ov_core_compile_model);
  SLUICE_ADAPTED(ov_model_free);
  SLUICE_ADAPTED(ov_compiled_model_free);
  SLUICE_ADAPTED(ov_compiled_model_create_infer_request);
  SLUICE_ADAPTED(ov_compiled_model_output_by_name);
  SLUICE_ADAPTED(ov_const_port_get_shape);
  SLUICE_ADAPTED(ov_port_get_element_type);
  SLUICE_ADAPTED(ov_output_const_port_free);
  SLUICE_ADAPTED(ov_shape_free);
  SLUICE_ADAPTED(ov_infer_request_free);
  SLUICE_ADAPTED(ov_infer_request_set_tensor);
  SLUICE_ADAPTED(ov_infer_request_infer);
  SLUICE_ADAPTED(ov_tensor_create_from_host_ptr);
  SLUICE_ADAPTED(ov_tensor_free);
  // Names of properties are variables of the library.
  const char* property(const char* name) const { return *static_cast<const char* const*>(library_.symbol(name)); }

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

using Request = Owned<ov_infer_request_t>;
using Tensor = Owned<ov_tensor_t>;

// OpenVINO's CPU computes doubles as floats and long integers as short ones, so it gets neither.
ov_element_type_e element_of(const std::string& dtype) {
  if (dtype == "float32") return F32;
  if (dtype == "bool") return BOOLEAN;
  if (dtype == "uint8") return U8;
  if (dtype == "int8") return I8;
  if (dtype == "int32") return I32;
  throw std::runtime_error("no " + dtype + " in OpenVINO's CPU as Sluice has it");
}

// An input or output.
struct Value {
  std::string name;
  std::unique_ptr<const adapter::Type> type;
  ov_element_type_e element;

  Value(std::string given, const sluice_offload_type& from)
      : name(std::move(given)), type(std::make_unique<adapter::Type>(from)), element(element_of(type->dtype())) {}
  Tensor tensor(void* at) const {
    const Runtime& runtime = Runtime::instance();
    ov_tensor_t* made = nullptr;
    const ov_shape_t of{static_cast<int64_t>(type->shape().size()), const_cast<int64_t*>(type->shape().data())};
    runtime.check(runtime.ov_tensor_create_from_host_ptr(element, of, at, &made), "a tensor");
    return owned(made, runtime.ov_tensor_free);
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
      outputs_.emplace_back("o" + std::to_string(o), *graph.values[graph.outputs[o]]);
    const std::string precision = precision_of(graph), threads = std::to_string(std::max(graph.threads, 1));
    ov_model_t* model = nullptr;
    runtime_.check(runtime_.ov_core_read_model_from_memory_buffer(runtime_.core(), static_cast<const char*>(graph.onnx),
                                                                  graph.onnx_bytes, nullptr, &model),
                   "a model");
    const Owned<ov_model_t> owner = owned(model, runtime_.ov_model_free);
    ov_compiled_model_t* compiled = nullptr;
    runtime_.check(runtime_.ov_core_compile_model(runtime_.core(), model, "CPU", 8, &compiled,
                                                  runtime_.property("ov_property_key_inference_num_threads"),
                                                  threads.c_str(), runtime_.property("ov_property_key_num_streams"),
                                                  "1", runtime_.property("ov_property_key_hint_enable_cpu_pinning"),
                                                  "NO", runtime_.property("ov_property_key_hint_inference_precision"),
                                                  precision.c_str()),
                   "a compilation");
    compiled_ = owned(compiled, runtime_.ov_compiled_model_free);
    for (Value& output : outputs_) look_at(output);
    requests_.give(take());  // so that what cannot be made is said here
  }

  const sluice_offload_type* output_type(size_t o) const { return &outputs_[o].type->get(); }

  void run(const void* const* inputs, void* const* outputs) {
    Request request = take();
    std::vector<Tensor> tensors;
    const auto set = [&](const Value& value, void* at) {
      tensors.push_back(value.tensor(at));
      runtime_.check(runtime_.ov_infer_request_set_tensor(request.get(), value.name.c_str(), tensors.back().get()),
                     "a tensor");
    };
    for (size_t i = 0; i < inputs_.size(); ++i) set(inputs_[i], const_cast<void*>(inputs[varying_[i]]));
    for (size_t o = 0; o < outputs_.size(); ++o) set(outputs_[o], outputs[o]);
    runtime_.check(runtime_.ov_infer_request_infer(request.get()), "a run");
    requests_.give(std::move(request));
  }

 private:
  // The type of an output as OpenVINO has it.
  void look_at(Value& output) const {
    ov_output_const_port_t* port = nullptr;
    runtime_.check(runtime_.ov_compiled_model_output_by_name(compiled_.get(), output.name.c_str(), &port), "an output");
    const Owned<ov_output_const_port_t> owner = owned(port, runtime_.ov_output_const_port_free);
    ov_element_type_e element = DYNAMIC;
    runtime_.check(runtime_.ov_port_get_element_type(port, &element), "an output's type");
    if (element != output.element) throw std::runtime_error("OpenVINO: an output is no " + output.type->dtype());
    ov_shape_t shape{};
    runtime_.check(runtime_.ov_const_port_get_shape(port, &shape), "an output's shape");
    std::vector<int64_t> dims(shape.dims, shape.dims + shape.rank);
    runtime_.ov_shape_free(&shape);
    output.type = std::make_unique<adapter::Type>(output.type->get(), std::move(dims));
  }

  Request take() {
    return requests_.take([this] {
      ov_infer_request_t* made = nullptr;
      runtime_.check(runtime_.ov_compiled_model_create_infer_request(compiled_.get(), &made), "a request");
      return owned(made, runtime_.ov_infer_request_free);
    });
  }

  const Runtime& runtime_ = Runtime::instance();
  std::vector<size_t> varying_;  // inputs that are no constants
  std::vector<Value> inputs_;    // these
  std::vector<Value> outputs_;
  Owned<ov_compiled_model_t> compiled_;
  adapter::Spares<Request> requests_;  // go before what is compiled
};

}  // namespace

extern "C" const sluice_offload_backend* sluice_offload(void) {
  using Backend = adapter::Backend<Compiled>;
  return Backend::of("openvino", "1", SLUICE_OFFLOAD_ONNX | SLUICE_OFFLOAD_CONSTANTS, Backend::supports_model);
}
