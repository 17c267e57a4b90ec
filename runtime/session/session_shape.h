#pragma once
// Numbers that follow from a loaded plan and its options, and do not change: how many steps have room, what each sink
// gives, which actors touch variables.
#include <vector>

#include "runtime/session/loaded_plan.h"
#include "runtime/session/parts/admission.h"
#include "runtime/session/parts/sink_progress.h"

namespace sluice::actors {
class Runner;
}

namespace sluice {

struct SessionShape {
  std::vector<Admission::FedRegister> fed;
  std::vector<SinkProgress::Sink> sinks;
  std::vector<std::vector<int>> outputs;  // per actor: those of the plan that it gives as a sink
  int max_in_flight = 1;
  size_t backlog = 0;                  // steps that may enter while the plan has no slots for them
  std::vector<int> touching, writing;  // actors whose firings read or write variables
  bool brief_sinks = false;            // they neither copy for long nor run the user's code
  bool computes_elsewhere = false;     // on several cores, and not in the thread that submits
  bool computes_long = false;          // on several cores: worth that its caller makes another team
  bool lends_outputs = false;          // some results are memory that is exchanged with callers
};

// `manual`: the engine steps manually. Throws kValue where the options ask for fewer steps in flight than the plan
// needs to finish one.
SessionShape shape_of(const LoadedPlan& loaded, const actors::Runner& runner, bool manual);

}  // namespace sluice
