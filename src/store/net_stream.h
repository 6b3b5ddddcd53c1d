// A stream to a server: TCP or a unix socket, with TLS on top if asked for. Never blocks.
//
// Reads and writes are tried when the socket is ready instead of being handed to Asio as pending operations:
// so no buffer is promised to anybody while the stream waits, and the memory of a read that was given up is
// free at once. TLS is OpenSSL over the socket (asio's ssl stream knows only pending operations). One thread.
// Owns the socket and the TLS session.
#pragma once

#include <openssl/ssl.h>
#include <sys/uio.h>

#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <memory>
#include <string>

#include "barg/result.h"

namespace barg::store {

/// Shared by the streams of a tier: what is trusted, and what is shown.
struct TlsOptions {
  std::string ca_file, cert_file, key_file;
  bool verify = true;
};
using TlsContext = std::shared_ptr<SSL_CTX>;
Result<TlsContext> make_tls_context(const TlsOptions& options);

class NetStream {
 public:
  enum class Io : std::uint8_t {
    kDone,
    kWantRead,   ///< again when the socket is readable
    kWantWrite,  ///< again when it is writable
    kClosed,     ///< the server closed it
    kFailed,     ///< error()
  };
  using Socket = boost::asio::generic::stream_protocol::socket;

  explicit NetStream(boost::asio::io_context& io) : socket_(io) {}
  NetStream(const NetStream&) = delete;
  NetStream& operator=(const NetStream&) = delete;
  ~NetStream() { close(); }

  Socket& socket() { return socket_; }

  /// After connect: options of the socket, and a TLS session that expects a certificate for `host`.
  bool prepare(const TlsContext& tls, bool verify, const std::string& host);
  Io handshake();

  /// Up to `count` buffers; at least one byte with kDone, `moved` says how many.
  Io read(const iovec* buffers, int count, std::size_t& moved);
  Io write(const iovec* buffers, int count, std::size_t& moved);

  void close();
  const std::string& error() const { return error_; }

 private:
  Io tls_result(int returned, const char* doing);

  Socket socket_;
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, &SSL_free};
  std::unique_ptr<char[]> gather_;  ///< small buffers of a TLS write become one record
  std::string error_;
};

}  // namespace barg::store
