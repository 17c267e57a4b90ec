#include "runtime/bundle/bundle_digest.h"

#include "base/error.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/bundle_source.h"

namespace sluice {
namespace {

constexpr size_t kDigestDigits = 16;

}  // namespace

std::string BundleDigest::of(const BundleMeta& meta) {
  for (const auto& [key, value] : meta) add(key, value);
  return texts_.str();
}

void BundleDigest::seal(BundleMeta& meta, const std::string& weights) { meta[kDigestKey] = of(meta) + "-" + weights; }

std::string BundleDigest::open(const BundleSource& source, BundleMeta& meta) {
  const auto digest = meta.extract(kDigestKey);
  if (!digest) return {};
  const std::string& said = digest.mapped();
  SLUICE_CHECK(said.size() == 2 * kDigestDigits + 1 && said[kDigestDigits] == '-',
               "{}: digest '{:.80}'; must be two numbers of {} digits", source.path(kMetaFile), said, kDigestDigits);
  const std::string texts = of(meta);
  SLUICE_CHECK(
      said.starts_with(texts),
      "{}: not of one save with the other texts of its bundle: its digest is {:.16}, theirs is {}; save it again, "
      "or, where a text was changed by hand, take 'digest' out of {}",
      source.path(kMetaFile), said, texts, kMetaFile);
  return said.substr(kDigestDigits + 1);
}

void check_weights_digest(const std::string& path, const std::string& expected, const std::string& found) {
  SLUICE_CHECK(
      expected.empty() || found.empty() || found == expected,
      "{}: of another save than the rest of its bundle: digest {:.16}, {} says {}; save it again, or take 'digest' out "
      "of {}",
      path, found, kMetaFile, expected, kMetaFile);
}

}  // namespace sluice
