#include "onnx/body.h"

#include <algorithm>
#include <queue>

#include "base/error.h"

namespace sluice::onnx {
namespace {

constexpr int kMostDepth = 64;           // of graphs within each other
constexpr int64_t kMostNodes = 1 << 20;  // with the bodies of functions, as often as these are called

std::string domain_of(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

std::map<std::string, int64_t> opsets_of(
    const google::protobuf::RepeatedPtrField<format::OperatorSetIdProto>& imports) {
  std::map<std::string, int64_t> opsets;
  for (const auto& import : imports) {
    const std::string domain = domain_of(import.domain());
    opsets[domain] = import.version();
    SLUICE_CHECK_KIND(kUnsupported,
                      !domain.empty() || (import.version() >= kOldestOpset && import.version() <= kNewestOpset),
                      "onnx: opset {}; Sluice reads {} to {}", import.version(), kOldestOpset, kNewestOpset);
  }
  return opsets;
}

std::string function_key(const std::string& domain, const std::string& name, const std::string& overload) {
  return domain_of(domain) + ":" + name + ":" + overload;
}

// Attributes of a function's node that stand for those of its call.
void substitute(format::NodeProto& node, const std::map<std::string, const format::AttributeProto*>& given, int depth) {
  SLUICE_CHECK(depth < kMostDepth, "{}: graphs within each other, more than {}", where_of(node), kMostDepth);
  auto& attributes = *node.mutable_attribute();
  for (int i = attributes.size() - 1; i >= 0; --i) {
    format::AttributeProto& attribute = attributes[i];
    if (!attribute.ref_attr_name().empty()) {
      const auto found = given.find(attribute.ref_attr_name());
      if (found == given.end()) {
        attributes.DeleteSubrange(i, 1);
        continue;
      }
      const std::string name = attribute.name();
      attribute = *found->second;
      attribute.set_name(name);
    }
    if (attribute.has_g())
      for (auto& inner : *attribute.mutable_g()->mutable_node()) substitute(inner, given, depth + 1);
  }
}

// Orders the steps so that each comes after those whose results it reads; where there is a choice, as they stand.
std::vector<size_t> order_of(const std::vector<std::unordered_set<std::string>>& reads,
                             const std::unordered_map<std::string, size_t>& maker, const format::GraphProto& graph) {
  const size_t n = reads.size();
  std::vector<std::vector<size_t>> readers(n);
  std::vector<size_t> waits(n);
  for (size_t i = 0; i < n; ++i)
    for (const std::string& name : reads[i])
      if (const auto found = maker.find(name); found != maker.end()) {
        readers[found->second].push_back(i);
        ++waits[i];
      }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < n; ++i)
    if (waits[i] == 0) ready.push(i);
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const size_t reader : readers[i])
      if (--waits[reader] == 0) ready.push(reader);
  }
  for (size_t i = 0; order.size() < n && i < n; ++i)
    SLUICE_CHECK(waits[i] == 0, "onnx: {}: it waits for its own result; graphs must have no circles",
                 where_of(graph.node(static_cast<int>(i))));
  return order;
}

}  // namespace

std::string where_of(const format::NodeProto& node) {
  const std::string& domain = node.domain();
  const std::string type = (domain.empty() || domain == "ai.onnx" ? "" : domain + ":") + node.op_type();
  if (!node.name().empty()) return fmt::format("node '{}' ({})", node.name(), type);
  return fmt::format("node that makes '{}' ({})", node.output_size() > 0 ? node.output(0) : "", type);
}

Bodies::Bodies(const format::ModelProto& model, const Folder& folder)
    : model_(model), folder_(folder), opsets_(opsets_of(model.opset_import())) {
  SLUICE_CHECK(!opsets_.empty(), "onnx: no opset; a model must say which sets of ops its nodes are of");
  for (const auto& function : model.functions())
    SLUICE_CHECK(
        functions_.emplace(function_key(function.domain(), function.name(), function.overload()), &function).second,
        "onnx: function '{}' of domain '{}' is there twice; names must differ", function.name(), function.domain());
  main_ = add(model.graph(), {opsets_, nullptr, 0}, true);
  find_parameters(*main_);
}

const Body* Bodies::add(const format::GraphProto& graph, const Within& within, bool is_main) {
  SLUICE_CHECK(within.depth < kMostDepth, "onnx: graph '{}': graphs within each other, more than {}", graph.name(),
               kMostDepth);
  nodes_ += graph.node_size();
  SLUICE_CHECK(nodes_ <= kMostNodes, "onnx: graph '{}': more than {} nodes with those of functions", graph.name(),
               kMostNodes);
  Body& body = *bodies_.emplace_back(std::make_unique<Body>());
  by_graph_[&graph] = &body;
  body.graph = &graph;
  read_constants(body, graph, is_main);

  std::unordered_set<std::string> names;  // known here, with those around
  if (within.outer) names = *within.outer;
  std::unordered_set<std::string> own;
  for (const auto& [name, tensor] : body.constants) own.insert(name);
  for (const auto& [name, tensor] : parameters_)
    if (is_main) own.insert(name);
  for (const auto& input : graph.input()) {
    SLUICE_CHECK(!input.name().empty(), "onnx: graph '{}': an input without a name", graph.name());
    if (!is_main || !own.contains(input.name())) body.inputs.push_back(input.name());
    own.insert(input.name());
  }
  std::unordered_map<std::string, size_t> maker;
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string& name : graph.node(i).output())
      if (!name.empty())
        SLUICE_CHECK(!own.contains(name) && maker.emplace(name, i).second,
                     "onnx: {}: '{}' is made elsewhere, too; names must differ", where_of(graph.node(i)), name);
  for (const auto& [name, i] : maker) own.insert(name);
  names.insert(own.begin(), own.end());

  std::vector<std::unordered_set<std::string>> reads(static_cast<size_t>(graph.node_size()));
  std::vector<Step> steps;
  for (int i = 0; i < graph.node_size(); ++i) {
    const format::NodeProto& node = graph.node(i);
    std::unordered_set<std::string>& read = reads[static_cast<size_t>(i)];
    steps.push_back(step_of(node, {within.opsets, &names, within.depth}, read));
    for (const std::string& name : read) {
      SLUICE_CHECK(names.contains(name), "onnx: {}: nothing makes its input '{}'", where_of(node), name);
      if (!own.contains(name)) body.reads.insert(name);
    }
  }
  std::unordered_set<std::string> kept;
  for (const auto& output : graph.output()) {
    SLUICE_CHECK(names.contains(output.name()), "onnx: graph '{}': nothing makes its output '{}'", graph.name(),
                 output.name());
    body.outputs.push_back(output.name());
    kept.insert(output.name());
    if (!own.contains(output.name())) body.reads.insert(output.name());
  }
  const std::vector<size_t> order = order_of(reads, maker, graph);
  for (const size_t i : order) body.steps.push_back(std::move(steps[i]));
  for (size_t at = order.size(); at-- > 0;)
    for (const std::string& name : reads[order[at]])
      if (own.contains(name) && kept.insert(name).second) body.steps[at].done.push_back(name);
  return &body;
}

Step Bodies::step_of(const format::NodeProto& node, const Within& within, std::unordered_set<std::string>& reads) {
  const std::string domain = domain_of(node.domain());
  Step step{&node, find_entry(domain, node.op_type())};
  const auto function = functions_.find(function_key(domain, node.op_type(), node.overload()));
  if (function != functions_.end()) {  // its own definition comes before ours
    step.entry = nullptr;
    step.function = function_of(node, *function->second, within.depth);
  }
  const auto opset = within.opsets.find(domain);
  SLUICE_CHECK_KIND(kUnsupported, step.entry || step.function, "onnx: {}: Sluice has no such op", where_of(node));
  SLUICE_CHECK(step.function || opset != within.opsets.end(),
               "onnx: {}: the model imports no set of ops of domain '{}'", where_of(node), domain);
  step.version = opset == within.opsets.end() ? 0 : opset->second;
  for (const std::string& name : node.input())
    if (!name.empty()) reads.insert(name);
  const auto add_graph = [&](const format::GraphProto& graph) {
    const Body* inner = add(graph, {within.opsets, within.outer, within.depth + 1});
    reads.insert(inner->reads.begin(), inner->reads.end());
  };
  std::unordered_set<std::string> attributes;
  for (const auto& attribute : node.attribute()) {
    SLUICE_CHECK(attributes.insert(attribute.name()).second, "onnx: {}: attribute '{}' is there twice", where_of(node),
                 attribute.name());
    if (attribute.has_g()) add_graph(attribute.g());
    for (const auto& graph : attribute.graphs()) add_graph(graph);
  }
  return step;
}

const Body* Bodies::function_of(const format::NodeProto& node, const format::FunctionProto& function, int depth) {
  SLUICE_CHECK(std::find(calling_.begin(), calling_.end(), &function) == calling_.end(),
               "onnx: {}: the function calls itself; functions must have no circles", where_of(node));
  std::map<std::string, const format::AttributeProto*> given;
  for (const auto& attribute : function.attribute_proto()) given[attribute.name()] = &attribute;  // defaults
  for (const auto& attribute : node.attribute()) given[attribute.name()] = &attribute;
  format::GraphProto& graph = *made_.emplace_back(std::make_unique<format::GraphProto>());
  graph.set_name(function.name());
  *graph.mutable_node() = function.node();
  for (auto& inner : *graph.mutable_node()) substitute(inner, given, 0);
  for (const std::string& name : function.input()) graph.add_input()->set_name(name);
  for (const std::string& name : function.output()) graph.add_output()->set_name(name);
  SLUICE_CHECK(node.input_size() <= function.input_size() && node.output_size() <= function.output_size(),
               "onnx: {}: {} inputs and {} outputs; the function has {} and {}", where_of(node), node.input_size(),
               node.output_size(), function.input_size(), function.output_size());
  calling_.push_back(&function);
  Opsets& opsets = *opsets_of_functions_.emplace_back(std::make_unique<Opsets>(opsets_of(function.opset_import())));
  const Body* body = add(graph, {opsets, nullptr, depth + 1});
  calling_.pop_back();
  return body;
}

void Bodies::read_constants(Body& body, const format::GraphProto& graph, bool is_main) {
  std::unordered_set<std::string> names;
  const auto add = [&](const std::string& name, Tensor tensor) {
    SLUICE_CHECK(!name.empty() && names.insert(name).second, "onnx: initializer '{}': its name must be there once",
                 name);
    body.constants[name] = tensor;
    if (is_main && is_differentiable(tensor.dtype()) && tensor.rank() > 0) parameters_.emplace_back(name, tensor);
  };
  for (const auto& tensor : graph.initializer())
    add(tensor.name(), read_tensor(tensor, folder_, fmt::format("onnx: initializer '{}'", tensor.name())));
  for (const auto& sparse : graph.sparse_initializer()) {
    const std::string& name = sparse.values().name();
    add(name, read_sparse(sparse, folder_, fmt::format("onnx: initializer '{}'", name)));
  }
}

// Weights are what ops compute with and no op reads the values of.
void Bodies::find_parameters(const Body& body) {
  std::unordered_set<std::string> weights, known;
  note_uses(body, weights, known);
  std::erase_if(parameters_, [&](const auto& p) { return !weights.contains(p.first) || known.contains(p.first); });
  Body& main = *bodies_.front();
  for (const auto& [name, tensor] : parameters_) main.constants.erase(name);
}

void Bodies::note_uses(const Body& body, std::unordered_set<std::string>& weights,
                       std::unordered_set<std::string>& known) const {
  for (const Step& step : body.steps) {
    for (int i = 0; i < step.node->input_size(); ++i) {
      const bool read = step.entry && i < 32 && (step.entry->known >> i & 1);
      (read ? known : weights).insert(step.node->input(i));
    }
    for (const auto& attribute : step.node->attribute())
      if (attribute.has_g()) note_uses(of(attribute.g()), weights, known);
  }
}

}  // namespace sluice::onnx
