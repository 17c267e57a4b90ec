#pragma once
// The files beside a plan's C, with @NAMES@ to be replaced.
namespace sluice::c {

extern const char* const kMachineSource;
extern const char* const kCheckSource;
extern const char* const kRunSource;
extern const char* const kLinkerScript;
extern const char* const kMakefile;
extern const char* const kReadme;

}  // namespace sluice::c
