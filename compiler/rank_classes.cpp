#include "compiler/rank_classes.h"

#include <algorithm>
#include <set>

#include "graph/ops/global.h"

namespace sluice::compiler {
namespace {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::kUnsupported, "classes of ranks: {}; {}", fmt::format(format, std::forward<Args>(args)...),
       kWithoutClasses);
}

std::vector<int> ranks_of(const DeviceMesh& mesh) {
  std::vector<int> ranks;
  for (const DeviceId& device : mesh.devices()) ranks.push_back(device.rank);
  return ranks;
}

// "ranks 0 to 7": long lists are not for messages.
std::string named(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? fmt::format("rank {}", ranks[0])
                           : fmt::format("{} ranks from {} to {}", ranks.size(), ranks.front(), ranks.back());
}

// The different lists of ranks that meshes have.
std::set<std::vector<int>> rows_of(const graph::Graph& graph, const CompileOptions& options) {
  std::set<std::vector<int>> rows;
  for (const graph::Node& node : graph.nodes())
    if (node.op == &ops::to_global_op()) rows.insert(ranks_of(ops::placement_of(node.attrs).mesh));
  for (const auto& [name, placement] : options.components) rows.insert(ranks_of(placement.mesh));
  return rows;
}

}  // namespace

Section::Section(plan::Classes classes, bool all)
    : classes_(std::move(classes)),
      all_(all),
      numbers_(static_cast<size_t>(classes_.job_ranks()), -1),
      positions_(numbers_.size(), -1) {
  for (size_t c = 0; c < classes_.ranks.size(); ++c) {
    const std::vector<int>& ranks = classes_.ranks[c];
    for (size_t p = 0; p < ranks.size(); ++p) {
      const auto rank = static_cast<size_t>(ranks[p]);
      positions_[rank] = static_cast<int>(p);
      if (all_) numbers_[rank] = ranks[p];
    }
    if (!all_) numbers_[static_cast<size_t>(classes_.rank_at(static_cast<int>(c)))] = static_cast<int>(c);
  }
}

plan::Classes find_classes(const graph::Graph& graph, const CompileOptions& options, int rank) {
  plan::Classes classes;
  std::vector<int> owner(static_cast<size_t>(options.ranks), -1);
  for (const std::vector<int>& row : rows_of(graph, options)) {
    for (const int member : row) {
      if (member >= options.ranks) refuse("a mesh has rank {} of a job of {}", member, options.ranks);
      int& own = owner[static_cast<size_t>(member)];
      if (own == static_cast<int>(classes.ranks.size())) refuse("a mesh has several devices of rank {}", member);
      if (own >= 0)
        refuse("rank {} is on a mesh of {} and on one of {}", member, named(classes.ranks[static_cast<size_t>(own)]),
               named(row));
      own = static_cast<int>(classes.ranks.size());
    }
    classes.ranks.push_back(row);
  }
  const auto idle = std::find(owner.begin(), owner.end(), -1);
  if (idle != owner.end()) refuse("rank {} is on no mesh", idle - owner.begin());
  const std::vector<std::vector<int>>& all = classes.ranks;
  for (const std::vector<int>& ranks : all) {
    if (ranks.size() != all[0].size()) refuse("meshes of {} and of {}", named(all[0]), named(ranks));
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    if (at != ranks.end()) classes.position = static_cast<int>(at - ranks.begin());
  }
  // The ends of a register are told apart by the order of their ranks, which must be that of their classes.
  for (size_t p = 0; p < all[0].size(); ++p)
    for (size_t c = 0; c + 1 < all.size(); ++c)
      if (all[c][p] > all[c + 1][p])
        refuse("ranks {} and {} stand at one position of two meshes, and the meshes in another order", all[c][p],
               all[c + 1][p]);
  return classes;
}

}  // namespace sluice::compiler
