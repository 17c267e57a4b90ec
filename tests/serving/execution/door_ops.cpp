// An op that copies its input, and does what the input's first number says: 1: says that it is there and waits to be
// let through; 2: the device is lost; 3: fails.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "include/sluice/extension.h"

using namespace sluice::api;

namespace {

std::mutex entering;  // so that counts are told in their order
std::atomic<char> inside{0};

int file_of(const char* name) { return std::atoi(std::getenv(name)); }

// Two pipes: to the first it writes how many are inside; from the second it reads when it may leave.
void pass_the_door() {
  char byte = 0;
  bool told = false;
  {
    const std::lock_guard lock(entering);
    byte = ++inside;
    told = write(file_of("SLUICE_TEST_DOOR_IN"), &byte, 1) == 1;
  }
  const bool left = told && read(file_of("SLUICE_TEST_DOOR_OUT"), &byte, 1) == 1;
  --inside;
  if (!left) throw Error(ErrorKind::kIo, "the door is broken");
}

class Door final : public Op {
 public:
  std::string name() const override { return "door"; }
  std::string doc() const override { return "x; 1: once it is let through; 2, 3: an error."; }
  std::vector<std::string> inputs() const override { return {"x"}; }
  std::vector<OperandType> infer(const std::vector<OperandType>& in, const Attributes&) const override {
    return {in[0]};
  }
  std::shared_ptr<const KernelFactory> kernel() const override {
    struct Passes final : Kernel {
      explicit Passes(size_t n) : bytes(n) {}
      size_t bytes;
      void run(const KernelCall& call) const override {
        const float x = *static_cast<const float*>(call.inputs[0]);
        if (x == 1) pass_the_door();
        if (x == 2) throw Error(ErrorKind::kDevice, "the device is gone");
        if (x == 3) throw Error(ErrorKind::kValue, "3 is not liked");
        std::memcpy(call.outputs[0], call.inputs[0], bytes);
      }
    };
    struct Factory final : KernelFactory {
      std::unique_ptr<Kernel> prepare(const KernelRequest& request) const override {
        size_t bytes = sizeof(float);
        for (const int64_t d : request.inputs[0].shape) bytes *= static_cast<size_t>(d);
        return std::make_unique<Passes>(bytes);
      }
    };
    return std::make_shared<Factory>();
  }
};

}  // namespace

SLUICE_EXTENSION(extension) {
  extension.describe("door", "1.0");
  extension.add_op(std::make_shared<Door>());
}
