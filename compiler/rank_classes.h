#pragma once
// Compiles one rank of each class instead of all ranks of a job (ADR 80): work and memory then do not grow with the
// ranks. plan/classes.h says what classes and sections are.
#include <map>
#include <string>
#include <vector>

#include "compiler/compiler.h"
#include "plan/classes.h"

namespace sluice::compiler {

// Every refusal ends so.
inline constexpr const char* kWithoutClasses = "compile all ranks, which is what enable_rank_classes(False) does";

// The ranks of which nodes are made, and the numbers that they have in the plan: those of their classes. With `all`,
// nodes are made for every rank, each with its own number, in the way in which they are made for one position.
class Section {
 public:
  explicit Section(plan::Classes classes, bool all = false);
  const plan::Classes& classes() const { return classes_; }
  bool all() const { return all_; }
  int job_ranks() const { return static_cast<int>(numbers_.size()); }
  bool has(int rank) const { return numbers_[static_cast<size_t>(rank)] >= 0; }
  int number(int rank) const { return numbers_[static_cast<size_t>(rank)]; }  // -1: no node is made for it
  int position_of(int rank) const { return positions_[static_cast<size_t>(rank)]; }

 private:
  plan::Classes classes_;
  bool all_;
  std::vector<int> numbers_, positions_;  // per rank of the job
};

// The classes of a graph's ranks, and the section of `rank`: the ranks of each mesh are a class, in its order.
// `options.ranks` are those of the job. Throws kUnsupported, naming the mesh, where ranks of one mesh have several
// devices or belong to another mesh as well, where meshes differ in size, or a rank is on none.
plan::Classes find_classes(const graph::Graph& graph, const CompileOptions& options, int rank);

}  // namespace sluice::compiler

namespace sluice {

inline constexpr int kEveryRank = -1;

// As compile(), of the section of `rank` alone: a plan of classes. Its shards have ranks of the job. `target` has
// devices of as many ranks as there are classes, which stand for all. Throws kUnsupported as find_classes() does, and
// where a rank cannot do what the others of its class do, such as with parts of different sizes; compile() takes such
// graphs. kEveryRank: a plan of all ranks, in which each does what it would do in its section; for comparisons.
CompileResult compile_classes(graph::Graph graph, const plan::Target& target, const CompileOptions& options,
                              int rank = 0, const ConstantLookup& constants = nullptr,
                              const ConstantEvaluator& evaluate = nullptr);

}  // namespace sluice
