#pragma once
// A digest binds the files of a bundle to each other, so that files of two saves are not taken for one bundle.
#include <string>
#include <string_view>

#include "base/fingerprint.h"
#include "runtime/bundle/bundle_files.h"

namespace sluice {

class BundleSource;

// The key of the digest in meta.json and in the header of a weights file. In meta.json it is "<texts>-<weights>": the
// fingerprints of all texts, meta.json's other pairs among them, and of the weights, which their file says too. So the
// weights' bytes are not read to check it.
inline constexpr const char* kDigestKey = "digest";

// REQUIRES: texts are added in one order whenever a bundle is written or read.
class BundleDigest {
 public:
  void add(std::string_view file, std::string_view text) {
    texts_.add(file);
    texts_.add(text);
  }
  // Adds the pairs of meta.json, and then the digest to them.
  void seal(BundleMeta& meta, const std::string& weights);
  // The same pairs as they were read, whose digest is taken out. Throws kValue, naming meta.json, where texts are
  // those of another save; gives the fingerprint that the weights must have. Empty for bundles of before there was a
  // digest.
  std::string open(const BundleSource& source, BundleMeta& meta);

 private:
  std::string of(const BundleMeta& meta);
  Fingerprint texts_;
};

// Throws kValue where a file of weights is that of another save. One that says nothing of itself was written by another
// program, which put it there.
void check_weights_digest(const std::string& path, const std::string& expected, const std::string& found);

}  // namespace sluice
