#pragma once
// cuDNN without a GPU: libfake_cudnn.so has the functions that kernels/cuda/cudnn.h asks for, and these controls. It
// works on the streams of the fake driver (tests/cuda/fake_driver), late and in their order.
//
// Descriptors are held to what the documentation demands: attributes by name, type and count, what must be there, sizes
// that fit each other. Among the engines it proposes are ones that no caller of ours may take: they are not exact, not
// the same from run to run, cannot be planned, or want too much workspace. Their results are wrong.
#include <cudnn_graph.h>

#define FAKE_CUDNN_API __attribute__((visibility("default")))

namespace fake_cudnn {

struct Counts {
  int executed = 0, fused = 0, misaligned = 0;  // plans; of those, graphs of several operations; for any address
  int descriptors = 0;                          // alive
};

struct Controls {
  // The nth call of `function` ("cudnnBackendExecute") from now on fails.
  void (*fail_call)(const char* function, int nth, cudnnStatus_t status);
  // The most operations of graphs for which there are engines from now on; 0: there are none.
  void (*set_most_operations)(int most);
  Counts (*counts)();
};

}  // namespace fake_cudnn

// Found by name: a program that linked the library would give its functions to the real one too.
extern "C" FAKE_CUDNN_API const fake_cudnn::Controls* fake_cudnn_controls();
