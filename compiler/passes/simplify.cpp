// Removes identities and merges views of views. Every rule gives bitwise the same values: of floats x + 0 is no
// identity (it is +0 where x is -0), but x + -0 and x - 0 are.
#include <cmath>
#include <string_view>
#include <unordered_map>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::ValueId;

class Simplifier {
 public:
  Simplifier(Graph& graph, PassContext& context) : rewriter_(graph), context_(context) {}

  // Returns the new value that stands for the only output of `node`, or kNoValue when no rule applies.
  ValueId rewrite(const Node& node) {
    if (node.outputs.size() != 1 || node.inputs.empty() || node.op->effectful) return kNoValue;
    const auto rule = rules().find(node.op->name);
    return rule == rules().end() ? kNoValue : (this->*rule->second)(node);
  }

  graph::Rewriter& rewriter() { return rewriter_; }

 private:
  using Rule = ValueId (Simplifier::*)(const Node&);
  static const std::unordered_map<std::string_view, Rule>& rules() {
    static const std::unordered_map<std::string_view, Rule> kRules = {
        {"add", &Simplifier::add},         {"sub", &Simplifier::sub},          {"mul", &Simplifier::mul},
        {"div", &Simplifier::mul_right},   {"pow", &Simplifier::mul_right},    {"neg", &Simplifier::neg},
        {"relu", &Simplifier::idempotent}, {"cast", &Simplifier::same_type},   {"slice", &Simplifier::same_type},
        {"pad", &Simplifier::same_type},   {"copy", &Simplifier::same_type},   {"concat", &Simplifier::single},
        {"expand", &Simplifier::replaces}, {"reshape", &Simplifier::replaces}, {"permute", &Simplifier::permute},
    };
    return kRules;
  }

  ValueId in(const Node& node, int i) const { return rewriter_[node.inputs[i]]; }
  const TensorType& out_type(const Node& node) const { return rewriter_.source().type(node.outputs[0]); }
  // `x` if it has the type of the node's output: the other operand did not broadcast it.
  ValueId if_same_type(const Node& node, ValueId x) {
    return rewriter_.target().type(x) == out_type(node) ? x : kNoValue;
  }

  ValueId add(const Node& node) {
    const double zero = is_integral(out_type(node).dtype) ? 0.0 : -0.0;
    if (is_splat(in(node, 1), zero)) return if_same_type(node, in(node, 0));
    return is_splat(in(node, 0), zero) ? if_same_type(node, in(node, 1)) : kNoValue;
  }
  ValueId sub(const Node& node) { return is_splat(in(node, 1), 0) ? if_same_type(node, in(node, 0)) : kNoValue; }
  ValueId mul_right(const Node& node) { return is_splat(in(node, 1), 1) ? if_same_type(node, in(node, 0)) : kNoValue; }
  ValueId mul(const Node& node) {
    const ValueId right = mul_right(node);
    return right == kNoValue && is_splat(in(node, 0), 1) ? if_same_type(node, in(node, 1)) : right;
  }
  ValueId same_type(const Node& node) { return if_same_type(node, in(node, 0)); }
  ValueId single(const Node& node) { return node.inputs.size() == 1 ? same_type(node) : kNoValue; }

  ValueId neg(const Node& node) {
    const Node* inner = producer(in(node, 0), "neg");
    return inner ? inner->inputs[0] : kNoValue;
  }
  ValueId idempotent(const Node& node) { return producer(in(node, 0), node.op->name) ? in(node, 0) : kNoValue; }

  // f(f(x)) is f(x) with the outer attributes.
  ValueId replaces(const Node& node) {
    const ValueId same = same_type(node);
    if (same != kNoValue) return same;
    const Node* inner = producer(in(node, 0), node.op->name);
    return inner ? make(node, inner->inputs[0], node.attrs) : kNoValue;
  }

  ValueId permute(const Node& node) {
    const int dims = node.op->find_param("dims");
    if (dims < 0) return kNoValue;
    Ints order = normal(attr<Ints>(node.attrs, dims));
    ValueId x = in(node, 0);
    const Node* inner = producer(x, "permute");
    if (inner) {
      const Ints first = normal(attr<Ints>(inner->attrs, dims));
      for (int64_t& axis : order) axis = first[axis];
      x = inner->inputs[0];
    }
    bool identity = true;
    for (size_t i = 0; i < order.size(); ++i) identity = identity && order[i] == static_cast<int64_t>(i);
    if (identity) return x;
    if (!inner) return kNoValue;
    Attrs attrs = node.attrs;
    attrs[dims] = order;
    return make(node, x, std::move(attrs));
  }

  static Ints normal(Ints axes) {
    for (int64_t& axis : axes) axis += axis < 0 ? static_cast<int64_t>(axes.size()) : 0;
    return axes;
  }

  ValueId make(const Node& like, ValueId input, Attrs attrs) {
    Node node = like;
    node.inputs = {input};
    node.attrs = std::move(attrs);
    const int made = rewriter_.target().add_node(std::move(node));
    return rewriter_.target().nodes()[made].outputs[0];
  }

  // The node of the new graph that makes `value`, if it is of op `name`.
  const Node* producer(ValueId value, std::string_view name) {
    const graph::ValueInfo& info = rewriter_.target().values()[value];
    if (info.kind != graph::ValueKind::kNode) return nullptr;
    const Node& node = rewriter_.target().nodes()[info.index];
    return node.op->name == name ? &node : nullptr;
  }

  // A zero must have the same sign, too.
  static bool same(double x, double wanted) { return x == wanted && std::signbit(x) == std::signbit(wanted); }

  // Every element is `wanted`.
  bool is_splat(ValueId value, double wanted) {
    const graph::ValueInfo& info = rewriter_.target().values()[value];
    if (info.kind == graph::ValueKind::kInput) return false;
    if (info.kind == graph::ValueKind::kVariable) return is_splat_data(info, wanted);
    const Node& node = rewriter_.target().nodes()[info.index];
    const std::string_view op = node.op->name;
    if (op == "full") {
      const int i = node.op->find_param("value");
      const double* v = i < 0 ? nullptr : std::get_if<double>(&node.attrs[i]);
      return v && same(*v, wanted);
    }
    return (op == "expand" || op == "reshape" || op == "cast") && is_splat(node.inputs[0], wanted);
  }

  bool is_splat_data(const graph::ValueInfo& info, double wanted) {
    constexpr int64_t kMostElements = 4096;
    const graph::Variable& v = rewriter_.target().variables()[info.index];
    const int64_t n = numel(info.type.shape);
    if (!v.constant || n == 0 || n > kMostElements) return false;
    const void* data = context_.constant_data(v.name);
    if (!data) return false;
    const auto all = [&](auto zero) {
      using T = decltype(zero);
      const T* p = static_cast<const T*>(data);
      for (int64_t i = 0; i < n; ++i) {
        if (!same(static_cast<double>(p[i]), wanted)) return false;
      }
      return true;
    };
    switch (info.type.dtype) {
      case DType::kFloat32: return all(0.0f);
      case DType::kFloat64: return all(0.0);
      case DType::kInt32: return all(int32_t{});
      case DType::kInt64: return all(int64_t{});
      default: return false;
    }
  }

  graph::Rewriter rewriter_;
  PassContext& context_;
};

}  // namespace

int simplify(Graph& graph, PassContext& context) {
  Simplifier simplifier(graph, context);
  int rewrites = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const ValueId replacement = simplifier.rewrite(node);
    if (replacement == kNoValue) {
      simplifier.rewriter().take(static_cast<int>(i));
    } else {
      simplifier.rewriter().map(node.outputs[0], replacement);
      ++rewrites;
    }
  }
  graph = simplifier.rewriter().finish();
  return rewrites;
}

}  // namespace sluice::compiler
