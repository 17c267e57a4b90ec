// Splits a logical graph over devices: a node on a mesh of n becomes n nodes on shards, with conversions between.
#include <algorithm>
#include <map>
#include <tuple>

#include "compiler/boxing_path.h"
#include "compiler/collective_buckets.h"
#include "compiler/pass.h"
#include "compiler/rank_classes.h"
#include "compiler/sbp_infer.h"
#include "compiler/sbp_search.h"
#include "graph/ops/global.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;

const Lay kOff{};

// The shards of a value, of which a section has few.
class Kept {
 public:
  Kept() = default;
  explicit Kept(const Shards& shards) : size_(shards.size()) {
    for (size_t i = 0; i < shards.size(); ++i)
      if (shards[i].defined()) made_.emplace_back(i, shards[i]);
  }
  Shards all() const {
    Shards shards(size_);
    for (const auto& [i, shard] : made_) shards[i] = shard;
    return shards;
  }

 private:
  size_t size_ = 0;
  std::vector<std::pair<size_t, Value>> made_;
};

class Partitioner {
 public:
  Partitioner(SbpPlan plan, PassContext& pass)
      : plan_(std::move(plan)),
        pass_(pass),
        section_(pass.section),
        off_mesh_(off_mesh(pass.options.device, section_ ? section_->job_ranks() : pass.options.ranks)),
        builder_(target_, pass.options.device),
        made_(plan_.values.size()) {}

  graph::Graph run() {
    const ExecutorScope scope(builder_);
    target_.name = source().name;
    target_.set_micro_batches(source().micro_batches());
    for (const graph::Input& input : source().inputs()) add_input(input);
    for (const graph::Variable& v : source().variables()) add_variable(v);
    bool updating = false;
    for (size_t i = 0; i < source().nodes().size(); ++i) {
      const Node& node = source().nodes()[i];
      if (node.role == Role::kUpdate && !updating) convert_for_updates(i);
      updating = updating || node.role == Role::kUpdate;
      builder_.context = graph::Rewriter::context_of(node);
      // A node that depends on nothing is made later, by the first reader, on that reader's mesh.
      if (plan_.calls[i].mesh != Lay::kFree) split(node, plan_.calls[i]);
    }
    for (const graph::Output& output : source().outputs()) {
      builder_.context = {source().provenance(output.value)};
      const Shards shards = get(output.value, kOff);
      for (size_t i = 0; i < shards.size(); ++i) {
        if (!shards[i].defined()) continue;
        plan::Shard shard = shard_of(output.name, output.value, kOff, off_mesh_, static_cast<int>(i));
        target_.add_output(shard.name, builder_.id(shards[i]), output.extent_of, output.axes);
        pass_.partition.outputs.push_back(std::move(shard));
      }
    }
    for (const graph::Variable& v : source().variables()) {
      if (v.update == kNoValue) continue;
      builder_.context = {source().provenance(v.update)};
      const Shards contents = get(v.update, plan_.values[v.value]);
      const Shards old = made_[v.value].at(key_of(plan_.values[v.value])).all();
      for (size_t i = 0; i < contents.size(); ++i) {
        if (!contents[i].defined()) continue;
        const ValueId content = builder_.id(contents[i]), before = builder_.id(old[i]);
        // A shard that keeps its old content has no update, so that the plan does not copy it to itself.
        if (content != before) target_.set_update(target_.values()[before].index, content);
      }
    }
    if (section_ != nullptr) renumber();
    return std::move(target_);
  }

 private:
  // Ranks of a section are numbered by their classes from now on; names keep those of the job.
  void renumber() {
    for (Node& node : target_.mutable_nodes())
      if (node.placement.device) node.placement.device->rank = section_->number(node.placement.device->rank);
    for (std::vector<plan::Shard>* shards :
         {&pass_.partition.inputs, &pass_.partition.outputs, &pass_.partition.shards})
      for (plan::Shard& shard : *shards) shard.device.rank = section_->number(shard.device.rank);
  }
  bool is_made(const Spread& where, int i) const { return compiler::is_made(where.devices[i], section_); }
  // Ranks of a class have parts of one size.
  void check_even(const TensorType& type, const Lay& lay) const {
    if (section_ == nullptr || !lay.on_mesh()) return;
    const MeshShape mesh = shape_of(plan_.meshes[lay.mesh]);
    TensorType part = type;
    for (int k = 0; k < lay.sbp.size(); ++k) {
      if (lay.sbp[k].kind != Sbp::Kind::kSplit) continue;
      int64_t& size = part.shape[lay.sbp[k].axis];
      SLUICE_CHECK_KIND(kUnsupported, size % mesh[static_cast<size_t>(k)] == 0,
                        "classes of ranks: {} as {}: parts of different sizes; {}", type.str(), lay.sbp.str(),
                        kWithoutClasses);
      size /= mesh[static_cast<size_t>(k)];
    }
  }

  using Key = std::tuple<int, std::string, int>;  // a Lay, and how often it is made of a variable; 0: of no other
  const graph::Graph& source() const { return plan_.graph; }

  // Two lays have one key if they put the same bytes in the same places: on a single device every sbp is a broadcast,
  // and an axis counts only for a split. So nothing is converted that lies as it is wanted already.
  Key key_of(const Lay& lay) const {
    if (!lay.on_mesh()) return {lay.mesh, "B", 0};
    NdSbp sbp = lay.sbp;
    for (int k = 0; k < sbp.size(); ++k)
      if (plan_.meshes[lay.mesh].axes()[static_cast<size_t>(k)].size == 1) sbp[k] = Sbp::broadcast();
    return {lay.mesh, sbp.str(), 0};
  }
  Lay everywhere(int mesh) const {
    const size_t axes = mesh >= 0 ? plan_.meshes[mesh].axes().size() : 1;
    return {mesh, NdSbp::filled(static_cast<int>(axes), Sbp::broadcast())};
  }
  const Spread& spread(const Lay& lay) {
    if (!lay.on_mesh()) return off_mesh_;
    const auto [known, fresh] = spreads_.try_emplace({lay.mesh, lay.sbp.str()});
    if (fresh) known->second = spread_over(plan_.meshes[lay.mesh], lay.sbp);
    return known->second;
  }
  // Names the part on one device of a value that has one part per device.
  static std::string name_at(const std::string& name, const std::optional<DeviceId>& device) {
    return device ? fmt::format("{}@{}", name, device->str()) : name;
  }
  void define(ValueId value, const Shards& shards) {
    check_even(source().type(value), plan_.values[value]);
    made_[value][key_of(plan_.values[value])] = Kept(shards);
  }

  plan::Shard shard_of(const std::string& name, ValueId value, const Lay& lay, const Spread& where, int i) const {
    const TensorType& type = source().type(value);
    plan::Shard shard{name_at(name, where.devices[i]), name, where.devices[i].value_or(DeviceId{}), type};
    if (!lay.on_mesh()) return shard;
    const MeshShape mesh = where.shape();
    const Spans spans = spans_of(type.shape, mesh, lay.sbp, i);
    for (int d = 0; d < type.shape.rank(); ++d) {
      const auto [start, stop] = spans[static_cast<size_t>(d)];
      shard.type.shape[d] = stop - start;
      bool cut = false;
      for (int k = 0; k < lay.sbp.size(); ++k)
        cut = cut || (lay.sbp[k] == Sbp::split(d) && mesh[static_cast<size_t>(k)] > 1);
      if (cut) shard.cuts.push_back({d, start});
    }
    if (mesh.size() > 1) shard.lies = where.str();
    return shard;
  }

  void add_input(const graph::Input& input) {
    const Lay& lay = plan_.values[input.value];
    const Spread& where = spread(lay);
    Shards shards;
    for (int i = 0; i < where.size(); ++i) {
      if (!is_made(where, i)) {
        shards.emplace_back();
        continue;
      }
      plan::Shard shard = shard_of(input.name, input.value, lay, where, i);
      shards.push_back(builder_.value(target_.add_input(shard.name, shard.type)));
      pass_.partition.inputs.push_back(std::move(shard));
    }
    define(input.value, shards);
  }

  void add_variable(const graph::Variable& v) {
    const Lay& lay = plan_.values[v.value];
    const Spread& where = spread(lay);
    Shards shards;
    for (int i = 0; i < where.size(); ++i) {
      if (!is_made(where, i)) {
        shards.emplace_back();
        continue;
      }
      plan::Shard shard = shard_of(v.name, v.value, lay, where, i);
      shards.push_back(builder_.value(target_.add_variable(shard.name, shard.type, v.constant)));
      if (where.devices[i]) pass_.partition.shards.push_back(std::move(shard));
    }
    define(v.value, shards);
  }

  // Converts what updates read, in the order in which it is made: gradients of the last layers come first, and
  // collectives run in the order in which they stand. In the order of the parameters, the first would wait for the last
  // gradient, and all others behind it.
  void convert_for_updates(size_t first) {
    struct Read {
      int maker;
      ValueId value;
      Lay wanted;
      size_t reader;
    };
    std::vector<Read> reads;
    const std::vector<Node>& nodes = source().nodes();
    for (size_t i = first; i < nodes.size(); ++i) {
      if (nodes[i].role != Role::kUpdate || plan_.calls[i].mesh < 0) continue;
      for (size_t input = 0; input < nodes[i].inputs.size(); ++input) {
        const ValueId value = nodes[i].inputs[input];
        if (value == kNoValue || source().values()[value].kind != graph::ValueKind::kNode) continue;
        const int maker = source().values()[value].index;
        if (maker < static_cast<int>(first) && plan_.values[value].mesh != Lay::kFree)
          reads.push_back({maker, value, {plan_.calls[i].mesh, plan_.calls[i].input(input)}, i});
      }
    }
    std::stable_sort(reads.begin(), reads.end(), [](const Read& a, const Read& b) { return a.maker < b.maker; });
    for (const Read& read : reads) {
      builder_.context = graph::Rewriter::context_of(nodes[read.reader]);
      get(read.value, read.wanted);
    }
  }

  // The shards of a value where and how they are wanted; converted once.
  Shards get(ValueId value, const Lay& wanted) {
    auto& known = made_[value];
    Key key = key_of(wanted);
    if (const auto it = known.find(key); it != known.end()) return it->second.all();
    if (plan_.values[value].mesh == Lay::kFree) return make_free(value, wanted);
    // It is converted as often as it is there; a variable, as often as it is read.
    const int reader = builder_.context.every, there = source().every(value);
    if (there == 0) std::get<2>(key) = reader;
    if (const auto it = known.find(key); it != known.end()) return it->second.all();
    // The conversion runs as often as its source is made, not as often as its first reader runs: later readers may run
    // more often.
    if (there != 0) builder_.context.every = there;
    const TensorType& type = source().type(value);
    check_even(type, wanted);
    const Shards shards = boxed(type, known.at(key_of(plan_.values[value])).all(), plan_.values[value], wanted);
    builder_.context.every = reader;
    report(type, plan_.values[value], wanted);
    known[key] = Kept(shards);
    return shards;
  }

  Shards boxed(const TensorType& type, const Shards& shards, const Lay& from, const Lay& to) {
    const Spread &source = spread(from), &target = spread(to);
    const bool rows = source.sbp.size() == 1 && target.sbp.size() == 1;
    return box(builder_, type, shards, source, target, section_, rows ? nullptr : &path_of(type, from, to));
  }

  // The steps from one way to lie to another: many values take the same.
  const std::vector<BoxingStep>& path_of(const TensorType& type, const Lay& from, const Lay& to) {
    const auto text = [](const Lay& lay) { return fmt::format("{} on {}", lay.sbp.str(), lay.mesh); };
    const auto [known, fresh] = paths_.try_emplace(fmt::format("{} {} to {}", type.str(), text(from), text(to)));
    if (fresh) known->second = boxing_path(type, spread(from), spread(to), section_);
    return known->second;
  }

  // Notes the conversion and the bytes that it moves, for the report on the partition.
  void report(const TensorType& type, const Lay& from, const Lay& to) {
    Spread source = spread(from);
    const Spread& target = spread(to);
    const auto text = [&](const Spread& lies) {  // thousands of devices are not for people
      return section_ == nullptr ? lies.str() : fmt::format("{} on {} devices", lies.sbp.str(), lies.size());
    };
    const auto add = [&](const Spread& step, double bytes) {
      pass_.partition.boxings.push_back(
          {boxing_kind(source, step), builder_.context.module, text(source), text(step), bytes});
      source = step;
    };
    const double bytes = static_cast<double>(bytes_of(type));
    if (source.sbp.size() == 1 && target.sbp.size() == 1)
      return add(target,
                 boxing_bytes(bytes, source.sbp[0], source.size(), target.sbp[0], target.size(), from.mesh != to.mesh));
    for (const BoxingStep& step : path_of(type, from, to)) add(step.to, step.bytes);
  }

  // A value that depends on nothing is made where it is read, whole.
  Shards make_free(ValueId value, const Lay& wanted) {
    const Lay whole = everywhere(wanted.mesh);
    const Node& node = source().nodes()[source().values()[value].index];
    auto& known = made_[value];
    if (!known.contains(key_of(whole))) {
      const graph::NodeContext outer = builder_.context;
      builder_.context = graph::Rewriter::context_of(node);
      const SbpRow row{std::vector<Sbp>(node.inputs.size()), std::vector<Sbp>(node.outputs.size())};
      split(node, {wanted.mesh, std::vector(static_cast<size_t>(whole.sbp.size()), row)});
      builder_.context = outer;
    }
    const Shards shards = known.at(key_of(whole)).all();
    if (key_of(whole) == key_of(wanted)) return shards;
    check_even(source().type(value), wanted);
    const Shards made = boxed(source().type(value), shards, whole, wanted);
    known[key_of(wanted)] = Kept(made);
    return made;
  }

  // Makes the shards of a node's outputs.
  void split(const Node& node, const SplitCall& call) {
    const auto in = [&](size_t i) { return call.mesh >= 0 ? Lay{call.mesh, call.input(i)} : kOff; };
    const auto out = [&](size_t o) { return call.mesh >= 0 ? Lay{call.mesh, call.output(o)} : kOff; };
    // These ops compute nothing: their result is their operand, converted.
    if (node.op == &ops::to_global_op() || node.op == &ops::global_like_op()) {
      made_[node.outputs[0]][key_of(out(0))] = Kept(get(node.inputs[0], in(0)));
      return;
    }
    const Spread& where = spread(everywhere(call.mesh));
    const int n = where.size();
    std::vector<Shards> inputs(node.inputs.size()), outputs(node.outputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (node.inputs[i] != kNoValue) inputs[i] = get(node.inputs[i], in(i));
    for (int shard = 0; shard < n; ++shard) {
      if (!is_made(where, shard)) {
        for (Shards& made : outputs) made.emplace_back();
        continue;
      }
      std::optional<DeviceId>& device = builder_.context.placement.device;
      // On a mesh the shard's device counts. Outside, a node that names a device keeps its kind and number, on the rank
      // of the copy that is made.
      if (call.mesh >= 0 || (where.devices[shard] && !device))
        device = where.devices[shard];
      else if (device)  // of each rank
        device->rank = rank_of(where.devices[shard]);
      std::vector<Value> operands;
      for (const Shards& shards : inputs) operands.push_back(shards.empty() ? Value() : shards[shard]);
      const Attrs attrs = call.mesh >= 0 ? attrs_of(node, call, where.shape(), shard) : node.attrs;
      const std::vector<Value> results = builder_.call(*node.op, operands, attrs);
      for (size_t o = 0; o < results.size(); ++o) outputs[o].push_back(results[o]);
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      check_even(source().type(node.outputs[o]), out(o));
      made_[node.outputs[o]][key_of(out(o))] = Kept(outputs[o]);
    }
  }

  Attrs attrs_of(const Node& node, const SplitCall& call, const MeshShape& mesh, int shard) const {
    std::vector<TensorType> inputs, outputs;
    const std::unique_ptr<bool[]> present(new bool[node.inputs.size() + 1]);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      present[i] = node.inputs[i] != kNoValue;
      inputs.push_back(present[i] ? source().type(node.inputs[i]) : TensorType{});
    }
    for (ValueId output : node.outputs) outputs.push_back(source().type(output));
    return local_attrs({*node.op, node.attrs, inputs, {present.get(), inputs.size()}, outputs}, mesh, call.rows, shard);
  }

  const SbpPlan plan_;
  PassContext& pass_;
  const Section* const section_;
  const Spread off_mesh_;
  graph::Graph target_;
  graph::GraphBuilder builder_;
  std::vector<std::map<Key, Kept>> made_;  // per value: how it lies so far
  std::map<std::pair<int, std::string>, Spread> spreads_;
  std::map<std::string, std::vector<BoxingStep>> paths_;
};

}  // namespace

int partition(graph::Graph& graph, PassContext& context) {
  if (!is_global(graph)) return 0;
  CompileOptions job = context.options;  // of all ranks, also where a section is compiled
  if (context.section != nullptr) job.ranks = context.section->job_ranks();
  SbpPlan plan = choose_sbp(graph, job, &context.partition.search);
  int split = 0;
  for (const SplitCall& call : plan.calls) split += call.mesh >= 0;
  graph = Partitioner(std::move(plan), context).run();
  if (job.collective_bytes > 0 && job.ranks > 1)
    split += fuse_collectives(graph, job.collective_bytes, job.collective_ops);
  return split;
}

}  // namespace sluice::compiler
