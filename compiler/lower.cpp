// Graph nodes -> kernel calls over stores: views cost nothing, copies are inserted between devices, layouts and into
// outputs, updates of variables are written in place where nobody can notice.
#include "compiler/lower.h"

#include <algorithm>

#include "base/fix.h"
#include "compiler/collectives.h"
#include "graph/ops/micro_batches.h"

namespace sluice::compiler {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueKind;
using plan::Layout;

namespace {

// Old contents of updated variables up to this size are copied for readers on other streams as a step begins, so that
// those need not hold back the update (generator states, step counters).
constexpr uint64_t kSnapshotBytes = 4096;

}  // namespace

Lowering::Lowering(const graph::Graph& graph, const std::vector<int>& order, const plan::Target& target,
                   const CompileOptions& options, const Partition& partition)
    : graph_(graph),
      order_(order),
      target_(target),
      options_(options),
      partition_(partition),
      batches_(graph.micro_batches()),
      placer_(graph, target, options),
      facts_(graph, order),
      where_(graph.values().size()),
      outputs_of_(graph.values().size()) {}

Lowered Lowering::run() {
  placer_.place_state_updates();
  placer_.assign_cores();
  std::map<std::string, int> rank_of_shard;
  for (const plan::Shard& shard : partition_.shards) rank_of_shard[shard.name] = shard.device.rank;
  std::vector<int> ranks(graph_.variables().size(), -1);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto found = rank_of_shard.find(graph_.variables()[i].name);
    if (found != rank_of_shard.end()) ranks[i] = found->second;
  }
  facts_.find_homes(placer_, ranks);
  out_.outputs.resize(graph_.outputs().size());
  for (size_t k = 0; k < graph_.outputs().size(); ++k) {
    outputs_of_[graph_.outputs()[k].value].push_back(static_cast<int>(k));
  }
  make_inputs_and_variables();
  for (const graph::Input& input : graph_.inputs()) defined(input.value);
  for (const graph::Variable& v : graph_.variables()) defined(v.value);
  finish_updates(-1);
  for (size_t p = 0; p < order_.size(); ++p) {
    const Node& node = graph_.nodes()[order_[p]];
    try {
      if (node.op->view)
        lower_view(order_[p]);
      else if (is_collective(*node.op))
        lower_collective(static_cast<int>(p));
      else
        node.op == &ops::pack_op() ? lower_pack(order_[p]) : lower_kernel(order_[p]);
    } catch (const Error& error) {
      if (!node.source.known()) throw;
      throw FixableError(error.kind(), fmt::format("{}  ({})", error.what(), node.source.str()), fix_of(error));
    }
    for (ValueId output : node.outputs) defined(output);
    finish_updates(static_cast<int>(p));
  }
  for (int rank = 0; rank < options_.ranks; ++rank) place_ports(rank);
  pin_what_devices_copy();
  for (size_t i = 0; i < placer_.streams.size(); ++i)
    out_.stream_space.push_back(placer_.space_of(static_cast<int>(i)));
  out_.spaces = std::move(placer_.spaces);
  out_.streams = std::move(placer_.streams);
  return std::move(out_);
}

void Lowering::make_inputs_and_variables() {
  const auto make = [&](Store::Kind kind, size_t index, int space, ValueId value, const std::string& name) {
    const TensorSpec spec = TensorSpec::contiguous(graph_.type(value));
    const int store = add_store({kind, static_cast<int>(index), space, spec.extent_bytes(), name, 0});
    where_[value].push_back({store, 0, spec});
    return store;
  };
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const int host = placer_.host_space(partition_.inputs.empty() ? 0 : partition_.inputs[i].device.rank);
    make(Store::Kind::kInput, i, host, graph_.inputs()[i].value, graph_.inputs()[i].name);
  }
  for (size_t i = 0; i < graph_.variables().size(); ++i) {
    const graph::Variable& v = graph_.variables()[i];
    const int space = placer_.space_of(facts_.home[i]);
    out_.variable_store.push_back(make(Store::Kind::kVariable, i, space, v.value, v.name));
  }
  for (size_t i = 0; i < graph_.variables().size(); ++i) {
    const Operand content = where_[graph_.variables()[i].value][0];
    const Store& store = out_.stores[content.store];
    if (!facts_.updated(static_cast<int>(i)) || !facts_.read_elsewhere[i] || store.bytes > kSnapshotBytes) continue;
    where_[graph_.variables()[i].value].push_back(add_copy(content, content.spec, facts_.home[i], store.space));
  }
  out_.writer.assign(graph_.variables().size(), -1);
}

// The actor that brings inputs runs where they are prepared on the host, so that a long program of the compute stream
// does not hold back the preparation of the next step.
void Lowering::place_ports(int rank) {
  const int compute = placer_.default_stream(rank);
  const bool on_host = placer_.space_of(compute) == placer_.host_space(rank);
  out_.sink_streams.push_back(on_host ? compute : placer_.host_stream(rank));
  out_.feed_streams.push_back(out_.sink_streams.back());
  for (const Task& task : out_.tasks) {
    for (const Operand& in : task.inputs) {
      if (in.store < 0 || out_.stores[in.store].kind != Store::Kind::kInput) continue;
      if (placer_.streams[task.stream].kind != plan::StreamKind::kHost || placer_.rank_of(task.stream) != rank)
        continue;
      out_.feed_streams.back() = task.stream;
      return;
    }
  }
}

// Values that a device copies to or from the host by itself are pinned there.
void Lowering::pin_what_devices_copy() {
  for (const Task& task : out_.tasks) {
    const plan::Stream& stream = placer_.streams[task.stream];
    const bool copies = stream.kind == plan::StreamKind::kCopyIn || stream.kind == plan::StreamKind::kCopyOut;
    if (!copies || !placer_.desc(stream.device).dma) continue;
    for (const std::vector<Operand>* operands : {&task.inputs, &task.outputs}) {
      for (const Operand& operand : *operands) {
        Store& store = out_.stores[operand.store];
        if (store.space != placer_.host_space(stream.device.rank) || store.kind == Store::Kind::kVariable) continue;
        store.space = placer_.pinned_space(stream.device);
      }
    }
  }
}

int Lowering::add_store(Store store) {
  store.bytes = std::max<uint64_t>(store.bytes, 1);  // zero-size tensors have an address too
  out_.stores.push_back(std::move(store));
  return static_cast<int>(out_.stores.size()) - 1;
}

std::string Lowering::unique_name(const std::string& base) {
  const int n = ++names_[base];
  return n == 1 ? base : fmt::format("{}#{}", base, n);
}

int Lowering::add_task(Task task) {
  out_.tasks.push_back(std::move(task));
  return static_cast<int>(out_.tasks.size()) - 1;
}

const Lowering::Answers& Lowering::ask(const plan::KernelQuery& query) {
  std::string key = query.op + query.device.str();
  const auto add = [&](const TensorSpec& spec) {
    key += fmt::format(";{}{}{}", static_cast<int>(spec.dtype), spec.shape.str(), spec.strides.str());
  };
  for (const TensorSpec& spec : query.inputs) add(spec);
  key += "->";
  for (const TensorSpec& spec : query.outputs) add(spec);
  for (const auto& [name, value] : query.attrs) key += fmt::format(",{}:{}", value.index(), attr_str(value));
  key += fmt::format("*{}", query.cores);
  const auto [it, fresh] = answers_.try_emplace(std::move(key));
  if (fresh) it->second = {target_.workspace_bytes(query), target_.cost_ns(query), target_.in_place(query)};
  return it->second;
}

void Lowering::lower_view(int index) {
  const Node& node = graph_.nodes()[index];
  const ValueId input = node.inputs[0], output = node.outputs[0];
  stamp(node);
  const auto view_of = [&](const Operand& from) {
    const auto view = node.op->view(from.spec, node.attrs);
    if (!view) return false;
    const uint64_t offset = static_cast<uint64_t>(view->offset) * dtype_size(from.spec.dtype);
    where_[output].push_back({from.store, from.offset + offset, {from.spec.dtype, view->shape, view->strides}});
    return true;
  };
  bool viewed = false;
  for (const Operand& from : std::vector<Operand>(where_[input])) viewed |= view_of(from);
  if (viewed) return;
  const Operand plain = fetch(input, placer_.stream_of(index), Layout::kContiguous);
  SLUICE_CHECK_KIND(kRuntime, view_of(plain), "op {}: cannot view a contiguous {}; a view op must", node.op->name,
                    graph_.type(input).str());
}

void Lowering::lower_kernel(int index) {
  const Node& node = graph_.nodes()[index];
  const int stream = placer_.stream_of(index);
  const plan::Stream where = placer_.streams[stream];
  stamp(node);
  SLUICE_CHECK_KIND(kUnsupported, target_.has_kernel(node.op->name, where.device.kind),
                    "op {}: no kernel on device {}; place it on a device that has one", node.op->name,
                    where.device.str());
  Task task;
  plan::KernelQuery query{node.op->name, name_attrs(*node.op, node.attrs), {}, {}, where.device, where.cores};
  if (node.op->precision != OpDef::Precision::kNone && graph_.type(node.outputs[0]).dtype == DType::kFloat32) {
    const bool conv = node.op->precision == OpDef::Precision::kConv;
    const std::string& precision = conv ? options_.float32_conv_precision : options_.float32_matmul_precision;
    if (precision != "highest") query.attrs.emplace_back("precision", precision);
  }
  const auto read_inputs = [&](const plan::LayoutPreference* preference) {
    task.inputs.clear();
    query.inputs.clear();
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool told = preference && i < preference->inputs.size();
      const Layout layout = told ? preference->inputs[i] : Layout::kAny;
      task.inputs.push_back(node.inputs[i] == kNoValue ? Operand{} : fetch(node.inputs[i], stream, layout));
      query.inputs.push_back(task.inputs.back().spec);
    }
  };
  read_inputs(nullptr);
  for (ValueId output : node.outputs) query.outputs.push_back(TensorSpec::contiguous(graph_.type(output)));
  const plan::LayoutPreference preference = target_.layouts(query);
  read_inputs(&preference);
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const Layout layout = o < preference.outputs.size() ? preference.outputs[o] : Layout::kContiguous;
    query.outputs[o] = output_spec(query.outputs[o], layout, query.inputs);
  }
  query.cost = graph_.cost(node);
  task.op = node.op->name;
  task.name = unique_name(node.module.empty() ? task.op : node.module + "/" + task.op);
  task.attrs = query.attrs;
  task.stream = stream;
  const Answers& answers = ask(query);
  task.workspace_bytes = answers.workspace_bytes;
  if (options_.in_place) task.in_place = answers.in_place;
  task.cost_ns = answers.cost_ns;
  task.source = node.source;
  task.module = node.module;
  task.effectful = node.op->effectful;
  task.every = node.every;
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId value = node.outputs[o];
    const int variable = variable_to_write(index, static_cast<int>(o), query.outputs[o], task);
    int store;
    if (variable >= 0) {
      store = out_.variable_store[variable];
      out_.writer[variable] = static_cast<int>(out_.tasks.size());
    } else {
      const std::string name = o == 0 ? task.name : fmt::format("{}.{}", task.name, o);
      store = add_store({Store::Kind::kTemp, -1, placer_.space_of(stream), query.outputs[o].extent_bytes(), name,
                         node.quota, graph_.every(value)});
    }
    task.outputs.push_back({store, 0, query.outputs[o]});
    where_[value].push_back(task.outputs.back());
  }
  add_task(std::move(task));
}

// The inputs of all the call's nodes, which follow this one, are brought to their places before the first of its tasks.
void Lowering::lower_collective(int position) {
  const Node& node = graph_.nodes()[order_[position]];
  for (size_t p = position; p < order_.size(); ++p) {
    const Node& member = graph_.nodes()[order_[p]];
    if (!is_collective(*member.op) || meeting_of(member) != meeting_of(node)) break;
    stamp(member);
    fetch(member.inputs[0], placer_.stream_of(order_[p]), Layout::kContiguous);
  }
  stamp(node);
  Task task;
  task.op = node.op->name;
  task.name = unique_name(node.module.empty() ? task.op : node.module + "/" + task.op);
  task.stream = placer_.stream_of(order_[position]);
  task.inputs = {fetch(node.inputs[0], task.stream, Layout::kContiguous)};
  const TensorSpec spec = TensorSpec::contiguous(graph_.type(node.outputs[0]));
  const plan::Stream& where = placer_.streams[task.stream];
  task.cost_ns =
      target_.cost_ns({task.op, {}, {task.inputs[0].spec}, {spec}, where.device, where.cores, graph_.cost(node)});
  task.source = node.source;
  task.module = node.module;
  task.effectful = true;
  task.ranks = ranks_of(node);
  task.meeting = meeting_of(node);
  task.every = node.every;
  const int store =
      add_store({Store::Kind::kTemp, -1, placer_.space_of(task.stream), spec.extent_bytes(), task.name, 0, node.every});
  task.outputs = {{store, 0, spec}};
  where_[node.outputs[0]].push_back(task.outputs[0]);
  add_task(std::move(task));
}

// What a variable is for a whole step: no micro-batch changes it.
bool Lowering::same_in_all(ValueId value) const {
  if (graph_.every(value) != 0) return false;
  const graph::ValueInfo& root = graph_.values()[facts_.root[value]];
  if (root.kind != ValueKind::kVariable) return false;
  const ValueId update = graph_.variables()[root.index].update;
  return update == kNoValue || graph_.every(update) == batches_;
}

// The values of all micro-batches wait in a register of as many slots; the kernel of concat takes them all. Where they
// are one value, it reads that as often.
void Lowering::lower_pack(int index) {
  const Node& node = graph_.nodes()[index];
  const bool same = same_in_all(node.inputs[0]);
  stamp(node);
  if (!same) every_ = 1;
  const int stream = placer_.stream_of(index);
  Operand part = fetch(node.inputs[0], stream, Layout::kContiguous);
  if (!same && !travels(part)) part = add_copy(part, part.spec, stream, placer_.space_of(stream));
  const plan::Stream where = placer_.streams[stream];
  const TensorSpec spec = TensorSpec::contiguous(graph_.type(node.outputs[0]));
  if (part.spec.shape.rank() == 0) part.spec = TensorSpec::contiguous({part.spec.dtype, {1}});
  Task task;
  task.op = "concat";
  task.name = unique_name(node.module.empty() ? "pack" : node.module + "/pack");
  task.attrs = {{"dim", int64_t{0}}};
  task.stream = stream;
  task.every = node.every;
  task.source = node.source;
  task.module = node.module;
  plan::KernelQuery query{task.op, task.attrs, {}, {spec}, where.device, where.cores, graph_.cost(node)};
  for (int batch = 0; batch < node.every; ++batch) {
    part.token = same ? 0 : batch;
    task.inputs.push_back(part);
    query.inputs.push_back(part.spec);
  }
  SLUICE_CHECK_KIND(kUnsupported, target_.has_kernel(task.op, where.device.kind),
                    "op pack: no kernel concat on device {}; place it on a device that has one", where.device.str());
  task.workspace_bytes = ask(query).workspace_bytes;
  task.cost_ns = ask(query).cost_ns;
  const int store =
      add_store({Store::Kind::kTemp, -1, placer_.space_of(stream), spec.extent_bytes(), task.name, 0, node.every});
  task.outputs = {{store, 0, spec}};
  where_[node.outputs[0]].push_back(task.outputs[0]);
  add_task(std::move(task));
}

// Strides of an output: what its kernel wants, else those of the first operand of its shape.
TensorSpec Lowering::output_spec(const TensorSpec& spec, Layout layout, const std::vector<TensorSpec>& inputs) const {
  if (layout != Layout::kAny) return with_layout(spec, layout);
  for (const TensorSpec& input : inputs) {
    if (input.shape == spec.shape && is_dense(input.shape, input.strides)) {
      return {spec.dtype, spec.shape, input.strides};
    }
  }
  return spec;
}

// The variable whose memory output `o` of a node may write: its new content, with every other reader of the old one
// already done, and itself able to work in place if it reads it.
int Lowering::variable_to_write(int index, int o, const TensorSpec& spec, const Task& task) {
  const int v = facts_.update_of[graph_.nodes()[index].outputs[o]];
  if (v < 0 || facts_.home[v] != task.stream || out_.writer[v] >= 0) return -1;
  if (facts_.last_read[v] > facts_.position[index]) return -1;
  const int store = out_.variable_store[v];
  if (!is_contiguous(spec.shape, spec.strides) || out_.stores[store].space != placer_.space_of(task.stream)) return -1;
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    const Operand& input = task.inputs[i];
    if (input.store != store) continue;
    const bool whole = input.offset == 0 && input.spec.shape == spec.shape && input.spec.dtype == spec.dtype &&
                       is_contiguous(input.spec.shape, input.spec.strides);
    const bool allowed = std::any_of(task.in_place.begin(), task.in_place.end(), [&](const plan::InPlacePair& pair) {
      return pair.output == o && pair.input == static_cast<int>(i);
    });
    if (!whole || !allowed) return -1;
  }
  return v;
}

void Lowering::stamp(const Node& node) {
  source_ = node.source;
  module_ = node.module;
  every_ = node.every;
}

Lowered lower(const graph::Graph& graph, const std::vector<int>& order, const plan::Target& target,
              const CompileOptions& options, const Partition& partition) {
  return Lowering(graph, order, target, options, partition).run();
}

}  // namespace sluice::compiler
