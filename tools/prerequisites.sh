#!/bin/sh
# Says by name what is missing for `make demo` or `make test`; as root on Debian it installs it instead.
# usage: prerequisites.sh demo|test     PYTHON names the interpreter to use
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
PATH=$PATH:/usr/sbin:/sbin # where ip and ethtool are, not on every user's PATH
packages='' problems=''

# want COMMAND PACKAGE: the package that has the command is to be installed if the command is not there.
want() {
    command -v "$1" >/dev/null 2>&1 || packages="$packages $2"
}

# version_below A B: whether version A is lower than version B.
version_below() {
    [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]
}

want "$PYTHON" python3
if command -v "$PYTHON" >/dev/null 2>&1; then
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || packages="$packages python3-venv"
else
    packages="$packages python3-venv"
fi
command -v cc >/dev/null 2>&1 || packages="$packages gcc libc6-dev"
required=$packages
want sigrok-cli sigrok-cli # reads captures beside our own readers, and records in the tests of pcicap
want ip iproute2           # network namespaces, between which the tests send frames
want ping iputils-ping     # driven by pcicap ping
want iperf3 iperf3         # driven by pcicap tcp
want ethtool ethtool       # settings of their interfaces
want unshare util-linux    # makes the namespaces
[ "$1" = test ] && want chromium chromium # opens the report as a reader would
[ "$1" = test ] && want tsc node-typescript # checks the types of the view's JavaScript; users need no Node
[ "$1" = test ] && want irtt irtt # driven by pcicap ping
[ "$1" = test ] && want nuttcp nuttcp # driven by pcicap tcp
[ "$1" = test ] && want NPtcp netpipe-tcp # the same
[ "$1" = test ] && want lspci pciutils # reads what `pcitrace devices --lspci` writes
[ "$1" = test ] && want tshark tshark # reads what `pcitrace export --to pcapng` writes
[ "$1" = test ] && want vcd2fst gtkwave # writes FST, reads it back, and shows what is exported to it
[ "$1" = test ] && want xvfb-run xvfb # a screen for it
[ "$1" = test ] && want xauth xauth # without which xvfb-run makes none
[ "$1" = test ] && required=$packages # make demo leaves out what it cannot do

if [ -n "$packages" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing$packages"
    # shellcheck disable=SC2086  # a list of words
    if apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null
    then
        required=''
    fi
fi
if [ -n "$required" ]; then
    problems="$problems
  packages:$required    (as root: apt-get install$required)"
fi

if command -v "$PYTHON" >/dev/null 2>&1; then
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || problems="$problems
  Python 3.11 or later: $PYTHON is $("$PYTHON" -c 'import platform; print(platform.python_version())')    (PYTHON=python3.12 make ... chooses another)"
fi

# The Rust toolchain: Debian 13 has rustup, which fetches any version; elsewhere one command does.
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
has_cargo() {
    command -v cargo >/dev/null 2>&1 && ! version_below "$(cargo --version | cut -d ' ' -f 2)" "$msrv"
}
if ! has_cargo && [ "$(id -u)" = 0 ] && apt-cache show rustup >/dev/null 2>&1; then
    echo "installing rustup, and with it Rust"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends rustup >/dev/null &&
        rustup default stable >/dev/null || true
fi
if ! has_cargo; then
    found=$(command -v cargo >/dev/null 2>&1 && cargo --version | cut -d ' ' -f 2 || echo none)
    problems="$problems
  cargo $msrv or later: found $found    (curl --proto '=https' -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal; then a new shell)"
fi

if [ -n "$problems" ]; then
    echo "missing:$problems" >&2
    exit 1
fi
