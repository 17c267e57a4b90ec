// Computes what depends on constants alone, once, now. Results become constant variables named "folded.<n>".
#include <unordered_set>

#include "compiler/pass.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::ValueId;

// Larger results are recomputed each step rather than kept for ever, unless their inputs are as large.
constexpr uint64_t kAlwaysKept = 1 << 20;

class Folder {
 public:
  Folder(graph::Graph& graph, PassContext& context)
      : rewriter_(graph), context_(context), data_(graph.values().size(), nullptr) {
    for (const graph::Variable& v : graph.variables()) {
      if (v.constant) data_[v.value] = context_.constant_data(v.name);
    }
    for (const graph::Variable& v : graph.variables()) names_.insert(v.name);
  }

  // Computes the node now if all its inputs are known and the results are worth keeping.
  bool fold(const graph::Node& node) {
    if (node.op->random || node.op->effectful || node.op->of_all || node.outputs.empty()) return false;
    std::vector<TensorType> types;
    std::vector<const void*> inputs;
    uint64_t in_bytes = 0, out_bytes = 0;
    for (ValueId input : node.inputs) {
      if (input != kNoValue && !data_[input]) return false;
      types.push_back(input == kNoValue ? TensorType{} : rewriter_.source().type(input));
      inputs.push_back(input == kNoValue ? nullptr : data_[input]);
      if (input != kNoValue) in_bytes += bytes_of(types.back());
    }
    for (ValueId output : node.outputs) out_bytes += bytes_of(rewriter_.source().type(output));
    if (out_bytes > std::max(kAlwaysKept, in_bytes)) return false;
    std::vector<std::vector<std::byte>> results = context_.evaluate(*node.op, node.attrs, types, inputs);
    SLUICE_CHECK_KIND(kRuntime, results.size() == node.outputs.size(), "{}: evaluating it gave {} results; needs {}",
                      describe(node), results.size(), node.outputs.size());
    for (size_t o = 0; o < results.size(); ++o) add_constant(node.outputs[o], std::move(results[o]));
    return true;
  }

  graph::Rewriter& rewriter() { return rewriter_; }

 private:
  void add_constant(ValueId value, std::vector<std::byte> bytes) {
    const TensorType& type = rewriter_.source().type(value);
    SLUICE_CHECK_KIND(kRuntime, bytes.size() == bytes_of(type), "fold_constants: a result has {} bytes; {} needs {}",
                      bytes.size(), type.str(), bytes_of(type));
    static constexpr std::byte kEmpty{};
    std::string name;
    do name = fmt::format("folded.{}", next_++);
    while (!names_.insert(name).second);
    rewriter_.map(value, rewriter_.target().add_variable(name, type, /*constant=*/true));
    const auto it = context_.constants.emplace(name, std::move(bytes)).first;
    data_[value] = it->second.empty() ? &kEmpty : it->second.data();
  }

  graph::Rewriter rewriter_;
  PassContext& context_;
  std::vector<const void*> data_;  // by value of the source graph; null where not known
  std::unordered_set<std::string> names_;
  int next_ = 0;
};

}  // namespace

int fold_constants(graph::Graph& graph, PassContext& context) {
  if (!context.evaluate) return 0;
  Folder folder(graph, context);
  int folded = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (folder.fold(graph.nodes()[i]))
      ++folded;
    else
      folder.rewriter().take(static_cast<int>(i));
  }
  graph = folder.rewriter().finish();
  return folded;
}

}  // namespace sluice::compiler
