#pragma once
// Version of the C++ API.

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

namespace sluice::api {

// Of the library linked: "0.1.0".
const char* version();

}  // namespace sluice::api
