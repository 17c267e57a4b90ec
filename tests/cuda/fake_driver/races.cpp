#include "cuda/fake_driver/races.h"

#include <fmt/format.h>

namespace fake_cuda {

std::string Races::add(const Access& access, int stream, const Clock& clock, const char* name) {
  if (access.bytes == 0) return {};
  const auto begin = reinterpret_cast<uintptr_t>(access.data);
  const uintptr_t end = begin + access.bytes;
  Past* same = nullptr;
  std::string wrong;
  for (Past& past : past_) {
    if (past.end <= begin || end <= past.begin) continue;
    if (past.stream == stream && past.begin == begin && past.end == end && past.write == access.writes) same = &past;
    if (past.stream == stream || past.tick <= clock.ticks[past.stream] || !(past.write || access.writes)) continue;
    if (wrong.empty()) {
      wrong =
          fmt::format("race: {} on stream {} {} {} bytes at {}, which {} on stream {} {}; neither waits for the other",
                      name, stream, access.writes ? "writes" : "reads", access.bytes, access.data, past.name,
                      past.stream, past.write ? "writes" : "reads");
    }
  }
  if (same == nullptr) same = &past_.emplace_back();
  same->begin = begin;
  same->end = end;
  same->stream = stream;
  same->write = access.writes;
  same->tick = clock.ticks[stream];
  same->name = name;
  return wrong;
}

std::string Races::unfinished(const Access& access, const Clock& clock) const {
  const auto begin = reinterpret_cast<uintptr_t>(access.data);
  for (const Past& past : past_) {
    if (past.end <= begin || begin + access.bytes <= past.begin || past.tick <= clock.ticks[past.stream]) continue;
    if (!past.write && !access.writes) continue;
    return fmt::format("{} on stream {}", past.name, past.stream);
  }
  return {};
}

void Races::forget(const void* data, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  std::erase_if(past_, [&](const Past& past) { return past.begin < begin + bytes && begin < past.end; });
}

}  // namespace fake_cuda
