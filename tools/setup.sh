#!/usr/bin/env bash
# Installs what Sluice needs on Debian 12 or 13 (or Ubuntu 24.04) and makes the Python environment; skips what is there.
# DRY_RUN=1 prints the commands and changes nothing. usage: tools/setup.sh [demo|serving|docs|fuzz|bench]
#   demo: only what building and running the first examples needs. serving: that, and the server's example.
#   docs: what `make docs` needs. fuzz: everything, and what fuzzing needs. bench: everything, and peers of serve.*.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=${1:-all}

# Package names differ between the systems in a few places: Boost by its version, libjpeg-turbo, clang.
. /etc/os-release 2>/dev/null || true
system=${ID:-}${VERSION_ID:-}
known=1 boost=(libboost-dev libboost-json-dev) jpeg=libjpeg62-turbo-dev clang=19
case "$system" in
debian12) boost=(libboost1.81-dev libboost-json1.81-dev) clang=16 ;;  # the default Boost of this system is 1.74
debian13) ;;
ubuntu24.04) jpeg=libjpeg-turbo8-dev clang=18 ;;
*) known= ;;
esac

packages=(
  g++ cmake ninja-build ccache python3 python3-dev python3-venv                   # tools
  libcaf-dev libdnnl-dev libhwy-dev libeigen3-dev libgloo-dev                     # actors, kernels, collectives
  "$jpeg" libpng-dev libwebp-dev                                                  # images
  libspdlog-dev libfmt-dev libcli11-dev "${boost[@]}"                             # logging, command line, JSON
  esbuild                                                                         # the page of plan-viz
)
requirements=(requirements-demo.txt)
if [ "$wanted" != demo ]; then
  packages+=(protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libssl-dev zlib1g-dev)
  requirements+=(requirements-serving.txt)
fi
case "$wanted" in
demo|serving) ;;
docs) requirements+=(requirements-docs.txt) ;;
*)
  packages+=(
    git libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev iproute2     # tests
    pkg-config dpkg-dev file debootstrap zsh curl                                 # packaging, shells, commands of pages
    libtbb-dev graphviz chromium node-typescript nodejs                           # benchmark peer, drawings, page tests
    gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm make                # plans as C for microcontrollers
    "clang-$clang"                                                                # analysis of locks
  )
  requirements+=(requirements.txt requirements-docs.txt)
  ;;
esac
if [ "$wanted" = fuzz ]; then
  # libFuzzer; the build looks for OpenMP even where it is not used.
  packages+=("libclang-rt-$clang-dev" "libomp-$clang-dev")
fi

[ "$wanted" != bench ] || requirements+=(requirements-bench.txt)

run() {
  if [ "${DRY_RUN:-}" = 1 ]; then echo "$*"; else "$@"; fi
}
as_root() {
  if [ "$(id -u)" -eq 0 ]; then run "$@"; else run sudo "$@"; fi
}

if [ "$known" ]; then
  missing=()
  for package in "${packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
  fi
elif ! { command -v cmake && command -v ninja && [ -f /usr/include/caf/all.hpp ]; } >/dev/null 2>&1; then
  cat >&2 <<TXT
setup: this system is ${PRETTY_NAME:-unknown}: packages are installed by themselves on Debian 12 and 13 and Ubuntu 24.04.
Install these first (Debian's names), then run make again:
  ${packages[*]}
Versions: g++ >= 12, CMake >= 3.25, CAF 0.17, oneDNN >= 2.6, Highway >= 1.0, Eigen >= 3.4, Gloo 0.5, Boost >= 1.81, libjpeg-turbo >= 2.1, libpng >= 1.6, libwebp >= 1.2 (without it, no WebP files are read), gRPC >= 1.51, protobuf >= 3.21.
TXT
  exit 1
fi

# The interpreter's own header files are needed, so a python3 without them gives way to the system's.
python=python3
"$python" -c 'import sysconfig, os, sys; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' || python=/usr/bin/python3
for list in "${requirements[@]}"; do
  stamp=.venv/${list%.txt}.stamp
  cmp -s "$list" "$stamp" && continue
  [ -x .venv/bin/python ] || run "$python" -m venv .venv
  run .venv/bin/python -m pip install -q --disable-pip-version-check -r "$list"
  run cp "$list" "$stamp"
done
case "$wanted" in demo|serving|docs) exit 0 ;; esac

# Packages of models lie beside the environment, not in it: torchvision's library is built for one build of torch, and beside another
# one every package that imports torchvision where it finds it fails; the others bring versions of what is in the environment.
# Their Python is all that tests use.
beside() {  # FOLDER LIST
  cmp -s "$2" "$1/requirements.stamp" && return
  run .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --upgrade --target "$1" -r "$2"
  run cp "$2" "$1/requirements.stamp"
}
beside .venv/torchvision requirements-models.txt
beside .venv/ecosystem requirements-ecosystem.txt

# ONNX's checker, its tests of nodes and its runtime, which are oracles of tests and nothing that Sluice needs, lie beside it, too.
beside .venv/onnx requirements-onnx.txt

# What foreign backends adapt lies beside it as well: OpenVINO, and a oneDNN 3 with its headers, which is not the system's.
beside .venv/openvino requirements-openvino.txt
under() {  # FOLDER LIST: packages that are no Python, as a prefix with include/ and lib/
  cmp -s "$2" "$1/requirements.stamp" && return
  run .venv/bin/python -m pip install -q --disable-pip-version-check --no-deps --ignore-installed --prefix "$1" -r "$2"
  run cp "$2" "$1/requirements.stamp"
}
under .venv/onednn requirements-onednn.txt

# Where CUDA's headers are, those of its libraries belong beside them.
cuda=.venv/cuda/include
if [ -f "${CUDA_PATH:-/usr/local/cuda}/include/cuda.h" ] && ! cmp -s requirements-cuda.txt "$cuda/requirements.stamp"; then
  if run tools/cuda_headers.sh .venv/bin/python "$cuda"; then
    run cp requirements-cuda.txt "$cuda/requirements.stamp"
  else
    echo "setup: the headers of cuBLASLt, cuDNN and NCCL could not be had; the CUDA backend is left out" >&2
  fi
fi
