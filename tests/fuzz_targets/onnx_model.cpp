#include "fuzz_targets/targets.h"
#include "onnx/model.h"
#include "runtime/session/engine.h"
#include "tensor/eager.h"

namespace sluice::fuzz {

int onnx_model(const uint8_t* data, size_t size) {
  static Engine engine;
  static EagerExecutor eager(engine);
  const ExecutorScope scope(eager);
  try {
    const onnx::Model model = onnx::Model::parse({reinterpret_cast<const char*>(data), size});
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : model.parameters())
      bytes += checked_bytes(tensor.shape(), dtype_size(tensor.dtype()));
    expect(bytes <= size + (256 << 20), "onnx_model: more weights than the file has");
    for (const onnx::Port& port : model.inputs()) expect(!port.name.empty(), "onnx_model: an input without a name");
  } catch (const Error& error) {
    const std::string_view text = error.what();
    expect(text.starts_with("onnx: "), "onnx_model: the error does not say where it comes from", text);
  }
  return 0;
}

}  // namespace sluice::fuzz
