#pragma once
// The files that a front end needs to speak TLS.
#include <string>

namespace sluice::serving {

// Files in PEM.
struct TlsOptions {
  bool on = false;
  std::string certificate, key;  // the server's: its chain, its own first
  std::string root;              // of the authorities whose clients are let in; with `mutual` only those
  bool mutual = false;
};

// Reads one of these files. `where`: "grpc", as errors begin. Throws kInvalidArgument.
std::string read_pem(const std::string& where, const char* what, const std::string& file);
// Throws kInvalidArgument for options that contradict each other.
void check_tls(const std::string& where, const TlsOptions& options);

}  // namespace sluice::serving
