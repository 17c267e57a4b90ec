// echo.*: what a call costs from its submission to its result, through three actors that negate 4 floats. Usage:
// echo_bench [PREFIX]. Prints one JSON line per result; the peers, which do nothing but wake each other, run
// interleaved with ours.
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "act/report.h"
#include "echo/ping_pong.h"
#include "runtime/session/engine.h"
#include "runtime/session/session.h"
#include "streams/collective/world.h"
#include "support/plan_builder.h"

namespace sluice::bench {
namespace {

using plan::PlanBuilder;

constexpr int kRounds = 11, kCalls = 1000;
constexpr int64_t kFloats = 4;
constexpr double kKernelNs = 100;  // as the compiler predicts it

double median_us(int calls, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> took;
  took.reserve(static_cast<size_t>(calls));
  for (int i = 0; i < calls; ++i) {
    const Clock::time_point begin = Clock::now();
    call();
    took.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return median(took);
}

// feed -> three actors -> sink; the second actor is on rank `middle`, the rest on rank 0.
plan::Plan echo_plan(int middle) {
  PlanBuilder b("echo");
  const int home = b.stream("0/cpu:0", plan::StreamKind::kHost);
  const int away = middle == 0 ? home : b.stream("1/cpu:0", plan::StreamKind::kHost);
  int from = b.feed("feed", home);
  const int actors[] = {b.actor("there", home), b.actor("turn", away), b.actor("back", home), b.sink("sink", home)};
  std::vector<int> registers;
  for (const int actor : actors) {
    registers.push_back(
        b.reg("r" + std::to_string(registers.size()), from, {actor}, {.quota = 2, .bytes = 4 * kFloats}));
    from = actor;
  }
  for (size_t i = 0; i < 3; ++i) {
    b.run(actors[i], "neg", {b.of_reg(registers[i], {kFloats})}, {b.of_reg(registers[i + 1], {kFloats})}, kKernelNs);
  }
  b.input("x", registers.front(), b.f32({kFloats}));
  b.output("y", b.of_reg(registers.back(), {kFloats}));
  return b.build();
}

Session load_echo(Engine& engine, int middle) { return Session::load(engine, echo_plan(middle), {}, {}); }

void call_echo(Session& session) {
  static float value = 0;
  const float x[kFloats] = {++value, 0, 0, 0};
  const InputTensor input{x, PlanBuilder::f32({kFloats})};
  StepHandle step = session.submit({&input, 1});
  if (static_cast<const float*>(step.outputs()[0].storage->data())[0] != -value)
    fail(ErrorKind::kRuntime, "echo: another answer came than was sent");
}

struct Side {
  std::string name;
  std::function<void()> call;
  std::vector<double> rounds = {};
};

// The first side is ours, the second the peer; further ones are told of.
void report(const std::string& name, std::vector<Side> sides) {
  for (Side& side : sides) median_us(kCalls, side.call);
  for (int round = 0; round < kRounds; ++round) {
    for (Side& side : sides) side.rounds.push_back(median_us(kCalls, side.call));
  }
  Line line;
  line.name = name;
  line.ours = median(sides[0].rounds);
  line.peer = median(sides[1].rounds);
  line.peer_name = sides[1].name;
  line.unit = fmt::format("us/call, median of {} medians", kRounds);
  line.n = size_t{kRounds} * kCalls;
  line.spread = std::max(spread(sides[0].rounds), spread(sides[1].rounds));
  for (size_t i = 2; i < sides.size(); ++i) line.also.emplace_back(sides[i].name, median(sides[i].rounds));
  line.also.emplace_back("least median", *std::min_element(sides[0].rounds.begin(), sides[0].rounds.end()));
  line.also.emplace_back("least median of the peer", *std::min_element(sides[1].rounds.begin(), sides[1].rounds.end()));
  print(line);
}

void in_process() {
  Engine engine, sleeping({.spin = Spin::kNever});
  Session ours = load_echo(engine, 0), never = load_echo(sleeping, 0);
  const std::unique_ptr<PingPong> peer = futex_ping_pong();
  report("echo.process", {{"ours", [&] { call_echo(ours); }},
                          {"two threads that wake each other", [&] { peer->call(); }},
                          {"ours with spin=never", [&] { call_echo(never); }}});
}

void between_ranks() {
  const std::unique_ptr<PingPong> peer = socket_ping_pong();
  const int port = collective::local_address(collective::listen_at({"127.0.0.1", 0})).port;
  const auto world = [&](int rank) {
    collective::WorldOptions options;
    options.rank = rank;
    options.size = 2;
    options.master.port = port;
    options.token = "echo";
    return std::make_shared<collective::World>(options);
  };
  constexpr uint64_t kSteps = uint64_t{kRounds + 1} * kCalls;
  const int other = start_process([&] {
    EngineOptions options;
    options.world = world(1);
    Engine engine(options);
    Session session = load_echo(engine, 1);
    session.start(kSteps);
    session.wait_all();
  });
  {
    EngineOptions options;
    options.world = world(0);
    Engine engine(options);
    Session ours = load_echo(engine, 1);
    report("echo.ranks", {{"ours", [&] { call_echo(ours); }},
                          {"two processes, 16 bytes through a loopback connection", [&] { peer->call(); }}});
    ours.wait_all();
  }
  join_process(other);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  using namespace sluice::bench;
  // processes before threads
  return run_benchmarks("echo_bench", {{"echo.ranks", between_ranks}, {"echo.process", in_process}}, argc, argv);
}
