#include "serving/core/tls.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "serving/core/error.h"

namespace sluice::serving {

std::string read_pem(const std::string& where, const char* what, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) wrong(fmt::format("{}: {} '{}': {}", where, what, file, std::strerror(errno)));
  if (text.find("-----BEGIN ") == std::string::npos)
    wrong(fmt::format("{}: {} '{}': it is no PEM, which begins with '-----BEGIN'", where, what, file));
  return text;
}

void check_tls(const std::string& where, const TlsOptions& options) {
  if (!options.on) {
    if (!options.certificate.empty() || !options.key.empty() || !options.root.empty() || options.mutual)
      wrong(where + ": there is a certificate or a key, and TLS is off; switch it on as well");
    return;
  }
  if (options.certificate.empty() || options.key.empty())
    wrong(where + ": TLS needs the server's certificate and its key");
  if (options.mutual && options.root.empty())
    wrong(where + ": certificates of clients are asked for; say by a root certificate whose are good");
}

}  // namespace sluice::serving
