// An op whose kernel does what its input says: copies it, waits at a gate, or fails.
#include <unistd.h>

#include <cstdlib>

#include "include/sluice/extension.h"

using namespace sluice::api;

namespace {

// The gate is a pipe, of which the environment has the reading end.
void wait_at_gate() {
  char byte = 0;
  if (read(std::atoi(std::getenv("SLUICE_TEST_GATE")), &byte, 1) != 1)
    throw Error(ErrorKind::kIo, "the gate is broken");
}

class Gate final : public Op {
 public:
  std::string name() const override { return "gate"; }
  std::string doc() const override { return "x; 1: once the gate gives a byte; 2, 3: an error."; }
  std::vector<std::string> inputs() const override { return {"x"}; }
  std::vector<OperandType> infer(const std::vector<OperandType>& in, const Attributes&) const override {
    return {in[0]};
  }
  std::shared_ptr<const KernelFactory> kernel() const override {
    struct Passes final : Kernel {
      void run(const KernelCall& call) const override {
        const float x = *static_cast<const float*>(call.inputs[0]);
        if (x == 1) wait_at_gate();
        if (x == 2) throw Error(ErrorKind::kDevice, "the device is gone");
        if (x == 3) throw Error(ErrorKind::kValue, "3 is not liked");
        *static_cast<float*>(call.outputs[0]) = x;
      }
    };
    struct Factory final : KernelFactory {
      std::unique_ptr<Kernel> prepare(const KernelRequest&) const override { return std::make_unique<Passes>(); }
    };
    return std::make_shared<Factory>();
  }
};

}  // namespace

SLUICE_EXTENSION(extension) {
  extension.describe("gate", "1.0");
  extension.add_op(std::make_shared<Gate>());
}
