#include "tensor/session/plan_cache.h"

#include <charconv>
#include <chrono>
#include <cstring>
#include <map>

#include "base/log.h"
#include "graph/kernel_check.h"
#include "plan/json/json.h"
#include "plan/pack/ledger.h"
#include "plan/query.h"
#include "plan/verify.h"
#include "tensor/session/plan_key.h"

namespace sluice {
namespace {

// A row of texts of any bytes, each behind its length.
std::string join(const std::vector<std::string_view>& parts) {
  std::string all;
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    all.append(reinterpret_cast<const char*>(&size), sizeof(size)).append(part);
  }
  return all;
}

class Parts {
 public:
  explicit Parts(std::string_view all) : left_(all) {}
  std::string_view next() {
    uint64_t size = 0;
    SLUICE_CHECK(left_.size() >= sizeof(size), "ends too early");
    std::memcpy(&size, left_.data(), sizeof(size));
    left_.remove_prefix(sizeof(size));
    SLUICE_CHECK(size <= left_.size(), "ends too early");
    const std::string_view part = left_.substr(0, size);
    left_.remove_prefix(size);
    return part;
  }
  bool done() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// Plan, graph, the constants that were made, and what passes have rewritten.
std::string text_of(const CompileResult& result) {
  const std::string plan = plan::to_json(result.plan), graph = graph::to_text(result.graph);
  const std::string constants = std::to_string(result.constants.size());
  std::vector<std::string_view> parts = {plan, graph, constants};
  for (const auto& [name, bytes] : result.constants) {
    parts.emplace_back(name);
    parts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::vector<std::string> rewrites;
  for (const PassReport& pass : result.passes) rewrites.push_back(std::to_string(pass.rewrites));
  for (size_t i = 0; i < result.passes.size(); ++i) {
    parts.emplace_back(result.passes[i].name);
    parts.emplace_back(rewrites[i]);
  }
  return join(parts);
}

int number_in(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  SLUICE_CHECK(error == std::errc() && end == text.data() + text.size() && number >= 0, "'{}' is no number", text);
  return number;
}

CompileResult result_of(std::string_view text, const OpRegistry& ops) {
  Parts parts(text);
  CompileResult result;
  result.plan = plan::from_json(parts.next(), "plan");
  result.graph = graph::parse(parts.next(), "graph", ops);
  for (int left = number_in(parts.next()); left > 0; --left) {
    std::string name(parts.next());
    const std::string_view content = parts.next();
    const auto* const data = reinterpret_cast<const std::byte*>(content.data());
    result.constants.emplace(std::move(name), std::vector<std::byte>(data, data + content.size()));
  }
  while (!parts.done()) {
    std::string name(parts.next());
    result.passes.push_back({std::move(name), number_in(parts.next()), 0});
  }
  return result;
}

// Is it a plan of this graph? The inputs, outputs and variables of a plan are the graph's.
void check_ports(const CompileResult& result, const graph::Graph& graph) {
  const plan::Plan& plan = result.plan;
  std::map<std::string, TensorType> inputs, variables;
  std::map<std::string, bool> changes;  // of variables
  for (const graph::Input& input : graph.inputs()) inputs.emplace(input.name, graph.type(input.value));
  for (const graph::Variable& v : graph.variables()) {
    variables.emplace(v.name, graph.type(v.value));
    changes.emplace(v.name, v.update != graph::kNoValue);
  }
  const auto of = [](const TensorSpec& spec) { return TensorType{spec.dtype, spec.shape}; };
  for (const plan::Input& input : plan.inputs) {
    const auto known = inputs.find(input.name);
    SLUICE_CHECK(known != inputs.end() && known->second == of(input.spec), "input '{}' is not the graph's", input.name);
  }
  SLUICE_CHECK(plan.outputs.size() == graph.outputs().size(), "{} outputs; the graph has {}", plan.outputs.size(),
               graph.outputs().size());
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const graph::Output& output = graph.outputs()[i];
    SLUICE_CHECK(plan.outputs[i].name == output.name && of(plan.outputs[i].view.spec) == graph.type(output.value),
                 "output '{}' is not the graph's", plan.outputs[i].name);
  }
  const std::vector<bool> written = plan::written_variables(plan);
  for (size_t i = 0; i < plan.variables.size(); ++i) {
    const plan::Variable& variable = plan.variables[i];
    if (const auto made = result.constants.find(variable.name); made != result.constants.end()) {
      SLUICE_CHECK(!written[i] && made->second.size() == variable.spec.extent_bytes(),
                   "constant '{}' has {} bytes; the plan says {}", variable.name, made->second.size(),
                   variable.spec.extent_bytes());
      continue;
    }
    const auto known = variables.find(variable.name);
    SLUICE_CHECK(
        known != variables.end() && known->second == of(variable.spec) && (changes[variable.name] || !written[i]),
        "variable '{}' is not the graph's", variable.name);
  }
}

// Kernels say themselves what they need here.
void check_workspaces(const plan::Plan& plan, const plan::Target& target) {
  const std::vector<int> streams = plan::streams_of_kernels(plan);
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (streams[k] < 0) continue;
    const plan::Kernel& kernel = plan.kernels[k];
    const uint64_t has = kernel.workspace < 0 ? 0 : plan.buffers[kernel.workspace].bytes;
    const uint64_t needs = target.workspace_bytes(plan::query_of(plan, kernel, plan.streams[streams[k]]));
    SLUICE_CHECK(needs <= has, "kernel '{}' needs {} bytes of workspace here; the plan has {}", kernel.name, needs,
                 has);
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CompileResult PlanCache::compile(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                                 const ConstantLookup& constants, const ConstantEvaluator& evaluate) {
  if (!has_plan_key(graph, target, options))
    return sluice::compile(std::move(graph), target, options, constants, evaluate);
  const auto start = std::chrono::steady_clock::now();
  const std::string key = plan_key(graph, target, options, constants);
  std::string text;
  std::optional<CompileResult> found = files_.find(key, [&](std::string_view kept) {
    CompileResult result = result_of(kept, ops_);
    SLUICE_CHECK(result.plan.name == options.name && result.plan.target == target.fingerprint(), "is another plan");
    plan::check(result.plan);
    plan::check_budget(result.plan, options.memory_budget);
    graph::check_kernels(result.plan, ops_);
    check_ports(result, graph);
    check_workspaces(result.plan, target);
    if (use_ == Use::kCheck) text = kept;
    return result;
  });
  if (found && use_ == Use::kRead) {
    found->seconds = seconds_since(start);
    log(LogLevel::kInfo, LogArea::kTensor, "plan '{}': compiled before; read from {} in {:.1f} ms", options.name,
        files_.directory(), found->seconds * 1e3);
    return std::move(*found);
  }
  CompileResult result = sluice::compile(std::move(graph), target, options, constants, evaluate);
  const std::string made = text_of(result);
  SLUICE_CHECK_KIND(kRuntime, !found || text == made,
                    "cache: {}: the plan '{}' that it has is not the one that is compiled now; a plan must follow from "
                    "what its key holds",
                    files_.directory(), options.name);
  if (!found) files_.put(key, made);
  return result;
}

}  // namespace sluice
