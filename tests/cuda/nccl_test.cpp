// Graphs over the GPUs of several ranks, on the fake driver and a fake NCCL: each rank an engine, on a thread of its
// own.
#include "collective/ranks.h"
#include "compiler/compiler.h"
#include "cuda/fake_driver/fake_driver.h"
#include "cuda/fake_nccl.h"
#include "graph/graph.h"
#include "kernels/target.h"
#include "runtime/fixture.h"
#include "streams/devices.h"
#include "support/fake_cuda.h"

namespace sluice::test {
namespace {

using testing::IsEmpty;

constexpr int kGpus = 2;  // of the fake driver; ranks may share one, of the fake NCCL
const bool kFakeNccl = setenv("SLUICE_NCCL", FAKE_NCCL, 0) == 0;

std::string mesh_of(DeviceKind kind, int ranks) {
  std::string mesh;
  for (int r = 0; r < ranks; ++r)
    mesh += fmt::format("{}{}", r ? "," : "", DeviceId{r, kind, kind == DeviceKind::kCuda ? r % kGpus : 0}.str());
  return mesh;
}

// `body` with MESH as the ranks' devices; its inputs lie there in parts along dimension 0.
plan::Plan compiled(int ranks, DeviceKind kind, std::string body) {
  const std::string mesh = mesh_of(kind, ranks);
  for (size_t at; (at = body.find("MESH")) != std::string::npos;) body.replace(at, 4, "mesh = \"" + mesh + "\"");
  const graph::Graph graph = graph::parse("graph \"g\" {\n" + body + "}\n", "g", builtin_ops());
  Engine engine({.cores = 1});
  std::vector<plan::DeviceDesc> devices;
  for (int r = 0; r < ranks; ++r) {
    std::set<DeviceId> own = {{0, DeviceKind::kCpu, 0}, {0, kind, kind == DeviceKind::kCuda ? r % kGpus : 0}};
    for (const DeviceId& id : own) {
      devices.push_back(engine.device(id).describe());
      devices.back().device.rank = r;
    }
  }
  CompileOptions options;
  options.ranks = ranks;
  options.cores = 1;
  for (const graph::Input& input : graph.inputs())
    options.components[input.name] = {parse_mesh(mesh), parse_sbp("S(0)")};
  return compile(graph, KernelTarget(engine.kernels(), devices), options).plan;
}

struct Job {
  explicit Job(int n = 2) : ranks(n) {}
  const int ranks;
  std::vector<std::vector<Floats>> results;  // by rank and step
  std::vector<std::vector<std::string>> errors;

  // Each rank runs `steps` steps on `x(rank, step)`. Returns what the ranks ended with.
  std::vector<std::string> run(const plan::Plan& plan, int steps, const std::function<Floats(int, int)>& x,
                               const std::function<void(WorldOptions&)>& change = {},
                               const std::function<void(const std::shared_ptr<World>&)>& before = {}) {
    results.assign(ranks, {});
    errors.assign(ranks, {});
    const int port = free_port();
    return on_ranks(ranks, [&](int rank) {
      WorldOptions options = world_options(rank, ranks, port);
      if (change) change(options);
      EngineOptions engine_options;
      engine_options.cores = 1;
      engine_options.world = std::make_shared<World>(options);
      Engine engine(engine_options);
      Session session = Session::load(engine, plan, {}, {});
      for (int step = 0; step < steps; ++step) {
        if (before) before(engine_options.world);
        const Floats data = x(rank, step);
        const InputTensor input{data.data(), TensorSpec::contiguous(session.inputs().at(0).type)};
        errors[rank].push_back(error_of([&] { results[rank].push_back(result(session.submit({&input, 1}))); }));
      }
    });
  }
};

// Parts to other parts, sums of parts, and all to all of a part.
const std::string kAllKinds =
    "  %0 = input \"x\" : float32(12, 6)\n"
    "  %1 = to_global(%0) {MESH, sbp = \"S(0)\"} : float32(12, 6)\n"
    "  %2 = mul(%1, %1) : float32(12, 6)\n"
    "  %3 = to_global(%2) {MESH, sbp = \"S(1)\"} : float32(12, 6)\n"
    "  %4 = exp(%3) : float32(12, 6)\n"
    "  %5 = sum(%4) {dim = [1], keepdim = false} : float32(12)\n"
    "  %6 = to_global(%5) {MESH, sbp = \"B\"} : float32(12)\n"
    "  %7 = mul(%6, %6) : float32(12)\n"
    "  output \"y\" = %7\n";

Floats part(int rank, int step, int64_t elements) {
  Floats x(elements);
  for (int64_t i = 0; i < elements; ++i) x[i] = 0.01f * static_cast<float>((i * 7 + rank * 31 + step * 13) % 97) - 0.3f;
  return x;
}

void expect_nothing_left() {
  EXPECT_EQ(fake_nccl::counts().communicators, 0);
  const fake_cuda::Counts left = fake_cuda::counts();
  EXPECT_EQ(left.streams + left.events + left.device_bytes + left.pinned_blocks + left.contexts, 0u);
  EXPECT_THAT(fake_cuda::take_violations(), IsEmpty());
}

class Nccl : public testing::TestWithParam<int> {};

TEST_P(Nccl, GpusOfSeveralRanksGiveTheBitsOfTheHosts) {
  const int n = GetParam(), steps = 20;
  const auto x = [n](int rank, int step) { return part(rank, step, 72 / n); };
  Job hosts(n), gpus(n);
  EXPECT_THAT(hosts.run(compiled(n, DeviceKind::kCpu, kAllKinds), steps, x), Each("no error"));
  const plan::Plan plan = compiled(n, DeviceKind::kCuda, kAllKinds);
  int gathers = 0, exchanges = 0;
  for (const plan::Actor& actor : plan.actors) {
    for (const plan::Instr& i : actor.program) {
      if (i.kind != plan::InstrKind::kRun || plan.kernels[i.index].collective < 0) continue;
      EXPECT_EQ(plan.streams[actor.stream].device.kind, DeviceKind::kCuda);
      ++(plan.kernels[i.index].op == "all_gather" ? gathers : exchanges);
    }
  }
  EXPECT_EQ(exchanges, n == 2 ? n : 2 * n);
  EXPECT_EQ(gathers, n);
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    fake_cuda::seed(seed);
    const fake_nccl::Counts before = fake_nccl::counts();
    EXPECT_THAT(gpus.run(plan, steps, x), Each("no error"));
    for (int r = 0; r < n; ++r) EXPECT_THAT(gpus.errors[r], Each("no error"));
    EXPECT_EQ(gpus.results, hosts.results);
    EXPECT_EQ(fake_nccl::counts().gathers - before.gathers, gathers * steps);
    EXPECT_EQ(fake_nccl::counts().exchanges - before.exchanges, exchanges * steps);
    expect_nothing_left();
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Nccl, testing::Values(2, 3));

const std::string kGather =
    "  %0 = input \"x\" : float32(4, 2)\n"
    "  %1 = to_global(%0) {MESH, sbp = \"S(0)\"} : float32(4, 2)\n"
    "  %2 = cast(%1) {dtype = int64} : int64(4, 2)\n"
    "  %3 = iota() {n = 8, start = 0.0, step = 1.0, dtype = float32} : float32(8)\n"
    "  %4 = reshape(%3) {shape = [8, 1]} : float32(8, 1)\n"
    "  %5 = embedding(%4, %2) {padding_idx = none} : float32(4, 2, 1)\n"
    "  %6 = to_global(%5) {MESH, sbp = \"B\"} : float32(4, 2, 1)\n"
    "  %7 = exp(%6) : float32(4, 2, 1)\n"
    "  output \"y\" = %7\n";

Floats index(int rank, int step) { return Floats(4, rank == 1 && step == 1 ? 9.f : 3.f); }

// A failure that only the GPU has found reaches the others by name, and nothing of what it made.
TEST(NcclFailures, AStepThatFailsOnOneGpuFailsOnAllAndTheNextWorks) {
  Job job;
  EXPECT_THAT(job.run(compiled(2, DeviceKind::kCuda, kGather), 3, index), Each("no error"));
  EXPECT_THAT(job.errors[1][1], HasSubstr("embedding"));
  EXPECT_THAT(job.errors[0][1], AllOf(HasSubstr("all_gather: barrier: rank 1 takes no part"), HasSubstr("embedding")));
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(job.errors[r][0], "no error");
    EXPECT_EQ(job.errors[r][2], "no error");
  }
  expect_nothing_left();
}

// Its part of the call is on the device for ever.
TEST(NcclFailures, ARankThatDiesInACallIsNamedAndTheCallEnds) {
  Job job;
  const auto good = [](int rank, int) { return index(rank, 0); };
  fake_nccl::lose(1);
  std::thread killer;
  job.run(compiled(2, DeviceKind::kCuda, kGather), 1, good, {}, [&](const std::shared_ptr<World>& world) {
    if (world->rank() != 1) return;
    killer = std::thread([world] {
      const auto before = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - before < milliseconds(300)) std::this_thread::yield();
      world->fail("out of power");
    });
  });
  killer.join();
  fake_nccl::lose(-1);
  for (int r = 0; r < 2; ++r)
    EXPECT_THAT(job.errors[r], ElementsAre(AllOf(HasSubstr("all_gather: "), HasSubstr("rank 1 failed: out of power"))));
  expect_nothing_left();
}

TEST(NcclFailures, ACallThatDoesNotEndIsEnded) {
  Job job;
  fake_nccl::lose(0);
  job.run(
      compiled(2, DeviceKind::kCuda, kGather), 1, [](int rank, int) { return index(rank, 0); },
      [](WorldOptions& o) { o.timeout = milliseconds(500); });
  fake_nccl::lose(-1);
  for (int r = 0; r < 2; ++r) EXPECT_THAT(job.errors[r], ElementsAre(HasSubstr("NCCL has not ended in 500 ms")));
  expect_nothing_left();
}

// Whichever call fails, on whichever rank: all are told, and nothing is left.
TEST(NcclFailures, WhatNcclRefusesFailsTheJob) {
  const plan::Plan plan = compiled(2, DeviceKind::kCuda, kGather);
  for (const std::string call :
       {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclAllGather", "ncclCommGetAsyncError"}) {
    for (const int nth : {1, 2}) {
      if (call == "ncclGetUniqueId" && nth == 2) continue;  // one rank asks
      SCOPED_TRACE(call);
      Job job;
      fake_nccl::fail_call(call, nth, ncclRemoteError);
      const std::vector<std::string> ends = job.run(plan, 2, [](int rank, int) { return index(rank, 0); });
      for (int r = 0; r < 2; ++r) {
        std::string all = ends[r];
        for (const std::string& error : job.errors[r]) all += "\n" + error;
        EXPECT_THAT(all, HasSubstr("NCCL: remote process exited or there was a network error"));
      }
      expect_nothing_left();
    }
  }
}

}  // namespace
}  // namespace sluice::test
