// The C API for services: steps that do not wait, results by callback, counters, the log, files of tensors, ranks.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include "include/sluice/sluice.h"
#include "runtime/bundle_fixture.h"
#include "runtime/fixture.h"

namespace sluice::test {
namespace {

// "" of success; destroys the status.
std::string message(sluice_status* status) {
  const std::string text = sluice_status_message(status);
  sluice_status_destroy(status);
  return text;
}

std::string taken(sluice_text* text) {
  std::string copy = sluice_text_data(text);
  sluice_text_destroy(text);
  return copy;
}

sluice_tensor* floats(const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  sluice_tensor* tensor = nullptr;
  EXPECT_EQ(message(sluice_tensor_from_data(SLUICE_FLOAT32, &n, 1, values.data(), values.size() * 4, &tensor)), "");
  return tensor;
}

class CServices : public ::testing::Test {
 protected:
  CServices() {
    save_plain(folder_.path());
    sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;
    options.cores = 1;
    EXPECT_EQ(message(sluice_engine_create(&options, &engine_)), "");
  }
  ~CServices() override {
    sluice_session_destroy(session_);
    sluice_engine_destroy(engine_);
  }
  void load(const sluice_session_options& options = SLUICE_SESSION_OPTIONS_INIT) {
    ASSERT_EQ(message(sluice_session_load(engine_, folder_.path().c_str(), &options, &session_)), "");
    sluice_port port = SLUICE_PORT_INIT;
    ASSERT_EQ(message(sluice_session_input(session_, 0, &port)), "");
    ASSERT_EQ(message(sluice_tensor_create(port.dtype, port.shape, port.rank, &x_)), "");
  }
  void TearDown() override { sluice_tensor_destroy(x_); }
  TestFolder folder_{"c_services"};
  sluice_engine* engine_ = nullptr;
  sluice_session* session_ = nullptr;
  sluice_tensor* x_ = nullptr;
};

struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<uint64_t> steps;
  std::vector<sluice_tensor*> seen;  // handles that are gone by then
  std::atomic<bool> hold{false};     // the callback waits while this holds
};

void tell(void* context, uint64_t step, sluice_tensor* const* outputs, size_t num_outputs, const char* error) {
  Told& told = *static_cast<Told*>(context);
  EXPECT_EQ(num_outputs, 2u);
  EXPECT_STREQ(error, "");
  EXPECT_NE(sluice_tensor_data(outputs[0]), nullptr);
  std::unique_lock lock(told.mutex);
  told.changed.wait(lock, [&] { return !told.hold; });
  told.steps.push_back(step);
  told.seen.push_back(outputs[0]);
}

TEST_F(CServices, StepsTellWhenTheyAreDone) {
  Told told;
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.on_output = tell;
  options.context = &told;
  load(options);
  for (uint64_t i = 0; i < 5; ++i) {
    sluice_step* step = nullptr;
    ASSERT_EQ(message(sluice_session_submit(session_, &x_, 1, &step)), "");
    EXPECT_EQ(sluice_step_number(step), i);
    sluice_step_destroy(step);
  }
  ASSERT_EQ(message(sluice_session_wait_all(session_)), "");
  EXPECT_EQ(told.steps, (std::vector<uint64_t>{0, 1, 2, 3, 4}));
  for (const sluice_tensor* tensor : told.seen) EXPECT_EQ(sluice_tensor_data(tensor), nullptr) << "its handle is gone";
}

TEST_F(CServices, TrySubmitDoesNotWait) {
  Told told;
  told.hold = true;
  sluice_session_options options = SLUICE_SESSION_OPTIONS_INIT;
  options.max_in_flight = 2;
  options.on_output = tell;
  options.context = &told;
  load(options);
  std::vector<sluice_step*> steps;
  sluice_step* step = nullptr;
  do {  // the first step is not over before it has been told of
    ASSERT_EQ(message(sluice_session_try_submit(session_, &x_, 1, &step)), "");
    if (step != nullptr) steps.push_back(step);
    ASSERT_LE(steps.size(), 2u);
  } while (step != nullptr);
  EXPECT_EQ(steps.size(), 2u);
  EXPECT_EQ(message(sluice_session_try_submit(session_, &x_, 0, &step)),
            "sluice_session_try_submit: got 0 inputs; the plan has 1");
  {
    const std::lock_guard lock(told.mutex);
    told.hold = false;
  }
  told.changed.notify_all();
  for (sluice_step* s : steps) {
    EXPECT_EQ(message(sluice_step_wait(s, -1)), "");
    sluice_step_destroy(s);
  }
}

TEST_F(CServices, CountersAreThoseOfCpp) {
  load();
  for (int i = 0; i < 3; ++i) {
    sluice_tensor* outputs[2];
    ASSERT_EQ(message(sluice_session_run(session_, &x_, 1, outputs, 2)), "");
    for (sluice_tensor* output : outputs) sluice_tensor_destroy(output);
  }
  ASSERT_EQ(message(sluice_session_wait_all(session_)), "");
  sluice_counters* counters = nullptr;
  ASSERT_EQ(message(sluice_session_counters(session_, &counters)), "");
  sluice_totals totals = {};
  totals.size = sizeof totals;
  ASSERT_EQ(message(sluice_counters_totals(counters, &totals)), "");
  EXPECT_EQ(totals.submitted, 3u);
  EXPECT_EQ(totals.finished, 3u);
  EXPECT_EQ(totals.failed, 0u);
  EXPECT_EQ(totals.in_flight, 0);
  EXPECT_GT(totals.max_in_flight, 0);
  EXPECT_GT(totals.bytes, 0u);
  EXPECT_LE(totals.shared, totals.bytes);
  ASSERT_GT(totals.num_actors, 0u);
  ASSERT_GT(totals.num_streams, 0u);
  ASSERT_GT(totals.num_registers, 0u);
  const std::string text = sluice_counters_text(counters);
  for (size_t i = 0; i < totals.num_actors; ++i) {
    sluice_actor_counters actor = {};
    actor.size = sizeof actor;
    ASSERT_EQ(message(sluice_counters_actor(counters, i, &actor)), "");
    EXPECT_EQ(actor.firings, 3u) << actor.name;
    EXPECT_LT(actor.stream, static_cast<int>(totals.num_streams));
    EXPECT_THAT(text, HasSubstr(actor.name));
  }
  sluice_stream_counters stream = {};
  stream.size = sizeof stream;
  EXPECT_EQ(message(sluice_counters_stream(counters, 0, &stream)), "");
  EXPECT_THAT(text, HasSubstr(stream.name));
  sluice_register_counters counted = {};
  counted.size = sizeof counted;
  EXPECT_EQ(message(sluice_counters_register(counters, 0, &counted)), "");
  EXPECT_EQ(counted.tokens, 3u) << counted.name;
  EXPECT_GE(counted.peak, 1);
  // An older caller's struct ends earlier; nothing is written behind it.
  sluice_register_counters older = {};
  older.size = offsetof(sluice_register_counters, quota);
  older.quota = -7;
  EXPECT_EQ(message(sluice_counters_register(counters, 0, &older)), "");
  EXPECT_EQ(older.tokens, 3u);
  EXPECT_EQ(older.quota, -7);
  older.size = 0;
  EXPECT_EQ(message(sluice_counters_register(counters, 0, &older)),
            "sluice_counters_register: counted->size: 0; set it to sizeof the struct");
  EXPECT_THAT(message(sluice_counters_actor(counters, totals.num_actors, nullptr)), HasSubstr("there are"));
  sluice_counters_destroy(counters);
  EXPECT_STREQ(sluice_counters_text(counters), "");
  EXPECT_THAT(message(sluice_counters_totals(counters, &totals)), HasSubstr("not a live handle"));
}

TEST_F(CServices, TracesTellOfSteps) {
  load();
  ASSERT_EQ(message(sluice_session_set_trace(session_, 1)), "");
  sluice_step_options options = SLUICE_STEP_OPTIONS_INIT;
  options.tag = "seventeen";
  sluice_step* step = nullptr;
  ASSERT_EQ(message(sluice_session_submit_with(session_, &x_, 1, &options, &step)), "");
  ASSERT_EQ(message(sluice_step_wait(step, -1)), "");
  sluice_step_destroy(step);
  std::multiset<std::string> firings, kernels;
  std::string chrome;
  for (bool over = false; !over;) {  // the sink's firing may still be under way
    sluice_trace* trace = nullptr;
    ASSERT_EQ(message(sluice_session_take_trace(session_, &trace)), "");
    sluice_trace_counts counts = {};
    counts.size = sizeof counts;
    ASSERT_EQ(message(sluice_trace_totals(trace, &counts)), "");
    EXPECT_EQ(counts.num_plans, 1u);
    EXPECT_GT(counts.begin_ns, 0);
    ASSERT_EQ(counts.num_steps, 1u);
    sluice_traced_step told = {};
    told.size = sizeof told;
    ASSERT_EQ(message(sluice_trace_step(trace, 0, &told)), "");
    EXPECT_STREQ(told.tag, "seventeen");
    over = told.over == 1;
    for (size_t i = 0; i < counts.num_events; ++i) {
      sluice_traced_event event = {};
      event.size = sizeof event;
      ASSERT_EQ(message(sluice_trace_event(trace, i, &event)), "");
      EXPECT_NE(event.stream_name, nullptr);
      if (event.kind == SLUICE_FIRING) firings.insert(event.actor_name);
      if (event.kind == SLUICE_KERNEL) kernels.insert(event.kernel_name);
    }
    sluice_traced_event none = {};
    none.size = sizeof none;
    EXPECT_THAT(message(sluice_trace_event(trace, counts.num_events, &none)), HasSubstr("there are"));
    sluice_text* text = nullptr;
    ASSERT_EQ(message(sluice_trace_chrome_json(trace, &text)), "");
    chrome += taken(text);
    sluice_trace_destroy(trace);
    EXPECT_THAT(message(sluice_trace_totals(trace, &counts)), HasSubstr("not a live handle"));
  }
  EXPECT_THAT(firings, ::testing::ElementsAre("feed", "net", "sink"));
  EXPECT_FALSE(kernels.empty());
  EXPECT_THAT(chrome, HasSubstr("\"tag\":\"seventeen\""));
}

TEST_F(CServices, PlansTellTheirActors) {
  sluice_plan* plan = nullptr;
  ASSERT_EQ(message(sluice_plan_load(folder_.path().c_str(), &plan)), "");
  ASSERT_GT(sluice_plan_num_actors(plan), 0u);
  EXPECT_GT(std::strlen(sluice_plan_actor(plan, 0)), 0u);
  EXPECT_EQ(sluice_plan_actor(plan, sluice_plan_num_actors(plan)), nullptr);
  EXPECT_GT(sluice_plan_num_kernels(plan), 0u);
  sluice_plan_destroy(plan);
  EXPECT_EQ(sluice_plan_num_actors(plan), 0u);
}

TEST_F(CServices, FilesOfTensorsGoAndCome) {
  const std::string path = folder_.path() + "/named.safetensors";
  sluice_tensor* saved[] = {floats({1, 2, 3}), floats({4})};
  const char* names[] = {"b", "a"};
  ASSERT_EQ(message(sluice_tensors_save(path.c_str(), names, saved, 2)), "");
  for (sluice_tensor* tensor : saved) sluice_tensor_destroy(tensor);
  sluice_tensors* all = nullptr;
  ASSERT_EQ(message(sluice_tensors_load(path.c_str(), &all)), "");
  ASSERT_EQ(sluice_tensors_count(all), 2u);
  EXPECT_STREQ(sluice_tensors_name(all, 0), "a");
  EXPECT_STREQ(sluice_tensors_name(all, 1), "b");
  EXPECT_EQ(sluice_tensors_name(all, 2), nullptr);
  sluice_tensor* b = nullptr;
  ASSERT_EQ(message(sluice_tensors_get(all, 1, &b)), "");
  EXPECT_EQ(message(sluice_tensors_get(all, 2, &b)), "sluice_tensors_get: index 2; there are 2");
  sluice_tensors_destroy(all);
  EXPECT_EQ(static_cast<float*>(sluice_tensor_data(b))[2], 3) << "it shares the file's memory";
  sluice_tensor_destroy(b);
  EXPECT_THAT(message(sluice_tensors_load("/no/such/file", &all)), HasSubstr("/no/such/file"));
  EXPECT_EQ(message(sluice_tensors_save(path.c_str(), nullptr, &b, 1)),
            "sluice_tensors_save: names is NULL; pass an address");
}

TEST_F(CServices, TheLogGoesWhereOneLikes) {
  std::vector<std::string> lines;
  const auto sink = [](void* context, const char* line) {
    static_cast<std::vector<std::string>*>(context)->emplace_back(line);
  };
  sluice_text* before = nullptr;
  ASSERT_EQ(message(sluice_log_spec(&before)), "");
  ASSERT_EQ(message(sluice_set_log("info")), "");
  ASSERT_EQ(message(sluice_set_log_sink(sink, &lines)), "");
  load();
  ASSERT_EQ(message(sluice_set_log_sink(nullptr, nullptr)), "");
  EXPECT_FALSE(lines.empty()) << "loading tells how long it took";
  const size_t count = lines.size();
  ASSERT_EQ(message(sluice_set_log(taken(before).c_str())), "");
  EXPECT_EQ(lines.size(), count);
  EXPECT_THAT(message(sluice_set_log("nonsense")), HasSubstr("nonsense"));
}

TEST_F(CServices, TellsWhatItRunsOn) {
  sluice_text* text = nullptr;
  ASSERT_EQ(message(sluice_describe(1, &text)), "");
  EXPECT_EQ(sluice_text_data(text)[0], '{');
  EXPECT_THAT(taken(text), HasSubstr("oneDNN"));
  EXPECT_STREQ(sluice_text_data(text), "") << "its handle is gone";
  EXPECT_STREQ(sluice_dtype_name(SLUICE_BFLOAT16), "bfloat16");
  EXPECT_EQ(sluice_dtype_size(SLUICE_COMPLEX64), 8u);
  EXPECT_EQ(sluice_dtype_name(static_cast<sluice_dtype>(99)), nullptr);
  EXPECT_EQ(sluice_dtype_size(static_cast<sluice_dtype>(99)), 0u);
  EXPECT_EQ(sluice_engine_cores(engine_), 1);
}

TEST_F(CServices, KernelsRunOnGivenProcessors) {
  sluice_engine_options options = SLUICE_ENGINE_OPTIONS_INIT;
  const int32_t cpus[] = {sched_getcpu()};  // one that this process may use
  options.cpus = cpus;
  options.num_cpus = 1;
  sluice_engine* engine = nullptr;
  ASSERT_EQ(message(sluice_engine_create(&options, &engine)), "");
  EXPECT_EQ(sluice_engine_cores(engine), 1);
  sluice_engine_destroy(engine);
  const int32_t none[] = {-1};
  options.cpus = none;
  EXPECT_THAT(message(sluice_engine_create(&options, &engine)), HasSubstr("-1"));
  options.cpus = nullptr;
  EXPECT_EQ(message(sluice_engine_create(&options, &engine)), "sluice_engine_create: cpus is NULL; pass an address");
}

TEST_F(CServices, RanksJoin) {
  sluice_world_options options = SLUICE_WORLD_OPTIONS_INIT;
  EXPECT_EQ(message(sluice_engine_join(engine_, &options)), "sluice_engine_join: token is NULL; pass an address");
  options.token = "secret";
  options.rank = 3;
  EXPECT_NE(message(sluice_engine_join(engine_, &options)), "");
  options.rank = 0;
  EXPECT_EQ(message(sluice_engine_join(engine_, &options)), "") << "a job of one rank";
  EXPECT_NE(message(sluice_engine_join(engine_, nullptr)), "");
}

}  // namespace
}  // namespace sluice::test
