#include "actors/protocol.h"

#include <algorithm>
#include <limits>

#include "actors/node.h"

namespace sluice::actors {

std::string Protocol::where(int edge) const {
  const plan::Plan& plan = *run_.plan;
  return fmt::format("register '{}' from '{}' to '{}'", reg(edge).name, plan.actors[reg(edge).producer].name,
                     plan.actors[plan.edges[edge].consumer].name);
}

uint64_t Protocol::tokens_due(int edge) const {
  return nodes_[reg(edge).producer]->rule().firings() / static_cast<uint64_t>(reg(edge).emit_every);
}

// How many tokens of a register have come back from all who read it.
uint64_t Protocol::freed(int r) const {
  const std::vector<int>& edges = run_.adjacency.register_edges[r];
  const plan::Register& reg = run_.plan->registers[r];
  if (edges.empty()) return nodes_[reg.producer]->rule().firings() / static_cast<uint64_t>(reg.emit_every);
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const int e : edges) least = std::min(least, traffic_[e].acks);
  return least;
}

// Counts what its reader's firings have given back; a reader that writes in place gives it back only when that slot is
// free again. An actor that has ended also returns what it has not read.
uint64_t Protocol::acks_due(int edge) const {
  const plan::Edge& e = run_.plan->edges[edge];
  const plan::FiringRule& reader = nodes_[e.consumer]->rule();
  const uint64_t arrived = static_cast<uint64_t>(reg(edge).initial_tokens) + traffic_[edge].tokens;
  const uint64_t read = reader.firings() / static_cast<uint64_t>(e.hold) * static_cast<uint64_t>(e.take);
  for (const int r : run_.adjacency.out_registers[e.consumer]) {
    if (run_.plan->registers[r].in_place_of == edge && freed(r) < read) return freed(r);
  }
  return reader.ended() ? arrived : read;
}

bool Protocol::admit(const PendingMessage& message) {
  if (!breach_.empty()) return false;
  breach_ = fault(message.edge, static_cast<ItemKind>(message.item.kind), static_cast<int>(message.item.slot));
  return breach_.empty();
}

std::string Protocol::fault(int edge, ItemKind kind, int slot) {
  Traffic& traffic = traffic_[edge];
  const auto quota = static_cast<uint64_t>(reg(edge).quota);
  const auto in_order = [&](const char* what, uint64_t number, uint64_t first) -> std::string {
    const uint64_t expected = (first + number) % quota;
    if (static_cast<uint64_t>(slot) == expected) return "";
    return fmt::format("{}: {} {} is of slot {}; they come in the order of production, so it must be of slot {}",
                       where(edge), what, number, slot, expected);
  };
  std::string text;
  switch (kind) {
    case ItemKind::kReady: {
      if (traffic.ended)
        return fmt::format("{}: a token of slot {} after the end; nothing may follow it", where(edge), slot);
      text = in_order("token", traffic.tokens, static_cast<uint64_t>(reg(edge).initial_tokens));
      if (!text.empty()) return text;
      const uint64_t due = tokens_due(edge);
      if (traffic.tokens >= due) {
        return fmt::format("{}: token {} arrives, of slot {}; its producer has made {}", where(edge), traffic.tokens,
                           slot, due);
      }
      ++traffic.tokens;
      return "";
    }
    case ItemKind::kAck: {
      text = in_order("ack", traffic.acks, 0);
      if (!text.empty()) return text;
      const uint64_t due = acks_due(edge);
      if (traffic.acks >= due) {
        return fmt::format("{}: ack {} arrives, of slot {}; its reader has given back {}", where(edge), traffic.acks,
                           slot, due);
      }
      ++traffic.acks;
      return "";
    }
    case ItemKind::kEnd: {
      if (traffic.ended) return fmt::format("{}: a second end; there is one", where(edge));
      if (!nodes_[reg(edge).producer]->rule().ended()) {
        return fmt::format("{}: an end; its producer has not ended", where(edge));
      }
      const uint64_t due = tokens_due(edge);
      if (traffic.tokens != due) {
        return fmt::format("{}: the end comes after {} tokens; its producer has made {}, which come before it",
                           where(edge), traffic.tokens, due);
      }
      traffic.ended = true;
      return "";
    }
    default: return "";
  }
}

void Protocol::check_rest() {
  for (int edge = 0; edge < static_cast<int>(traffic_.size()) && breach_.empty(); ++edge) {
    const Traffic& traffic = traffic_[edge];
    const uint64_t tokens = tokens_due(edge);
    if (traffic.tokens < tokens) {
      breach_ = fmt::format("{}: token {} is missing: {} were sent and {} have arrived; none may be lost", where(edge),
                            traffic.tokens, tokens, traffic.tokens);
    } else if (const uint64_t acks = acks_due(edge); traffic.acks < acks) {
      breach_ = fmt::format("{}: ack {} is missing: {} were sent and {} have arrived; none may be lost", where(edge),
                            traffic.acks, acks, traffic.acks);
    } else if (!traffic.ended && nodes_[reg(edge).producer]->rule().ended()) {
      breach_ = fmt::format("{}: the end is missing: its producer has ended; none may be lost", where(edge));
    }
  }
}

void Protocol::left_over(const PendingMessage& message) {
  if (admit(message)) {
    breach_ = fmt::format("{}: a message has not been delivered; every actor is done", where(message.edge));
  }
}

}  // namespace sluice::actors
