// Stateful models: requests of a sequence in their order, with its state.
#include "fixture.h"

namespace sluice::serving::test {
namespace {

// y = x + s, s' = y, and what the controls say; of this many rows.
std::string sums(int64_t rows) {
  const std::string type = "float32(" + std::to_string(rows) + ", 1)", whole = "int64(" + std::to_string(rows) + ", 1)";
  return "graph \"sums\" {\n  %0 = input \"x\" : " + type + "\n  %1 = input \"s\" : " + type +
         "\n  %2 = input \"start\" : " + type + "\n  %3 = input \"ready\" : " + type +
         "\n  %4 = input \"end\" : " + type + "\n  %5 = input \"id\" : " + whole + "\n  %6 = add(%0, %1) : " + type +
         "\n  %7 = add(%6, %6) : " + type +
         "\n  output \"y\" = %6\n  output \"twice\" = %7\n  output \"start_was\" = %2\n  output \"ready_was\" = %3\n  "
         "output \"end_was\" = %4\n  output \"id_was\" = %5\n}\n";
}

std::string sums_config(const std::string& strategy, int most, const std::string& initial = "") {
  const auto output = [](const char* name, const char* type) {
    return std::string("output { name: '") + name + "' data_type: " + type + " dims: [1] } ";
  };
  const auto control = [](const char* name, const char* kind) {
    return std::string("control_input { name: '") + name + "' control { kind: " + kind +
           " fp32_false_true: [-1, 1] } } ";
  };
  return "max_batch_size: " + std::to_string(most) + " input { name: 'x' data_type: TYPE_FP32 dims: [1] } " +
         output("y", "TYPE_FP32") + output("start_was", "TYPE_FP32") + output("ready_was", "TYPE_FP32") +
         output("end_was", "TYPE_FP32") + output("id_was", "TYPE_UINT64") + "sequence_batching { " +
         control("start", "CONTROL_SEQUENCE_START") + control("ready", "CONTROL_SEQUENCE_READY") +
         control("end", "CONTROL_SEQUENCE_END") +
         "control_input { name: 'id' control { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } } "
         "state { input_name: 's' output_name: 'y' data_type: TYPE_FP32 dims: [1] " +
         initial + "} " + strategy + " }";
}

class SequencesTest : public ExecutionTest {
 protected:
  static InferRequest of(uint64_t id, float x, bool start = false, bool end = false) {
    InferRequest one = request(floats("x", {1, 1}, {x}));
    one.parameters["sequence_id"] = id;
    one.parameters["sequence_start"] = start;
    one.parameters["sequence_end"] = end;
    return one;
  }
  std::string bundle_of(int64_t rows) { return bundle("sums" + std::to_string(rows), sums(rows)); }
};

TEST_F(SequencesTest, EachHasItsState) {
  for (const char* strategy : {"oldest { max_candidate_sequences: 8 }", "direct { }"}) {
    const auto executor = make(bundle_of(4), sums_config(strategy, 4));
    std::vector<Call> calls;
    for (int i = 0; i < 50; ++i)
      for (uint64_t id = 1; id <= 4; ++id)
        calls.emplace_back(*executor, of(id, static_cast<float>(id), i == 0, i == 49));
    for (int i = 0; i < 50; ++i) {
      for (uint64_t id = 1; id <= 4; ++id) {
        const Call& call = calls[static_cast<size_t>(i) * 4 + id - 1];
        EXPECT_EQ(call.floats(0), Floats{static_cast<float>(id) * static_cast<float>(i + 1)}) << strategy;
        EXPECT_EQ(call.floats(1), Floats{i == 0 ? 1.0f : -1.0f});
        EXPECT_EQ(call.floats(2), Floats{1});
        EXPECT_EQ(call.floats(3), Floats{i == 49 ? 1.0f : -1.0f});
        EXPECT_EQ(values_of<uint64_t>(call.get().outputs[4]), std::vector<uint64_t>{id});
      }
    }
    const inference::ModelStatistics stats = executor->statistics();
    EXPECT_EQ(stats.inference_count(), 200u);
    EXPECT_LT(stats.execution_count(), 200u);
    // It has ended.
    EXPECT_EQ(
        Call(*executor, of(1, 1)).error(),
        "infer: sequence 1: its first request must have sequence_start; it was never begun, has ended, or was idle "
        "for too long");
    EXPECT_EQ(Call(*executor, of(1, 7, true)).floats(), Floats{7});
    EXPECT_EQ(Call(*executor, of(1, 7)).floats(), Floats{14});
    EXPECT_EQ(Call(*executor, of(1, 5, true)).floats(), Floats{5});  // anew
    EXPECT_EQ(Call(*executor, of(1, 5)).floats(), Floats{10});
  }
}

TEST_F(SequencesTest, ThoseWithoutAPlaceWait) {
  for (const char* strategy : {"oldest { max_candidate_sequences: 1 }", "direct { }"}) {
    const auto executor =
        make(bundle_of(1), sums_config(strategy + std::string(" max_sequence_idle_microseconds: 3600000000"), 1));
    EXPECT_EQ(Call(*executor, of(1, 1, true)).floats(), Floats{1});
    const Call waits(*executor, of(2, 10, true)), next(*executor, of(2, 10));
    EXPECT_EQ(Call(*executor, of(1, 1)).floats(), Floats{2});
    EXPECT_FALSE(waits.answered());
    EXPECT_EQ(Call(*executor, of(1, 1, false, true)).floats(), Floats{3});
    EXPECT_EQ(waits.floats(), Floats{10});
    EXPECT_EQ(next.floats(), Floats{20});
    const Call cancelled(*executor, of(3, 1, true)), also(*executor, of(3, 1, false, true)),
        after(*executor, of(4, 2, true));
    cancelled.cancel();
    EXPECT_EQ(cancelled.code(), Code::kCancelled);
    also.cancel();
    EXPECT_EQ(Call(*executor, of(2, 1, false, true)).floats(), Floats{21});
    EXPECT_EQ(after.floats(), Floats{2});
  }
}

TEST_F(SequencesTest, IdleOnesLoseTheirPlace) {
  const auto executor =
      make(bundle_of(1), sums_config("oldest { max_candidate_sequences: 1 } max_sequence_idle_microseconds: 1000", 1));
  EXPECT_EQ(Call(*executor, of(1, 1, true)).floats(), Floats{1});
  EXPECT_EQ(Call(*executor, of(2, 10, true)).floats(), Floats{10});  // once the first has been idle
  EXPECT_EQ(Call(*executor, of(1, 1)).code(), Code::kInvalidArgument);
}

TEST_F(SequencesTest, StateMayBeginWithAFile) {
  fs::create_directories(dir_ / "initial_state");
  const float seven = 7;
  std::ofstream(dir_ / "initial_state" / "seven").write(reinterpret_cast<const char*>(&seven), 4);
  const std::string initial = "initial_state { name: 'i' data_type: TYPE_FP32 dims: [1] data_file: 'seven' } ";
  const auto executor = make(bundle_of(1), sums_config("oldest { }", 1, initial));
  EXPECT_EQ(Call(*executor, of(1, 1, true)).floats(), Floats{8});
  EXPECT_EQ(Call(*executor, of(1, 1)).floats(), Floats{9});
}

TEST_F(SequencesTest, DirectOnesKeepTheirRow) {
  const auto executor = make(
      bundle_of(2), sums_config("direct { max_queue_delay_microseconds: 3600000000 minimum_slot_utilization: 1 }", 2));
  for (int i = 0; i < 10; ++i) {
    const Call first(*executor, of(1, 1, i == 0)), second(*executor, of(2, 2, i == 0));  // runs when both are there
    EXPECT_EQ(first.floats(), Floats{static_cast<float>(i + 1)});
    EXPECT_EQ(second.floats(), Floats{2 * static_cast<float>(i + 1)});
  }
  EXPECT_EQ(executor->statistics().execution_count(), 10u);
}

TEST_F(SequencesTest, WhatIsWrongIsNamed) {
  const auto executor = make(bundle_of(2), sums_config("oldest { }", 2));
  EXPECT_EQ(Call(*executor, request(floats("x", {1, 1}, {1}))).error(),
            "infer: the model is stateful: sequence_id: none; every request needs one");
  InferRequest text = of(1, 1, true);
  text.parameters["sequence_id"] = std::string("a");
  EXPECT_EQ(Call(*executor, std::move(text)).error(), "infer: parameter 'sequence_id': text; the model takes a number");
  InferRequest two = request(floats("x", {2, 1}, {1, 2}));
  two.parameters["sequence_id"] = uint64_t{1};
  EXPECT_EQ(Call(*executor, std::move(two)).error(), "infer: 2 rows; a request of a sequence has one");
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string text = sums_config("oldest { }", 2);
    return refusal(bundle_of(2), text.replace(text.find(from), from.size(), to));
  };
  EXPECT_EQ(refused("output_name: 'y'", "output_name: 'z'"),
            "model 'm': sequence_batching: state 's': the bundle has no output 'z'");
  EXPECT_EQ(refused("[-1, 1]", "[-1]"),
            "model 'm': sequence_batching: control_input 'start': fp32_false_true: 1 values; give what false and what "
            "true is");
}

TEST_F(SequencesTest, ManyAtOnce) {
  options_.max_queue_size = 10000;
  const auto executor =
      make(bundle_of(4), sums_config("oldest { max_candidate_sequences: 5 }", 4) + " instance_group { count: 2 }");
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t s = 0; s < 10; ++s) {
        const uint64_t id = 1 + t * 100 + s;
        std::vector<Call> calls;
        for (int i = 0; i < 20; ++i) calls.emplace_back(*executor, of(id, 1, i == 0, i == 19));
        for (int i = 0; i < 20; ++i) EXPECT_EQ(calls[i].floats(), Floats{static_cast<float>(i + 1)});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(executor->pending(), 0u);
}

}  // namespace
}  // namespace sluice::serving::test
