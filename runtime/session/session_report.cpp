#include "runtime/session/session_report.h"

#include <algorithm>

#include "actors/stream_executor.h"
#include "plan/pack/ledger.h"

namespace sluice {

SessionMemory memory_of(const plan::Plan& plan, const std::vector<bool>& arena_shared,
                        const std::vector<bool>& variable_mapped, const StepPorts& ports, int max_in_flight) {
  SessionMemory memory;
  const auto space = [&](const std::string& name) -> SessionMemory::Space& {
    for (SessionMemory::Space& s : memory.spaces) {
      if (s.name == name) return s;
    }
    memory.spaces.push_back({name});
    return memory.spaces.back();
  };
  for (const plan::Space& s : plan.spaces) space(s.str());
  for (size_t a = 0; a < plan.arenas.size(); ++a) {
    SessionMemory::Space& s = space(plan.spaces[plan.arenas[a].space].str());
    const uint64_t bytes = align_up(plan.arenas[a].bytes, plan::kAlignment);
    s.arenas += bytes;
    if (arena_shared[a]) s.shared += bytes;
  }
  for (size_t v = 0; v < plan.variables.size(); ++v) {
    SessionMemory::Space& s = space(plan.spaces[plan.variables[v].space].str());
    const uint64_t bytes = align_up(plan.variables[v].spec.extent_bytes(), plan::kAlignment);
    s.variables += bytes;
    if (variable_mapped[v]) s.mapped += bytes;
  }
  for (const plan::PackedCopy& copy : plan.packed) {
    const plan::Space& where = plan.spaces[plan.variables[copy.variable].space];
    space(where.str()).packed += align_up(copy.bytes, plan::kAlignment);
  }
  if (ports.has_backlog()) space("host").inputs += ports.backlog_bytes();
  for (const plan::Space& s : plan.spaces) {
    space(s.str()).inputs += ports.memory().input_bytes(s);
    space(s.str()).outputs += ports.memory().output_bytes(s);
  }
  for (size_t o = 0; o < plan.outputs.size(); ++o) {
    const plan::Output& output = plan.outputs[o];
    const int port = ports.ports().output_of[o];
    if (port >= 0 && ports.ports().outputs[port].copied.empty()) continue;
    const uint64_t bytes = checked_bytes(output.view.spec.shape, dtype_size(output.view.spec.dtype));
    space("host").outputs += bytes * static_cast<uint64_t>(max_in_flight);
  }
  return memory;
}

void add_counters(SessionStats& stats, const plan::Plan& plan, const SessionMemory& memory, actors::Runner& runner,
                  const std::vector<std::shared_ptr<actors::StreamExecutor>>& streams,
                  const std::vector<const PreparedKernel*>& kernels) {
  for (const SessionMemory::Space& space : memory.spaces) {
    stats.bytes += space.total();
    stats.mapped += space.mapped;
  }
  stats.shared = plan::ledger(plan).shared;
  for (size_t a = 0; a < plan.actors.size(); ++a) {
    const int actor = static_cast<int>(a);
    stats.actors.push_back({plan.actors[a].name, runner.firings(actor), runner.waits(actor),
                            static_cast<uint64_t>(runner.busy_ns(actor)), plan.actors[a].stream,
                            runner.left_out(actor)});
  }
  for (size_t s = 0; s < plan.streams.size(); ++s) {
    const actors::BusyClock& clock = streams[s]->clock();
    stats.streams.push_back({plan.streams[s].name, static_cast<uint64_t>(clock.busy_ns()), clock.pauses()});
  }
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    const PreparedKernel* kernel = kernels[k];
    if (kernel != nullptr && *kernel->library() != '\0')
      stats.libraries.push_back({plan.kernels[k].name, kernel->library()});
  }
  const bool ended = runner.wait_done(std::chrono::nanoseconds(0));  // then all slots are back, read or not
  const std::vector<actors::RegisterCounts> counts = runner.register_counts();
  for (size_t r = 0; r < plan.registers.size(); ++r) {
    const actors::RegisterCounts& c = counts[r];
    stats.registers.push_back({plan.registers[r].name, c.tokens, runner.quota(static_cast<int>(r)), ended ? 0 : c.used,
                               ended ? 0 : c.ready, c.peak});
  }
}

std::string SessionStats::str() const {
  std::string text = fmt::format("steps: {} submitted, {} finished, {} failed, {} of {} in flight; {} bytes{}\n",
                                 submitted, finished, failed, in_flight, max_in_flight, bytes,
                                 mapped > 0 ? fmt::format(", {} of them mapped", mapped) : std::string());
  if (spilled > 0) text += fmt::format("disk: {} bytes spilled, {} bytes fetched\n", spilled, fetched);
  const auto width = [](const auto& rows) {
    size_t width = 8;
    for (const auto& row : rows) width = std::max(width, row.name.size());
    return width;
  };
  const size_t s = width(streams), a = width(actors), r = width(registers);
  text += fmt::format("\n{:<{}} {:>12} {:>10}\n", "stream", s, "busy ms", "parks");
  for (const StreamStats& row : streams) {
    text += fmt::format("{:<{}} {:>12.3f} {:>10}\n", row.name, s, static_cast<double>(row.busy_ns) * 1e-6, row.parks);
  }
  const bool branches =
      std::any_of(actors.begin(), actors.end(), [](const ActorStats& row) { return row.left_out > 0; });
  text += fmt::format("\n{:<{}} {:>12} {:>10} {:>10}{}\n", "actor", a, "busy ms", "firings", "waits",
                      branches ? fmt::format(" {:>10}", "left out") : std::string());
  for (const ActorStats& row : actors) {
    text += fmt::format("{:<{}} {:>12.3f} {:>10} {:>10}{}\n", row.name, a, static_cast<double>(row.busy_ns) * 1e-6,
                        row.firings, row.waits, branches ? fmt::format(" {:>10}", row.left_out) : std::string());
  }
  text += fmt::format("\n{:<{}} {:>12} {:>6} {:>6} {:>6} {:>6}\n", "register", r, "tokens", "quota", "used", "ready",
                      "peak");
  for (const RegisterStats& row : registers) {
    text += fmt::format("{:<{}} {:>12} {:>6} {:>6} {:>6} {:>6}\n", row.name, r, row.tokens, row.quota, row.used,
                        row.ready, row.peak);
  }
  if (libraries.empty()) return text;
  const size_t k = width(libraries);
  text += fmt::format("\n{:<{}} {:>12}\n", "kernel", k, "library");
  for (const KernelLibrary& row : libraries) text += fmt::format("{:<{}} {:>12}\n", row.name, k, row.library);
  return text;
}

}  // namespace sluice
