// Copies what would be overwritten, or what must outlive its memory. A variable's new content is written by the kernel
// that makes it where nobody can notice, else by a copy once the old content is no longer read. Other streams see
// copies of the new content, and of small old ones, since the next step overwrites it; a value that leaves the plan
// lies in memory of its own.
#include <algorithm>

#include "compiler/lowering/copies.h"
#include "graph/ops/micro_batches.h"
#include "graph/ops/movement.h"

namespace sluice::compiler {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Node;
using graph::Placement;
using graph::ValueId;
using graph::ValueIds;
using graph::ValueInfo;
using graph::ValueKind;
using graph::Variable;

// Old contents of updated variables up to this size are copied for readers on other streams as a step begins, so that
// those need not hold back the update (generator states, step counters).
constexpr uint64_t kCopiedFirst = 4096;

int variable_at(const Graph& graph, ValueId root) {
  const ValueInfo& info = graph.values()[root];
  return info.kind == ValueKind::kVariable ? info.index : -1;
}

// May output `o` of a node take the memory in which inputs lie, of which `there` says that they do? `lying` says how.
template <class Lying, class There>
bool writes_over(const Graph& graph, const Node& node, int o, Lying lying, There there, KernelAnswers& answers,
                 const PassContext& context) {
  const TensorSpec spec = graph.spec(node.outputs[o]);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || !there(lying(node.inputs[i]))) continue;
    const Window& input = lying(node.inputs[i]);
    const bool whole = input.offset == 0 && input.spec.shape == spec.shape && input.spec.dtype == spec.dtype &&
                       is_contiguous(input.spec.shape, input.spec.strides);
    if (!whole || !context.options.in_place) return false;
    std::vector<TensorSpec> inputs;
    for (ValueId id : node.inputs) inputs.push_back(id == kNoValue ? TensorSpec{} : lying(id).spec);
    const auto& legal = answers.ask(node, kernel_query(graph, node, inputs, context)).in_place;
    const auto pair = [&](const plan::InPlacePair& p) { return p.output == o && p.input == static_cast<int>(i); };
    if (std::none_of(legal.begin(), legal.end(), pair)) return false;
  }
  return true;
}

class Snapshots final : public CopyingRewriter {
 public:
  Snapshots(Graph& source, PassContext& context)
      : CopyingRewriter(source, context),
        answers_(context),
        shares_(source),
        update_of_(source.values().size(), -1),
        last_read_(source.variables().size(), -1),
        copied_first_(source.variables().size(), false),
        direct_(source.variables().size(), kNoValue),
        updates_after_(source.nodes().size() + 1) {
    for (size_t v = 0; v < source.variables().size(); ++v) {
      const ValueId update = source.variables()[v].update;
      if (update != kNoValue && update_of_[update] < 0) update_of_[update] = static_cast<int>(v);
    }
    for (const Node& node : source.nodes()) {
      if (node.op->view) continue;
      for (ValueId input : node.inputs)
        if (input != kNoValue) find_reader(input, node.placement);
    }
    find_last_reads();
  }

 protected:
  ValueIds inputs_of(const Node& node) override {
    const Reader reader = reader_of(node);
    ValueIds inputs;
    inputs.reserve(node.inputs.size());
    for (ValueId input : node.inputs) {
      // The values of all micro-batches wait in the slots of a register.
      const bool all = node.op == &ops::pack_op() && !same_in_all_batches(source_, root_, input);
      if (input == kNoValue)
        inputs.push_back(kNoValue);
      else
        inputs.push_back(all ? read_whole(input, reader, kInputToo) : read(input, reader));
    }
    return inputs;
  }

  void made(int index, Node& there) override {
    for (size_t o = 0; o < there.outputs.size(); ++o) {
      const int v = update_of_[source_.nodes()[index].outputs[o]];
      if (v >= 0 && may_write(v, index, there, static_cast<int>(o))) {
        direct_[v] = there.outputs[o];
        written_.emplace(there.outputs[o], v);
      }
    }
  }

  ValueId output(const graph::Output& output) override {
    return read_whole(output.value, reader_of(output), kMadeByNode);
  }

  // A variable whose new content is another variable's old content takes a copy before that is overwritten.
  ValueId update(const Variable& variable) override {
    const int old = variable_at(source_, root_[variable.update]);
    if (old < 0 || source_.variables()[old].update == kNoValue) return kNoValue;
    return read_own(variable.update, reader_of(variable));
  }

  void visited(int position) override {
    if (position < 0) copy_first();
    for (int v : updates_after_[position + 1]) {
      const Variable& variable = source_.variables()[v];
      if (direct_[v] != kNoValue) {
        set_update(v, direct_[v]);
        continue;
      }
      const Reader reader = reader_of(variable);
      const auto own = [&](const Way& way) { return !is_variable(way); };
      ValueId from = find(variable.update, reader, own);
      if (from == kNoValue) from = read(variable.update, reader);
      set_update(v, copy_aside(ops::copy_op(), variable.update, from, variable.placement, reader));
    }
  }

 private:
  enum Whole { kInputToo, kMadeByNode };

  const Placement& home(int variable) const { return source_.variables()[variable].placement; }
  bool updated(int variable) const { return source_.variables()[variable].update != kNoValue; }

  // Readers of a variable's old or new content on other streams than its own.
  void find_reader(ValueId value, const Placement& reader) {
    const ValueId root = root_[value];
    const int old = variable_at(source_, root), fresh = update_of_[root];
    if (old >= 0 && updated(old) && reader != home(old)) {
      copied_first_[old] = TensorSpec::contiguous(source_.type(root)).extent_bytes() <= kCopiedFirst;
    }
    if (fresh >= 0 && reader != home(fresh)) shares_.add(root, value, "");
  }

  bool reads_first_copy(int v, const Node& node) const {
    if (!copied_first_[v] || node.placement == home(v)) return false;
    return reader_of(node).every <= std::max(1, source_.every(source_.variables()[v].update));
  }

  void find_last_reads() {
    const std::vector<Node>& nodes = source_.nodes();
    for (size_t p = 0; p < nodes.size(); ++p) {
      if (nodes[p].op->view) continue;
      for (ValueId input : nodes[p].inputs) {
        const int v = input == kNoValue ? -1 : variable_at(source_, root_[input]);
        if (v >= 0 && !reads_first_copy(v, nodes[p])) last_read_[v] = static_cast<int>(p);
      }
    }
    const auto defined = [&](ValueId value) {
      const ValueInfo& made = source_.values()[value];
      return made.kind == ValueKind::kNode ? made.index : -1;
    };
    // A value that outputs and other variables are to have is copied as soon as they name it.
    const auto copied = [&](ValueId value) {
      const int v = variable_at(source_, root_[value]);
      if (v >= 0) last_read_[v] = std::max(last_read_[v], defined(value));
    };
    for (const graph::Output& output : source_.outputs()) copied(output.value);
    for (const Variable& v : source_.variables())
      if (v.update != kNoValue) copied(v.update);
    for (size_t v = 0; v < last_read_.size(); ++v) {
      const ValueId update = source_.variables()[v].update;
      if (update != kNoValue)
        updates_after_[std::max(defined(update), last_read_[v]) + 1].push_back(static_cast<int>(v));
    }
  }

  void copy_first() {
    for (size_t v = 0; v < copied_first_.size(); ++v) {
      if (!copied_first_[v]) continue;
      const ValueId content = source_.variables()[v].value;
      const Reader reader{.placement = home(static_cast<int>(v)), .origin = {}};
      copy(ops::copy_op(), content, rewriter_[content], reader.placement, reader);
    }
  }

  // The variable in whose memory a value of the new graph is, or -1.
  int variable_in(ValueId root) const {
    const auto written = written_.find(root);
    return written != written_.end() ? written->second : variable_at(rewriter_.target(), root);
  }
  bool is_variable(const Way& way) const { return variable_in(way.window.root) >= 0; }
  // All of memory that is written each time anew.
  bool is_whole(const Way& way, Whole what) const {
    const Graph& made = rewriter_.target();
    const bool input = made.values()[way.window.root].kind == ValueKind::kInput;
    return !is_variable(way) && (!input || what == kInputToo) && way.window.offset == 0 &&
           way.window.spec.extent_bytes() == made.spec(way.window.root).extent_bytes();
  }

  ValueId read(ValueId value, const Reader& reader) {
    const auto suits = [&](const Way& way) {
      const int v = variable_in(way.window.root);
      if (v < 0 || !updated(v) || home(v) == reader.placement) return true;
      return !written_.contains(way.window.root) && !copied_first_[v];
    };
    if (const ValueId id = find(value, reader, suits); id != kNoValue) return id;
    const ValueId copied = shares_.together(root_[value], "") ? root_[value] : value;
    const ValueId id = copy_from_home(copied, reader);
    return copied == value ? id : find_at_any_rate(value, reader, suits);
  }

  // In memory that no variable's update overwrites.
  ValueId read_own(ValueId value, const Reader& reader) {
    const ValueId id = find(value, reader, [&](const Way& way) { return !is_variable(way); });
    return id != kNoValue ? id : copy_from_home(value, reader);
  }

  ValueId read_whole(ValueId value, const Reader& reader, Whole what) {
    const auto whole = [&](const Way& way) { return is_whole(way, what); };
    if (const ValueId id = find(value, reader, whole); id != kNoValue) return id;
    const ValueId from = read(value, reader);
    if (const ValueId id = find(value, reader, whole); id != kNoValue) return id;
    return copy(ops::copy_op(), value, from, reader.placement, reader);
  }

  ValueId copy_from_home(ValueId value, const Reader& reader) {
    const ValueId from = find_at_any_rate(value, reader, [](const Way& way) { return way.original; });
    return copy(ops::copy_op(), value, from, home(variable_in(window_of_id(from).root)), reader);
  }

  // May output `o` of a node write its new content into variable `v`: all other readers of the old one are done, and
  // the kernel is able to work in place if it reads it?
  bool may_write(int v, int position, const Node& node, int o) {
    const Graph& made = rewriter_.target();
    if (node.placement != home(v) || direct_[v] != kNoValue || last_read_[v] > position) return false;
    const TensorSpec spec = made.spec(node.outputs[o]);
    if (!is_contiguous(spec.shape, spec.strides)) return false;
    const auto lying = [&](ValueId input) -> const Window& { return window_of_id(input); };
    const auto there = [&](const Window& input) { return variable_in(input.root) == v; };
    return writes_over(made, node, o, lying, there, answers_, context_);
  }

  KernelAnswers answers_;
  Shares shares_;
  std::vector<int> update_of_;      // per value: the first variable whose new content it is, or -1
  std::vector<int> last_read_;      // per variable: last position that reads its old content where it lies, or -1
  std::vector<bool> copied_first_;  // per variable
  std::vector<ValueId> direct_;     // per variable: the value of the new graph that is written into it
  std::vector<std::vector<int>> updates_after_;  // [p + 1]: variables that may be written after position p
  std::unordered_map<ValueId, int> written_;     // values of the new graph that lie in a variable
};

// Finds the first value that lies where it would be overwritten, and says where it must lie. None: all is safe.
std::optional<std::string> unsafe(const Graph& graph, const std::vector<Window>& lying) {
  std::vector<int> writer(graph.variables().size(), -1);  // node
  std::unordered_map<ValueId, int> written;
  for (size_t v = 0; v < writer.size(); ++v) {
    const Variable& variable = graph.variables()[v];
    if (variable.update == kNoValue) continue;
    const ValueInfo& update = graph.values()[variable.update];
    const bool by_kernel = update.kind == ValueKind::kNode && lying[variable.update].root == variable.update;
    if (!by_kernel || graph.nodes()[update.index].placement != variable.placement)
      return fmt::format("update of {}: %{}; a kernel beside the variable must write it", variable.name,
                         variable.update);
    const TensorSpec spec = graph.spec(variable.update);
    if (!is_contiguous(spec.shape, spec.strides) || !written.emplace(variable.update, static_cast<int>(v)).second)
      return fmt::format(
          "update of {}: %{} is laid out otherwise, or written into another variable; it must be neither",
          variable.name, variable.update);
    writer[v] = update.index;
  }
  for (size_t p = 0; p < graph.nodes().size(); ++p) {
    const Node& node = graph.nodes()[p];
    for (ValueId input : node.inputs) {
      if (input == kNoValue || node.op->view) continue;
      const ValueId root = lying[input].root;
      const int old = variable_at(graph, root);
      if (old >= 0 && writer[old] >= 0 && static_cast<int>(p) > writer[old])
        return fmt::format("{}: reads %{}, the old content of a variable that is written before; it must read a copy",
                           describe(node), input);
      const auto fresh = written.find(root);
      if (fresh != written.end() && graph.variables()[fresh->second].placement != node.placement)
        return fmt::format("{}: reads %{}, which the next step overwrites, on another stream; it must read a copy",
                           describe(node), input);
    }
  }
  for (const graph::Output& output : graph.outputs()) {
    const Window& window = lying[output.value];
    const bool whole = window.offset == 0 && window.spec.extent_bytes() == graph.spec(window.root).extent_bytes();
    if (graph.values()[window.root].kind != ValueKind::kNode || written.contains(window.root) || !whole)
      return fmt::format("output {}: %{} lies in other memory; it must be all of what a kernel makes", output.name,
                         output.value);
  }
  return std::nullopt;
}

// Safe, and no copy would let an update come earlier: old contents are read beside their variables only, and what
// writes over them is able to.
bool needs_no_copy(const Graph& graph, const PassContext& context) {
  const std::vector<Window> lying = windows(graph);
  if (unsafe(graph, lying)) return false;
  std::vector<int> updated(graph.values().size(), -1);  // variable, by its old content and by its new one
  for (size_t v = 0; v < graph.variables().size(); ++v) {
    const Variable& variable = graph.variables()[v];
    if (variable.update != kNoValue) updated[variable.value] = updated[variable.update] = static_cast<int>(v);
  }
  KernelAnswers answers(context);
  const auto at = [&](ValueId value) -> const Window& { return lying[value]; };
  for (const Node& node : graph.nodes()) {
    if (node.op->view) continue;
    if (node.op == &ops::pack_op()) return false;  // the values of all micro-batches
    for (ValueId input : node.inputs) {
      const int v = input == kNoValue ? -1 : updated[lying[input].root];
      if (v >= 0 && graph.variables()[v].placement != node.placement) return false;
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const int v = updated[node.outputs[o]];
      const auto there = [&](const Window& input) { return input.root == graph.variables()[v].value; };
      if (v >= 0 && !writes_over(graph, node, static_cast<int>(o), at, there, answers, context)) return false;
    }
  }
  return true;
}

}  // namespace

int snapshots(Graph& graph, PassContext& context) {
  if (needs_no_copy(graph, context)) return 0;
  Snapshots snapshots(graph, context);
  graph = snapshots.run();
  return snapshots.copies();
}

void verify_snapshots(const Graph& graph, const PassContext&) {
  const std::optional<std::string> wrong = unsafe(graph, windows(graph));
  SLUICE_CHECK_KIND(kRuntime, !wrong, "{}", *wrong);
}

}  // namespace sluice::compiler
