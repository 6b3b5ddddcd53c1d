#include "store/net_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <cstring>

namespace barg::store {
namespace {

constexpr std::size_t kGatherBytes = 16 * 1024;  // a TLS record

std::string openssl_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : "error " + std::to_string(code);
}

// A BIO over the socket's descriptor whose writes raise no SIGPIPE (OpenSSL's own socket BIO uses write()).
int bio_fd(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }

int bio_moved(BIO* bio, ssize_t n, int retry_flag) {
  BIO_clear_retry_flags(bio);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_flags(bio, retry_flag);
  return static_cast<int>(n);
}
int bio_read(BIO* bio, char* data, int size) {
  return bio_moved(bio, ::recv(bio_fd(bio), data, static_cast<std::size_t>(size), MSG_DONTWAIT),
                   BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY);
}
int bio_write(BIO* bio, const char* data, int size) {
  return bio_moved(bio,
                   ::send(bio_fd(bio), data, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL),
                   BIO_FLAGS_WRITE | BIO_FLAGS_SHOULD_RETRY);
}
long bio_ctrl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO_METHOD* bio_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "socket");
    if (m != nullptr) {
      BIO_meth_set_read(m, bio_read);
      BIO_meth_set_write(m, bio_write);
      BIO_meth_set_ctrl(m, bio_ctrl);
    }
    return m;
  }();
  return method;
}

std::unexpected<Error> tls_error(const std::string& what) {
  return fail(ErrorCode::kInvalidValue, "TLS to the Redis server: " + what + ": " + openssl_reason());
}

}  // namespace

Result<TlsContext> make_tls_context(const TlsOptions& o) {
  ERR_clear_error();
  TlsContext ctx(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  if (ctx == nullptr) return tls_error("cannot be set up");
  SSL_CTX_set_min_proto_version(ctx.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(ctx.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(ctx.get(), o.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!o.ca_file.empty()) {
    if (SSL_CTX_load_verify_locations(ctx.get(), o.ca_file.c_str(), nullptr) != 1) {
      return tls_error("cannot read the CA file " + o.ca_file);
    }
  } else if (o.verify && SSL_CTX_set_default_verify_paths(ctx.get()) != 1) {
    return tls_error("cannot read the system's certificates");
  }
  if (o.cert_file.empty() != o.key_file.empty()) {
    return fail(ErrorCode::kInvalidValue,
                "TLS to the Redis server: a certificate and its key are given together");
  }
  if (!o.cert_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(ctx.get(), o.cert_file.c_str()) != 1) {
      return tls_error("cannot read the certificate " + o.cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(ctx.get(), o.key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
      return tls_error("cannot read the key " + o.key_file);
    }
  }
  return ctx;
}

bool NetStream::prepare(const TlsContext& tls, bool verify, const std::string& host) {
  boost::system::error_code ec;
  socket_.non_blocking(true, ec);
  if (ec) {
    error_ = ec.message();
    return false;
  }
  const int one = 1;  // refused by a unix socket, which does not need it
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (tls == nullptr) return true;

  ERR_clear_error();
  ssl_.reset(SSL_new(tls.get()));
  BIO* bio = bio_method() != nullptr ? BIO_new(bio_method()) : nullptr;
  if (ssl_ == nullptr || bio == nullptr) {
    BIO_free(bio);
    error_ = "TLS: " + openssl_reason();
    return false;
  }
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket_.native_handle())));
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);  // the session owns it
  boost::asio::ip::make_address(host, ec);
  const bool is_name = static_cast<bool>(ec);
  bool ok = !is_name || SSL_set_tlsext_host_name(ssl_.get(), host.c_str()) == 1;
  if (verify) {
    X509_VERIFY_PARAM* param = SSL_get0_param(ssl_.get());
    ok = ok && (is_name ? X509_VERIFY_PARAM_set1_host(param, host.c_str(), host.size())
                        : X509_VERIFY_PARAM_set1_ip_asc(param, host.c_str())) == 1;
  }
  if (!ok) error_ = "TLS: " + openssl_reason();
  SSL_set_connect_state(ssl_.get());
  return ok;
}

NetStream::Io NetStream::tls_result(int returned, const char* doing) {
  const int saved = errno;
  switch (SSL_get_error(ssl_.get(), returned)) {
    case SSL_ERROR_WANT_READ:
      return Io::kWantRead;
    case SSL_ERROR_WANT_WRITE:
      return Io::kWantWrite;
    case SSL_ERROR_ZERO_RETURN:
      return Io::kClosed;
    case SSL_ERROR_SYSCALL:
      error_ =
          std::string("TLS ") + doing + ": " + (saved != 0 ? std::strerror(saved) : "the connection ended");
      ERR_clear_error();
      return Io::kFailed;
    default:
      break;
  }
  const long verified = SSL_get_verify_result(ssl_.get());
  error_ = std::string("TLS ") + doing + ": ";
  error_ += verified != X509_V_OK ? X509_verify_cert_error_string(verified) : openssl_reason();
  ERR_clear_error();
  return Io::kFailed;
}

NetStream::Io NetStream::handshake() {
  if (ssl_ == nullptr) return Io::kDone;
  ERR_clear_error();
  errno = 0;
  const int r = SSL_connect(ssl_.get());
  return r == 1 ? Io::kDone : tls_result(r, "handshake");
}

NetStream::Io NetStream::read(const iovec* buffers, int count, std::size_t& moved) {
  moved = 0;
  if (ssl_ != nullptr) {
    ERR_clear_error();
    errno = 0;
    const int r = SSL_read_ex(ssl_.get(), buffers[0].iov_base, buffers[0].iov_len, &moved);
    return r == 1 ? Io::kDone : tls_result(r, "read");
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(buffers);
  message.msg_iovlen = static_cast<std::size_t>(count);
  const ssize_t n = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT);
  if (n > 0) {
    moved = static_cast<std::size_t>(n);
    return Io::kDone;
  }
  if (n == 0) return Io::kClosed;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::kWantRead;
  error_ = std::strerror(errno);
  return Io::kFailed;
}

NetStream::Io NetStream::write(const iovec* buffers, int count, std::size_t& moved) {
  moved = 0;
  if (ssl_ != nullptr) {
    const void* data = buffers[0].iov_base;
    std::size_t size = buffers[0].iov_len;
    if (size < kGatherBytes && count > 1) {
      // The same bytes again after kWantWrite, as OpenSSL demands: what is queued changes only by growing.
      if (gather_ == nullptr) gather_ = std::make_unique<char[]>(kGatherBytes);
      size = 0;
      for (int i = 0; i < count && size < kGatherBytes; ++i) {
        const std::size_t n = std::min(buffers[i].iov_len, kGatherBytes - size);
        std::memcpy(gather_.get() + size, buffers[i].iov_base, n);
        size += n;
      }
      data = gather_.get();
    }
    ERR_clear_error();
    errno = 0;
    const int r = SSL_write_ex(ssl_.get(), data, size, &moved);
    return r == 1 ? Io::kDone : tls_result(r, "write");
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(buffers);
  message.msg_iovlen = static_cast<std::size_t>(count);
  const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) {
    moved = static_cast<std::size_t>(n);
    return Io::kDone;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Io::kWantWrite;
  if (errno == EPIPE || errno == ECONNRESET) return Io::kClosed;
  error_ = std::strerror(errno);
  return Io::kFailed;
}

void NetStream::close() {
  ssl_.reset();
  boost::system::error_code ec;
  socket_.close(ec);
  error_.clear();
}

}  // namespace barg::store
