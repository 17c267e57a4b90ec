// Makes one op of elementwise ops and the reductions of rows among them, on devices whose kernel "fused_rows" takes
// them: a softmax that is written out reads its operand once. Nodes join a cluster in their order, and none does any
// more once somebody else reads of it: so a cluster runs where its last node was, and nothing that it waits for waits
// for it.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "compiler/pass.h"
#include "graph/ops/fused.h"
#include "graph/ops/fused_rows.h"
#include "graph/rewriter.h"

namespace sluice::compiler {
namespace {

using graph::kNoValue;
using graph::Node;
using graph::ValueId;
using graph::ValueIds;

constexpr int kAlone = -1;
constexpr size_t kMostSteps = 48;
constexpr int kNear = 16;  // nodes between two of a cluster: what it reads is kept that long

// kStep, kReduction: a call of the body. kView: shows what reductions give as its readers want it, which is no call.
enum class Kind : uint8_t { kStep, kReduction, kView };
// The form of a value: as large as the whole, with an element for each row, or that without the axes of rows.
enum class Form : uint8_t { kWhole, kRow, kSqueezed };

struct Member {
  int node;
  Kind kind;
  Form form;
};

struct Cluster {
  Shape whole;
  int axes = 0;  // last ones, that its reductions reduce; 0: has none yet
  std::vector<Member> members = {};
  ValueIds inputs = {};
  std::set<ValueId> states = {};  // of random steps, among the inputs
  bool open = true;

  Shape row() const {
    Shape shape = whole;
    for (int axis = whole.rank() - axes; axis < whole.rank(); ++axis) shape[axis] = 1;
    return shape;
  }
  Shape squeezed() const {
    Shape shape;
    for (int axis = 0; axis < whole.rank() - axes; ++axis) shape.push_back(whole[axis]);
    return shape;
  }
  size_t calls() const {
    return static_cast<size_t>(
        std::count_if(members.begin(), members.end(), [](const Member& m) { return m.kind != Kind::kView; }));
  }
};

class Clusters {
 public:
  Clusters(const graph::Graph& graph, PassContext& context) : graph_(graph), context_(context) {
    const int num_nodes = static_cast<int>(graph.nodes().size());
    of_.assign(num_nodes, kAlone);
    form_.assign(num_nodes, Form::kWhole);
    readers_.resize(graph.values().size());
    for (int i = 0; i < num_nodes; ++i) {
      place(i);
      for (ValueId input : graph.nodes()[i].inputs) {
        if (input == kNoValue) continue;
        readers_[input].push_back(i);
        const int from = cluster_of(input);
        // Somebody outside reads a value of the cluster. If a later node joined it, the cluster would run behind that
        // node, and this reader might have to wait for something that waits for it.
        if (from != kAlone && from != of_[i]) clusters_[from].open = false;
      }
    }
    for (const graph::Output& output : graph.outputs()) readers_[output.value].push_back(kAlone);
    for (const graph::Variable& v : graph.variables())
      if (v.update != kNoValue) readers_[v.update].push_back(kAlone);
    for (int c = 0; c < static_cast<int>(clusters_.size()); ++c)
      if (!is_worth_it(clusters_[c])) drop(c);
  }

  bool any() const {
    return std::any_of(clusters_.begin(), clusters_.end(), [](const Cluster& c) { return !c.members.empty(); });
  }
  // The cluster of a node; null where it is in none.
  const Cluster* of(int node) const { return of_[node] == kAlone ? nullptr : &clusters_[of_[node]]; }

  // Tells for each member whether somebody outside reads it, also as a view that is a member.
  // The members are visited from the last one: a view passes on what its own readers need to the value that it shows.
  std::vector<bool> read_outside(const Cluster& cluster) const {
    std::vector<bool> read(cluster.members.size(), false);
    for (size_t k = cluster.members.size(); k-- > 0;) {
      for (int reader : readers_[graph_.nodes()[cluster.members[k].node].outputs[0]]) {
        const auto at = std::find_if(cluster.members.begin(), cluster.members.end(),
                                     [&](const Member& m) { return m.node == reader; });
        read[k] = read[k] || at == cluster.members.end() ||
                  (at->kind == Kind::kView && read[static_cast<size_t>(at - cluster.members.begin())]);
      }
    }
    return read;
  }

  // Counts the additions that are fused here, which the option of fused additions reports.
  int adds_in(const Cluster& cluster) const {
    return static_cast<int>(std::count_if(cluster.members.begin(), cluster.members.end(), [&](const Member& member) {
      const Node& node = graph_.nodes()[member.node];
      return is_add(node) && std::any_of(node.inputs.begin(), node.inputs.end(),
                                         [&](ValueId input) { return cluster_of(input) == of_[member.node]; });
    }));
  }

 private:
  static bool is_add(const Node& node) { return std::string_view(node.op->name) == "add"; }

  int cluster_of(ValueId value) const {
    if (value == kNoValue || graph_.values()[value].kind != graph::ValueKind::kNode) return kAlone;
    return of_[graph_.values()[value].index];
  }
  Form form_of(ValueId value) const { return form_[graph_.values()[value].index]; }
  const Shape& shape_of(ValueId value) const { return graph_.type(value).shape; }

  // Puts a node where it belongs: into a cluster of what it reads, or, where there is none, into one of its own.
  void place(int i) {
    const Node& node = graph_.nodes()[i];
    if (node.outputs.size() != 1 || std::find(node.inputs.begin(), node.inputs.end(), kNoValue) != node.inputs.end())
      return;
    if (node.op->view != nullptr) return place_view(i);
    const DeviceKind kind = context_.device_of(node).kind;
    if (!context_.target.has_kernel("fused_rows", kind)) return;
    if (ops::reduces_axes(*node.op)) {
      if (context_.can_fuse(graph_, node)) place_reduction(i);
    } else if (ops::can_be_step(*node.op) && context_.can_fuse(graph_, node)) {
      place_step(i);
    }
  }

  // Can the node run where the cluster does?
  bool goes_with(int i, const Cluster& cluster) const {
    const Node &n = graph_.nodes()[i], &first = graph_.nodes()[cluster.members[0].node];
    return cluster.open && n.placement == first.placement && n.quota == first.quota && n.every == first.every &&
           n.role == first.role && i - cluster.members.back().node <= kNear;
  }

  void place_view(int i) {
    const Node& node = graph_.nodes()[i];
    const int c = cluster_of(node.inputs[0]);
    // A view may be a member only if it changes a row's result between its two forms, with and without the reduced
    // axes.
    if (c == kAlone || !goes_with(i, clusters_[c]) || clusters_[c].axes == 0) return;
    const Cluster& cluster = clusters_[c];
    const Shape& shape = shape_of(node.outputs[0]);
    const Form from = form_of(node.inputs[0]);
    if (from == Form::kWhole) return;
    const std::string_view op = node.op->name;
    if (op == "reshape" && shape == cluster.row())
      join(i, c, Kind::kView, Form::kRow);
    else if (op == "reshape" && shape == cluster.squeezed())
      join(i, c, Kind::kView, Form::kSqueezed);
  }

  void place_reduction(int i) {
    const Node& node = graph_.nodes()[i];
    const ValueId x = node.inputs[0];
    const int axes = ops::last_axes_reduced(node.attrs, shape_of(x));
    if (axes == 0) return;
    const Form form = attr<bool>(node.attrs, 1) ? Form::kRow : Form::kSqueezed;
    int c = cluster_of(x);
    if (c != kAlone) {
      Cluster& cluster = clusters_[c];
      // All reductions of a cluster go over the same last axes, since its kernel walks over rows. A cluster that has no
      // reduction yet takes the axes of its first one, if all its inputs go with such rows.
      const bool fits = goes_with(i, cluster) && form_of(x) == Form::kWhole &&
                        (cluster.axes == axes || cluster.axes == 0) && rows_fit(cluster.inputs, cluster, axes) &&
                        cluster.calls() < kMostSteps;
      if (fits) cluster.axes = axes;
      if (!fits) c = kAlone;
    }
    if (c == kAlone) {
      c = begin(shape_of(x));
      clusters_[c].axes = axes;
      clusters_[c].inputs = {x};
    }
    join(i, c, Kind::kReduction, form);
  }

  void place_step(int i) {
    const Node& node = graph_.nodes()[i];
    const Shape& shape = shape_of(node.outputs[0]);
    if (shape.rank() == 0 && node.op->random) return;
    int into = kAlone;
    Form form = Form::kWhole;
    // An addition that must stay by itself neither joins nor merges, but may begin a cluster.
    const bool apart = !context_.options.fuse_add && is_add(node);
    for (ValueId input : node.inputs) {
      const int c = cluster_of(input);
      if (apart || c == kAlone || c == into) continue;
      Cluster& cluster = clusters_[c];
      Form here = Form::kWhole;
      if (!goes_with(i, cluster) || !form_in(node, cluster, c, here)) continue;
      // The node joins the first cluster that it reads, and then takes in the clusters of its other operands: this is
      // how the two sides of a quotient become one kernel.
      if (into == kAlone && fits(node, cluster, here)) {
        into = c;
        form = here;
      } else if (into != kAlone && here == form && can_merge(node, clusters_[into], cluster)) {
        merge(into, c);
      }
    }
    if (into == kAlone) {
      if (shape.rank() == 0) return;
      into = begin(shape);
      form = Form::kWhole;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId input = node.inputs[k];
      if (cluster_of(input) == into) continue;
      add_input(clusters_[into], input);
      // The state of a generator is an input, but has no elements that would have to go with rows.
      if (node.op->random && k == 0) clusters_[into].states.insert(input);
    }
    join(i, into, Kind::kStep, form);
  }

  // Finds the form that the node's result has there; false: it is no value of the cluster's.
  bool form_in(const Node& node, const Cluster& cluster, int c, Form& form) const {
    const Shape& shape = shape_of(node.outputs[0]);
    if (shape == cluster.whole)
      form = Form::kWhole;
    else if (cluster.axes > 0 && shape == cluster.row())
      form = Form::kRow;
    else if (cluster.axes > 0 && shape == cluster.squeezed())
      form = Form::kSqueezed;
    else
      return false;
    if (node.op->random && form != Form::kWhole) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      // An input from outside fits a squeezed form only as a number, which is broadcast to the axes that are left.
      if (cluster_of(input) != c) return form != Form::kSqueezed || (shape_of(input).rank() == 0 && shape.rank() > 0);
      return form == Form::kSqueezed ? form_of(input) == Form::kSqueezed : form_of(input) != Form::kSqueezed;
    });
  }

  bool rows_fit(const ValueIds& inputs, const Cluster& cluster, int axes) const {
    return std::all_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      return cluster.states.contains(input) || ops::goes_with_rows(shape_of(input), cluster.whole, axes);
    });
  }

  // The inputs of the node that the cluster neither makes nor reads.
  ValueIds new_inputs(const Node& node, const Cluster& cluster) const {
    ValueIds fresh;
    for (size_t k = node.op->random ? 1 : 0; k < node.inputs.size(); ++k) {
      const ValueId input = node.inputs[k];
      const int from = cluster_of(input);
      if (from != kAlone && &clusters_[from] == &cluster) continue;
      if (std::find(cluster.inputs.begin(), cluster.inputs.end(), input) == cluster.inputs.end())
        fresh.push_back(input);
    }
    return fresh;
  }
  bool fits(const Node& node, const Cluster& cluster, Form form) const {
    const ValueIds fresh = new_inputs(node, cluster);
    return cluster.calls() < kMostSteps &&
           cluster.inputs.size() + fresh.size() + (node.op->random ? 1 : 0) <= static_cast<size_t>(kMostFusedInputs) &&
           (form == Form::kSqueezed || rows_fit(fresh, cluster, cluster.axes));
  }
  // Neither reads what the other makes: else that would not be open.
  bool can_merge(const Node& node, const Cluster& a, const Cluster& b) const {
    if (a.whole != b.whole || (a.axes != b.axes && a.axes != 0 && b.axes != 0)) return false;
    const int axes = std::max(a.axes, b.axes);
    return a.calls() + b.calls() < kMostSteps && rows_fit(a.inputs, a, axes) && rows_fit(b.inputs, b, axes) &&
           rows_fit(new_inputs(node, a), a, axes) &&
           a.inputs.size() + b.inputs.size() + node.inputs.size() <= static_cast<size_t>(kMostFusedInputs);
  }
  void merge(int into, int from) {
    Cluster &a = clusters_[into], &b = clusters_[from];
    for (const Member& member : b.members) of_[member.node] = into;
    a.members.insert(a.members.end(), b.members.begin(), b.members.end());
    std::sort(a.members.begin(), a.members.end(), [](const Member& x, const Member& y) { return x.node < y.node; });
    a.axes = std::max(a.axes, b.axes);
    for (ValueId input : b.inputs) add_input(a, input);
    a.states.merge(b.states);
    b = {};
    b.open = false;
  }

  static void add_input(Cluster& cluster, ValueId input) {
    if (std::find(cluster.inputs.begin(), cluster.inputs.end(), input) == cluster.inputs.end())
      cluster.inputs.push_back(input);
  }
  int begin(const Shape& whole) {
    clusters_.push_back({.whole = whole});
    return static_cast<int>(clusters_.size()) - 1;
  }
  void join(int i, int c, Kind kind, Form form) {
    clusters_[c].members.push_back({i, kind, form});
    of_[i] = c;
    form_[i] = form;
  }

  // A cluster without a reduction is left to fuse_elementwise, and one call needs no fusing.
  bool is_worth_it(const Cluster& cluster) const {
    if (cluster.axes == 0 || cluster.calls() < 2 || cluster.inputs.size() > kMostFusedInputs) return false;
    const std::vector<bool> read = read_outside(cluster);
    int outputs = 0;
    for (size_t k = 0; k < read.size(); ++k) outputs += read[k] && cluster.members[k].kind != Kind::kView;
    return outputs > 0 && outputs <= kMostFusedOutputs;
  }
  void drop(int c) {
    for (const Member& member : clusters_[c].members) of_[member.node] = kAlone;
    clusters_[c].members.clear();
  }

  const graph::Graph& graph_;
  PassContext& context_;
  std::vector<Cluster> clusters_;
  std::vector<int> of_;                    // per node: its cluster
  std::vector<Form> form_;                 // per node that is in one
  std::vector<std::vector<int>> readers_;  // per value; kAlone: an output, or an update
};

NamedAttrs call_attrs(const Node& node) {
  NamedAttrs attrs = name_attrs(*node.op, node.attrs);
  for (auto& [name, value] : attrs)
    if (name == "keepdim") value = true;
  return attrs;
}

// Adds the op that takes the cluster's place, and views of its results where readers want them without the rows' axes.
void rewrite(graph::Rewriter& rewriter, const Cluster& cluster, const std::vector<bool>& read) {
  const graph::Graph& source = rewriter.source();
  Node made = source.nodes()[cluster.members[0].node];
  made.op = &ops::fused_rows_op();
  made.inputs.clear();
  made.outputs.clear();
  std::map<ValueId, int> number;  // of inputs and results
  for (ValueId input : cluster.inputs) {
    number.emplace(input, static_cast<int>(number.size()));
    made.inputs.push_back(rewriter[input]);
  }
  AttrGraph body{.inputs = static_cast<int>(cluster.inputs.size()), .calls = {}, .outputs = {}};
  std::vector<const Provenance*> origins;
  for (size_t k = 0; k < cluster.members.size(); ++k) {
    const Node& node = source.nodes()[cluster.members[k].node];
    origins.push_back(&node);
    if (cluster.members[k].kind == Kind::kView) {
      number.emplace(node.outputs[0], number.at(node.inputs[0]));
      continue;
    }
    std::vector<int> operands;
    for (ValueId input : node.inputs) operands.push_back(number.at(input));
    const int result = body.inputs + static_cast<int>(body.calls.size());
    body.calls.push_back({node.op->name, call_attrs(node), std::move(operands)});
    number.emplace(node.outputs[0], result);
    if (read[k]) body.outputs.push_back(result);
  }
  const Node& last = source.nodes()[cluster.members.back().node];
  static_cast<Provenance&>(made) = merged(last, origins);
  made.attrs = {std::move(body)};
  const int index = rewriter.target().add_node(std::move(made));
  size_t output = 0;
  for (size_t k = 0; k < cluster.members.size(); ++k) {
    const auto [i, kind, form] = cluster.members[k];
    if (!read[k]) continue;
    const Node& node = source.nodes()[i];
    if (kind == Kind::kView) {
      rewriter.take(i);
      continue;
    }
    // The kernel gives every row result with its reduced axes; a reader that wants it without them gets a view.
    ValueId result = rewriter.target().nodes()[index].outputs[output++];
    if (form == Form::kSqueezed) {
      Node view = node;
      view.op = &builtin_ops().get("reshape");
      view.attrs = {source.type(node.outputs[0]).shape.vec()};
      view.inputs = {result};
      view.outputs.clear();
      const int at = rewriter.target().add_node(std::move(view));
      result = rewriter.target().nodes()[at].outputs[0];
    }
    rewriter.map(node.outputs[0], result);
  }
}

}  // namespace

int fuse_rows(graph::Graph& graph, PassContext& context) {
  if (context.options.keep_ops || context.options.prims) return 0;
  const Clusters clusters(graph, context);
  if (!clusters.any()) return 0;
  graph::Rewriter rewriter(graph);
  int fused = 0;
  for (int i = 0; i < static_cast<int>(graph.nodes().size()); ++i) {
    const Cluster* const cluster = clusters.of(i);
    if (cluster == nullptr) {
      rewriter.take(i);
      continue;
    }
    if (cluster->members.back().node != i) continue;
    context.fused_adds += clusters.adds_in(*cluster);
    rewrite(rewriter, *cluster, clusters.read_outside(*cluster));
    ++fused;
  }
  graph = rewriter.finish();
  return fused;
}

}  // namespace sluice::compiler
