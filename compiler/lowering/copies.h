#pragma once
// Rewriting what is read. A value may lie in several ways at once: as its kernel makes it, and as copies of it, or of
// what it is a view of. A pass says which way suits a reader, and makes a copy when none does.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/lowering/lowering.h"
#include "compiler/lowering/places.h"
#include "compiler/lowering/windows.h"
#include "graph/rewriter.h"

namespace sluice::compiler {

// A reader of a value: a node, or what the compiler makes for an output or an update.
struct Reader {
  graph::Placement placement;
  Provenance origin;
  int every = 1;  // it runs once per so many micro-batches
};

// Values named by `value` are the source graph's; ids of the new graph say so.
class CopyingRewriter {
 public:
  virtual ~CopyingRewriter() = default;
  // Visits everything that reads once: nodes in their order, those of a collective's call together, outputs and updates
  // as soon as their values exist. Views are made anew where they are read.
  graph::Graph run();
  int copies() const { return copies_; }

 protected:
  // `source` is used up.
  CopyingRewriter(graph::Graph& source, PassContext& context);

  // The values that a node is to read instead of its inputs: ids of the new graph.
  virtual graph::ValueIds inputs_of(const graph::Node& node) = 0;
  virtual graph::ValueId output(const graph::Output& output) = 0;
  virtual graph::ValueId update(const graph::Variable& variable) = 0;
  // A node is in the new graph: may lay its outputs out.
  virtual void made(int node, graph::Node& there) { (void)node, (void)there; }
  // All of what comes up to a position of the source has been visited; -1: inputs and variables.
  virtual void visited(int position) { (void)position; }
  // How a view sees its input. None: it must be made of something else.
  virtual std::optional<Window> seen(const graph::Node& view, const Window& input) const {
    return seen_through(view, input, source_.type(view.outputs[0]).dtype);
  }

  struct Way {
    Window window;  // on the memory of a value of the new graph
    plan::Space space;
    int every = 0;         // a copy's: it is made once per so many micro-batches; 0: there whenever it is read
    bool original = true;  // not of a copy
    graph::ValueId id = graph::kNoValue;  // of the new graph; none: a view that nobody has read yet
    int of = 0;                           // of a view: which way its input lies
  };
  const std::vector<Way>& ways(graph::ValueId value);
  // The first way that suits `reader` and is there as often as it reads; its view is made. kNoValue: none.
  template <class Suits>
  graph::ValueId find(graph::ValueId value, const Reader& reader, Suits suits) {
    for (size_t i = 0; i < ways(value).size(); ++i) {
      const Way& way = ways_[value][i];
      if (way.every != 0 && way.every < reader.every && source_.every(value) == 0) continue;
      if (suits(way)) return make(value, static_cast<int>(i), reader);
    }
    return graph::kNoValue;
  }
  // The same of ways that are there less often than the reader reads.
  template <class Suits>
  graph::ValueId find_at_any_rate(graph::ValueId value, Reader reader, Suits suits) {
    reader.every = 0;
    return find(value, reader, suits);
  }
  // Copies the value `from` of the new graph, which is `value`. From now on `value` lies so too.
  graph::ValueId copy(const OpDef& op, graph::ValueId value, graph::ValueId from, const graph::Placement& placement,
                      const Reader& reader, const Strides& strides = {});
  // A copy that nobody else is to read.
  graph::ValueId copy_aside(const OpDef& op, graph::ValueId value, graph::ValueId from,
                            const graph::Placement& placement, const Reader& reader, const Strides& strides = {});

  void set_update(int variable, graph::ValueId id) { updates_[variable] = id; }

  Reader reader_of(const graph::Node& node) const;
  Reader reader_of(const graph::Output& output) const;
  Reader reader_of(const graph::Variable& variable) const;  // of its update
  // The stream beside which a value lies.
  graph::Placement beside(graph::ValueId value) const;
  // Memory in which the source's value lies.
  const plan::Space& memory(graph::ValueId value) const { return memory_[root_[value]]; }
  // These take ids of the new graph.
  const plan::Space& memory_of_id(graph::ValueId id) const { return made_[id].space; }
  const Window& window_of_id(graph::ValueId id) const { return made_[id].window; }
  // Lays out an output of the new graph, while it has no way: from made().
  void lay_out(graph::ValueId id, const Strides& strides);

  const graph::Graph& source_;
  PassContext& context_;
  const Places places_;
  const std::vector<graph::ValueId> root_;  // per value of the source
  graph::Rewriter rewriter_;

 private:
  graph::ValueId make(graph::ValueId value, int way, const Reader& reader);
  void take_node(int node, graph::ValueIds inputs);
  Provenance provenance(graph::ValueId value) const;
  void add_original(graph::ValueId value, graph::ValueId id, const plan::Space& space);
  void defined(graph::ValueId value);
  void remember(graph::ValueId id, const plan::Space& space, const Window& window);
  int every_of_copy(graph::ValueId value, int reader_every) const;

  graph::Graph& taken_from_;         // the source
  std::vector<plan::Space> memory_;  // per value of the source that is no view
  struct Made {
    plan::Space space;
    Window window;
  };
  std::vector<Made> made_;                                 // per value of the new graph
  std::vector<std::vector<Way>> ways_;                     // per value of the source
  std::vector<size_t> seen_ways_;                          // of a view: how many ways of its input have been looked at
  std::vector<std::vector<int>> outputs_of_, updates_of_;  // per value of the source
  std::vector<graph::ValueId> outputs_, updates_;          // ids of the new graph
  int copies_ = 0;
};

// Copies that readers elsewhere share, each place by its name. Several views of a value cost one copy of it, unless
// they are less than it all together.
class Shares {
 public:
  explicit Shares(const graph::Graph& graph) : graph_(graph) {}
  void add(graph::ValueId root, graph::ValueId value, const std::string& where);
  bool together(graph::ValueId root, const std::string& where) const;
  bool empty() const { return shares_.empty(); }

 private:
  struct Share {
    std::set<graph::ValueId> values;
    uint64_t bytes = 0;  // of all
  };
  const graph::Graph& graph_;
  std::map<std::pair<graph::ValueId, std::string>, Share> shares_;
};

}  // namespace sluice::compiler
