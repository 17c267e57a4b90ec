#include "runtime/bundle/bundle_source.h"

#include <filesystem>

#include "base/files/mapped_file.h"
#include "plan/plan.h"
#include "runtime/bundle/archive.h"
#include "runtime/bundle/bundle_folder.h"
#include "runtime/bundle/bundle_layout.h"
#include "runtime/bundle/safetensors.h"

namespace sluice {

namespace fs = std::filesystem;

namespace {

std::shared_ptr<const BundleFolder> folder_at(const std::string& path) {
  try {
    return std::make_shared<const BundleFolder>(path);
  } catch (const Error&) {
    std::error_code ignored;
    SLUICE_CHECK_KIND(kIo, fs::is_directory(path, ignored),
                      "bundle '{}': not a directory; a bundle holds plan.json, graph.txt, weights.safetensors and "
                      "meta.json, or is a tar archive of those",
                      path);
    throw;
  }
}

}  // namespace

BundleSource::BundleSource(const std::string& path) : name_(path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);  // asked once, since others may save there meanwhile
  if (fs::is_directory(status) || !fs::exists(status)) {
    folder_ = folder_at(path);
    return;
  }
  SLUICE_CHECK(is_archive(path),
               "bundle '{}': a file that is no tar archive; give the folder that sluice.save wrote, or "
               "`tar -cf FILE -C FOLDER .` of it",
               path);
  const InputFile file(path);
  mapped_ = std::make_shared<const MappedFile>(file);
  read({mapped_->data(), mapped_->size()});
}

BundleSource::BundleSource(std::shared_ptr<const void> archive, uint64_t bytes, std::string name)
    : name_(std::move(name)), memory_(std::move(archive)) {
  SLUICE_CHECK(memory_ != nullptr, "{}: no memory: null; give the bytes of a tar archive of a bundle", name_);
  read({static_cast<const std::byte*>(memory_.get()), bytes});
}

// An archive of a bundle, or of the folder that it is in.
void BundleSource::read(std::span<const std::byte> archive) {
  archived_ = true;
  begin_ = archive.data();
  std::map<std::string, std::span<const std::byte>> files = read_archive(name_, archive);
  std::string folder;
  size_t depth = std::string::npos;
  for (const auto& [name, content] : files) {
    const size_t slash = name.rfind('/'), length = slash == std::string::npos ? 0 : slash + 1;
    const std::string file = name.substr(length);
    if ((file != kPlanFile && file != kFamilyFile) || length >= depth) continue;
    depth = length;
    folder = name.substr(0, length);
  }
  SLUICE_CHECK_KIND(kIo, depth != std::string::npos,
                    "bundle '{}': the archive has no {}; pack a folder that "
                    "sluice.save wrote",
                    name_, kPlanFile);
  for (const auto& [name, content] : files)
    if (name.starts_with(folder)) files_[name.substr(folder.size())] = content;
  if (mapped_ != nullptr) mapped_->check().throw_if_error();
}

std::string BundleSource::path(const std::string& file) const {
  return archived_ ? name_ + "/" + file : (fs::path(name_) / file).string();
}

bool BundleSource::has(const std::string& file) const {
  return archived_ ? files_.contains(prefix_ + file) : folder_->has(prefix_ + file);
}

void BundleSource::check_folders(const std::string& file) const {
  for (size_t slash = file.find('/'); !archived_ && slash != std::string::npos; slash = file.find('/', slash + 1)) {
    const std::string folder = file.substr(0, slash);
    SLUICE_CHECK_KIND(kIo, folder_->has_folder(prefix_ + folder), "{}: not a directory; it must hold {}", path(folder),
                      file.substr(slash + 1));
  }
}

InputFile BundleSource::open(const std::string& file) const {
  if (!archived_) return folder_->open(prefix_ + file, path(file));
  const auto found = files_.find(prefix_ + file);
  SLUICE_CHECK_KIND(kIo, found != files_.end(), "{}: cannot be read: the archive has no such file", path(file));
  return InputFile(path(file), found->second);
}

std::string BundleSource::text(const std::string& file) const {
  std::string text = open(file).read_all();
  if (mapped_ != nullptr) mapped_->check().throw_if_error();
  return text;
}

std::string BundleSource::utf8_text(const std::string& file) const {
  std::string text = this->text(file);
  if (const size_t end = utf8_length(text); end < text.size())
    fail(ErrorKind::kValue, "{}: byte {} is no UTF-8; a graph is text", path(file), end);
  return text;
}

bool BundleSource::is_archive(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  InputFile file(path);
  std::string begin(std::min<uint64_t>(file.size(), 512), '\0');
  file.read(begin.data(), begin.size());
  return looks_like_archive(begin);
}

Weights BundleSource::weights(const std::string& file, const std::shared_ptr<Allocator>& allocator,
                              std::map<std::string, std::string>* metadata) const {
  InputFile opened = open(file);
  if (!archived_) return read_safetensors(opened, allocator, pages_of(opened), metadata);
  const std::byte* const data = files_.at(prefix_ + file).data();
  const auto in_place = [&](uint64_t offset, uint64_t bytes) -> std::shared_ptr<Storage> {
    const std::byte* const at = data + offset;
    if (reinterpret_cast<uintptr_t>(at) % plan::kAlignment != 0) return nullptr;
    if (mapped_ != nullptr) return std::make_shared<Storage>(mapped_, static_cast<uint64_t>(at - begin_), bytes);
    return std::make_shared<Storage>(const_cast<std::byte*>(at), bytes, [kept = memory_] {});
  };
  auto tensors = read_safetensors(opened, allocator, in_place, metadata);
  if (mapped_ != nullptr) mapped_->check().throw_if_error();
  return tensors;
}

BundleSource BundleSource::inner(const std::string& folder) const {
  BundleSource source = *this;
  source.name_ = path(folder);
  source.prefix_ += folder + "/";
  return source;
}

}  // namespace sluice
