#include "tools/sluice_run/capture.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/files/file.h"
#include "base/files/sha256.h"
#include "include/sluice/sluice.hpp"

namespace sluice::run {
namespace {

namespace fs = std::filesystem;
namespace js = boost::json;

constexpr int64_t kVersion = 1;
constexpr const char* kMagic = "sluice_capture";
constexpr const char* kFile = "capture.json";

std::string file_of_step(const Capture& capture, int64_t step) {
  return fmt::format("{}/steps/{}.safetensors", capture.folder, step);
}

[[noreturn]] void wrong(const std::string& path, const char* what) {
  fail(ErrorKind::kValue, "{}: {}; it must be as sluice-run --capture or sluice.utils.capture wrote it", path, what);
}

}  // namespace

bool is_capture(const std::string& path) { return fs::exists(fs::path(path) / kFile); }

Capture read_capture(const std::string& folder) {
  const std::string path = folder + "/" + kFile;
  boost::system::error_code error;
  const js::value json = js::parse(read_file(path), error);
  if (error || !json.is_object()) wrong(path, "it is no JSON object");
  const js::object& object = json.get_object();
  const js::value* const version = object.if_contains(kMagic);
  const js::value* const digests = object.if_contains("digests");
  const js::value* const by = object.if_contains("version");
  if (version == nullptr || !version->is_int64()) wrong(path, "it is no capture");
  SLUICE_CHECK(version->get_int64() == kVersion, "{}: of form {}; this program reads form {}", path,
               version->get_int64(), kVersion);
  if (digests == nullptr || !digests->is_array() || by == nullptr || !by->is_string())
    wrong(path, "'digests' or 'version' is not there");
  Capture capture{folder, {}, std::string(by->get_string())};
  for (const js::value& digest : digests->get_array()) {
    if (!digest.is_string()) wrong(path, "a digest is no text");
    capture.digests.emplace_back(digest.get_string());
  }
  if (capture.digests.empty()) wrong(path, "it has no step");
  return capture;
}

std::vector<api::Tensor> inputs_of(const Capture& capture, const std::vector<api::Port>& ports, int64_t step) {
  const std::string path = file_of_step(capture, step);
  std::vector<api::Tensor> inputs(ports.size());
  if (ports.empty()) return inputs;
  std::vector<bool> there(ports.size(), false);
  for (api::NamedTensor& one : api::load_tensors(path)) {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (one.name != std::to_string(i)) continue;
      inputs[i] = std::move(one.tensor);
      there[i] = true;
    }
  }
  for (size_t i = 0; i < ports.size(); ++i)
    SLUICE_CHECK(there[i], "{}: input {}, '{}', is not there; the capture was changed, or is of another bundle", path,
                 i, ports[i].str());
  return inputs;
}

std::string digest_of_step(const std::vector<api::Tensor>& results) {
  std::string digests;
  for (const api::Tensor& result : results)
    digests += sha256_hex({static_cast<const char*>(result.raw()), result.bytes()});
  return sha256_hex(digests);
}

CaptureWriter::CaptureWriter(const std::string& folder, const std::string& bundle) : capture_{folder, {}, ""} {
  SLUICE_CHECK(!fs::exists(folder), "--capture {}: it is there already; a capture is a folder of its own", folder);
  std::error_code error;
  fs::create_directories(folder + "/steps", error);
  if (!error) fs::copy(bundle, capture_.bundle(), fs::copy_options::recursive, error);
  SLUICE_CHECK_KIND(kIo, !error, "--capture {}: cannot be written: {}", folder, error.message());
}

void CaptureWriter::begin_step(const std::vector<api::Tensor>& inputs) {
  if (inputs.empty()) return;
  std::vector<api::NamedTensor> named;
  for (size_t i = 0; i < inputs.size(); ++i) named.push_back({std::to_string(i), inputs[i]});
  api::save_tensors(file_of_step(capture_, capture_.steps()), named);
}

void CaptureWriter::end() const {
  const std::string path = capture_.folder + "/" + kFile;
  js::object json{{kMagic, kVersion},
                  {"version", api::version()},
                  {"digests", js::array(capture_.digests.begin(), capture_.digests.end())}};
  std::ofstream file(path, std::ios::binary);
  file << js::serialize(json) << "\n";
  file.close();
  SLUICE_CHECK_KIND(kIo, file, "{}: cannot be written", path);
}

}  // namespace sluice::run
