#include "plan/foreign/foreign.h"

#include "base/error.h"
#include "base/log.h"
#include "base/mutex.h"
#include "plan/foreign/initializers.h"
#include "plan/foreign/view.h"

namespace sluice::plan {
namespace {

Mutex writer_mutex;

OnnxWriter& writer() {
  static OnnxWriter written_by;
  return written_by;
}

std::string onnx_of(const ForeignCluster& cluster, const std::vector<bool>& constants = {}) {
  OnnxWriter write;
  {
    const MutexLock lock(writer_mutex);
    write = writer();
  }
  SLUICE_CHECK_KIND(kUnsupported, write != nullptr,
                    "this program writes no ONNX; use a build with protobuf, in Python");
  return write(cluster.body, cluster.inputs, constants);
}

// Calls a function of the backend. An exception of it becomes an error that names the backend and the function.
template <class Call>
auto guarded(const std::string& where, const char* function, Call call) {
  log(LogLevel::kTrace, LogArea::kPlan, "{}: calls {}", where, function);
  try {
    return call();
  } catch (const std::exception& error) {
    fail(ErrorKind::kRuntime, "{}: {} has thrown: {}; a backend must return its errors", where, function, error.what());
  } catch (...) {
    fail(ErrorKind::kRuntime, "{}: {} has thrown: no std::exception; a backend must return its errors", where,
         function);
  }
}

std::string text_of(const char* text) { return text == nullptr ? "" : text; }

std::string type_text(const sluice_offload_type& type) {
  std::string text = text_of(type.dtype) + "(";
  for (size_t i = 0; i < type.rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(type.shape[i]);
  return text + (type.rank == 1 ? ",)" : ")");
}

std::string ops_of(const AttrGraph& body) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < body.calls.size() && i < kShown; ++i) text += (i > 0 ? ", " : "") + body.calls[i].op;
  return body.calls.size() > kShown ? text + ", ..." : text;
}

}  // namespace

void set_onnx_writer(OnnxWriter write) {
  const MutexLock lock(writer_mutex);
  writer() = std::move(write);
}

ForeignCode::ForeignCode(const sluice_offload_backend& backend, std::string where, void* handle)
    : backend_(backend), where_(std::move(where)), handle_(handle) {}

ForeignCode::~ForeignCode() {
  try {
    guarded(where_, "destroy", [&] { return backend_.destroy(handle_); });
  } catch (const Error& error) {
    log(LogLevel::kError, LogArea::kPlan, "{}", error.what());
  }
}

void ForeignCode::run(const void* const* inputs, void* const* outputs) const {
  const std::string error = guarded(where_, "run", [&] { return text_of(backend_.run(handle_, inputs, outputs)); });
  SLUICE_CHECK_KIND(kRuntime, error.empty(), "{}: run: {}; it must write all outputs", where_, error);
}

ForeignBackend::ForeignBackend(const sluice_offload_backend& backend, std::string path)
    : backend_(backend), path_(std::move(path)), name_(backend.name), version_(backend.version) {}

bool ForeignBackend::wants_constants() const { return (backend_.flags & SLUICE_OFFLOAD_CONSTANTS) != 0; }

std::string ForeignBackend::model_without(const ForeignCluster& cluster, const std::vector<bool>& constants) const {
  return (backend_.flags & SLUICE_OFFLOAD_ONNX) != 0 ? onnx_of(cluster, constants) : "";
}

std::string ForeignBackend::refusal(const ForeignCluster& one) const {
  std::string onnx;
  if ((backend_.flags & SLUICE_OFFLOAD_ONNX) != 0) {
    try {
      onnx = onnx_of(one);
    } catch (const Error& error) {
      return fmt::format("no form in ONNX: {}", error.what());
    }
  }
  const ForeignView view(one, std::move(onnx));
  const std::string where = fmt::format("backend '{}': {}", name_, ops_of(one.body));
  return guarded(where, "supports", [&] { return text_of(backend_.supports(&view.graph())); });
}

std::unique_ptr<ForeignCode> ForeignBackend::compile(const ForeignCluster& cluster, std::string& reason) const {
  const std::string where =
      fmt::format("backend '{}': cluster of {} nodes ({})", name_, cluster.body.calls.size(), ops_of(cluster.body));
  std::string onnx;
  if ((backend_.flags & SLUICE_OFFLOAD_ONNX) != 0) {
    try {
      onnx = cluster.constants.empty() ? onnx_of(cluster)
                                       : cluster.model + onnx_initializers(cluster.inputs, cluster.constants);
      SLUICE_CHECK_KIND(kUnsupported, onnx.size() < size_t{1} << 31,
                        "a model of ONNX of {} bytes; must be less than 2 GB", onnx.size());
    } catch (const Error& error) {
      reason = error.what();
      return nullptr;
    }
  }
  const ForeignView view(cluster, std::move(onnx));
  void* handle = nullptr;
  reason = guarded(where, "compile", [&] { return text_of(backend_.compile(&view.graph(), &handle)); });
  if (!reason.empty()) return nullptr;
  SLUICE_CHECK_KIND(kRuntime, handle != nullptr, "{}: compile: a null handle; it must give a handle, or a reason",
                    where);
  auto code = std::make_unique<ForeignCode>(backend_, where, handle);
  for (size_t o = 0; o < cluster.body.outputs.size(); ++o) {
    const sluice_offload_type& wanted = *view.graph().values[view.graph().outputs[o]];
    const sluice_offload_type* const given =
        guarded(where, "output_type", [&] { return backend_.output_type(handle, o); });
    const std::string got = given == nullptr ? "none" : type_text(*given);
    SLUICE_CHECK_KIND(kRuntime, got == type_text(wanted), "{}: output {}: {}; must be {}", where, o, got,
                      type_text(wanted));
  }
  return code;
}

}  // namespace sluice::plan
