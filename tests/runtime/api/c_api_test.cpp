// The C API: what the C++ one computes, and an error for every wrong argument and handle.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "include/sluice/sluice.h"
#include "runtime/bundle/bundle.h"
#include "runtime/fixture.h"
#include "support/soak.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// y = x + x, with a variable beside it.
Plan doubling_plan() {
  Plans b("doubling");
  b.stream("cpu:0", StreamKind::kCompute, 0);
  const int feed = b.feed("feed"), net = b.actor("net"), sink = b.sink("sink");
  const int x = b.reg("x", feed, {net}, {.quota = 2, .bytes = 16});
  const int y = b.reg("y", net, {sink}, {.quota = 2, .bytes = 16});
  b.run(net, "add", {b.r(x), b.r(x)}, {b.r(y)});
  b.input("x", x, b.f32({kN}));
  b.output("y", b.r(y));
  return b.build();
}

// "" of success; destroys the status.
std::string message(sluice_status* status) {
  const std::string text = sluice_status_message(status);
  sluice_status_destroy(status);
  return text;
}

class CApiTest : public ::testing::Test {
 protected:
  CApiTest() : dir_((fs::path(::testing::TempDir()) / ("sluice_c_api_" + std::to_string(getpid()))).string()) {
    save_bundle(dir_, {doubling_plan(), "graph text\n", {}, {}});
    sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;
    options.cores = 1;
    EXPECT_EQ(message(sluice_engine_create(&options, &engine_)), "");
    EXPECT_EQ(message(sluice_session_load(engine_, dir_.c_str(), nullptr, &session_)), "");
    const int64_t shape[] = {4};
    const float values[] = {1, 2, 3, 4};
    EXPECT_EQ(message(sluice_tensor_from_data(SLUICE_FLOAT32, shape, 1, values, sizeof values, &x_)), "");
  }
  ~CApiTest() override {
    sluice_tensor_destroy(x_);
    sluice_engine_destroy(engine_);  // the session keeps it
    sluice_session_destroy(session_);
    fs::remove_all(dir_);
  }
  const std::string dir_;
  sluice_engine* engine_ = nullptr;
  sluice_session* session_ = nullptr;
  sluice_tensor* x_ = nullptr;
};

TEST_F(CApiTest, RunsAndSubmits) {
  sluice_tensor* y = nullptr;
  ASSERT_EQ(message(sluice_session_run(session_, &x_, 1, &y, 1)), "");
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[3], 8);
  EXPECT_EQ(sluice_tensor_dtype(y), SLUICE_FLOAT32);
  EXPECT_EQ(sluice_tensor_rank(y), 1);
  EXPECT_EQ(sluice_tensor_shape(y)[0], 4);
  EXPECT_EQ(sluice_tensor_size(y), 4);
  EXPECT_EQ(sluice_tensor_bytes(y), 16u);
  sluice_tensor_destroy(y);
  sluice_step* step = nullptr;
  ASSERT_EQ(message(sluice_session_submit(session_, &x_, 1, &step)), "");
  EXPECT_EQ(message(sluice_step_wait(step, -1)), "");
  EXPECT_EQ(sluice_step_ready(step), 1);
  EXPECT_EQ(message(sluice_step_wait(step, 0)), "");
  ASSERT_EQ(message(sluice_step_outputs(step, &y, 1)), "");
  EXPECT_EQ(message(sluice_session_wait_all(session_)), "");
  EXPECT_GT(sluice_engine_memory_bytes(engine_), 0u);
  EXPECT_GE(sluice_engine_peak_memory_bytes(engine_), sluice_engine_memory_bytes(engine_));
  // In any order: the step keeps its session, which keeps the engine.
  sluice_engine_destroy(engine_);
  EXPECT_EQ(message(sluice_session_stop(session_)), "");
  sluice_session_destroy(session_);
  EXPECT_EQ(message(sluice_step_wait(step, -1)), "");
  sluice_step_destroy(step);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[0], 2);
  sluice_tensor_destroy(y);
}

TEST_F(CApiTest, WhatIsHandedOverIsNotCopied) {
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.zero_copy = 1;
  sluice_session* session = nullptr;
  ASSERT_EQ(message(sluice_session_load(engine_, dir_.c_str(), &options, &session)), "");
  sluice_port port = SLUICE_PORT_INIT;
  ASSERT_EQ(message(sluice_session_input(session, 0, &port)), "");
  EXPECT_STREQ(port.copied, "");
  ASSERT_EQ(message(sluice_session_input(session_, 0, &port)), "");
  EXPECT_STREQ(port.copied, "the session copies at its ports");
  alignas(64) static float memory[4] = {1, 2, 3, 4};
  std::atomic<int> released{0};
  const auto release = [](void* context) { ++*static_cast<std::atomic<int>*>(context); };
  const int64_t shape[] = {4};
  sluice_tensor* x = nullptr;
  EXPECT_EQ(message(sluice_tensor_from_memory(SLUICE_FLOAT32, shape, 1, memory, 12, release, &released, &x)),
            "sluice_tensor_from_memory: 12 bytes; float32(4,) has 16");
  EXPECT_EQ(message(sluice_tensor_from_memory(SLUICE_FLOAT32, shape, 1, nullptr, 16, release, &released, &x)),
            "sluice_tensor_from_memory: data is NULL; pass an address");
  EXPECT_EQ(released, 0);
  ASSERT_EQ(message(sluice_tensor_from_memory(SLUICE_FLOAT32, shape, 1, memory, 16, release, &released, &x)), "");
  EXPECT_EQ(sluice_tensor_data(x), memory);
  sluice_step* step = nullptr;
  EXPECT_THAT(message(sluice_session_hand_over(session, &x, 0, &step)), HasSubstr("got 0 inputs; the plan has 1"));
  EXPECT_EQ(sluice_tensor_data(x), memory) << "an error takes nothing";
  ASSERT_EQ(message(sluice_session_hand_over(session, &x, 1, &step)), "");
  EXPECT_EQ(sluice_tensor_data(x), nullptr) << "its handle is gone";
  sluice_step* again = nullptr;
  EXPECT_THAT(message(sluice_session_hand_over(session, &x, 1, &again)), HasSubstr("not a live handle"));
  sluice_tensor* y = nullptr;
  ASSERT_EQ(message(sluice_step_outputs(step, &y, 1)), "");
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[3], 8);
  EXPECT_EQ(message(sluice_session_wait_all(session)), "");
  sluice_step_destroy(step);
  sluice_session_destroy(session);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[0], 2) << "results outlive their session";
  sluice_tensor_destroy(y);
}

TEST_F(CApiTest, TellsOfPlans) {
  sluice_plan* plan = nullptr;
  ASSERT_EQ(message(sluice_plan_load(dir_.c_str(), &plan)), "");
  EXPECT_STREQ(sluice_plan_name(plan), "doubling");
  EXPECT_EQ(message(sluice_plan_verify(plan)), "");
  EXPECT_GT(sluice_plan_memory_bytes(plan), 0u);
  EXPECT_EQ(sluice_plan_num_inputs(plan), 1u);
  EXPECT_EQ(sluice_plan_num_outputs(plan), 1u);
  sluice_port port = SLUICE_PORT_INIT;
  ASSERT_EQ(message(sluice_plan_output(plan, 0, &port)), "");
  EXPECT_STREQ(port.name, "y");
  EXPECT_EQ(port.dtype, SLUICE_FLOAT32);
  EXPECT_EQ(port.rank, 1);
  EXPECT_EQ(port.shape[0], 4);
  EXPECT_EQ(message(sluice_plan_input(plan, 1, &port)), "sluice_plan_input: index 1; there are 1");
  sluice_plan_destroy(plan);
  EXPECT_EQ(sluice_plan_num_inputs(plan), 0u);
  EXPECT_EQ(message(sluice_plan_load("/no/such/plan", &plan)).substr(0, 14), "/no/such/plan:");
}

TEST_F(CApiTest, SessionsShareArenas) {
  sluice_plan* plan = nullptr;
  ASSERT_EQ(message(sluice_plan_load(dir_.c_str(), &plan)), "");
  sluice_arenas* arenas = nullptr;
  ASSERT_EQ(message(sluice_arenas_create(engine_, &arenas)), "");
  EXPECT_EQ(sluice_arenas_bytes(arenas), 0u);
  ASSERT_EQ(message(sluice_arenas_reserve(arenas, plan)), "");
  EXPECT_EQ(sluice_arenas_bytes(arenas), sluice_plan_memory_bytes(plan));  // it has no variables
  const uint64_t held = sluice_engine_memory_bytes(engine_);
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.arenas = arenas;
  sluice_session* sessions[2] = {nullptr, nullptr};
  for (sluice_session*& session : sessions)
    ASSERT_EQ(message(sluice_session_load(engine_, dir_.c_str(), &options, &session)), "");
  EXPECT_EQ(sluice_engine_memory_bytes(engine_), held);
  sluice_arenas_destroy(arenas);  // the sessions keep what they have
  EXPECT_EQ(sluice_arenas_bytes(arenas), 0u);
  EXPECT_EQ(
      message(sluice_session_load(engine_, dir_.c_str(), &options, &session_)).find("not a live handle of arenas"),
      21u);
  for (int i = 0; i < 20; ++i) {
    sluice_tensor* y = nullptr;
    ASSERT_EQ(message(sluice_session_run(sessions[i % 2], &x_, 1, &y, 1)), "");
    EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[2], 6);
    sluice_tensor_destroy(y);
  }
  for (sluice_session* session : sessions) sluice_session_destroy(session);
  EXPECT_LT(sluice_engine_memory_bytes(engine_), held);
  EXPECT_EQ(message(sluice_arenas_create(nullptr, &arenas)), "sluice_arenas_create: an engine is NULL; pass one");
  EXPECT_EQ(message(sluice_arenas_create(engine_, nullptr)), "sluice_arenas_create: arenas is NULL; pass an address");
  EXPECT_EQ(message(sluice_arenas_reserve(nullptr, plan)), "sluice_arenas_reserve: arenas is NULL; pass one");
  sluice_plan_destroy(plan);
}

TEST_F(CApiTest, OlderCallersHaveArenasOfTheirOwn) {
  sluice_session_options older = SLUICE_SESSION_OPTIONS_INIT;
  older.size = offsetof(sluice_session_options, arenas);
  older.arenas = reinterpret_cast<sluice_arenas*>(uintptr_t{3});  // not read
  sluice_session* session = nullptr;
  EXPECT_EQ(message(sluice_session_load(engine_, dir_.c_str(), &older, &session)), "");
  sluice_session_destroy(session);
}

TEST_F(CApiTest, LoadsBackends) {
  const char* kind = "none";
  EXPECT_THAT(message(sluice_engine_load_backend(engine_, "/no/backend.so", &kind)), HasSubstr("/no/backend.so"));
  EXPECT_STREQ(kind, "none");
  EXPECT_EQ(message(sluice_engine_load_backend(nullptr, EXAMPLE_DEVICE, &kind)),
            "sluice_engine_load_backend: an engine is NULL; pass one");
  EXPECT_EQ(message(sluice_engine_load_backend(engine_, nullptr, &kind)),
            "sluice_engine_load_backend: path is NULL; pass an address");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(message(sluice_engine_load_backend(engine_, EXAMPLE_DEVICE, &kind)), "");
    EXPECT_STREQ(kind, "example");
  }
  EXPECT_EQ(message(sluice_engine_load_backend(engine_, EXAMPLE_DEVICE, nullptr)), "");
}

TEST_F(CApiTest, SaysWhatIsWrong) {
  sluice_tensor* y = nullptr;
  sluice_status* status = sluice_session_run(session_, nullptr, 0, &y, 1);
  EXPECT_EQ(sluice_status_kind(status), SLUICE_ERROR_VALUE);
  EXPECT_EQ(message(status), "sluice_session_run: got 0 inputs; the plan has 1");
  EXPECT_EQ(sluice_status_kind(status), SLUICE_ERROR_VALUE);  // destroyed: no crash
  EXPECT_STREQ(sluice_status_message(status), "sluice: not a live status");
  EXPECT_EQ(message(sluice_session_run(session_, &x_, 1, nullptr, 1)),
            "sluice_session_run: outputs is NULL; pass an address");
  EXPECT_EQ(message(sluice_session_run(session_, &x_, 1, &y, 2)),
            "sluice_session_run: room for 2 outputs; the plan has 1");
  EXPECT_EQ(message(sluice_session_run(nullptr, &x_, 1, &y, 1)), "sluice_session_run: a session is NULL; pass one");
  auto* wrong_kind = reinterpret_cast<sluice_session*>(engine_);
  EXPECT_EQ(message(sluice_session_run(wrong_kind, &x_, 1, &y, 1)).find("not a live handle of a session"), 20u);
  EXPECT_EQ(message(sluice_tensor_create(static_cast<sluice_dtype>(99), nullptr, 0, &y)),
            "sluice_tensor_create: dtype: 99; must be a sluice_dtype");
  EXPECT_EQ(message(sluice_tensor_create(SLUICE_BOOL, nullptr, 9, &y)),
            "sluice_tensor_create: rank: 9; must be 0 to 8");
  const int64_t shape[] = {2, -1};
  EXPECT_NE(message(sluice_tensor_create(SLUICE_BOOL, shape, 2, &y)), "");
  EXPECT_EQ(message(sluice_tensor_from_data(SLUICE_INT8, shape, 1, "abc", 3, &y)),
            "sluice_tensor_from_data: 3 bytes; int8(2,) has 2");
  EXPECT_EQ(message(sluice_engine_load_extension(engine_, "/none.so")).substr(0, 22), "extension '/none.so': ");
  status = sluice_session_load(engine_, "/no/bundle", nullptr, &session_);
  EXPECT_EQ(sluice_status_kind(status), SLUICE_ERROR_IO);
  sluice_status_destroy(status);
  EXPECT_EQ(y, nullptr);
}

// Structs know their size: a shorter one is an older caller, a longer one a newer.
TEST_F(CApiTest, OptionsOfOtherVersionsAreRead) {
  struct Newer {
    sluice_engine_options known;
    int64_t later;
  } newer{SLUICE_ENGINE_OPTIONS_INIT, 0};
  newer.known.size = sizeof newer;
  newer.known.cores = 1;
  sluice_engine* engine = nullptr;
  EXPECT_EQ(message(sluice_engine_create(&newer.known, &engine)), "");
  sluice_engine_destroy(engine);
  newer.later = 1;
  EXPECT_EQ(message(sluice_engine_create(&newer.known, &engine)),
            "sluice_engine_create: options have fields that this version does not know; leave them 0");
  sluice_engine_options older = SLUICE_ENGINE_OPTIONS_INIT;
  older.size = offsetof(sluice_engine_options, watchdog_ms);
  older.cores = 1;
  older.watchdog_ms = -5;  // not read
  EXPECT_EQ(message(sluice_engine_create(&older, &engine)), "");
  sluice_engine_destroy(engine);
  older.size = 0;
  EXPECT_EQ(message(sluice_engine_create(&older, &engine)),
            "sluice_engine_create: options.size: 0; must be sizeof the struct: begin with its _INIT macro");
  older = SLUICE_ENGINE_OPTIONS_INIT;
  older.cores = -1;
  EXPECT_EQ(message(sluice_engine_create(&older, &engine)), "sluice_engine_create: cores: -1; must be 0 to 65536");
}

// Two threads use what a third destroys.
TEST_F(CApiTest, HandlesMayBeDestroyedWhileInUse) {
  std::atomic<int> refused{0}, ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (;;) {
        sluice_tensor* y = nullptr;
        sluice_status* status = sluice_session_run(session_, &x_, 1, &y, 1);
        if (status == nullptr) {
          EXPECT_EQ(static_cast<float*>(sluice_tensor_data(y))[1], 4);
          sluice_tensor_destroy(y);
          ++ran;
          continue;
        }
        sluice_status_destroy(status);
        ++refused;
        return;
      }
    });
  }
  while (ran < 20) std::this_thread::yield();
  sluice_session_destroy(session_);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 2);
}

// Every function with NULL, destroyed, made-up and wrong-kind handles: an error or nothing, never a crash.
TEST_F(CApiTest, SoakInvalidHandles) {
  sluice_tensor* gone = nullptr;
  ASSERT_EQ(message(sluice_tensor_create(SLUICE_INT8, nullptr, 0, &gone)), "");
  sluice_tensor_destroy(gone);
  std::mt19937_64 random(7);
  const int64_t calls = repetitions(20'000, 1'000'000);
  for (int64_t i = 0; i < calls; ++i) {
    const auto any = [&](void* other) -> void* {
      switch (random() % 5) {
        case 0: return nullptr;
        case 1: return gone;
        case 2: return reinterpret_cast<void*>(random());
        case 3: return reinterpret_cast<void*>(uintptr_t{0x1000} + 16 * 1'000'000'000ull + random() % 4096);
        default: return other;
      }
    };
    auto* engine = static_cast<sluice_engine*>(any(session_));
    auto* session = static_cast<sluice_session*>(any(engine_));
    auto* tensor = static_cast<sluice_tensor*>(any(engine_));
    auto* step = static_cast<sluice_step*>(any(x_));
    auto* plan = static_cast<sluice_plan*>(any(x_));
    auto* arenas = static_cast<sluice_arenas*>(any(x_));
    auto* counters = static_cast<sluice_counters*>(any(x_));
    auto* tensors = static_cast<sluice_tensors*>(any(x_));
    auto* text = static_cast<sluice_text*>(any(x_));
    sluice_arenas* new_arenas = nullptr;
    sluice_counters* new_counters = nullptr;
    sluice_totals totals = {};
    totals.size = sizeof totals;
    sluice_port port = SLUICE_PORT_INIT;
    sluice_session* new_session = nullptr;
    sluice_step* new_step = nullptr;
    sluice_tensor* out = nullptr;
    sluice_status* status = nullptr;
    switch (random() % 22) {
      case 0: status = sluice_session_load(engine, random() % 2 ? dir_.c_str() : nullptr, nullptr, &new_session); break;
      case 1: status = sluice_session_run(session, &x_, 1, &out, 1); break;
      case 2: status = sluice_session_run(session_, &tensor, 1, &out, 1); break;
      case 3: status = sluice_session_submit(session, &x_, 1, &new_step); break;
      case 4: status = sluice_session_input(session, random() % 3, &port); break;
      case 5: status = sluice_step_wait(step, static_cast<int64_t>(random() % 3) - 1); break;
      case 6: status = sluice_step_outputs(step, &out, 1); break;
      case 7: status = sluice_plan_verify(plan); break;
      case 8: status = sluice_plan_input(plan, 0, &port); break;
      case 9: status = sluice_engine_load_extension(engine, "/none.so"); break;
      case 10: status = sluice_session_stop(session); break;
      case 11: status = sluice_session_wait_all(session); break;
      case 13: status = sluice_session_reset(session); break;
      case 12: status = sluice_session_submit(session_, &tensor, 1, &new_step); break;
      case 14: status = sluice_arenas_reserve(arenas, plan); break;
      case 15: status = sluice_arenas_create(engine, &new_arenas); break;
      case 16: status = sluice_session_try_submit(session, &x_, 1, &new_step); break;
      case 17: status = sluice_session_counters(session, &new_counters); break;
      case 18: status = sluice_counters_totals(counters, &totals); break;
      case 19: status = sluice_tensors_get(tensors, random() % 3, &out); break;
      case 20: status = sluice_engine_join(engine, nullptr); break;
      default: status = sluice_session_output(session_, 1 + random() % 9, &port); break;
    }
    ASSERT_NE(status, nullptr);
    ASSERT_NE(sluice_status_kind(status), SLUICE_OK);
    ASSERT_STRNE(sluice_status_message(status), "");
    ASSERT_EQ(sluice_tensor_data(static_cast<sluice_tensor*>(any(engine_))), nullptr);
    ASSERT_EQ(sluice_tensor_size(tensor) + sluice_tensor_rank(tensor), 0);
    ASSERT_EQ(sluice_plan_memory_bytes(plan) + sluice_session_num_inputs(session) + sluice_step_ready(step), 0u);
    ASSERT_EQ(sluice_arenas_bytes(arenas) + sluice_tensors_count(tensors) + sluice_step_number(step), 0u);
    ASSERT_STREQ(sluice_text_data(text), "");
    ASSERT_STREQ(sluice_counters_text(counters), "");
    sluice_counters_destroy(counters);
    sluice_tensors_destroy(tensors);
    sluice_text_destroy(text);
    sluice_step_destroy(step);
    sluice_tensor_destroy(tensor);
    sluice_session_destroy(session);
    sluice_engine_destroy(engine);
    sluice_plan_destroy(plan);
    sluice_arenas_destroy(arenas);
    sluice_status_destroy(status);
    sluice_status_destroy(status);
  }
  // And what was valid still is.
  sluice_tensor* y = nullptr;
  EXPECT_EQ(message(sluice_session_run(session_, &x_, 1, &y, 1)), "");
  sluice_tensor_destroy(y);
  report_count("C API", calls, "calls with invalid handles");
}

}  // namespace
}  // namespace sluice::test
