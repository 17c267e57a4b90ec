#pragma once
// Ops and kernels of your own, in a shared library that Sluice loads while it runs: Engine::load_extension() in C++,
// sluice.ops.load_library() in Python. The library needs this header alone and links nothing of Sluice's.
//
//   SLUICE_EXTENSION(extension) {
//     extension.describe("my_ops", "1.0");
//     extension.add_op(std::make_shared<MyOp>());
//   }
//
// Everything here may throw: an exception in `infer` or `prepare` reaches whoever calls the op or loads the plan, one
// in a kernel's `run` fails that step. The library is never unloaded. Thread safety: an op and a prepared kernel are
// used by several threads at once and must not change once made.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dtype.h"
#include "error.h"

// The version of everything below; a library made for another one is refused.
#if defined(_GLIBCXX_USE_CXX11_ABI) && _GLIBCXX_USE_CXX11_ABI
#define SLUICE_EXTENSION_ABI "1-libstdc++11"
#else
#define SLUICE_EXTENSION_ABI "1-other"
#endif

namespace sluice::api {

// A value fixed when the op is called, as opposed to a tensor. monostate: none.
using Attribute = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>, DType>;

struct Parameter {
  std::string name;
  Attribute default_value;  // decides the type
  bool required = false;    // has no default after all
};

// The values of an op's parameters.
class Attributes {
 public:
  using Items = std::vector<std::pair<std::string, Attribute>>;
  explicit Attributes(Items items) : items_(std::move(items)) {}
  const Items& items() const { return items_; }
  // get<double>("slope"). Throws kType for another type, kValue for an unknown name.
  template <class T>
  const T& get(const std::string& name) const {
    for (const auto& [key, value] : items_) {
      if (key != name) continue;
      if (const T* typed = std::get_if<T>(&value)) return *typed;
      throw Error(ErrorKind::kType, "parameter '" + name + "' has another type");
    }
    throw Error(ErrorKind::kValue, "parameter '" + name + "' is not one of the op's");
  }

 private:
  Items items_;
};

struct OperandType {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool present = true;  // false: an optional input that was not given
};

// How an operand of a kernel lies in memory. Strides are in elements.
struct OperandSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape, strides;
  bool present = true;
};

struct KernelRequest {
  std::string op;
  std::vector<OperandSpec> inputs, outputs;
  Attributes attributes;
  int threads = 1;  // that run() may use; its results must not depend on it
};

struct KernelCall {
  const void* const* inputs = nullptr;  // null where absent
  void* const* outputs = nullptr;
  void* workspace = nullptr;  // workspace_bytes(), 64-aligned
};

// Prepared once for its operands, run many times.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual uint64_t workspace_bytes() const { return 0; }
  // Writes every element of every output. Should not allocate.
  virtual void run(const KernelCall& call) const = 0;
};

class KernelFactory {
 public:
  virtual ~KernelFactory() = default;
  // Throws when it has no kernel for these operands; of a built-in op's it may also give none (null).
  virtual std::unique_ptr<Kernel> prepare(const KernelRequest& request) const = 0;
  // False: inputs and outputs come contiguous. True: with whatever strides they have.
  virtual bool any_strides() const { return false; }
};

// A tensor in a gradient or a composition: computed now or later, so that only its type can be asked for.
struct Symbol {
  int id = -1;
  bool defined() const { return id >= 0; }  // else: no gradient, absent
};

// Calls of other ops, built-in ones or your own, by name.
class OpCalls {
 public:
  virtual std::vector<Symbol> call(const std::string& op, const std::vector<Symbol>& inputs,
                                   const Attributes::Items& attributes = {}) = 0;
  virtual Symbol scalar(double value, DType dtype) = 0;
  virtual OperandType type(Symbol symbol) const = 0;
  // Calls an op with one output.
  Symbol call1(const std::string& op, const std::vector<Symbol>& inputs, const Attributes::Items& attributes = {}) {
    return call(op, inputs, attributes).at(0);
  }

 protected:
  ~OpCalls() = default;
};

struct GradientRequest {
  std::vector<Symbol> inputs, outputs;
  std::vector<Symbol> grad_outputs;  // undefined where an output has no gradient
  std::vector<bool> needs;           // per input: is its gradient wanted
  Attributes attributes;
};

// A test input: values are drawn uniformly from [low, high).
struct SampleTensor {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  double low = -1, high = 1;
};
struct OpSample {
  std::vector<SampleTensor> inputs;
  Attributes::Items attributes = {};
};

// An op: what it takes and gives, and how. Exactly as built-in ones, it works eagerly, in graphs and in bundles.
class Op {
 public:
  virtual ~Op() = default;
  virtual std::string name() const = 0;  // letters, digits and '_'; begins with a letter
  virtual std::string doc() const = 0;
  // "x" required, "bias?" optional (must come last), "xs*" any number (must be the only one).
  virtual std::vector<std::string> inputs() const = 0;
  virtual std::vector<Parameter> parameters() const { return {}; }
  virtual int num_outputs() const { return 1; }
  // Types of all outputs. Throws what is wrong with the inputs: "<what>: <got>; <what must hold>".
  virtual std::vector<OperandType> infer(const std::vector<OperandType>& inputs,
                                         const Attributes& attributes) const = 0;

  // How it is computed: a kernel, or other ops, or both (then the kernel is used).
  virtual std::shared_ptr<const KernelFactory> kernel() const { return nullptr; }
  virtual bool composed() const { return false; }
  virtual std::vector<Symbol> compose(OpCalls&, const std::vector<Symbol>&, const Attributes&) const { return {}; }

  // Its gradient per input, by calls of ops. An op without one is differentiated through compose(), or not at all.
  virtual bool differentiable() const { return false; }
  virtual std::vector<Symbol> gradient(OpCalls&, const GradientRequest&) const { return {}; }

  virtual std::vector<OpSample> samples() const { return {}; }
};

// The entry function is given this.
class Extension {
 public:
  virtual void describe(const std::string& name, const std::string& version) = 0;  // must be called
  virtual void add_op(std::shared_ptr<const Op> op) = 0;
  // A kernel for a built-in op on cpu, instead of its own, which still serves where prepare() gives none (null). There
  // `present` is always true: an optional input that is absent has rank 0 and comes as a null pointer.
  virtual void add_kernel(const std::string& op, std::shared_ptr<const KernelFactory> kernel) = 0;

 protected:
  ~Extension() = default;
};

}  // namespace sluice::api

// Defines the library's entry function: SLUICE_EXTENSION(extension) { extension.describe(...); ... }
#define SLUICE_EXTENSION(parameter)                                                         \
  extern "C" SLUICE_API const char* sluice_extension_abi();                                 \
  extern "C" SLUICE_API void sluice_extension(::sluice::api::Extension&);                   \
  extern "C" SLUICE_API const char* sluice_extension_abi() { return SLUICE_EXTENSION_ABI; } \
  extern "C" SLUICE_API void sluice_extension([[maybe_unused]] ::sluice::api::Extension& parameter)
