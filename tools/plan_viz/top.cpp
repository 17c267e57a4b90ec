#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <memory>
#include <thread>

#include "plan/json/json.h"
#include "tools/plan_viz/live.h"
#include "tools/plan_viz/live_client.h"
#include "tools/plan_viz/live_view.h"
#include "tools/plan_viz/text.h"

namespace sluice::plan_viz {

namespace {

constexpr int kSamples = 10;  // of an interval
const char* const kClear = "\x1b[H\x1b[2J";

struct Watched {
  std::unique_ptr<LivePlan> plan;
  std::vector<LiveSample> samples;
};

// Adds what the process says now. False once it has ended.
bool sample(LiveClient& client, std::map<uint64_t, Watched>& watched, const std::string& only,
            plan::LiveProcess& process) {
  if (!client.ask_state(process)) return false;
  std::erase_if(watched, [&](const auto& entry) {
    return std::ranges::none_of(process.sessions, [&](const plan::LiveSession& s) { return s.id == entry.first; });
  });
  for (plan::LiveSession& session : process.sessions) {
    if (!only.empty() && session.name != only) continue;
    if (!watched.contains(session.id)) {
      std::unique_ptr<LivePlan> plan = client.plan(session.id);
      if (plan == nullptr) continue;  // it has just ended
      watched[session.id].plan = std::move(plan);
    }
    Watched& one = watched[session.id];
    one.plan->check(session);
    one.samples.push_back({process.clock_ns, std::move(session)});
  }
  return true;
}

std::string picture(const LiveClient& client, const plan::LiveProcess& process,
                    const std::map<uint64_t, Watched>& watched, const LiveOptions& options) {
  std::string s, idle;
  for (const auto& [id, one] : watched) {
    if (one.samples.size() < 2) continue;
    const plan::LiveSession &first = one.samples.front().session, &last = one.samples.back().session;
    if (options.json) {
      s += (s.empty() ? "" : ",\n") + top_json(*one.plan, one.samples);
    } else if (watched.size() > 1 && last.in_flight == 0 && first.submitted == last.submitted) {
      idle += fmt::format("{}'{}'", idle.empty() ? "idle: " : ", ", last.name);
    } else {
      s += top_text(*one.plan, one.samples, options.text);
    }
  }
  if (options.json)
    return fmt::format("{{\"pid\": {}, \"program\": {}, \"version\": {}, \"sessions\": [{}]}}\n", process.pid,
                       plan::quoted_json(client.program()), plan::quoted_json(process.version), s);
  const std::string head = fmt::format("process {} ({}), Sluice {}, {}\n", process.pid, client.program(),
                                       process.version, count_str(watched.size(), "session"));
  return (options.redraw ? kClear : "") + head + s + (idle.empty() ? "" : idle + "\n");
}

}  // namespace

int show_top(const LiveOptions& options) {
  using Clock = std::chrono::steady_clock;
  LiveClient client(options.pid);
  plan::LiveProcess process;
  std::map<uint64_t, Watched> watched;
  bool there = sample(client, watched, options.session, process);
  SLUICE_CHECK_KIND(kIo, options.session.empty() || !watched.empty(),
                    "process {} ({}): it has no plan '{}' loaded; `plan-viz top {}` shows all", options.pid,
                    client.program(), options.session, options.pid);
  const auto part =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.interval / kSamples));
  auto due = Clock::now();
  for (int n = 0; there && (options.count == 0 || n < options.count); ++n) {
    for (int i = 0; there && i < kSamples; ++i) {
      std::this_thread::sleep_until(due += part);
      there = sample(client, watched, options.session, process);
    }
    if (!there) break;
    std::cout << picture(client, process, watched, options) << std::flush;
    for (auto& [id, one] : watched) one.samples.erase(one.samples.begin(), one.samples.end() - 1);
  }
  if (!there && !options.json) std::cout << fmt::format("process {} ({}) has ended\n", options.pid, client.program());
  return 0;
}

}  // namespace sluice::plan_viz
