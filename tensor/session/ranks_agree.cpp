#include "tensor/session/ranks_agree.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "kernels/kernel.h"
#include "runtime/session/engine.h"
#include "streams/collective/world.h"
#include "streams/stream.h"

namespace sluice {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The graph line by line: what has to be equal on all ranks, and the user's line, which need not.
struct Listing {
  std::string text, sources;
};

Listing list(graph::Graph graph, const CompileOptions& options) {
  Listing listing;
  listing.sources.assign(1 + graph.inputs().size() + graph.variables().size(), '\n');  // ahead of the nodes
  for (graph::Node& node : graph.mutable_nodes()) {
    listing.sources += node.source.str() + '\n';
    node.source = {};
  }
  listing.text = graph::to_text(graph);
  for (const auto& [name, global] : options.components)
    listing.text += fmt::format("component \"{}\": {}\n", name, global.str());
  for (const auto& [module, stage] : options.stages) listing.text += fmt::format("stage \"{}\": {}\n", module, stage);
  return listing;
}

// Line `i`, for people.
std::string line_of(const Listing& listing, size_t i) {
  const std::vector<std::string> lines = lines_of(listing.text), sources = lines_of(listing.sources);
  if (i >= lines.size()) return "nothing more";
  const std::string line = lines[i].substr(std::min(lines[i].find_first_not_of(' '), lines[i].size()));
  return i < sources.size() && !sources[i].empty() ? fmt::format("'{}'  ({})", line, sources[i])
                                                   : fmt::format("'{}'", line);
}

}  // namespace

std::vector<std::string> gather_texts(collective::Communicator& ranks, const std::string& own) {
  const uint64_t size = own.size();
  std::vector<uint64_t> sizes(ranks.size());
  ranks.all_gather(&size, sizes.data(), sizeof size);
  const uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = own, all(most * sizes.size(), '\0');
  padded.resize(most);
  if (most > 0) ranks.all_gather(padded.data(), all.data(), most);
  std::vector<std::string> texts;
  for (size_t r = 0; r < sizes.size(); ++r) texts.push_back(all.substr(r * most, sizes[r]));
  return texts;
}

void check_same_graph(collective::World& world, const graph::Graph& graph, const CompileOptions& options) {
  const Listing own = list(graph, options);
  const uint64_t hash = std::hash<std::string>()(own.text);
  std::vector<uint64_t> hashes(world.size());
  world.control().all_gather(&hash, hashes.data(), sizeof hash);
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](uint64_t h) { return h != hashes[0]; });
  if (other == hashes.end()) return;
  const auto rank = static_cast<size_t>(other - hashes.begin());
  const std::vector<std::string> texts = gather_texts(world.control(), own.text);
  const std::vector<std::string> sources = gather_texts(world.control(), own.sources);
  const std::vector<std::string> ours = lines_of(texts[0]), theirs = lines_of(texts[rank]);
  const auto same = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end()).first - ours.begin();
  fail(ErrorKind::kValue,
       "graph '{}': rank {} has traced another graph than rank 0: first different are {} on rank 0 and {} on rank {}; "
       "all ranks must build the same graph",
       graph.name, rank, line_of({texts[0], sources[0]}, same), line_of({texts[rank], sources[rank]}, same), rank);
}

void check_same_inputs(collective::World& world, const std::string& graph,
                       const std::vector<std::pair<std::string, Tensor>>& inputs) {
  if (inputs.empty()) return;
  std::vector<uint64_t> own, all(inputs.size() * world.size());
  for (const auto& [name, tensor] : inputs) {
    const Tensor dense = tensor.contiguous();
    own.push_back(std::hash<std::string_view>()({static_cast<const char*>(dense.read("graph input")),
                                                 checked_bytes(dense.shape(), dtype_size(dense.dtype()))}));
  }
  world.control().all_gather(own.data(), all.data(), own.size() * sizeof own[0]);
  for (size_t i = own.size(); i < all.size(); ++i)
    SLUICE_CHECK(
        all[i] == all[i % own.size()],
        "graph '{}': local input '{}' has other contents on rank {} than on rank 0; a local input must be equal "
        "on all ranks, rows of its own are given with to_global(placement, sbp.split(0))",
        graph, inputs[i % own.size()].first, i / own.size());
}

namespace {

// Devices of one kind have the same kernels on all ranks: one plan is compiled for all. `own` are this rank's devices.
void check_same_kernels(collective::World& world, const KernelTable& table, const std::set<DeviceKind>& own) {
  std::string text;
  for (const DeviceKind kind : own)
    for (const std::string& op : table.ops(kind)) text += fmt::format("{} on {}\n", op, kind.str());
  const std::vector<std::string> texts = gather_texts(world.control(), text);
  std::map<std::string, std::pair<size_t, std::set<std::string>>> of_kind;  // of the first rank that has some
  for (size_t r = 0; r < texts.size(); ++r) {
    std::map<std::string, std::set<std::string>> here;
    for (const std::string& line : lines_of(texts[r])) here[line.substr(line.rfind(' ') + 1)].insert(line);
    for (const auto& [kind, kernels] : here) {
      const auto& [first, known] = of_kind.try_emplace(kind, r, kernels).first->second;
      const auto check = [](const auto& there, size_t rank, const auto& missing, size_t other) {
        for (const std::string& kernel : there)
          SLUICE_CHECK_KIND(kUnsupported, missing.contains(kernel),
                            "rank {} has no kernel {}, which rank {} has; ranks need the same libraries and extensions",
                            other, kernel, rank);
      };
      check(known, first, kernels, r);
      check(kernels, r, known, first);
    }
  }
}

}  // namespace

std::vector<plan::DeviceDesc> describe_devices(collective::World& world, Engine& engine,
                                               const std::vector<DeviceId>& names) {
  struct Facts {
    uint64_t memory_bytes;
    int32_t cores, host_memory, asynchronous, dma;
  };
  std::vector<Facts> own(names.size()), all(names.size() * world.size());
  std::string problem;
  std::set<DeviceKind> kinds;
  try {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].rank != world.rank()) continue;
      kinds.insert(names[i].kind);
      const plan::DeviceDesc desc = engine.device({0, names[i].kind, names[i].index}).describe();
      own[i] = {desc.memory_bytes, desc.cores, desc.host_memory, desc.asynchronous, desc.dma};
    }
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::vector<std::string> problems = gather_texts(world.control(), problem);
  for (size_t r = 0; r < problems.size(); ++r)
    SLUICE_CHECK_KIND(kUnsupported, problems[r].empty(), "rank {}: {}", r, problems[r]);
  check_same_kernels(world, engine.kernels(), kinds);
  world.control().all_gather(own.data(), all.data(), own.size() * sizeof(Facts));
  std::vector<plan::DeviceDesc> devices;
  for (size_t i = 0; i < names.size(); ++i) {
    const Facts& facts = all[names.size() * names[i].rank + i];
    devices.push_back(
        {names[i], facts.host_memory != 0, facts.asynchronous != 0, facts.cores, facts.memory_bytes, facts.dma != 0});
  }
  return devices;
}

}  // namespace sluice
