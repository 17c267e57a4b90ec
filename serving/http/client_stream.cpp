#include "serving/http/client_stream.h"

#include <openssl/ssl.h>

#include "serving/core/error.h"

namespace sluice::serving {

namespace ssl = boost::asio::ssl;

std::shared_ptr<TlsContext> make_tls(const TlsOptions& options) {
  check_tls("http", options);
  if (!options.on) return nullptr;
  auto context = std::make_shared<TlsContext>(ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  boost::system::error_code error;
  const auto check = [&](const char* what, const std::string& file) {
    if (error) wrong("http: " + std::string(what) + " '" + file + "': " + error.message());
  };
  const auto pem = [](const char* what, const std::string& file) { return read_pem("http", what, file); };
  const std::string certificate = pem("certificate", options.certificate), key = pem("key", options.key);
  context->use_certificate_chain(boost::asio::buffer(certificate), error);
  check("certificate", options.certificate);
  context->use_private_key(boost::asio::buffer(key), ssl::context::pem, error);
  check("key", options.key);
  if (options.root.empty()) return context;
  const std::string root = pem("root certificate", options.root);
  context->add_certificate_authority(boost::asio::buffer(root), error);
  check("root certificate", options.root);
  context->set_verify_mode(options.mutual ? ssl::verify_peer | ssl::verify_fail_if_no_peer_cert : ssl::verify_none);
  return context;
}

}  // namespace sluice::serving
