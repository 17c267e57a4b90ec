// Two plans and an actor of our own, composed by messages alone.
//
//   caf_service ENCODER CLASSIFIER REQUESTS
//
// Each request goes through the bundle ENCODER, an ordinary CAF actor that scales what comes out, and the bundle
// CLASSIFIER. Requests follow each other through the three like parts on a belt. Prints the sum of each answer.
#include <cstdio>
#include <cstdlib>
#include <sluice/caf.hpp>

using sluice::api::Engine;
using sluice::api::Tensor;
using sluice::caf::SessionActor;
using sluice::caf::Tensors;

// Any actor that takes Tensors and gives Tensors can stand between two sessions.
static SessionActor::behavior_type scaler() {
  return {[](const Tensors& encoded) {
    Tensors scaled;
    for (const Tensor& from : encoded.values) {
      Tensor& to = scaled.values.emplace_back(from.dtype(), from.shape());
      for (int64_t i = 0; i < from.size(); ++i) to.data<float>()[i] = from.data<float>()[i] / 2;
    }
    return scaled;
  }};
}

// CAF composes the three: `first * second` sends a request through second, and what comes out through first. Handles of
// all three are kept until they have ended: a composition that is the last to know an actor may block as it forgets it.
static int serve(::caf::actor_system& system, Engine& engine, char** argv) {
  const auto encoder = sluice::caf::spawn_supervised(system, sluice::caf::bundle(engine, argv[1]));
  const auto classifier = sluice::caf::spawn_supervised(system, sluice::caf::bundle(engine, argv[2]));
  const auto scales = system.spawn(scaler);
  const auto pipeline = classifier * (scales * encoder);
  const sluice::api::Plan plan = sluice::api::Plan::load(argv[1]);
  const sluice::api::Port port = plan.inputs().at(0);

  ::caf::scoped_actor self{system};
  const int requests = std::atoi(argv[3]);
  std::vector<decltype(self->request(pipeline, ::caf::infinite, Tensors{}))> answers;
  for (int i = 0; i < requests; ++i) {
    Tensor input(port.dtype, port.shape);
    for (int64_t j = 0; j < input.size(); ++j) input.data<float>()[j] = static_cast<float>(i + j % 7);
    answers.push_back(self->request(pipeline, ::caf::infinite, Tensors{{input}}));
  }
  int failed = 0;
  for (auto& answer : answers) {
    answer.receive(
        [](const Tensors& outputs) {
          double sum = 0;
          for (int64_t j = 0; j < outputs.values[0].size(); ++j) sum += outputs.values[0].data<float>()[j];
          std::printf("%.6g\n", sum);
        },
        [&](const ::caf::error& error) {
          std::fprintf(stderr, "%s\n", system.render(error).c_str());
          ++failed;
        });
  }
  ::caf::anon_send_exit(encoder, ::caf::exit_reason::user_shutdown);
  ::caf::anon_send_exit(scales, ::caf::exit_reason::user_shutdown);
  ::caf::anon_send_exit(classifier, ::caf::exit_reason::user_shutdown);
  self->wait_for(encoder, scales, classifier);
  return failed == 0 ? 0 : 1;
}

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: caf_service ENCODER CLASSIFIER REQUESTS\n"), 2;
  Engine engine;
  ::caf::actor_system_config config;
  sluice::caf::configure(config);
  ::caf::actor_system system{config};
  return serve(system, engine, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
