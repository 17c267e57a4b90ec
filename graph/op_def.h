#pragma once
// An op, defined once. Every other part of Sluice reads these definitions; there is no second list of ops.
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/attr.h"
#include "base/cost.h"
#include "base/error.h"
#include "base/sbp.h"
#include "base/tensor_spec.h"
#include "graph/value.h"

namespace sluice {

struct Param {
  const char* name;
  Attr default_value;  // its alternative is the param's type, except when `nullable`
  bool required = false;
  bool nullable = false;  // accepts none (NoAttr)
};

// The arguments of a gradient rule. Undefined values mean: absent input, output without gradient.
struct GradContext {
  std::span<const Value> inputs;
  std::span<const Value> outputs;
  std::span<const Value> grad_outputs;
  const Attrs& attrs;
  std::span<const bool> needs;  // per input: is its gradient wanted
};

// A test input. Values are drawn uniformly from [low, high); integers for integral dtypes.
struct SampleInput {
  Shape shape;
  DType dtype = DType::kFloat32;
  double low = -1, high = 1;
  bool absent = false;
};
struct Sample {
  std::vector<SampleInput> inputs;
  Attrs attrs = {};  // in the order of params; empty = all defaults
};

using Types = std::span<const TensorType>;

// Names of inputs: "x" required, "bias?" optional (must come last), "xs*" variadic (must be the only one).
struct OpDef {
  const char* name;
  const char* doc;
  std::vector<const char*> inputs;
  std::vector<Param> params = {};
  int num_outputs = 1;  // -1: as many as `infer` says
  // Types of all outputs; throws Error in the standard form. Absent optional inputs have rank 0 and are flagged by
  // `present[i] == false`.
  std::function<std::vector<TensorType>(Types inputs, std::span<const bool> present, const Attrs& attrs)> infer =
      nullptr;
  // Gradient per input (undefined where not needed or zero), written with ordinary ops. It is run on symbols too, to
  // find the operands it reads: autograd keeps those alone. Null, or an empty result: differentiate `decompose`; null
  // as well: not differentiable.
  std::function<std::vector<Value>(const GradContext& context)> grad = nullptr;
  // The same result in simpler ops. A kernel-less op must have one.
  std::function<std::vector<Value>(std::span<const Value> inputs, const Attrs& attrs)> decompose = nullptr;
  // Legal placements along one mesh axis, for operands of these types.
  std::vector<SbpRow> (*sbp)(Types inputs, const Attrs& attrs) = nullptr;
  // Attributes of one shard's call, whose outputs are to have these types. Null: they are the whole's.
  Attrs (*localize)(const Attrs& attrs, Types local_outputs) = nullptr;
  // Null: bytes of all operands, one flop per output element. Read through cost_of().
  Cost (*cost)(Types inputs, Types outputs, const Attrs& attrs) = nullptr;
  // For a view op it says how the output lies in the input's memory; nullopt when this input cannot be viewed so (a
  // copy is made). offset is in elements.
  struct ViewSpec {
    Shape shape;
    Strides strides;
    int64_t offset = 0;
  };
  std::optional<ViewSpec> (*view)(const TensorSpec& input, const Attrs& attrs) = nullptr;
  // For a view op it gives `base` with the elements that the view shows replaced by `value`, which has the view's type.
  Value (*unview)(const Value& base, const Attrs& attrs, const Value& value) = nullptr;
  // An axis of an output that may be shorter in a step than its type says (ADR 25).
  struct Varying {
    int output = 0, axis = 0;
    int extent = 0;      // the output that tells how long it is: int64()
    bool taken = false;  // an input tells it
    std::string dim;     // "": the output has all rows; the first input is that long
  };
  std::vector<Varying> (*varying)(Types inputs, Types outputs, const Attrs& attrs) = nullptr;
  bool random = false;     // first input is the generator state, int64(2,): (seed, step); has a param "salt"
  bool effectful = false;  // never removed, merged or folded
  bool host = false;       // runs code of the program around it, on the host, as preparing data does
  bool of_all = false;     // its outputs come of all micro-batches of a step, of which attribute 0 is the number
  bool relays = false;     // its output is its input, which lies on other devices
  // The part that the op has in the settings of precision. Its kernels of float32 then know the attribute "precision",
  // which is none of its params: a plan has it where a setting asks for less than the highest.
  enum class Precision : uint8_t { kNone, kMatmul, kConv } precision = Precision::kNone;
  std::vector<Sample> samples = {};
  std::string extension = {};  // "name version" of the extension that defines it; "" for a built-in op

  int find_param(std::string_view param) const;  // -1 when absent
  bool variadic() const;
  int min_inputs() const;
};

// Reads param `i` of an op; the type is known good after validate_attrs().
template <class T>
const T& attr(const Attrs& attrs, int i) {
  return std::get<T>(attrs[i]);
}
inline bool attr_is_none(const Attrs& attrs, int i) { return std::holds_alternative<NoAttr>(attrs[i]); }

// Fills defaults and checks types (an int is accepted for a double param, a single int for a list). Throws kType.
Attrs validate_attrs(const OpDef& op, Attrs attrs);
// Pairs an op's values with its param names, as a plan stores them, and back.
NamedAttrs name_attrs(const OpDef& op, const Attrs& attrs);
Attrs order_attrs(const OpDef& op, const NamedAttrs& attrs);

// Throws kType when an op cannot take `count` inputs.
void check_input_count(const OpDef& op, size_t count);
// op.infer with its checks: required inputs present, number of outputs as defined, errors that start with the op's
// name. REQUIRES: inputs padded to op.inputs.size() unless variadic.
std::vector<TensorType> infer_types(const OpDef& op, Types inputs, std::span<const bool> present, const Attrs& attrs);
// The work of one call; `inputs` as infer_types() takes them.
Cost cost_of(const OpDef& op, Types inputs, Types outputs, const Attrs& attrs);
double operand_bytes(Types inputs, Types outputs);
// `error` with a message that starts with "<op>:".
Error prefixed(const OpDef& op, const Error& error);

// Ops by name. The built-in ones come from the families' explicit lists (graph/ops/all.cpp). Thread-safe.
class OpRegistry {
 public:
  OpRegistry() = default;
  OpRegistry(const OpRegistry& other);
  void add(const OpDef* op);                       // REQUIRES: *op outlives the registry; throws kValue on a duplicate
  void add(std::shared_ptr<const OpDef> op);       // kept as long as the registry
  const OpDef* find(std::string_view name) const;  // null when absent
  const OpDef& get(std::string_view name) const;   // throws kUnsupported, suggesting the nearest names
  std::vector<const OpDef*> all() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const OpDef>> owned_;
  std::map<std::string, const OpDef*, std::less<>> by_name_;
  std::vector<const OpDef*> ordered_;
};

const OpRegistry& builtin_ops();

}  // namespace sluice
