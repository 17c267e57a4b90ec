#pragma once
// The files and folders that a bundle may have. Saving replaces nothing else, and loading opens nothing else.
#include <filesystem>
#include <string>

namespace sluice {

// A bundle of one plan has the first four files; kShapesFile stands beside numbered bundles (sluice.save of a list).
inline constexpr const char *kPlanFile = "plan.json", *kGraphFile = "graph.txt", *kMetaFile = "meta.json",
                            *kWeightsFile = "weights.safetensors", *kFamilyFile = "family.json",
                            *kShapesFile = "shapes.json", *kMembersFolder = "members";

bool is_bundle_file(const std::string& name);
bool is_bundle_folder(const std::string& name);  // within a bundle's folder

// Why a folder is none of a bundle, as words that may follow "a folder that "; empty where it is one, or holds nothing.
std::string why_no_bundle(const std::filesystem::path& folder);

// Removes the files and folders of a bundle, and then the folder if nothing else is in it. All other files stay.
void remove_bundle(const std::filesystem::path& folder);

}  // namespace sluice
