#include "runtime/session/exchange.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace sluice {
namespace {

using plan::BaseKind;
using plan::Plan;

class Finder {
 public:
  Finder(const Plan& plan, const plan::FiringCounts& counts, Ports& ports, const SessionOptions& options)
      : plan_(plan), adjacency_(plan), counts_(counts), ports_(ports), options_(options) {
    exchange_.of_register.assign(plan.registers.size(), -1);
    for (const plan::Kernel& kernel : plan.kernels) {
      used(kernel.inputs);
      used(kernel.outputs);
      if (kernel.workspace >= 0) used_.insert(kernel.workspace);
    }
    for (size_t r = 0; r < plan.registers.size(); ++r)
      for (const int slot : plan.registers[r].slots) registers_of_[slot].push_back(static_cast<int>(r));
  }

  Exchange run() {
    for (Ports::Input& port : ports_.inputs) {
      decide(port.info, plan_.inputs[port.of_plan.front()].reg, [&] { return input(port); });
      if (!port.info.copied.empty()) continue;
      for (const int i : port.of_plan) slots_of(plan_.inputs[i].reg).fed = true;
    }
    for (size_t o = 0; o < plan_.outputs.size(); ++o) {
      if (ports_.output_of[o] < 0) continue;
      PortInfo& port = ports_.outputs[ports_.output_of[o]];
      decide(port, plan_.outputs[o].view.index, [&] {
        const std::string why = output(plan_.outputs[o]);
        return why.empty() ? moved(ports_.output_of[o], space_of(plan_.outputs[o].view.index)) : why;
      });
      if (port.copied.empty()) slots_of(plan_.outputs[o].view.index).out = true;
    }
    return std::move(exchange_);
  }

 private:
  void used(const std::vector<plan::View>& views) {
    for (const plan::View& view : views)
      if (view.base == BaseKind::kBuffer && view.index >= 0) used_.insert(view.index);
  }

  plan::Space space_of(int reg) const {
    const std::vector<int>& slots = plan_.registers[reg].slots;
    return slots.empty() ? plan::Space{} : plan_.spaces[plan_.arenas[plan_.buffers[slots.front()].arena].space];
  }

  template <class Why>
  void decide(PortInfo& port, int reg, Why&& why) const {
    const plan::Space space = space_of(reg);
    const bool device = space.kind == plan::SpaceKind::kDevice;
    port.copied = (device ? options_.device_ports : options_.zero_copy) ? why() : "the session copies at its ports";
    if (port.copied.empty()) port.space = space;
  }

  // Why the slots of a register must stay where they are, or "".
  std::string slots(int reg) const {
    const plan::Register& r = plan_.registers[reg];
    if (r.slots.empty()) return "it has no bytes";
    for (const int slot : r.slots) {
      if (used_.contains(slot)) return "a kernel works in the memory of its slots";
      if (plan_.arenas[plan_.buffers[slot].arena].stream >= 0) return "other values of a stream lie in its slots, too";
      for (const int other : registers_of_.at(slot)) {
        if (plan_.registers[other].slots != r.slots) return "another register has some of its slots";
        if (plan_.registers[other].initial_tokens > 0) return "its register has initial tokens";
      }
    }
    return "";
  }

  static bool copies(const Ports::Input& port) {
    for (auto shard = port.shards.begin(); shard != port.shards.end(); ++shard)
      if (std::any_of(port.shards.begin(), shard, [&](const auto& known) { return known.cuts == shard->cuts; }))
        return true;
    return false;
  }

  std::string input(const Ports::Input& port) const {
    if (!port.shards.front().cuts.empty() && copies(port)) return "several registers get the same part of it";
    if (port.shards.front().cuts.empty() && port.shards.size() > 1) return "several registers get all of it";
    if (port.info.type.shape.rank() == 0 && port.parts > 1) return "several firings get all of it";
    TensorSpec part = TensorSpec::contiguous(port.info.type);
    if (port.parts > 1) part.shape[0] /= port.parts;
    const uint64_t part_bytes = part.extent_bytes();
    for (size_t s = 0; s < port.shards.size(); ++s) {
      const int reg = plan_.inputs[port.of_plan[s]].reg;
      if (space_of(reg) != space_of(plan_.inputs[port.of_plan.front()].reg)) return "its parts lie on several devices";
      const plan::Window window = plan::window_of(port.shards[s], part);
      const bool in_order = window.spec == TensorSpec::contiguous({part.dtype, window.spec.shape});
      if (!in_order || window.offset % plan::kAlignment != 0 || (port.parts > 1 && part_bytes % plan::kAlignment != 0))
        return "its parts are not each contiguous at a multiple of 64 bytes";
      if (window.spec.extent_bytes() < plan_.registers[reg].bytes) return "its slots are larger than it";
      if (std::count_if(plan_.inputs.begin(), plan_.inputs.end(), [&](const auto& i) { return i.reg == reg; }) > 1)
        return "another input has its register";
      if (std::string why = slots(reg); !why.empty()) return why;
    }
    return "";
  }

  std::string output(const plan::Output& output) const {
    const int reg = output.view.index;
    const std::vector<int>& edges = adjacency_.register_edges[reg];
    if (edges.size() != 1) return "others than the sink read its register";
    const plan::Edge& edge = plan_.edges[edges.front()];
    if (edge.take != 1 || edge.hold != 1 || counts_.per_period(edge.consumer) != counts_.period())
      return "a step is not one of its register's tokens";
    if (read_beside(reg, edge.consumer)) return "its producer reads it after its emit";
    const TensorSpec& spec = output.view.spec;
    if (output.view.offset != 0 || spec != TensorSpec::contiguous({spec.dtype, spec.shape}))
      return "it is a view of its register";
    if (std::count_if(plan_.outputs.begin(), plan_.outputs.end(), [&](const auto& o) { return o.view.index == reg; }) >
        1)
      return "another output has its register";
    if (std::string why = slots(reg); !why.empty()) return why;
    for (const int other : registers_of_.at(plan_.registers[reg].slots.front())) {
      const plan::Actor& producer = plan_.actors[plan_.registers[other].producer];
      if (producer.role == plan::ActorRole::kFeed && exchange_.of_register[other] < 0)
        return "an input that is copied lies in its slots";
    }
    return "";
  }

  // Whoever has the result may write to it while its producer, on another stream than the sink, still reads it.
  bool read_beside(int reg, int sink) const {
    const plan::Actor& producer = plan_.actors[plan_.registers[reg].producer];
    if (producer.stream == plan_.actors[sink].stream) return false;
    bool emitted = false;
    for (const plan::Instr& instr : producer.program) {
      emitted = emitted || instr == plan::Instr{plan::InstrKind::kEmit, reg};
      if (!emitted || instr.kind != plan::InstrKind::kRun) continue;
      for (const plan::View& v : plan_.kernels[instr.index].inputs)
        if (v.base == BaseKind::kRegister && v.index == reg) return true;
    }
    return false;
  }

  // The host puts together the rows that are there of a result that varies in length, where it lies apart.
  std::string moved(int port, const plan::Space& space) const {
    if (ports_.varying == nullptr || space.kind != plan::SpaceKind::kDevice) return "";
    const bool apart = std::any_of(ports_.varying->begin(), ports_.varying->end(),
                                   [&](const Ports::Varying& v) { return v.port == port && v.axis > 0; });
    return apart ? "its rows are put together, as far as they are there" : "";
  }

  // REQUIRES: they may be exchanged.
  ExchangedSlots& slots_of(int reg) {
    int& index = exchange_.of_register[reg];
    if (index >= 0) return exchange_.slots[index];
    index = static_cast<int>(exchange_.slots.size());
    const plan::Register& r = plan_.registers[reg];
    ExchangedSlots& slots = exchange_.slots.emplace_back();
    slots.registers = registers_of_.at(r.slots.front());
    slots.quota = r.quota;
    slots.space = space_of(reg);
    for (const int other : slots.registers) {
      exchange_.of_register[other] = exchange_.of_register[reg];
      slots.bytes = std::max(slots.bytes, plan_.registers[other].bytes);
    }
    return slots;
  }

  const Plan& plan_;
  const plan::Adjacency adjacency_;
  const plan::FiringCounts& counts_;
  Ports& ports_;
  const SessionOptions& options_;
  std::set<int> used_;                            // buffers that are operands or workspaces
  std::map<int, std::vector<int>> registers_of_;  // by buffer
  Exchange exchange_;
};

}  // namespace

std::vector<bool> Exchange::registers() const {
  std::vector<bool> exchanged;
  for (const int slots : of_register) exchanged.push_back(slots >= 0);
  return exchanged;
}

Exchange find_exchange(const Plan& plan, const plan::FiringCounts& counts, Ports& ports,
                       const SessionOptions& options) {
  return Finder(plan, counts, ports, options).run();
}

void set_apart(Plan& plan, const Exchange& exchange) {
  std::map<int, int> apart;  // by space
  std::set<int> left;        // arenas with room that is not needed any more
  for (const ExchangedSlots& slots : exchange.slots) {
    for (const int buffer : plan.registers[slots.registers.front()].slots) {
      plan::Buffer& slot = plan.buffers[buffer];
      const int space = plan.arenas[slot.arena].space;
      left.insert(slot.arena);
      const auto [arena, fresh] = apart.try_emplace(space, static_cast<int>(plan.arenas.size()));
      if (fresh) plan.arenas.push_back({"ports/" + plan.spaces[space].str(), space, -1, 0, 0});
      slot.arena = arena->second;
      slot.offset = 0;
    }
  }
  for (const int a : left) {
    uint64_t end = 0;
    for (plan::Buffer& buffer : plan.buffers) {
      if (buffer.arena != a) continue;
      buffer.offset = end;
      end += align_up(buffer.bytes, plan::kAlignment);
    }
    plan.arenas[a].bytes = plan.arenas[a].lower_bound = end;
  }
}

}  // namespace sluice
