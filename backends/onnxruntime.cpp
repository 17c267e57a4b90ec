// The foreign backend "onnxruntime": clusters as models of ONNX, run by ONNX Runtime. Weights that do not
// change are constants there, which it folds and reorders when it compiles.
//
// It is built without ONNX Runtime: the library is loaded when the first cluster is asked about. Its C interface is a
// table of functions, whose order never changes; Slot says where in it the few stand that are needed here.
#include <algorithm>
#include <cstdint>

#include "backends/adapter.h"

namespace {

using adapter::Owned;

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
    closer(kReleaseStatus)(status);
    throw std::runtime_error(text);
  }
  // The object that a function gives by its last argument, closed by `release`.
  template <class... Args>
  Owned<void> made(Slot release, Slot slot, Args... args) const {
    void* object = nullptr;
    call(slot, args..., &object);
    return adapter::owned(object, closer(release));
  }
  void* environment() const { return environment_; }
  const void* memory() const { return memory_; }

 private:
  using Release = void (*)(void*);
  Release closer(Slot slot) const { return reinterpret_cast<Release>(const_cast<void*>(table_[slot])); }

  Runtime() {
    const adapter::Library library =
        adapter::library("SLUICE_ONNXRUNTIME_LIBRARY", {"libonnxruntime.so.1", "libonnxruntime.so"}, "ONNX Runtime",
                         "install ONNX Runtime, or name its libonnxruntime.so");
    const auto base = reinterpret_cast<const Base* (*)()>(library.symbol("OrtGetApiBase"));
    table_ = base()->table(kVersion);
    if (table_ == nullptr)
      throw std::runtime_error(std::string("ONNX Runtime ") + base()->version() + ": must be 1.8 or newer");
    call(kCreateEnv, kQuiet, "sluice", &environment_);
    call(kCreateCpuMemoryInfo, 0, 0, &memory_);
  }

  const void* const* table_ = nullptr;
  void *environment_ = nullptr, *memory_ = nullptr;
};

// Numbers of ONNX for dtypes; 0: none.
int type_number(const char* dtype) {
  static const std::map<std::string, int> numbers = {{"float32", 1},  {"uint8", 2},    {"int8", 3}, {"int16", 5},
                                                     {"int32", 6},    {"int64", 7},    {"bool", 9}, {"float16", 10},
                                                     {"float64", 11}, {"bfloat16", 16}};
  const auto found = numbers.find(dtype);
  return found == numbers.end() ? 0 : found->second;
}

// An input or output.
struct Port {
  std::string name;
  std::unique_ptr<const adapter::Type> type;
  int dtype = 0;
  size_t bytes = 0;

  Port(std::string port, const sluice_offload_type& from)
      : name(std::move(port)),
        type(std::make_unique<adapter::Type>(from)),
        dtype(type_number(from.dtype)),
        bytes(from.item_bytes) {
    for (const int64_t size : type->shape()) bytes *= static_cast<size_t>(size);
    if (dtype == 0) throw std::runtime_error("no " + type->dtype() + " in ONNX Runtime");
  }
  Owned<void> tensor(void* data) const {
    const Runtime& runtime = Runtime::instance();
    return runtime.made(kReleaseValue, kCreateTensorWithData, runtime.memory(), data, bytes, type->shape().data(),
                        type->shape().size(), dtype);
  }
};

// Tensors of ONNX Runtime in memory of Sluice's: each is made anew only where its address is another one than in the
// run before.
class Tensors {
 public:
  // `at(i)`: where the tensor of ports[i] lies.
  template <class Address>
  void** of(const std::vector<Port>& ports, Address at) {
    owners_.resize(ports.size());
    tensors_.resize(ports.size());
    addresses_.resize(ports.size());
    for (size_t i = 0; i < ports.size(); ++i) {
      void* const address = at(i);
      if (owners_[i] != nullptr && addresses_[i] == address) continue;
      owners_[i] = ports[i].tensor(address);
      tensors_[i] = owners_[i].get();
      addresses_[i] = address;
    }
    return tensors_.data();
  }

 private:
  std::vector<Owned<void>> owners_;
  std::vector<void*> tensors_, addresses_;
};

int level_of(const sluice_offload_graph& graph) {
  std::map<std::string, std::string> others = {{"optimization", "99"}};
  adapter::options(graph, {"fp32"}, others);
  const std::string level = others["optimization"];
  if (level != "0" && level != "1" && level != "2" && level != "99")
    throw std::runtime_error("optimization must be 0, 1, 2 or 99: " + level);
  return std::stoi(level);
}

class Compiled {
 public:
  explicit Compiled(const sluice_offload_graph& graph) {
    for (size_t i = 0; i < graph.num_inputs; ++i) {
      if (adapter::constant(graph, i) != nullptr) continue;
      varying_.push_back(i);
      inputs_.emplace_back("i" + std::to_string(i), *graph.values[i]);
    }
    for (size_t o = 0; o < graph.num_outputs; ++o)
      outputs_.emplace_back("o" + std::to_string(o), *graph.values[graph.outputs[o]]);
    for (const Port& port : inputs_) input_names_.push_back(port.name.c_str());
    for (const Port& port : outputs_) output_names_.push_back(port.name.c_str());
    const Owned<void> options = runtime_.made(kReleaseSessionOptions, kCreateSessionOptions);
    runtime_.call(kSetGraphOptimizationLevel, options.get(), level_of(graph));
    runtime_.call(kSetIntraOpNumThreads, options.get(), std::max(graph.threads, 1));
    runtime_.call(kSetInterOpNumThreads, options.get(), 1);
    session_ = runtime_.made(kReleaseSession, kCreateSessionFromArray, runtime_.environment(), graph.onnx,
                             graph.onnx_bytes, static_cast<const void*>(options.get()));
  }

  const sluice_offload_type* output_type(size_t o) const { return &outputs_[o].type->get(); }

  void run(const void* const* inputs, void* const* outputs) {
    std::unique_ptr<Frame> frame = frames_.take([] { return std::make_unique<Frame>(); });
    void** const given = frame->inputs.of(inputs_, [&](size_t i) { return const_cast<void*>(inputs[varying_[i]]); });
    void** const made = frame->outputs.of(outputs_, [&](size_t o) { return outputs[o]; });
    runtime_.call(kRun, session_.get(), static_cast<const void*>(nullptr), input_names_.data(),
                  static_cast<const void* const*>(given), inputs_.size(), output_names_.data(), outputs_.size(), made);
    frames_.give(std::move(frame));
  }

 private:
  struct Frame {
    Tensors inputs, outputs;
  };

  const Runtime& runtime_ = Runtime::instance();
  std::vector<size_t> varying_;  // inputs that are no constants
  std::vector<Port> inputs_, outputs_;
  std::vector<const char*> input_names_, output_names_;
  Owned<void> session_;
  adapter::Spares<std::unique_ptr<Frame>> frames_;
};

}  // namespace

extern "C" const sluice_offload_backend* sluice_offload(void) {
  using Backend = adapter::Backend<Compiled>;
  return Backend::of("onnxruntime", "3", SLUICE_OFFLOAD_ONNX | SLUICE_OFFLOAD_CONSTANTS, Backend::supports_model);
}
