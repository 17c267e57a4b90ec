#include "tensor/session/half_copies.h"

#include <map>
#include <string_view>

#include "base/log.h"
#include "graph/ops/comparison.h"
#include "graph/ops/multi_update.h"
#include "graph/rewriter.h"
#include "graph/tape.h"
#include "tensor/eager_memory.h"

namespace sluice {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

bool is_cast(const Node& node) { return std::string_view(node.op->name) == "cast"; }

// The parameter that a node makes the new content of, as the first result of an optimizer's step; -1: it is none.
int trained_variable(const graph::Graph& graph, const graph::Variable& variable) {
  if (variable.update == kNoValue || variable.constant) return -1;
  const graph::ValueInfo& info = graph.values()[variable.update];
  const bool trained =
      info.kind == graph::ValueKind::kNode && info.output == 0 && ops::is_update(*graph.nodes()[info.index].op);
  return trained ? info.index : -1;
}

}  // namespace

void HalfCopies::add_to(CapturedGraph& captured) {
  graph::Graph& source = captured.graph;
  std::map<std::pair<ValueId, DType>, ValueId> made;  // by parameter and dtype: the copy's variable
  std::map<ValueId, int> trained;
  for (const graph::Variable& v : source.variables())
    if (trained_variable(source, v) >= 0) trained.emplace(v.value, static_cast<int>(&v - source.variables().data()));
  graph::Rewriter rewriter(source);
  struct Added {
    int variable = 0, of = 0;  // in the new graph, in the old one
    DType dtype = DType::kBFloat16;
  };
  std::vector<Added> added;
  for (const Node& node : source.nodes()) {
    const auto found = is_cast(node) ? trained.find(node.inputs[0]) : trained.end();
    if (found == trained.end()) continue;
    const TensorType& type = source.type(node.outputs[0]);
    if (!is_floating(type.dtype) || dtype_size(type.dtype) != 2 || made.contains({found->first, type.dtype})) continue;
    const graph::Variable& parameter = source.variables()[found->second];
    const std::string name = fmt::format("{}/{}", parameter.name, dtype_name(type.dtype));
    added.push_back({static_cast<int>(rewriter.target().variables().size()), found->second, type.dtype});
    made[{found->first, type.dtype}] = rewriter.target().add_variable(name, type);
    const Tensor whole = captured.variables.at(parameter.name);
    const Tensor copy = Tensor::empty(type);
    captured.variables.emplace(name, copy);
    copies_.push_back({whole, copy});
  }
  if (added.empty()) return;
  for (int i = 0; i < static_cast<int>(source.nodes().size()); ++i) {
    const Node& node = source.nodes()[i];
    const auto copy = is_cast(node) ? made.find({node.inputs[0], source.type(node.outputs[0]).dtype}) : made.end();
    if (copy == made.end())
      rewriter.take(i);
    else
      rewriter.map(node.outputs[0], copy->second);
  }
  std::vector<ValueId> updates;
  for (const Added& one : added) {
    const ValueId update = rewriter[source.variables()[one.of].update];
    const Node& step = rewriter.target().nodes()[rewriter.target().values()[update].index];
    graph::GraphBuilder builder(rewriter.target(), {});
    builder.context = graph::Rewriter::context_of(step);
    const ExecutorScope scope(builder);
    const GradMode off(false);
    updates.push_back(builder.id(ops::cast(builder.value(update), one.dtype)));
  }
  graph::Graph target = rewriter.finish();
  for (size_t i = 0; i < added.size(); ++i) target.set_update(added[i].variable, updates[i]);
  source = std::move(target);
}

void HalfCopies::refresh(EagerExecutor& eager) {
  const std::lock_guard lock(mutex_);
  const ExecutorScope now(eager);
  const GradMode off(false);
  int cast = 0;
  for (Copy& copy : copies_) {
    const Storage& storage = *eager_impl(copy.parameter).storage();
    const uint64_t version = storage.version();
    if (storage.lent() || version != copy.seen) {
      eager.assign(copy.copy, ops::cast(copy.parameter, copy.copy.dtype()));
      ++cast;
    }
    copy.before = version;
  }
  if (cast > 0) log(LogLevel::kDebug, LogArea::kTensor, "{} copies of parameters were out of date, and are cast", cast);
}

void HalfCopies::submitted() {
  const std::lock_guard lock(mutex_);
  for (Copy& copy : copies_) {
    const uint64_t version = eager_impl(copy.parameter).storage()->version();
    copy.seen = version == copy.before + kWritesOfAStep ? version : UINT64_MAX;
  }
}

}  // namespace sluice
