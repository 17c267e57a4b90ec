// Manual stepping: which messages wait at a stream, and which of them comes next.
#include <algorithm>

#include "actors/node.h"
#include "actors/stream_executor.h"

namespace sluice::actors {

size_t StreamExecutor::pending() {
  MessageProbe* const probe = options_.probe;
  while (!ring_.empty()) choices_.push_back({ring_.pop()});
  for (Cell* cell = inbox_.take(); cell != nullptr;) {
    Cell* const next = cell->next;
    PendingMessage message{cell->item};
    if (probe == nullptr) {
      choices_.push_back(message);
    } else {
      const auto kind = static_cast<ItemKind>(message.item.kind);
      if (kind != ItemKind::kCall) message.edge = message.item.node->edge_of(*cell);
      probe->add(choices_, message);
    }
    cell = next;
  }
  return choices_.size();
}

size_t StreamExecutor::free_pending() const {
  if (options_.probe == nullptr) return choices_.size();
  return static_cast<size_t>(std::count_if(choices_.begin(), choices_.end(), [this](const PendingMessage& message) {
    return !options_.probe->held(message);
  }));
}

// The first of the sequence that a chosen message belongs to. Messages that are held, and so those behind them, come
// when there is nothing else.
std::vector<PendingMessage>::iterator StreamExecutor::choose(std::mt19937_64& random) {
  const auto first_of = [this](const PendingMessage& chosen) {
    return std::find_if(choices_.begin(), choices_.end(),
                        [&](const PendingMessage& message) { return same_sequence(message, chosen); });
  };
  const size_t start = random() % choices_.size();
  const auto first = first_of(choices_[start]);
  if (options_.probe == nullptr || !options_.probe->held(*first)) return first;
  for (size_t i = 1; i < choices_.size(); ++i) {
    const auto other = first_of(choices_[(start + i) % choices_.size()]);
    if (!options_.probe->held(*other)) return other;
  }
  return first;
}

std::vector<PendingMessage> StreamExecutor::take_pending(const Node* first, const Node* last) {
  std::vector<PendingMessage> taken;
  pending();
  std::erase_if(choices_, [&](const PendingMessage& message) {
    if (static_cast<ItemKind>(message.item.kind) == ItemKind::kCall) return false;
    if (message.item.node < first || message.item.node >= last) return false;
    taken.push_back(message);
    return true;
  });
  return taken;
}

}  // namespace sluice::actors
