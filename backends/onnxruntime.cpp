// The foreign backend "onnxruntime": clusters as models of ONNX, run by ONNX Runtime. Weights that do not
// change are constants there, which it folds and reorders when it compiles.
//
// It is built without ONNX Runtime: the library is loaded when the first cluster is asked about. Its C interface is a
// table of functions, whose order never changes; Slot says where in it the few stand that are needed here.
#include <cstdint>
#include <memory>

#include "backends/adapter.h"

namespace {

using adapter::guarded;

constexpr uint32_t kVersion = 8;  // of the interface: any ONNX Runtime from 1.8 on gives it
constexpr int kQuiet = 4;

// Positions in the table.
enum Slot : size_t {
  kGetErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSessionFromArray = 8,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetGraphOptimizationLevel = 23,
  kSetIntraOpNumThreads = 24,
  kSetInterOpNumThreads = 25,
  kCreateTensorWithData = 49,
  kCreateCpuMemoryInfo = 69,
  kReleaseStatus = 93,
  kReleaseSession = 95,
  kReleaseValue = 96,
  kReleaseSessionOptions = 100,
};

struct Base {
  const void* const* (*table)(uint32_t version);
  const char* (*version)();
};

// The library, once loaded. Handles of its objects are opaque.
class Runtime {
 public:
  static Runtime& instance() {
    static Runtime* const runtime = new Runtime;  // sessions may outlive statics
    return *runtime;
  }

  template <class... Args>
  void call(Slot slot, Args... args) const {
    void* const status = reinterpret_cast<void* (*)(Args...)>(const_cast<void*>(table_[slot]))(args...);
    if (status == nullptr) return;
    const std::string text =
        reinterpret_cast<const char* (*)(void*)>(const_cast<void*>(table_[kGetErrorMessage]))(status);
    release(kReleaseStatus, status);
    throw std::runtime_error(text);
  }
  void release(Slot slot, void* object) const {
    if (object != nullptr) reinterpret_cast<void (*)(void*)>(const_cast<void*>(table_[slot]))(object);
  }
  void* environment() const { return environment_; }
  void* memory() const { return memory_; }

 private:
  Runtime() {
    const adapter::Library library =
        adapter::library("SLUICE_ONNXRUNTIME_LIBRARY", {"libonnxruntime.so.1", "libonnxruntime.so"},
                         "install ONNX Runtime, or name its libonnxruntime.so");
    const auto base = reinterpret_cast<const Base* (*)()>(library.symbol("OrtGetApiBase", "ONNX Runtime"));
    table_ = base()->table(kVersion);
    if (table_ == nullptr)
      throw std::runtime_error(std::string("ONNX Runtime ") + base()->version() + ": must be 1.8 or newer");
    call(kCreateEnv, kQuiet, "sluice", &environment_);
    call(kCreateCpuMemoryInfo, 0, 0, &memory_);
  }

  const void* const* table_ = nullptr;
  void *environment_ = nullptr, *memory_ = nullptr;
};

// An object of the library that is let go at the end of a scope.
struct Owned {
  Slot by;
  void* object = nullptr;
  ~Owned() { Runtime::instance().release(by, object); }
};

// Numbers of ONNX for dtypes; 0: none.
int type_number(const char* dtype) {
  static const std::map<std::string, int> numbers = {{"float32", 1},  {"uint8", 2},    {"int8", 3}, {"int16", 5},
                                                     {"int32", 6},    {"int64", 7},    {"bool", 9}, {"float16", 10},
                                                     {"float64", 11}, {"bfloat16", 16}};
  const auto found = numbers.find(dtype);
  return found == numbers.end() ? 0 : found->second;
}

struct Port {
  std::string name;
  std::vector<int64_t> shape;
  int dtype = 0;
  size_t bytes = 0;
  std::string dtype_name;
  sluice_offload_type type{};

  Port(std::string port, const sluice_offload_type& from)
      : name(std::move(port)),
        shape(from.shape, from.shape + from.rank),
        dtype(type_number(from.dtype)),
        bytes(from.item_bytes),
        dtype_name(from.dtype) {
    for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
    if (dtype == 0) throw std::runtime_error("no " + dtype_name + " in ONNX Runtime");
  }
};

struct Compiled {
  Owned session{kReleaseSession};
  std::vector<size_t> varying;  // inputs that are no constants
  std::vector<Port> inputs, outputs;
  std::vector<const char*> input_names, output_names;
};

int level_of(const sluice_offload_graph& graph) {
  std::map<std::string, std::string> others = {{"optimization", "99"}};
  adapter::options(graph, {"fp32"}, others);
  const std::string level = others["optimization"];
  if (level != "0" && level != "1" && level != "2" && level != "99")
    throw std::runtime_error("optimization must be 0, 1, 2 or 99: " + level);
  return std::stoi(level);
}

std::unique_ptr<Compiled> compiled(const sluice_offload_graph& graph) {
  const Runtime& runtime = Runtime::instance();
  auto made = std::make_unique<Compiled>();
  for (size_t i = 0; i < graph.num_inputs; ++i) {
    if (adapter::constant(graph, i) != nullptr) continue;
    made->varying.push_back(i);
    made->inputs.emplace_back("i" + std::to_string(i), *graph.values[i]);
  }
  for (size_t o = 0; o < graph.num_outputs; ++o)
    made->outputs.emplace_back("o" + std::to_string(o), *graph.values[graph.outputs[o]]);
  for (const Port& port : made->inputs) made->input_names.push_back(port.name.c_str());
  for (const Port& port : made->outputs) made->output_names.push_back(port.name.c_str());
  Owned options{kReleaseSessionOptions};
  runtime.call(kCreateSessionOptions, &options.object);
  runtime.call(kSetGraphOptimizationLevel, options.object, level_of(graph));
  runtime.call(kSetIntraOpNumThreads, options.object, graph.threads > 0 ? graph.threads : 1);
  runtime.call(kSetInterOpNumThreads, options.object, 1);
  runtime.call(kCreateSessionFromArray, runtime.environment(), graph.onnx, graph.onnx_bytes,
               static_cast<const void*>(options.object), &made->session.object);
  return made;
}

// ONNX Runtime says by compiling whether it has a kernel.
const char* supports(const sluice_offload_graph* one) {
  static adapter::Answers answers;
  if (one->onnx == nullptr) return "no model of ONNX";
  return answers.of({static_cast<const char*>(one->onnx), one->onnx_bytes}, [&] {
    sluice_offload_graph plain = *one;  // options are for compile
    plain.num_options = 0;
    compiled(plain);
  });
}

const char* compile(const sluice_offload_graph* cluster, void** handle) {
  return guarded([&] { *handle = compiled(*cluster).release(); });
}

const sluice_offload_type* output_type(void* handle, size_t output) {
  Port& port = static_cast<Compiled*>(handle)->outputs[output];
  port.type = {sizeof port.type, port.dtype_name.c_str(), port.bytes, port.shape.data(), port.shape.size()};
  return &port.type;
}

const char* run(void* handle, const void* const* inputs, void* const* outputs) {
  return guarded([&] {
    const Runtime& runtime = Runtime::instance();
    const Compiled& code = *static_cast<const Compiled*>(handle);
    std::vector<std::unique_ptr<Owned>> values;
    const auto tensor = [&](const Port& port, void* data) {
      values.push_back(std::make_unique<Owned>(Owned{kReleaseValue}));
      runtime.call(kCreateTensorWithData, static_cast<const void*>(runtime.memory()), data, port.bytes,
                   port.shape.data(), port.shape.size(), port.dtype, &values.back()->object);
      return values.back()->object;
    };
    std::vector<const void*> given;
    std::vector<void*> made;
    for (size_t i = 0; i < code.inputs.size(); ++i)
      given.push_back(tensor(code.inputs[i], const_cast<void*>(inputs[code.varying[i]])));
    for (size_t o = 0; o < code.outputs.size(); ++o) made.push_back(tensor(code.outputs[o], outputs[o]));
    runtime.call(kRun, code.session.object, static_cast<const void*>(nullptr), code.input_names.data(),
                 static_cast<const void* const*>(given.data()), given.size(), code.output_names.data(), made.size(),
                 made.data());
  });
}

void destroy(void* handle) { delete static_cast<Compiled*>(handle); }

}  // namespace

extern "C" const sluice_offload_backend* sluice_offload(void) {
  static const sluice_offload_backend backend = {
      SLUICE_OFFLOAD_ABI, sizeof backend, "onnxruntime", "2", SLUICE_OFFLOAD_ONNX | SLUICE_OFFLOAD_CONSTANTS,
      supports,           compile,        output_type,   run, destroy};
  return &backend;
}
