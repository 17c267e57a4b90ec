#pragma once
// A node of a model as its handler sees it: what it is given, its attributes, and what it gives.
//
// Handlers call Sluice's ops. Whether these run now or become nodes of a graph is the executor's business, so a model
// runs eagerly, is traced, and is differentiated by the same lines; what depends on constants alone is computed while
// tracing.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/attr.h"
#include "graph/forms/form.h"
#include "graph/value.h"
#include "onnx/file.h"

namespace sluice {
class Generator;
}

namespace sluice::onnx {

// A value of a model: a tensor, a sequence, or nothing (an input left out, an optional without an element).
struct Item {
  Item() = default;
  Item(Value value) : tensor(std::move(value)) {}   // NOLINT: a tensor is one
  Item(Tensor value) : tensor(std::move(value)) {}  // NOLINT
  explicit Item(std::vector<Item> items) : sequence(std::make_shared<const std::vector<Item>>(std::move(items))) {}
  bool defined() const { return tensor.defined() || sequence; }

  Value tensor;
  std::shared_ptr<const std::vector<Item>> sequence;
};

// What a handler gives: one value, or several.
struct Items : std::vector<Item> {
  using std::vector<Item>::vector;
  Items(Value value) { emplace_back(std::move(value)); }                 // NOLINT: so that handlers give values
  Items(Item item) { push_back(std::move(item)); }                       // NOLINT
  Items(std::pair<Value, Value> two) : vector{two.first, two.second} {}  // NOLINT
  Items(const std::vector<Value>& values) : vector(values.begin(), values.end()) {}  // NOLINT
};

class Runner;
class Body;

class Call {
 public:
  Call(Runner& runner, const format::NodeProto& node, int64_t version, std::vector<Item> inputs)
      : runner_(runner), node_(node), version_(version), inputs_(std::move(inputs)) {}

  const format::NodeProto& node() const { return node_; }
  int64_t version() const { return version_; }  // of its set of ops
  std::string where() const;                    // "node 'conv1' (Conv)"

  size_t size() const { return inputs_.size(); }
  bool has(size_t i) const { return i < inputs_.size() && inputs_[i].defined(); }
  const Value& in(size_t i) const;   // throws kValue where it is absent or no tensor
  Value opt(size_t i) const;         // undefined where it is absent
  const Item& item(size_t i) const;  // an Item of nothing where it is absent
  const std::vector<Item>& sequence(size_t i) const;
  std::vector<Value> tensors(size_t first = 0) const;  // the inputs from there on
  // Contents as the host's numbers. Throws kUnsupported in a graph where a step computes them.
  Ints ints(size_t i) const;
  std::vector<double> doubles(size_t i) const;
  int64_t integer(size_t i) const;
  double number(size_t i) const;

  bool has_attr(std::string_view name) const { return find(name) != nullptr; }
  int64_t i(std::string_view name, int64_t otherwise = 0) const;
  double f(std::string_view name, double otherwise = 0) const;
  std::string s(std::string_view name, const std::string& otherwise = "") const;
  Ints is(std::string_view name, const Ints& otherwise = {}) const;
  std::vector<double> fs(std::string_view name) const;
  std::vector<std::string> ss(std::string_view name) const;
  DType dtype(std::string_view name, DType otherwise) const;  // throws kUnsupported where Sluice has none such
  const format::AttributeProto* find(std::string_view name) const;
  // Of attributes that became inputs: the input where there is one, else the attribute.
  Ints list(std::string_view name, size_t input, const Ints& otherwise = {}) const;

  size_t outputs() const { return static_cast<size_t>(node_.output_size()); }
  bool wants(size_t i) const { return i < outputs() && !node_.output(static_cast<int>(i)).empty(); }

  // Runs a graph that is an attribute.
  std::vector<Value> run(std::string_view graph, std::vector<Item> inputs) const;
  std::vector<Item> run_items(std::string_view graph, std::vector<Item> inputs) const;
  size_t inputs_of(std::string_view graph) const;
  Generator& generator() const;
  Tensor read(const format::TensorProto& tensor) const;
  Runner& runner() const { return runner_; }

  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> format, A&&... args) const {
    fail(ErrorKind::kUnsupported, "{}: {}", where(), fmt::format(format, std::forward<A>(args)...));
  }

 private:
  Runner& runner_;
  const format::NodeProto& node_;
  int64_t version_;
  std::vector<Item> inputs_;
};

// Throws kUnsupported, naming `what`, where a step of the graph that is traced computes the value.
void check_known(const Value& value, const std::string& where, const char* what);

}  // namespace sluice::onnx
