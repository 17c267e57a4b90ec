// Sessions as CAF actors: requests, failures, back-pressure, ends, supervision, and tensors between processes.
#include "include/sluice/caf.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "include/sluice/compile.h"
#include "support/what_of.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using api::Engine;
using api::ErrorKind;
using api::Tensor;
using caf::SessionActor;
using caf::Tensors;
constexpr auto kForever = ::caf::infinite;

struct Config : ::caf::actor_system_config {
  Config() {
    set("scheduler.max-threads", size_t{2});
    caf::configure(*this);
  }
};

Tensors of(float x) { return {{Tensor::from(std::vector<float>{x}, {1})}}; }

class CafTest : public ::testing::Test {
 protected:
  CafTest() : dir_(fs::path(::testing::TempDir()) / ("sluice_caf_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
    EXPECT_EQ(pipe(gate_), 0);
    setenv("SLUICE_TEST_GATE", std::to_string(gate_[0]).c_str(), 1);
    engine_.load_extension(GATE_OPS);
    bundle_ = dir_ / "bundle";
    api::compile(engine_, R"(graph "gate" {
  %0 = input "x" : float32(1,)
  %1 = gate(%0) : float32(1,)
  %2 = add(%1, %1) : float32(1,)
  output "y" = %2
}
)",
                 {}, bundle_);
  }
  ~CafTest() override {
    fs::remove_all(dir_);
    close(gate_[0]);
    close(gate_[1]);
  }

  // The answer that came back: a number, or the text of the error.
  std::string ask(const SessionActor& session, Tensors inputs) {
    std::string answer;
    self_->request(session, kForever, std::move(inputs))
        .receive([&](const Tensors& y) { answer = std::to_string(y.values.at(0).data<float>()[0]); },
                 [&](const ::caf::error& error) { answer = system_.render(error); });
    return answer;
  }
  // Lets one kernel through.
  void open_gate() { EXPECT_EQ(write(gate_[1], "", 1), 1); }
  caf::Loader loader() { return caf::bundle(engine_, bundle_); }

  fs::path dir_, bundle_;
  int gate_[2] = {-1, -1};
  Engine engine_;
  Config config_;
  ::caf::actor_system system_{config_};
  ::caf::scoped_actor self_{system_};
};

constexpr const char* kTwo = "2.000000";

TEST_F(CafTest, ASessionAnswersEveryRequest) {
  const SessionActor session = caf::spawn_session(system_, loader());
  std::vector<decltype(self_->request(session, kForever, Tensors{}))> answers;
  for (int i = 0; i < 60; ++i) answers.push_back(self_->request(session, kForever, of(static_cast<float>(i + 4))));
  for (int i = 0; i < 60; ++i) {
    answers[i].receive([&](const Tensors& y) { EXPECT_EQ(y.values.at(0).data<float>()[0], 2 * (i + 4)); },
                       [&](const ::caf::error& error) { ADD_FAILURE() << i << ": " << system_.render(error); });
  }
}

TEST_F(CafTest, MessagesHoldHostMemory) {
  caf::SessionActorOptions options;
  options.session.device_ports = true;
  EXPECT_EQ(what_of([&] { caf::spawn_session(system_, loader(), options); }),
            "session actor: device_ports: messages hold host memory; must be off");
}

TEST_F(CafTest, AStepThatFailsIsAnsweredAndTheNextOneRuns) {
  const SessionActor session = caf::spawn_session(system_, loader());
  self_->request(session, kForever, of(3))
      .receive([](const Tensors&) { FAIL() << "a step that fails has no outputs"; },
               [&](const ::caf::error& error) {
                 ASSERT_TRUE(caf::is_sluice_error(error));
                 EXPECT_EQ(caf::kind_of(error), ErrorKind::kValue);
                 EXPECT_NE(caf::message_of(error).find("3 is not liked"), std::string::npos) << caf::message_of(error);
               });
  EXPECT_NE(ask(session, Tensors{}).find("inputs"), std::string::npos) << ask(session, Tensors{});
  EXPECT_EQ(ask(session, of(0.5)), "1.000000");
}

TEST_F(CafTest, RequestsBeyondWhatMayWaitAreRefusedAtOnce) {
  caf::SessionActorOptions options;
  options.session.max_in_flight = 2;
  options.max_waiting = 3;
  const SessionActor session = caf::spawn_session(system_, loader(), options);
  std::vector<decltype(self_->request(session, kForever, Tensors{}))> answers;
  for (int i = 0; i < 5; ++i) answers.push_back(self_->request(session, kForever, of(1)));  // two at work, three wait
  EXPECT_EQ(ask(session, of(1)), "session actor: 3 requests wait already; at most max_waiting may");
  for (size_t i = 0; i < answers.size(); ++i) open_gate();
  for (auto& answer : answers) {
    answer.receive([](const Tensors& y) { EXPECT_EQ(y.values.at(0).data<float>()[0], 2); },
                   [&](const ::caf::error& error) { ADD_FAILURE() << system_.render(error); });
  }
}

TEST_F(CafTest, ItsEndIsToldToMonitorsAndToThoseWhoWait) {
  caf::SessionActorOptions options;
  options.session.max_in_flight = 2;
  const SessionActor session = caf::spawn_session(system_, loader(), options);
  self_->monitor(session);
  auto answer = self_->request(session, kForever, of(1));
  auto waiting = self_->request(session, kForever, of(0));
  self_->send_exit(session, ::caf::exit_reason::user_shutdown);
  for (auto* each : {&answer, &waiting}) {
    each->receive([](const Tensors&) { ADD_FAILURE() << "answered"; },
                  [](const ::caf::error& error) {
                    EXPECT_EQ(caf::kind_of(error), ErrorKind::kCancelled);
                    EXPECT_EQ(caf::message_of(error), "session actor: it has ended");
                  });
  }
  open_gate();  // the session's end waits for its kernels
  self_->receive([&](const ::caf::down_msg& down) {
    EXPECT_EQ(down.source, session.address());
    EXPECT_EQ(down.reason, ::caf::exit_reason::user_shutdown);
  });
  EXPECT_NE(ask(session, of(0)), "0.000000");
}

TEST_F(CafTest, ALinkEndsTheSession) {
  const SessionActor session = caf::spawn_session(system_, loader());
  self_->monitor(session);
  const auto client = system_.spawn([session](::caf::event_based_actor* self) -> ::caf::behavior {
    self->link_to(session);
    return {[self](int) { self->quit(::caf::exit_reason::kill); }};
  });
  self_->send(client, 1);
  self_->receive([&](const ::caf::down_msg& down) { EXPECT_EQ(down.source, session.address()); });
}

TEST_F(CafTest, AFatalErrorEndsTheSessionWithIt) {
  const SessionActor session = caf::spawn_session(system_, loader());
  self_->monitor(session);
  EXPECT_NE(ask(session, of(2)).find("the device is gone"), std::string::npos);
  self_->receive([&](const ::caf::down_msg& down) {
    ASSERT_TRUE(caf::is_sluice_error(down.reason));
    EXPECT_EQ(caf::kind_of(down.reason), ErrorKind::kDevice);
  });
}

TEST_F(CafTest, ASupervisorRestartsASessionAndGivesUpInTheEnd) {
  std::atomic<int> loads{0};
  const caf::Loader counted = [&, load = loader()](api::SessionOptions options) {
    ++loads;
    return load(std::move(options));
  };
  const SessionActor session = caf::spawn_supervised(system_, counted, {}, {.max_restarts = 2});
  self_->monitor(session);
  for (int restarts = 1; restarts <= 2; ++restarts) {
    EXPECT_EQ(ask(session, of(1.5)), "3.000000");
    EXPECT_NE(ask(session, of(2)).find("the device is gone"), std::string::npos);
    // Until it is back, requests are told why they have to ask again, or reach the session that has just ended.
    while (ask(session, of(1.5)) != "3.000000") {
    }
    EXPECT_EQ(loads, 1 + restarts);
  }
  EXPECT_NE(ask(session, of(2)).find("the device is gone"), std::string::npos);
  self_->receive([&](const ::caf::down_msg& down) { EXPECT_EQ(caf::kind_of(down.reason), ErrorKind::kDevice); });
  EXPECT_EQ(loads, 3);
}

TEST_F(CafTest, ASupervisorSaysWhyItCannotLoad) {
  EXPECT_THROW(caf::spawn_supervised(system_, caf::bundle(engine_, dir_ / "nothing")), api::Error);
  std::atomic<bool> gone{false};
  const caf::Loader once = [&, load = loader()](api::SessionOptions options) {
    if (gone.exchange(true)) throw api::Error(ErrorKind::kIo, "the bundle is gone");
    return load(std::move(options));
  };
  const SessionActor session = caf::spawn_supervised(system_, once);
  self_->monitor(session);
  EXPECT_NE(ask(session, of(2)).find("the device is gone"), std::string::npos);
  self_->receive([&](const ::caf::down_msg& down) { EXPECT_EQ(system_.render(down.reason), "the bundle is gone"); });
}

TEST_F(CafTest, SessionsAndOtherActorsAreComposed) {
  const SessionActor first = caf::spawn_session(system_, loader()), second = caf::spawn_session(system_, loader());
  const SessionActor half = system_.spawn([]() -> SessionActor::behavior_type {
    return {[](const Tensors& x) { return of(x.values.at(0).data<float>()[0] / 2); }};
  });
  const auto both = second * (half * first);
  self_->request(both, kForever, of(7))
      .receive([](const Tensors& y) { EXPECT_EQ(y.values.at(0).data<float>()[0], 14); },
               [&](const ::caf::error& error) { FAIL() << system_.render(error); });
}

TEST_F(CafTest, TensorsTravelAsBytes) {
  const Tensors sent{{Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}), Tensor(api::DType::kInt64, {0}),
                      Tensor::from(std::vector<uint8_t>{9}, {})}};
  std::vector<char> bytes;
  ::caf::binary_serializer save{system_, bytes};
  ASSERT_FALSE(save(const_cast<Tensors&>(sent)));
  Tensors got;
  ::caf::binary_deserializer load{system_, bytes};
  ASSERT_FALSE(load(got));
  ASSERT_EQ(got.values.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got.values[i].str(), sent.values[i].str());
    EXPECT_EQ(std::memcmp(got.values[i].raw(), sent.values[i].raw(), got.values[i].bytes()), 0);
  }
  // Bytes that are none of ours give an error.
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    std::vector<char> part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut));
    ::caf::binary_deserializer bad{system_, part};
    Tensors none;
    EXPECT_TRUE(bad(none)) << cut;
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::vector<char> wrong = bytes;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x7f);
    ::caf::binary_deserializer bad{system_, wrong};
    Tensors any;
    static_cast<void>(bad(any));
  }
}

}  // namespace
}  // namespace sluice::test
