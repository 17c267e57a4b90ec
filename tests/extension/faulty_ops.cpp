// Extensions with something wrong (but one), one per value of SLUICE_FAULT.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "include/sluice/extension.h"

using namespace sluice::api;

namespace {

// Goes wrong at the place that its parameter names.
class Faulty final : public Op {
 public:
  explicit Faulty(std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  std::string doc() const override { return "Fails where it is told to."; }
  std::vector<std::string> inputs() const override { return {"x"}; }
  std::vector<Parameter> parameters() const override { return {{"at", std::string()}}; }
  std::vector<OperandType> infer(const std::vector<OperandType>& in, const Attributes& attributes) const override {
    const std::string& at = attributes.get<std::string>("at");
    if (at == "infer") throw std::runtime_error("x is not liked");
    if (at == "infer_type") throw Error(ErrorKind::kType, "x is of no type");
    if (at == "infer_int") throw 42;
    if (at == "attribute") attributes.get<double>("at");
    if (at == "shape") return {{in[0].dtype, {-1}}};
    if (at == "dtype") return {{static_cast<DType>(77), {}}};
    if (at == "count") return {};
    return {in[0]};
  }
  std::shared_ptr<const KernelFactory> kernel() const override {
    struct Copies final : Kernel {
      explicit Copies(std::string at) : at(std::move(at)) {}
      void run(const KernelCall& call) const override {
        if (at == "run") throw std::runtime_error("kernel is tired");
        if (at == "run_int") throw 42;
        if (at == "wait") {  // until the flag whose address came is set
          while (!(*static_cast<std::atomic<bool>* const*>(call.inputs[0]))->load()) std::this_thread::yield();
          return;
        }
        *static_cast<float*>(call.outputs[0]) = *static_cast<const float*>(call.inputs[0]);
      }
      std::string at;
    };
    struct Factory final : KernelFactory {
      std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        const std::string& at = request.attributes.get<std::string>("at");
        if (at == "prepare") throw Error(ErrorKind::kUnsupported, "not on a Friday");
        if (at == "null") return nullptr;
        return std::make_unique<Copies>(at);
      }
    };
    return std::make_shared<Factory>();
  }
  bool differentiable() const override { return true; }
  std::vector<Symbol> gradient(OpCalls& calls, const GradientRequest& r) const override {
    const std::string& at = r.attributes.get<std::string>("at");
    if (at == "grad") throw std::runtime_error("no slope");
    if (at == "grad_count") return {};
    if (at == "grad_type") return {calls.scalar(0, DType::kInt64)};
    if (at == "grad_symbol") return {Symbol{12345}};
    if (at == "grad_op") return calls.call("no_such_op", {r.inputs[0]});
    return {r.grad_outputs[0]};
  }

 private:
  std::string name_;
};

// For relu of float32.
struct NegatedRelu final : KernelFactory {
  struct Run final : Kernel {
    int64_t size = 1;
    void run(const KernelCall& call) const override {
      const auto* x = static_cast<const float*>(call.inputs[0]);
      for (int64_t i = 0; i < size; ++i) static_cast<float*>(call.outputs[0])[i] = x[i] > 0 ? -x[i] : 0;
    }
  };
  std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
    if (request.inputs[0].dtype != DType::kFloat32) return nullptr;
    auto run = std::make_unique<Run>();
    for (const int64_t dim : request.inputs[0].shape) run->size *= dim;
    return run;
  }
};

}  // namespace

#if SLUICE_FAULT == 1  // nothing of an extension
extern "C" SLUICE_API int unrelated() { return 1; }
#elif SLUICE_FAULT == 2  // made for another interface
extern "C" SLUICE_API const char* sluice_extension_abi() { return "0-elsewhere"; }
extern "C" SLUICE_API void sluice_extension(Extension&) {}
#elif SLUICE_FAULT == 3  // the name of a built-in op with a kernel, after a good op
SLUICE_EXTENSION(extension) {
  extension.describe("taken", "1.0");
  extension.add_op(std::make_shared<Faulty>("good"));
  extension.add_op(std::make_shared<Faulty>("relu"));
}
#elif SLUICE_FAULT == 4  // fails while it is asked
SLUICE_EXTENSION(extension) { throw std::runtime_error("no licence"); }
#elif SLUICE_FAULT == 5  // does not say who it is
SLUICE_EXTENSION(extension) { extension.add_op(std::make_shared<Faulty>("nameless")); }
#elif SLUICE_FAULT == 6  // a name that graphs cannot print
SLUICE_EXTENSION(extension) {
  extension.describe("badly_named", "1.0");
  extension.add_op(std::make_shared<Faulty>("two words"));
}
#elif SLUICE_FAULT == 7  // a kernel for nothing
SLUICE_EXTENSION(extension) {
  extension.describe("kernels", "1.0");
  extension.add_kernel("no_such_op", std::make_shared<NegatedRelu>());
}
#elif SLUICE_FAULT == 8  // nothing wrong
SLUICE_EXTENSION(extension) {
  extension.describe("kernels", "1.0");
  extension.add_kernel("relu", std::make_shared<NegatedRelu>());
}
#else                    // the library is right and the op is not
SLUICE_EXTENSION(extension) {
  extension.describe("faulty", "0.1");
  extension.add_op(std::make_shared<Faulty>("faulty"));
}
#endif
