#!/usr/bin/env bash
# Sees to Python with venv and to the commands or files below / in COMMAND:PACKAGE ...: installs what is missing as root on Debian and
# Ubuntu, without starting their services; else says what is missing and what that means.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

PATH=$PATH:/usr/sbin:/sbin # daemons lie where not everybody's PATH leads
missing=()
for pair in "$@"; do
  [ -e "/${pair%%:*}" ] || command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair##*:}") # a file, or a command
done
has_python() { [ -x .venv/bin/python ] || bash "$here/find-python.sh" >/dev/null; }
can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; }
install() {
  local policy=/usr/sbin/policy-rc.d # what packages ask before they start a service
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Debian's rule for udev opens it to everybody; a machine without udev has it for root alone.
if [ "$(id -u)" -eq 0 ] && [ -c /dev/fuse ]; then
  chmod a+rw /dev/fuse
fi
if [ ${#missing[@]} -eq 0 ] && has_python; then
  exit 0
fi
if can_install; then
  apt-get update -qq
  if [ ${#missing[@]} -gt 0 ]; then
    echo "installing system packages: ${missing[*]}"
    install "${missing[@]}"
  fi
  if ! has_python; then
    echo "installing system packages: python3 python3-venv"
    install python3 python3-venv
  fi
  if ! has_python; then # an older release, whose python3 is below 3.11
    echo "installing system packages: python3.11 python3.11-venv"
    install python3.11 python3.11-venv || true
  fi
elif [ ${#missing[@]} -gt 0 ]; then
  echo "missing: ${missing[*]} (sudo apt-get install ${missing[*]}); what needs them fails until then" >&2
fi
if ! has_python; then
  echo "Cordée needs Python 3.11 to 3.14 with venv, and none was found." >&2
  echo "Install it (Debian 12, Ubuntu 24.04: sudo apt-get install python3 python3-venv) and run make again." >&2
  exit 1
fi
