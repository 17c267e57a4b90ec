// Several instances, the resources that they share, and what happens when one is lost.
#include <thread>

#include "fixture.h"
#include "serving/core/trace.h"

namespace sluice::serving::test {
namespace {

constexpr const char* kDoor = R"(
  max_batch_size: 1
  input { name: "x" data_type: TYPE_FP32 dims: [1] }
  output { name: "y" data_type: TYPE_FP32 dims: [1] } )";

class InstancesTest : public DoorTest {
 protected:
  InstancesTest() : DoorTest(2) {}
  std::shared_ptr<Executor> doors(const std::string& more) { return make(bundle("door", door(1)), kDoor + more); }
};

TEST_F(InstancesTest, TwoOverlap) {
  const auto executor = doors("instance_group { count: 2 }");
  const Call first(*executor, at_door(1)), second(*executor, at_door(1));
  EXPECT_EQ(entered(), 1);
  EXPECT_EQ(entered(), 2);  // the first has not left
  open_door(2);
  EXPECT_EQ(first.floats(), Floats{1});
  EXPECT_EQ(second.floats(), Floats{1});
}

TEST_F(InstancesTest, TwoOverlapInTheTrace) {
  const auto executor = doors("instance_group { count: 2 }");
  std::vector<std::shared_ptr<RequestTrace>> traces;
  const auto traced = [&] {
    InferRequest request = at_door(1);
    traces.push_back(std::make_shared<RequestTrace>(traces.size(), Transport::kInProcess, [](const RequestTrace&) {}));
    request.trace = traces.back();
    return request;
  };
  const Call first(*executor, traced()), second(*executor, traced());
  EXPECT_EQ(entered(), 1);
  EXPECT_EQ(entered(), 2);
  open_door(2);
  EXPECT_EQ(first.floats(), Floats{1});
  EXPECT_EQ(second.floats(), Floats{1});
  const RequestTrace &a = *traces[0], &b = *traces[1];
  EXPECT_EQ(std::abs(a.instance() - b.instance()), 1);  // one each
  EXPECT_EQ(a.step(), 0);
  EXPECT_EQ(b.step(), 0);
  EXPECT_LT(std::max(a.at_ns(Stamp::kComputeStart), b.at_ns(Stamp::kComputeStart)),
            std::min(a.at_ns(Stamp::kComputeEnd), b.at_ns(Stamp::kComputeEnd)));
}

TEST_F(InstancesTest, WithOneOfAResourceNoneOverlap) {
  options_.rate_limits["door"] = 1;
  const auto executor = doors(R"(instance_group { count: 2 rate_limiter { resources { name: "door" count: 1 } } })");
  std::vector<Call> calls;
  for (int i = 0; i < 12; ++i) calls.emplace_back(*executor, at_door(1));
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(entered(), 1) << i;
    open_door();
  }
  for (const Call& call : calls) EXPECT_EQ(call.floats(), Floats{1});
}

TEST_F(InstancesTest, ModelsShareResources) {
  options_.rate_limits["door"] = 1;
  const Machine one{engine_, actors_, options_, make_shared_resources(options_)};
  const auto make_one = [&](const std::string& name) {
    ExecutorSpec spec;
    spec.config =
        config(std::string(kDoor) + R"(instance_group { rate_limiter { resources { name: "door" count: 1 } } })");
    spec.config.set_name(name);
    spec.version = "1";
    spec.bundle = bundle("door", door(1));
    return make_executor(one, std::move(spec));
  };
  const auto a = make_one("a"), b = make_one("b");
  std::vector<Call> calls;
  for (int i = 0; i < 6; ++i) calls.emplace_back(i % 2 == 0 ? *a : *b, at_door(1));
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(entered(), 1) << i;
    open_door();
  }
  for (const Call& call : calls) EXPECT_EQ(call.floats(), Floats{1});
  EXPECT_EQ(a->statistics().execution_count(), 3u);
}

TEST_F(InstancesTest, AStepThatNeedsMoreThanThereIsIsRefused) {
  options_.rate_limits["door"] = 1;
  EXPECT_EQ(refusal(bundle("door", door(1)),
                    std::string(kDoor) + R"(instance_group { rate_limiter { resources { name: "door" count: 2 } } })"),
            "rate_limiter: resource 'door': a step takes 2; the server has 1");
}

TEST_F(InstancesTest, AFailedStepIsAnsweredAndOthersGoOn) {
  const auto executor = doors("");
  const Call failed(*executor, at_door(3));
  EXPECT_EQ(failed.code(), Code::kInternal);
  EXPECT_NE(failed.error().find("model 'm': the step failed: "), std::string::npos) << failed.error();
  EXPECT_NE(failed.error().find("3 is not liked"), std::string::npos) << failed.error();
  EXPECT_EQ(Call(*executor, at_door(0.5)).floats(), Floats{0.5});
  EXPECT_EQ(executor->failures().at("BACKEND"), 1u);
}

TEST_F(InstancesTest, AnInstanceThatIsLostIsStartedAnew) {
  const auto executor = doors("");
  for (int i = 0; i < 2; ++i) {
    const Call lost(*executor, at_door(2));
    EXPECT_EQ(lost.code(), Code::kUnavailable);
    EXPECT_NE(lost.error().find("its instance is restarted after: "), std::string::npos) << lost.error();
    EXPECT_NE(lost.error().find("the device is gone"), std::string::npos) << lost.error();
    while (true) {
      const Call again(*executor, at_door(0.5));
      if (!again.get().error) break;
      EXPECT_EQ(again.code(), Code::kUnavailable) << again.error();
    }
  }
  EXPECT_TRUE(executor->ready());
}

TEST_F(InstancesTest, OthersGoOnBesideALostOne) {
  const auto executor = doors("instance_group { count: 2 }");
  const Call stays(*executor, at_door(1));
  EXPECT_EQ(entered(), 1);
  const Call lost(*executor, at_door(2));
  EXPECT_EQ(lost.code(), Code::kUnavailable);
  EXPECT_TRUE(executor->ready());
  const Call one(*executor, at_door(0.5)), another(*executor, at_door(0.25));
  open_door();
  EXPECT_EQ(stays.floats(), Floats{1});
  EXPECT_EQ(one.floats(), Floats{0.5});
  EXPECT_EQ(another.floats(), Floats{0.25});
}

TEST_F(InstancesTest, OneThatIsLostTooOftenIsGivenUp) {
  const auto executor = doors("");
  for (int lost = 0; lost < 4;) {
    const Call call(*executor, at_door(2));
    ASSERT_EQ(call.code(), Code::kUnavailable);
    lost += call.error().find("is restarted after") != std::string::npos;
  }
  while (true) {
    const Call call(*executor, at_door(0.5));
    if (call.error().find("no instance is there: ") != std::string::npos) break;
  }
  EXPECT_FALSE(executor->ready());
}

TEST_F(InstancesTest, AStepThatIsStuckIsGivenUpAndItsInstanceStartedAnew) {
  const auto executor =
      doors("instance_group { count: 2 } parameters { key: 'step_timeout_ms' value { string_value: '1000' } }");
  const Call stuck(*executor, at_door(1));
  EXPECT_EQ(entered(), 1);
  EXPECT_EQ(stuck.code(), Code::kUnavailable);
  EXPECT_EQ(stuck.error(), "model 'm': its step took too long; its instance is restarted");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Call(*executor, at_door(0.5)).floats(), Floats{0.5});
  open_door();  // so that the engine can end
}

class OneCoreTest : public DoorTest {
 protected:
  OneCoreTest() : DoorTest(1) {}
  std::shared_ptr<Executor> model(const std::string& name, const std::string& more) {
    ExecutorSpec spec;
    spec.config = config(kDoor + more);
    spec.config.set_name(name);
    spec.version = "1";
    spec.bundle = bundle("door", door(1));
    return make_executor({engine_, actors_, options_, shared_}, std::move(spec));
  }
  // Asks until there is an answer; refusals say that an instance is not there.
  static void await(Executor& executor) {
    while (true) {
      const Call again(executor, at_door(0.5));
      if (!again.get().error) return;
      EXPECT_EQ(again.code(), Code::kUnavailable) << again.error();
      std::this_thread::yield();
    }
  }
  const std::shared_ptr<SharedResources> shared_ = make_shared_resources(options_);
};

// The sessions of all models have the one thread of the stream, which never comes back.
TEST_F(OneCoreTest, ModelsGoOnThoughAStepOfOneNeverReturns) {
  const auto a = model("a", "parameters { key: 'step_timeout_ms' value { string_value: '300' } }"), b = model("b", "");
  EXPECT_EQ(Call(*b, at_door(0.5)).floats(), Floats{0.5});
  const Call stuck(*a, at_door(1));
  EXPECT_EQ(entered(), 1);
  const Call behind(*b, at_door(0.5));
  const auto c = model("c", "");  // is loaded, which waits for the thread until it is known to be lost
  EXPECT_EQ(stuck.code(), Code::kUnavailable);
  EXPECT_EQ(Call(*c, at_door(0.5)).floats(), Floats{0.5});
  await(*a);  // the only instance of a is started anew
  EXPECT_EQ(behind.code(), Code::kUnavailable);
  await(*b);
  open_door();  // so that the engine can end
}

TEST_F(InstancesTest, ItsEndAnswersEverybody) {
  auto executor = doors("");
  std::vector<Call> calls;
  for (int i = 0; i < 10; ++i) calls.emplace_back(*executor, at_door(1));
  EXPECT_EQ(entered(), 1);
  open_door(10);
  executor = nullptr;
  for (const Call& call : calls) {
    if (call.get().error) {
      EXPECT_EQ(call.code(), Code::kUnavailable) << call.error();
    }
  }
}

TEST_F(InstancesTest, ASwitchThatIsNeitherOnNorOffIsRefused) {
  EXPECT_EQ(refusal(bundle("door", door(1)),
                    std::string(kDoor) + R"(parameters { key: "flush_denormals" value { string_value: "no" } })"),
            "model 'm': parameters.flush_denormals: 'no'; must be 'true' or 'false'");
}

TEST_F(InstancesTest, GpusAreRefused) {
  EXPECT_EQ(refusal(bundle("door", door(1)), std::string(kDoor) + "instance_group { kind: KIND_GPU }"),
            "model 'm': instance_group: KIND_GPU: a bundle's plan says itself which devices it runs on; use "
            "KIND_MODEL");
}

}  // namespace
}  // namespace sluice::serving::test
