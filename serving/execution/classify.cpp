#include "serving/execution/classify.h"

namespace sluice::serving {

void classify(Tensor& tensor, uint32_t, const ShownPort&, bool) {
  throw Error(Code::kUnsupported, "infer: output '" + tensor.name + "': classification is not offered");
}

}  // namespace sluice::serving
