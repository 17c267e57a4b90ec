// The input names pieces: a byte says which file and how it is there, two bytes its length, then its text.
#include <unistd.h>

#include <filesystem>

#include "fuzz_targets/bytes.h"
#include "fuzz_targets/scratch.h"
#include "fuzz_targets/targets.h"
#include "plan/json/json.h"
#include "runtime/bundle/bundle.h"

namespace sluice::fuzz {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFiles[] = {"plan.json", "graph.txt", "meta.json", "weights.safetensors"};

void put(Bytes& bytes, const std::string& dir) {
  const uint8_t what = bytes.byte();
  const std::string file = dir + "/" + kFiles[what % 4];
  const size_t length = static_cast<size_t>(bytes.byte()) * 256 + bytes.byte();
  const std::string text = bytes.text(length);
  std::error_code ignored;
  fs::remove_all(file, ignored);
  switch (what / 4 % 16) {
    case 0: fs::create_directory(file, ignored); return;
    case 1: fs::create_symlink("/etc/hostname", file, ignored); return;
    case 2: fs::create_symlink(kFiles[what % 4], file, ignored); return;  // to itself
    default: scratch_file(fs::path(file).lexically_relative(scratch()).string(), text);
  }
}

}  // namespace

int bundle_dir(const uint8_t* data, size_t size) {
  const std::string dir = scratch() + "/bundle";
  fs::remove_all(dir);
  fs::create_directory(dir);
  Bytes bytes(data, size);
  for (int piece = 0; piece < 8 && !bytes.empty(); ++piece) put(bytes, dir);
  Bundle bundle;
  try {
    bundle = load_bundle(dir);
  } catch (const Error& error) {
    expect(error.kind() == ErrorKind::kIo || error.kind() == ErrorKind::kValue, "bundle_dir: wrong kind of error",
           error.what());
    expect(std::string_view(error.what()).find(dir) != std::string_view::npos, "bundle_dir: the error names no file",
           error.what());
    return 0;
  }
  for (const char* file : kFiles) expect(!fs::is_symlink(dir + "/" + file), "bundle_dir: a link was followed", file);
  const std::string copy = scratch() + "/copy";
  save_bundle(copy, bundle);
  const Bundle again = load_bundle(copy);
  expect(plan::to_json(again.plan) == plan::to_json(bundle.plan) && again.graph_text == bundle.graph_text &&
             again.meta == bundle.meta && again.weights.size() == bundle.weights.size(),
         "bundle_dir: not the same after saving and loading");
  return 0;
}

}  // namespace sluice::fuzz
